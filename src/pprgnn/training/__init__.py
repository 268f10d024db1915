"""From a graph to a model: settings, training, runs, predictions. Names are imported when first used.

`pprgnn.training.train.train(config)` does it all; :class:`NodeClassifier` and :class:`GraphClassifier` wrap it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pprgnn.training.classifier import GraphClassifier as GraphClassifier
    from pprgnn.training.classifier import NodeClassifier as NodeClassifier
    from pprgnn.training.config import Config as Config
    from pprgnn.training.errors import TrainingError as TrainingError
    from pprgnn.training.listener import Listener as Listener
    from pprgnn.training.loop import Training as Training
    from pprgnn.training.model import Model as Model
    from pprgnn.training.run import Run as Run
    from pprgnn.training.study import Study as Study

_MODULE_OF = {
    "Config": "config",
    "GraphClassifier": "classifier",
    "Listener": "listener",
    "Model": "model",
    "NodeClassifier": "classifier",
    "Run": "run",
    "Study": "study",
    "Training": "loop",
    "TrainingError": "errors",
}
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        return value
    raise AttributeError(f"module 'pprgnn.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
