"""Every example in a docstring of the package runs and gives what it says."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import pprgnn

EXTRAS = {
    "fastapi",
    "grakel",
    "jinja2",
    "matplotlib",
    "networkx",
    "onnx",
    "optuna",
    "pymetis",
    "sklearn",
    "uvicorn",
}


def _has_examples(module: pkgutil.ModuleInfo) -> bool:
    origin = module.module_finder.find_spec(module.name).origin
    return origin is not None and origin.endswith(".py") and ">>> " in Path(origin).read_text()


MODULES = sorted(m.name for m in pkgutil.walk_packages(pprgnn.__path__, "pprgnn.") if _has_examples(m))


def test_the_rooms_have_examples():
    assert {name.split(".")[1] for name in MODULES} >= {"baselines", "core", "nn", "testing", "training"}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in EXTRAS:
            pytest.skip(f"needs {error.name}, which is not installed")
        raise
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted > 0
