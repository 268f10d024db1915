import sys
from pathlib import Path

# The benchmark is not installed with the package: make it importable also for a bare `pytest`.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
