"""From a graph to a model: settings, training, runs, predictions. Names are imported when first used.

`pprgnn.training.train.train(config)` does it all; :class:`NodeClassifier` and :class:`GraphClassifier` wrap it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "Config",
    "GraphClassifier",
    "Listener",
    "Model",
    "NodeClassifier",
    "Run",
    "Study",
    "Training",
    "TrainingError",
]

if TYPE_CHECKING:
    from pprgnn.training.classifier import GraphClassifier, NodeClassifier
    from pprgnn.training.config import Config
    from pprgnn.training.errors import TrainingError
    from pprgnn.training.listener import Listener
    from pprgnn.training.loop import Training
    from pprgnn.training.model import Model
    from pprgnn.training.run import Run
    from pprgnn.training.study import Study

_HOME = {
    "classifier": ("GraphClassifier", "NodeClassifier"),
    "config": ("Config",),
    "errors": ("TrainingError",),
    "listener": ("Listener",),
    "loop": ("Training",),
    "model": ("Model",),
    "run": ("Run",),
    "study": ("Study",),
}
_MODULE_OF = {name: f"pprgnn.training.{module}" for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value
    raise AttributeError(f"module 'pprgnn.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
