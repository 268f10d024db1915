"""An adjacency that answers recursions itself, instead of being solved on."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.solution import Solution


class SolvingAdjacency(Adjacency):
    """Some rows of a graph whose states are found in a way of their own: a proved neighbourhood, or known states.

    Layers run on it as on any adjacency.

    Attributes:
        nodes: the caller's number of each row.
    """

    nodes: Any

    @abstractmethod
    def solve(
        self, layer: Tensor, b: Tensor, weight: Tensor, eps: float | Tensor, activation: Activation
    ) -> Solution:
        """The recursion of the layer with this handle."""
