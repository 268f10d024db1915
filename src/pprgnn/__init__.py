"""Infinite-depth graph neural networks: exact, certified and fast."""

from pprgnn.core.activation import Activation, leaky_relu
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.buffers import release_buffers
from pprgnn.core.depth import Certificate, DepthMemory, DepthRule, Fixed, Influence, Measured
from pprgnn.core.pagerank import pagerank
from pprgnn.core.solution import ConvergenceWarning, Solution, Status
from pprgnn.core.solve import solve

__version__ = "0.1.0"
__all__ = [
    "Activation",
    "Adjacency",
    "Certificate",
    "ConvergenceWarning",
    "DepthMemory",
    "DepthRule",
    "Fixed",
    "Influence",
    "Measured",
    "Solution",
    "Status",
    "leaky_relu",
    "pagerank",
    "release_buffers",
    "solve",
]
