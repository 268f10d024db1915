"""Infinite-depth graph neural networks: exact, certified and fast."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Activation",
    "Adjacency",
    "Certificate",
    "Checkpointed",
    "ConvergenceWarning",
    "DepthMemory",
    "DepthRule",
    "Fixed",
    "Full",
    "GraphClassifier",
    "Influence",
    "Measured",
    "NodeClassifier",
    "Solution",
    "Status",
    "Truncated",
    "leaky_relu",
    "pagerank",
    "release_buffers",
    "solve",
    "solve_steps",
    "states_on_disk",
]

if TYPE_CHECKING:
    from pprgnn.core.activation import Activation, leaky_relu
    from pprgnn.core.adjacency import Adjacency
    from pprgnn.core.adjoint import Checkpointed, Full, Truncated
    from pprgnn.core.backend.buffers import release_buffers, states_on_disk
    from pprgnn.core.depth import Certificate, DepthRule, Fixed, Influence, Measured
    from pprgnn.core.depth_memory import DepthMemory
    from pprgnn.core.pagerank import pagerank
    from pprgnn.core.solution import ConvergenceWarning, Solution, Status
    from pprgnn.core.solve import solve
    from pprgnn.core.steps import solve_steps
    from pprgnn.training.classifier import GraphClassifier, NodeClassifier

# Names are imported when they are first used: torch takes seconds to load, and `--help` does not need it.
_HOME = {
    "activation": ("Activation", "leaky_relu"),
    "adjacency": ("Adjacency",),
    "adjoint": ("Checkpointed", "Full", "Truncated"),
    "backend.buffers": ("release_buffers", "states_on_disk"),
    "depth": ("Certificate", "DepthRule", "Fixed", "Influence", "Measured"),
    "depth_memory": ("DepthMemory",),
    "pagerank": ("pagerank",),
    "solution": ("ConvergenceWarning", "Solution", "Status"),
    "solve": ("solve",),
    "steps": ("solve_steps",),
}
_ROOMS = ("data", "distributed", "nn", "testing", "training")
_MODULE_OF = {name: f"pprgnn.core.{module}" for module, names in _HOME.items() for name in names}
_MODULE_OF |= dict.fromkeys(("GraphClassifier", "NodeClassifier"), "pprgnn.training.classifier")


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value
    if name in _ROOMS:
        return import_module(f"pprgnn.{name}")
    raise AttributeError(f"module 'pprgnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_ROOMS])
