"""The explorer: a local page that shows why a model decided as it did. `pprgnn explore RUN` starts it."""
