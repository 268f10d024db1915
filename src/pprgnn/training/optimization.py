"""Optimiser and learning-rate schedule of a config; both can be put down and taken up again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pprgnn.nn.network import Network, ppr_layers
from pprgnn.training.config import TrainingConfig

WARM_UP = 0.3  # one-cycle: share of the steps in which the rate rises ...
FROM, TO = 1 / 25, 1e-4  # ... from this part of its peak; and where it ends


def make_optimizer(network: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Adam or AdamW, in the version that makes one pass over memory; the recursions' W may move differently."""
    parameters, recursion = list(network.parameters()), {id(p) for p in _slow_parameters(network)}
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    decay = config.recursion_weight_decay
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if id(p) not in recursion]},
        {
            "params": [p for p in parameters if id(p) in recursion],
            "lr": config.lr * config.recursion_lr,
            "weight_decay": config.weight_decay if decay == "same" else decay,
        },
    ]
    groups = [group for group in groups if group["params"]]
    return kind(groups, lr=config.lr, weight_decay=config.weight_decay, fused=fused)


def _slow_parameters(network: nn.Module) -> Iterator[nn.Parameter]:
    """Those with a rate and decay of their own: where it is no network of ours, W of the recursions."""
    if isinstance(network, Network):
        return network.slow_parameters()
    return (layer.weight for _, layer in ppr_layers(network))


class Schedule:
    """How the learning rate moves: after each step (one-cycle, cosine) or after each epoch (plateau).

    The rates of each step are set here: torch's schedulers take a tenth of a small training step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, config: TrainingConfig, steps_per_epoch: int) -> None:
        self.optimizer = optimizer
        self.peaks = [float(group["lr"]) for group in optimizer.param_groups]
        self.steps, self.step = config.epochs * steps_per_epoch, 0
        self.shape = {"one-cycle": one_cycle, "cosine": cosine}.get(config.schedule)
        self.plateau: ReduceLROnPlateau | None = None
        if config.schedule == "plateau":
            self.plateau = ReduceLROnPlateau(
                optimizer, factor=config.plateau_factor, patience=config.plateau_patience
            )
        self._set_rates()

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def after_step(self) -> None:
        """Move on by a step."""
        self.step += 1
        self._set_rates()

    def _set_rates(self) -> None:
        if self.shape is not None:
            share = self.shape(self.step / self.steps)
            for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
                group["lr"] = peak * share

    def after_epoch(self, loss: float) -> None:
        """Move on by an epoch with this training loss."""
        if self.plateau is not None:
            self.plateau.step(loss)

    def state(self) -> dict[str, Any]:
        """For JSON."""
        if self.plateau is None:
            return {"last_epoch": self.step, "base_lrs": self.peaks}  # by the names that torch's schedulers use
        plain = (int, float, str, bool, list, type(None))
        return {key: value for key, value in self.plateau.state_dict().items() if isinstance(value, plain)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`state` put down."""
        if self.plateau is not None:
            self.plateau.load_state_dict(state)
        elif self.shape is not None:
            self.step, self.peaks = int(state["last_epoch"]), [float(each) for each in state["base_lrs"]]


def one_cycle(progress: float) -> float:
    """Up to the full rate, then down to almost nothing, both along a cosine."""
    if progress < WARM_UP:
        return _cosine(FROM, 1.0, progress / WARM_UP)
    return _cosine(1.0, TO, min(1.0, (progress - WARM_UP) / (1 - WARM_UP)))


def cosine(progress: float) -> float:
    """From the full rate down to 0."""
    return _cosine(1.0, 0.0, min(1.0, progress))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def clip_gradient(network: nn.Module, limit: float) -> Tensor:
    """The norm of the gradient, which is scaled down to ``limit``; 0: left as it is."""
    if limit:
        return torch.nn.utils.clip_grad_norm_(network.parameters(), limit)
    norms = [torch.linalg.vector_norm(p.grad) for p in network.parameters() if p.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """The moments as named tensors, and the groups for JSON."""
    state = optimizer.state_dict()
    tensors = {
        f"{number}.{key}": torch.as_tensor(value)
        for number, moments in state["state"].items()
        for key, value in moments.items()
    }
    return tensors, state["param_groups"]


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    """Take up what :func:`optimizer_state` put down."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, key = name.partition(".")
        state.setdefault(int(number), {})[key] = tensor.clone()  # the file behind it will be replaced
    optimizer.load_state_dict({"state": state, "param_groups": groups})
