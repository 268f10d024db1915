"""What stops a run early, and what is said then: numbers that are not finite, a loss that explodes."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from pprgnn.core.solution import ConvergenceWarning, Status
from pprgnn.nn.infinite_layer import InfiniteLayer, infinite_layers
from pprgnn.training.errors import TrainingError

EXPLODED = 1e4  # times the smallest loss so far, or 1
REMEDY = "Lower training.lr (now {lr:g}), or clip the gradient (training.clip=1){more}."
SLOWER = "; or use a larger model.eps or tanh"  # where something decays


@contextlib.contextmanager
def collected_warnings(announce: Callable[[str], None], seen: set[str]) -> Iterator[None]:
    """Of all warnings that a solve did not converge, announce one per kind: a step may bring dozens."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            yield
        finally:
            caught, others = (
                [each for each in caught if issubclass(each.category, ConvergenceWarning)],
                [each for each in caught if not issubclass(each.category, ConvergenceWarning)],
            )
    for each in others:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    for each in caught:
        kind = re.split(r"[(:]", str(each.message))[0].strip()  # what follows are numbers, other in every step
        if kind not in seen:
            seen.add(kind)
            announce(str(each.message))


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
    remedy = REMEDY.format(lr=lr, more=SLOWER if eps else "")
    return TrainingError(f"{what}: look at layer {name} ({size}{decay}). {remedy}")


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
    matrices = [(name, p) for name, p in network.named_parameters() if p.dim() == 2]
    name, weight = max(matrices, key=lambda item: _order(weight_norm(item[1])))
    return name, weight_norm(weight), None


def _order(norm: float) -> float:
    return norm if math.isfinite(norm) else math.inf


def weight_norm(weight: Tensor) -> float:
    """‖W‖₂, or nan when W is not finite."""
    weight = weight.detach()
    return float(torch.linalg.matrix_norm(weight, ord=2)) if bool(torch.isfinite(weight).all()) else math.nan


def largest_norm(layer: InfiniteLayer) -> float:
    """The largest ‖W‖₂ of what a step multiplies by; nan when something is not finite, 0 without weights."""
    norms = [weight_norm(weight) for weight in layer.weights()]
    return math.nan if any(map(math.isnan, norms)) else max(norms, default=0.0)


def smallest_eps(eps: float | Tensor) -> float:
    """The slowest decay of a layer's channels."""
    return float(eps.detach().min()) if isinstance(eps, Tensor) else float(eps)
