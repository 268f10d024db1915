"""How weights move: loss, optimiser, schedule, averaged weights, and what stops a run that diverges."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pprgnn.core.solution import ConvergenceWarning, Status
from pprgnn.distributed.team import Team
from pprgnn.nn.infinite_layer import infinite_layers
from pprgnn.nn.network import Network, ppr_layers
from pprgnn.training.config import TrainingConfig
from pprgnn.training.errors import TrainingError
from pprgnn.training.metrics import check_shapes, check_truth
from pprgnn.training.model import largest_norm, smallest_eps, weight_norm

POS_WEIGHT_RANGE = (1.0, 100.0)  # a label that two rows in a million have must not drown the others
WARM_UP = 0.3  # one-cycle: share of the steps in which the rate rises ...
FROM, TO = 1 / 25, 1e-4  # ... from this part of its peak; and where it ends
AVERAGE_WARM_UP = 10  # steps of a running average in which the start still counts little
EXPLODED = 1e4  # times the smallest loss so far, or 1


# ---------------------------------------------------------------------------------------------------------- loss
class Objective:
    """The mean loss of a batch.

    One class per row: cross entropy; ``class_weights`` multiply the loss of the rows of each class.
    Several labels: the logistic loss, averaged over rows and labels; ``class_weights`` multiply the loss where a
    label is present (torch's ``pos_weight``).

    The weighted sum is divided by the number of rows, not by the sum of their weights as torch does: batches then
    add up to the loss of all rows, and a batch whose classes all weigh nothing has loss 0 instead of nan.
    """

    def __init__(self, multi_label: bool, class_weights: Tensor | None = None) -> None:
        if class_weights is not None:
            usable = class_weights.dim() == 1 and bool((class_weights.isfinite() & (class_weights >= 0)).all())
            if not usable or not bool((class_weights > 0).any()):
                raise TrainingError(
                    "Class weights must be one finite number >= 0 per class and not all 0, but came as "
                    f"{class_weights.tolist()}."
                )
        self.multi_label, self.class_weights = multi_label, class_weights

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        """Mean loss, a tensor without dimensions; logits and labels are as in :func:`metrics.scores`."""
        check_shapes(logits, y, self.multi_label)
        if self.class_weights is not None:
            num_classes = logits.size(1) if self.multi_label else max(logits.size(1), 2)
            if len(self.class_weights) != num_classes:
                raise TrainingError(
                    f"There must be one class weight for each of the {num_classes} classes, but there are "
                    f"{len(self.class_weights)}."
                )
            self.class_weights = self.class_weights.to(logits)  # moved once, then at home
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), pos_weight=self.class_weights)
        if logits.size(1) == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        if self.class_weights is None:
            return F.cross_entropy(logits, y)
        return F.cross_entropy(logits, y, weight=self.class_weights, reduction="sum") / len(y)


def pooled_loss(objective: Objective, logits: Tensor, y: Tensor, team: Team) -> tuple[Tensor, Tensor, int]:
    """What the rows here add to the mean loss over the rows of all processes, to learn from; that mean; the rows.

    The sum of the gradients of what each adds is then the gradient of the mean.
    """
    if team.size == 1:
        loss = objective(logits, y)
        return loss, loss.detach(), len(y)
    rows = int(team.all_sum(len(y))[0])
    own = objective(logits, y) * (len(y) / rows) if len(y) else logits.sum() * 0.0
    return own, team.all_reduce(own.detach().clone()), rows


def balanced_weights(y: Tensor, num_classes: int, multi_label: bool) -> Tensor:
    """Weights under which all classes count alike, from the rows one trains on.

    One class per row: n / (C · count), C the number of classes that occur, as scikit-learn's "balanced": their
    mean over the rows is 1. Classes that do not occur get 0.
    Several labels: negatives / positives of each label, clipped to 1 ... 100: frequent labels are not held down,
    rare ones not blown up.
    """
    if not y.numel():
        raise TrainingError("Balanced class weights need labelled rows, but there are none; leave them out.")
    if y.dim() != 1 + multi_label or (multi_label and y.size(1) != num_classes):
        shape = f"(rows, {num_classes})" if multi_label else "(rows,)"
        raise TrainingError(f"y must have shape {shape}, but has {tuple(y.shape)}.")
    check_truth(y, num_classes, multi_label)
    if multi_label:
        positives = y.sum(0, dtype=torch.float32)
        return ((len(y) - positives) / positives).clamp(*POS_WEIGHT_RANGE)
    counts = torch.bincount(y, minlength=num_classes)
    present = counts > 0
    weights = len(y) / (present.sum() * counts.clamp(min=1))
    return torch.where(present, weights, 0.0)


@torch.no_grad()
def start_at_prior(network: Network, y: Tensor, num_classes: int) -> None:
    """Let the last bias say how frequent each class is among these labels."""
    bias = network.output_bias(num_classes)
    if bias is None:
        raise TrainingError(
            f"training.start_at_prior sets a bias that is added to the logits, but {type(network).__name__} has "
            f"none; leave it out."
        )
    several = y.dim() == 2
    counts = (y.sum(0) if several else torch.bincount(y, minlength=num_classes)).to(bias)
    share = counts.clamp(0.5, len(y) - 0.5) / len(y)  # never sure
    bias.copy_(torch.logit(share) if several else share.log())


# ----------------------------------------------------------------------------------------------------- optimiser
def make_optimizer(network: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Adam or AdamW, in the version that makes one pass over memory; the recursions' W may move differently."""
    if isinstance(network, Network):
        slow = {id(p) for p in network.slow_parameters()}
    else:  # no network of ours
        slow = {id(layer.weight) for _, layer in ppr_layers(network)}
    parameters, decay = list(network.parameters()), config.recursion_weight_decay
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if id(p) not in slow]},
        {
            "params": [p for p in parameters if id(p) in slow],
            "lr": config.lr * config.recursion_lr,
            "weight_decay": config.weight_decay if decay == "same" else decay,
        },
    ]
    groups = [group for group in groups if group["params"]]
    return kind(groups, lr=config.lr, weight_decay=config.weight_decay, fused=fused)


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
            factor, patience = config.plateau_factor, config.plateau_patience
            self.plateau = ReduceLROnPlateau(optimizer, factor=factor, patience=patience)
        self._set_rates()

    @property
    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def after_step(self) -> None:
        self.step += 1
        self._set_rates()

    def _set_rates(self) -> None:
        if self.shape is not None:
            share = self.shape(self.step / self.steps)
            for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
                group["lr"] = peak * share

    def after_epoch(self, loss: float) -> None:
        if self.plateau is not None:
            self.plateau.step(loss)

    def state(self) -> dict[str, Any]:
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


class RunningAverage:
    """Follows the weights of a network; within ``with average:`` the network has the averaged ones.

    They generalise better than the last ones, and their validation is less noisy.
    """

    def __init__(self, network: nn.Module, keep: float) -> None:
        self.keep, self.steps = keep, 0
        self.names, self.parameters = map(list, zip(*network.named_parameters(), strict=True))
        self.tensors = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def follow(self) -> None:
        """Move towards the weights after a step."""
        self.steps += 1
        keep = min(self.keep, self.steps / (self.steps + AVERAGE_WARM_UP))
        torch._foreach_lerp_(self.tensors, [p.detach() for p in self.parameters], 1 - keep)

    def __enter__(self) -> None:
        """Exchange the two, without copying."""
        for number, parameter in enumerate(self.parameters):
            parameter.data, self.tensors[number] = self.tensors[number], parameter.data

    def __exit__(self, *_: object) -> None:
        self.__enter__()

    def state(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.tensors, strict=True)) | {"steps": torch.tensor(self.steps)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what :meth:`state` put down."""
        self.steps = int(state["steps"])
        for name, tensor in zip(self.names, self.tensors, strict=True):
            tensor.copy_(state[name])


# ---------------------------------------------------------------------------------------------------- divergence
def check_loss(loss: float, smallest: float, network: nn.Module, lr: float) -> None:
    """Stop when the loss is no number, or has exploded."""
    if not math.isfinite(loss):
        raise divergence_error(network, f"The loss is {loss}", lr)
    if loss > EXPLODED * max(1.0, smallest):
        raise divergence_error(network, f"The loss has exploded from {smallest:.3g} to {loss:.3g}", lr)


def divergence_error(network: nn.Module, what: str, lr: float) -> TrainingError:
    """The error that names the layer to blame, its norm, and the remedy."""
    name, norm, eps = _culprit(network)
    size = f"‖W‖₂ = {norm:.3g}" if math.isfinite(norm) else "W is not finite"
    decay = f", eps = {eps:.3g}" if eps else ""
    more = "; or use a larger model.eps or tanh" if eps else ""  # where something decays
    return TrainingError(
        f"{what}: look at layer {name} ({size}{decay}). Lower training.lr (now {lr:g}), or clip the gradient "
        f"(training.clip=1){more}."
    )


def _culprit(network: nn.Module) -> tuple[str, float, float | None]:
    """The first layer whose state or weights overflowed; otherwise the one with the largest weights."""
    layers = infinite_layers(network)
    for name, layer in layers:
        solution = layer.last_solution
        overflowed = solution is not None and solution.status is Status.NOT_FINITE
        if overflowed or not math.isfinite(largest_norm(layer)):
            return name, largest_norm(layer), smallest_eps(layer.eps)
    if layers:
        name, layer = max(layers, key=lambda item: largest_norm(item[1]))
        return name, largest_norm(layer), smallest_eps(layer.eps)
    norms = {name: weight_norm(p) for name, p in network.named_parameters() if p.dim() == 2}
    name = max(norms, key=lambda name: math.inf if math.isnan(norms[name]) else norms[name])
    return name, norms[name], None


@contextmanager
def collected_warnings(announce: Callable[[str], None], seen: set[str]) -> Iterator[None]:
    """Of all warnings that a solve did not converge, announce one per kind: a step may bring dozens."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    for each in caught:
        if not issubclass(each.category, ConvergenceWarning):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
            continue
        kind = re.split(r"[(:]", str(each.message))[0].strip()  # what follows are numbers, other in every step
        if kind not in seen:
            seen.add(kind)
            announce(str(each.message))
