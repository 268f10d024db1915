"""Everything one can train on: known data sets by name, and a user's own graph."""
