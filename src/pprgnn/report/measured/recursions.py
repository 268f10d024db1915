"""The recursions of a run: their error against depth with its proof, gradients of few terms, decay, and cost."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.activation import IDENTITY, RELU
from pprgnn.core.backend.buffers import release_buffers
from pprgnn.core.backend.passes import step
from pprgnn.core.decay import decay as beta
from pprgnn.core.problem import Problem
from pprgnn.core.recursion import descend
from pprgnn.core.solution import frobenius_norm
from pprgnn.report.measured.results import Convergence, Cost, Decay, Missing, Truncation
from pprgnn.report.measured.trained_run import Allowance, Passes, Recursion, Solve, TrainedRun, of_layers, solved
from pprgnn.training.attribution import left_out
from pprgnn.training.environment import available_memory, size_text
from pprgnn.training.model import at_depths, forward, largest_norm
from pprgnn.training.optimization import Objective, balanced_weights

CONSECUTIVE, STRIDE = 60, 15  # every depth up to the first, then every so many; odd, lest a cycle of two is missed
DEEPEST = 2000
POINTS = 6  # a curve of fewer shows nothing
FEWEST_TERMS = 3  # fewer show nothing
SPARE = 4  # states that a solve needs beside those it keeps
USUAL_MEMORY = 4 << 30  # where the system does not tell
LITTLE, FARTHEST = 1e-4, 100
ALPHAS = (0.1, 0.2)
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
USUAL_TERMS = 5
MEMORY = 1 << 30  # that plain autograd may take
STATES_PER_STEP = 3  # that plain autograd keeps, about
FEWEST_DEPTHS = 3
REPEATS = 3

Pass = Callable[[int], Tensor]  # from a depth to a state with a gradient


# --------------------------------------------------------------------------------------------- error against depth
def convergence(trained: TrainedRun, allowance: Allowance) -> list[Convergence] | Missing:
    """For each layer, how its error falls with depth."""
    if not trained.solves:
        return trained.without_recursion()
    return of_layers(trained.solves, allowance, layer_convergence)


def layer_convergence(solve: Solve, allowance: Allowance) -> Convergence | Missing:
    """Of one layer."""
    passes = Passes(solve.problem)
    problem, bounds = passes.problem, solve.problem.bounds()
    scale = problem.space.norm(problem.b) or 1.0
    unit = float(torch.finfo(problem.b.dtype).eps)
    deepest = bounds.depth(unit, DEEPEST)
    what = f"The error of layer {solve.name} against depth"
    if deepest is None:
        found = _deep_enough(solve, passes, unit * scale, allowance, what)
        if isinstance(found, Missing):
            return found
        deepest, reference = found
    else:
        wanted = (2 * deepest + sum(_depths(deepest, max(1, deepest // POINTS), 0))) * solve.step_seconds
        if not allowance.allows(wanted):
            return allowance.too_long(what, wanted)
        reference = passes.state(deepest).clone()
    if not math.isfinite(size := problem.space.norm(reference)):
        return _overflow(solve)
    rounding = max(unit * max(1.0, size / scale), _perturbed(solve.problem, deepest, reference, unit) / scale)
    stride = 1
    while stride < deepest and sum(_depths(deepest, stride, 0)) * solve.step_seconds > 0.8 * allowance.left:
        stride += 2
    chosen = _depths(deepest, stride, solve.depth)
    faded, depths, errors, influence = _influences(problem, chosen), list[int](), list[float](), list[float]()
    for depth in chosen:
        if depth > POINTS and not allowance.allows(depth * solve.step_seconds):
            break
        depths.append(depth)
        errors.append(problem.space.norm(passes.state(depth) - reference) / scale)
        influence.append(next(faded))
        if max(errors[-2:]) <= rounding and len(errors) > 1:  # one alone may be a chance, as in a cycle
            break
    if not all(map(math.isfinite, errors + influence)):
        return _overflow(solve)
    certificate = [bounds.error(depth) for depth in depths]
    return Convergence(
        layer=solve.name,
        depths=depths,
        errors=errors,
        certificate=[each if math.isfinite(each) else None for each in certificate],
        influence=influence,
        chosen=solve.depth,
        status=solve.status,
        tol=solve.tol,
        rounding=rounding,
    )


def _perturbed(problem: Recursion, depth: int, state: Tensor, unit: float) -> float:
    """By how much the state moves when every number of B moves by one unit of rounding, up or down."""
    draw = torch.Generator().manual_seed(0)
    signs = torch.randint(2, problem.b.shape, generator=draw).to(problem.b) * 2 - 1
    perturbed = replace(problem, b=problem.b * (1 + unit * signs))
    return problem.space.norm(Passes(perturbed).state(depth) - state)


def _overflow(solve: Solve) -> Missing:
    return Missing(f"The state of layer {solve.name} overflows on the way, so its error has no meaning.")


def _deep_enough(
    solve: Solve, passes: Passes, rounding: float, allowance: Allowance, what: str
) -> tuple[int, Tensor] | Missing:
    """Without a certificate: a depth from which on passes of twice the depth and one step less agree with it."""
    depth, norm = max(2 * solve.depth + 1, 16), passes.problem.space.norm
    while True:
        deeper = 2 * depth + 1
        if not allowance.allows((wanted := 2.5 * deeper) * solve.step_seconds):
            return allowance.too_long(what, wanted * solve.step_seconds)
        reference = passes.state(deeper).clone()
        if not math.isfinite(size := norm(reference)):
            return _overflow(solve)
        allowed = max(rounding, float(torch.finfo(reference.dtype).eps) * size)
        if all(norm(passes.state(each) - reference) <= 4 * allowed for each in (depth, deeper - 1)):
            return depth, reference
        if deeper > DEEPEST:
            return Missing(
                f"Layer {solve.name} still changes after {deeper:,} steps, so there is nothing to compare with."
            )
        depth = deeper


def _influences(problem: Recursion, levels: Sequence[int]) -> Iterator[float]:
    """The paper's estimate ‖E⁽ᵏ⁾‖∞ / ‖B‖∞ at growing k: E⁽⁰⁾ = B, E⁽ᵏ⁺¹⁾ = φ(βₖ₊₁ Ã E⁽ᵏ⁾ W)."""
    state, reached, scratch = problem.b, 0, [torch.empty_like(problem.b) for _ in range(3)]
    scale = problem.space.max_abs(state) or 1.0
    with torch.no_grad():
        steps = problem.without_input()
    for level in levels:
        with torch.no_grad():
            for n in range(reached, level):
                state = step(steps, n + 1, state, scratch[n % 2], scratch[2])
        reached = level
        yield problem.space.max_abs(state) / scale


def _depths(deepest: int, stride: int, chosen: int) -> list[int]:
    """Which depths are looked at: all of them, or every so many, and the chosen one and the last in any case."""
    close = range(0, min(deepest, CONSECUTIVE) + 1, stride)
    far = range(close[-1], deepest + 1, max(stride, STRIDE))
    return sorted({*close, *far, min(chosen, deepest), deepest})


# ------------------------------------------------------------------------------------------ gradients of few terms
def truncation(trained: TrainedRun, allowance: Allowance) -> list[Truncation] | Missing:
    """For each layer, how good a gradient of few terms is."""
    solves = [solve for solve in trained.solves if isinstance(solve.given, Problem)]
    if not solves:
        return trained.without_product()
    steps = sum(3 * solve.depth * solve.step_seconds for solve in solves)
    if not allowance.allows((1 + FEWEST_TERMS) * steps):
        return allowance.too_long("Gradients of few terms against all of them", (1 + FEWEST_TERMS) * steps)
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
    if count < min(FEWEST_TERMS, depth + 1):
        return allowance.too_long(f"The gradient of layer {solve.name} by terms", FEWEST_TERMS * seconds)
    chosen, errors = chosen_terms(depth + 1, count, solve.layer.grad_terms), list[tuple[float, float]]()
    for terms in chosen:
        if len(errors) >= FEWEST_TERMS and not allowance.allows(seconds):
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


def chosen_terms(last: int, count: int, used: int | None) -> list[int]:
    """1 ... last, or so many of them; the first and the number in use among them."""
    if count >= last:
        return list(range(1, last + 1))
    # dense at the beginning, where errors fall
    spread = {round(1 + (last - 1) * (i / max(count - 1, 1)) ** 2) for i in range(count)}
    return sorted(spread | ({used} if used is not None and used <= last else set()))


# ----------------------------------------------------------------------------------------------------------- decay
def decay(trained: TrainedRun, allowance: Allowance) -> list[Decay] | Missing:
    """For each layer, the products of its decay."""
    return [layer_decay(solve) for solve in trained.solves] or trained.without_recursion()


def layer_decay(solve: Solve) -> Decay:
    """Of one layer."""
    rates = solve.given.eps.flatten().double()
    low, middle, high = float(rates.min()), float(rates.median()), float(rates.max())
    slowest = _products(low, 1.0, FARTHEST)
    last = next((n for n, left in enumerate(slowest) if left <= LITTLE), FARTHEST)
    return Decay(
        layer=solve.name,
        eps=(low, middle, high),
        hops=list(range(last + 1)),
        ours=(slowest[: last + 1], _products(middle, 1.0, last), _products(high, 1.0, last)),
        with_weight=_products(low, largest_norm(solve.layer), last),
        appnp={f"{alpha:g}": [(1 - alpha) ** n for n in range(last + 1)] for alpha in ALPHAS},
    )


def _products(eps: float, strength: float, hops: int) -> list[float]:
    """∏ of strength · βᵢ over the first n hops, for n = 0 ... hops; the first hop has β₀ = 1."""
    products = accumulate((strength / (1 + i * eps) for i in range(hops)), mul, initial=1.0)
    return [min(each, sys.float_info.max) for each in products]


# ------------------------------------------------------------------------------------------------- time and memory
def cost(trained: TrainedRun, allowance: Allowance) -> Cost | Missing:
    """Of the first layer, at growing depth."""
    asked = next((each for each in trained.solves if isinstance(each.given, Problem)), None)
    if asked is None:
        return trained.without_product()
    assert isinstance(asked.given, Problem)
    problem = asked.given
    least = 8 * REPEATS * sum(DEPTHS[:FEWEST_DEPTHS]) * asked.step_seconds
    if not allowance.allows(least):
        return allowance.too_long("Time and memory against depth", least)
    leaves = (problem.b.detach().clone().requires_grad_(), problem.weight.detach().clone().requires_grad_())
    terms = asked.layer.grad_terms or USUAL_TERMS
    plain = _unrolled(problem, leaves)
    state_bytes = problem.b.numel() * problem.b.element_size()
    found = Cost([], [], [], [], [], torch.get_num_threads(), REPEATS)
    last = 0.0  # seconds at the depth before
    unrolled: float | None = 0.0  # the same under plain autograd; None: it has been left out
    for depth in DEPTHS:
        if len(found.depths) >= FEWEST_DEPTHS and not allowance.allows(2 * (REPEATS + 1) * last):
            break
        kept, last = _measured(lambda depth: solved(problem, *leaves, depth, terms), depth, leaves)
        found.depths.append(depth)
        found.seconds.append(last)
        found.bytes.append(kept)
        fits = STATES_PER_STEP * depth * state_bytes <= MEMORY
        taken, unrolled = (
            _measured(plain, depth, leaves)
            if fits and unrolled is not None and allowance.allows(2 * (REPEATS + 1) * unrolled)
            else (None, None)
        )
        found.unrolled_seconds.append(unrolled)
        found.unrolled_bytes.append(taken)
    release_buffers()
    return found


def _unrolled(problem: Problem, leaves: tuple[Tensor, Tensor]) -> Pass:
    """As one would write it in torch; in the inner node order, which is the faster one."""
    plain: dict[Any, Callable[[Tensor], Tensor]] = {RELU: torch.relu, IDENTITY: lambda z: z}
    phi = plain.get(problem.activation, problem.activation.function)
    matrix = problem.adj.matrix.detach()

    def run(depth: int) -> Tensor:
        b, weight = leaves
        b = problem.adj.permute(b)

        def step(n: int, g: Tensor) -> Tensor:
            return phi(torch.sparse.mm(matrix, g) @ (weight * beta(n, problem.eps)) + b)

        return problem.adj.unpermute(descend(step, phi(b), range(depth)))

    return run


def _measured(run: Pass, depth: int, leaves: tuple[Tensor, Tensor]) -> tuple[int, float]:
    """Bytes of states kept for the gradient, and the median time of a step; the first one warms up."""
    arriving, seconds = torch.ones_like(leaves[0]), []
    kept = _kept(run, depth, leaves, arriving)
    for _ in range(REPEATS):
        started = time.perf_counter()
        with torch.enable_grad():
            torch.autograd.grad(run(depth), leaves, arriving)
        seconds.append(time.perf_counter() - started)
    return kept, statistics.median(seconds)


def _kept(run: Pass, depth: int, leaves: tuple[Tensor, Tensor], arriving: Tensor) -> int:
    """Bytes of all states that autograd holds between the forward and the backward pass."""
    size, held = leaves[0].numel(), dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        state = tensor.is_floating_point() or tensor.dtype == torch.bool  # or where it is positive
        if tensor.layout == torch.strided and state and tensor.numel() == size:
            held[tensor.untyped_storage().data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        state = run(depth)
    total = sum(held.values())
    torch.autograd.grad(state, leaves, arriving)
    return total
