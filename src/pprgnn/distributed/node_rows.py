"""Tensors with a row for each node of a graph in parts: learned rows, and what an optimiser keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pprgnn.distributed.part import GraphPart


class NodeRows:
    """From the rows of a part to those of the whole graph, in the caller's order, and back."""

    def __init__(self, part: GraphPart) -> None:
        self.own, self.team = part.nodes, part.team
        self._all = self.team.rows(self.own)  # ``None`` in all but the first process

    def whole(self, tensors: Mapping[str, Tensor], has_rows: Callable[[str], bool]) -> dict[str, Tensor]:
        """Those that have rows of nodes, put together; only the first process gets them, the others get theirs."""
        result = {}
        for name, tensor in tensors.items():
            if has_rows(name):
                rows = self.team.rows(tensor)
                if rows is not None:
                    assert self._all is not None
                    tensor = torch.empty_like(rows).index_copy_(0, self._all, rows)
            result[name] = tensor
        return result

    def part(self, tensor: Tensor) -> Tensor:
        """Of a tensor with rows for all nodes, those of this part."""
        return tensor[self.own.to(tensor.device)]
