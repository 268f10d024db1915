"""A running average of the weights: it generalises better than the last ones, and its validation is less noisy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WARM_UP = 10  # steps in which the start still counts little


class RunningAverage:
    """Follows the weights of a network; within ``with average:`` the network has the averaged ones."""

    def __init__(self, network: nn.Module, keep: float) -> None:
        self.keep, self.steps = keep, 0
        self.names, self.parameters = map(list, zip(*network.named_parameters(), strict=True))
        self.tensors = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def follow(self) -> None:
        """Move towards the weights after a step."""
        self.steps += 1
        keep = min(self.keep, self.steps / (self.steps + WARM_UP))
        torch._foreach_lerp_(self.tensors, [p.detach() for p in self.parameters], 1 - keep)

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *_: object) -> None:
        self._swap()

    def _swap(self) -> None:
        """Exchange the two, without copying."""
        for number, parameter in enumerate(self.parameters):
            parameter.data, self.tensors[number] = self.tensors[number], parameter.data

    def state(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return dict(zip(self.names, self.tensors, strict=True)) | {"steps": torch.tensor(self.steps)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what :meth:`state` put down."""
        self.steps = int(state["steps"])
        for name, tensor in zip(self.names, self.tensors, strict=True):
            tensor.copy_(state[name])
