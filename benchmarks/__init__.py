"""Speed and memory, measured: ``python -m benchmarks.run`` (or ``make bench``)."""
