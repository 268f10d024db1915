"""One depth memory per size of graph, for training that goes back and forth between graphs of many sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pprgnn.core.depth import Measured, Problem
from pprgnn.core.depth_memory import DepthMemory
from pprgnn.core.solution import Depth


@dataclass
class DepthMemories:
    """A :class:`DepthMemory` for each size of graph, by factors of two.

    A single one would measure anew whenever a large batch follows a small one. A new size starts from what was
    found for the size before it: its first measurement has a good guess.
    """

    rule: Measured = field(default_factory=Measured)
    share: float = 0.05
    memories: dict[str, DepthMemory] = field(default_factory=dict, repr=False)

    def choose(self, problem: Problem, tol: float, max_depth: int, levels: int) -> Depth:
        """Re-use, adapt or measure, as the memory for such graphs says."""
        size = str(problem.graph[0].bit_length())
        if size not in self.memories:
            self.memories[size] = DepthMemory(self.rule, self.share)
            if len(self.memories) > 1:
                self.memories[size].learn_from(list(self.memories.values())[-2])
        return self.memories[size].choose(problem, tol, max_depth, levels)

    @property
    def measurements(self) -> int:
        """How often depths were measured so far."""
        return sum(memory.measurements for memory in self.memories.values())

    def forget(self) -> None:
        """Measure again at the next opportunity."""
        for memory in self.memories.values():
            memory.forget()

    def state(self) -> dict[str, dict[str, Any]]:
        """The state of each memory; see :meth:`DepthMemory.state`."""
        return {size: memory.state() for size, memory in self.memories.items()}

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Take back what :meth:`state` gave."""
        self.memories = {size: DepthMemory(self.rule, self.share) for size in state}
        for size, memory in self.memories.items():
            memory.restore(state[size])
