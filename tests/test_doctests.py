"""Every example in a docstring of the core runs and gives what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

import pprgnn.core

MODULES = sorted(path.stem for path in Path(pprgnn.core.__file__).parent.glob("*.py"))
WITH_EXAMPLES = {"activation", "adjacency", "pagerank", "solve"}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"pprgnn.core.{name}".removesuffix(".__init__")))
    assert result.failed == 0
    assert result.attempted > 0 or name not in WITH_EXAMPLES
