"""The error of a gradient of N terms against all of them, with its bound."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from pprgnn.core.backend.buffers import release_buffers
from pprgnn.core.bounds import StepBounds
from pprgnn.core.problem import Problem
from pprgnn.core.solution import frobenius_norm
from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import Missing, Truncation
from pprgnn.report.measured.solves import Solve, solved
from pprgnn.report.measured.trained_run import TrainedRun, of_layers
from pprgnn.training.environment import available_memory, size_text
from pprgnn.training.model import at_depths, forward
from pprgnn.training.optimization import Objective, balanced_weights

POINTS = 3  # fewer show nothing
SPARE = 4  # states that a solve needs beside those it keeps
USUAL_MEMORY = 4 << 30  # where the system does not tell


def truncation(trained: TrainedRun, allowance: Allowance) -> list[Truncation] | Missing:
    """For each layer, how good a gradient of few terms is."""
    solves = [solve for solve in trained.solves if isinstance(solve.given, Problem)]
    if not solves:
        return trained.without_product()
    steps = sum(3 * solve.depth * solve.step_seconds for solve in solves)
    if not allowance.allows((1 + POINTS) * steps):
        return allowance.too_long("Gradients of few terms against all of them", (1 + POINTS) * steps)
    arriving = arriving_gradients(trained, solves)
    try:
        return of_layers(
            solves, allowance, lambda solve, share: layer_truncation(solve, arriving[solve.name], share)
        )
    finally:
        release_buffers()  # as many states as there were terms


def arriving_gradients(trained: TrainedRun, solves: list[Solve]) -> dict[str, Tensor]:
    """The gradient of the training loss, without dropout, with respect to what each of these layers returns."""
    model, outputs = trained.model, dict[str, Tensor]()
    weights = None
    if model.config.training.class_weights == "balanced":
        y = trained.dataset.labels()[trained.masks["train"].cpu()]
        weights = balanced_weights(y, model.shape.num_classes, model.facts.multi_label)

    def keep(name: str, output: Tensor) -> None:
        outputs[name] = output

    hooks = [
        solve.layer.register_forward_hook(lambda layer, given, output, name=solve.name: keep(name, output))
        for solve in solves
    ]
    depths = [(solve.layer, solve.depth) for solve in solves]
    try:
        with model.precise(), at_depths(depths), torch.enable_grad():
            logits = forward(model.network, trained.few)
            loss = Objective(model.facts.multi_label, weights)(logits, trained.few.y)
            found = torch.autograd.grad(loss, list(outputs.values()), materialize_grads=True)
    finally:
        for hook in hooks:
            hook.remove()
    return dict(zip(outputs, found, strict=True))


def layer_truncation(solve: Solve, arriving: Tensor, allowance: Allowance) -> Truncation | Missing:
    """Of one layer, for the gradient that arrives at its output."""
    problem, depth = solve.problem, solve.depth
    assert isinstance(problem, Problem)
    needed = (depth + SPARE) * problem.b.numel() * problem.b.element_size()
    if needed > (available_memory(problem.b.device) or USUAL_MEMORY) // 2:
        return Missing(
            f"The gradient of layer {solve.name} with all of its terms would need {size_text(needed)} of memory."
        )
    arriving = arriving.to(problem.b.dtype)
    started = time.perf_counter()
    whole = _gradients(problem, depth, depth + 1, arriving)
    seconds = time.perf_counter() - started
    sizes = [frobenius_norm(each) for each in whole]
    if not sizes[0] > 0:
        return Missing(f"No gradient of the training loss reaches layer {solve.name}: none can be cut off.")
    if not all(map(math.isfinite, sizes)):
        return Missing(f"The gradient of layer {solve.name} overflows.")
    count = min(depth + 1, int(allowance.left / seconds))
    if count < min(POINTS, depth + 1):
        return allowance.too_long(f"The gradient of layer {solve.name} by terms", POINTS * seconds)
    chosen, errors = chosen_terms(depth + 1, count, solve.layer.grad_terms), list[tuple[float, float]]()
    for terms in chosen:
        if len(errors) >= POINTS and not allowance.allows(seconds):
            break
        some = _gradients(problem, depth, terms, arriving) if terms <= depth else whole
        pairs = zip(some, whole, sizes, strict=True)
        of_b, of_weight = (frobenius_norm(each - all_of_it) / (size or 1.0) for each, all_of_it, size in pairs)
        errors.append((of_b, of_weight))
    scale = frobenius_norm(arriving) / sizes[0]
    known = [left_out(problem.bounds(), terms, depth) * scale for terms in chosen[: len(errors)]]
    return Truncation(
        layer=solve.name,
        terms=chosen[: len(errors)],
        error_b=[each for each, _ in errors],
        error_weight=[each for _, each in errors],
        bound=[each if math.isfinite(each) else None for each in known],
        used=solve.layer.grad_terms,
    )


def _gradients(problem: Problem, depth: int, terms: int, arriving: Tensor) -> tuple[Tensor, Tensor]:
    """Of B and W, with so many terms."""
    b, weight = (each.detach().clone().requires_grad_() for each in (problem.b, problem.weight))
    with torch.enable_grad():
        state = solved(problem, b, weight, depth, terms)
        of_b, of_weight = torch.autograd.grad(state, [b, weight], arriving)
    return of_b, of_weight


def left_out(bounds: StepBounds, terms: int, depth: int) -> float:
    """What the terms left out can add to the gradient of B at most, relative to the one that arrives."""
    total, product = 0.0, bounds.lipschitz
    for n in range(depth + 1):
        total += product if n >= terms else 0.0
        product *= bounds.step(n)
    return total


def chosen_terms(last: int, count: int, used: int | None) -> list[int]:
    """1 ... last, or so many of them; the first and the number in use among them."""
    if count >= last:
        return list(range(1, last + 1))
    # dense at the beginning, where errors fall
    spread = {round(1 + (last - 1) * (i / max(count - 1, 1)) ** 2) for i in range(count)}
    return sorted(spread | ({used} if used is not None and used <= last else set()))
