"""Settings that hold for every test."""

import gc
import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from .browser import browser, loop_of_the_browser

__all__ = ["browser", "data_root", "loop_of_the_browser"]

# Derandomised: a red build is red for everybody. No deadline: the machine may be shared.
settings.register_profile("pprgnn", derandomize=True, deadline=None, max_examples=40, database=None)
settings.load_profile("pprgnn")

# Drawing a report takes seconds: only its own tests do. Processes that tests start inherit this.
os.environ["PPRGNN_REPORT"] = "0"

# Inductor compiles here: processes of its own, for each worker of the tests, would have to import torch first.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

torch.set_num_threads(1)  # the tensors here are tiny; waking a second thread costs more than it saves


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of every later collection of garbage, which walks all of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The directory of the real data sets; tests that need it are skipped without it."""
    root = os.environ.get("PPRGNN_DATA")
    if not root:
        pytest.skip("needs real data: set PPRGNN_DATA to the directory of the data sets")
    if not Path(root).is_dir():
        pytest.skip(f"needs real data: PPRGNN_DATA={root} is not a directory")
    return Path(root)
