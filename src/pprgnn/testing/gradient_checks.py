"""Gradients: right, complete, and only where messages go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck
from torch.func import functional_call

from pprgnn.testing.trial import Graph, Trial, go_back, side_by_side

STEP = 1e-5  # of the finite differences: large against the tolerance of a solver, small against a kink of ReLU
CLOSE = 1e-3


def gradient(trial: Trial) -> None:
    """The gradients of features and parameters are those of finite differences, in double precision."""
    conv, graph = _all_terms(trial), trial.graph(5)
    trial.run(conv, graph)
    _compare(lambda x: trial.run(conv, replace(graph, x=x)), graph.x, "x")
    for name, parameter in conv.named_parameters():

        def output(value: Tensor, name: str = name) -> Tensor:
            out: Tensor = functional_call(_Run(trial, conv), {f"conv.{name}": value}, (graph,))
            return out

        _compare(output, parameter, name)


def edge_weight_gradient(trial: Trial) -> None:
    """The gradient of the edge weights is that of finite differences, and not zero."""
    trial.need_weight()
    conv, graph = _all_terms(trial), trial.graph(5)
    weight = graph.edge_weight.clone().requires_grad_()
    go_back(trial.run(conv, replace(graph, edge_weight=weight)))
    assert weight.grad is not None, "No gradient reaches the edge weights."
    assert bool((weight.grad != 0).any()), "No gradient reaches the edge weights."
    _compare(lambda w: trial.run(conv, replace(graph, edge_weight=w)), graph.edge_weight, "edge_weight")


def complete_gradient(trial: Trial) -> None:
    """Features and every parameter get a finite gradient."""
    conv, graph = trial.conv(), trial.graph()
    x = graph.x.clone().requires_grad_()
    go_back(trial.run(conv, replace(graph, x=x)))
    for name, tensor in [("x", x), *conv.named_parameters()]:
        if tensor.requires_grad:  # a frozen parameter is the choice of the layer
            assert tensor.grad is not None, f"No gradient reaches {name}."
            assert bool(tensor.grad.isfinite().all()), f"The gradient of {name} is not finite."


def local_gradient(trial: Trial) -> None:
    """A gradient stays within the connected component of the node that it comes from."""
    conv, (here, there) = trial.conv(), (trial.graph(4), trial.graph(3))
    graph = side_by_side(here, there)
    x = graph.x.clone().requires_grad_()
    out = trial.run(conv, replace(graph, x=x))
    if not out.requires_grad:
        raise SkipTest("no gradient reaches the features")
    (leaked,) = torch.autograd.grad(out[: here.num_nodes].square().sum(), x)
    leak = float(leaked[here.num_nodes :].abs().max())
    assert leak == 0, f"Features of another component get a gradient of up to {leak:.1e}."


def in_place_activation(trial: Trial) -> None:
    """An activation behind the layer may work in place."""
    conv, graph = trial.conv(), trial.graph()
    gradients = []
    for relu in (torch.relu, torch.relu_):
        x = graph.x.clone().requires_grad_()
        out = trial.run(conv, replace(graph, x=x))
        if not out.requires_grad:
            raise SkipTest("no gradient reaches the features")
        gradients.append(torch.autograd.grad(relu(out).square().sum(), x)[0])
    trial.same(gradients[1], gradients[0], "An activation in place behind the layer changes the gradient.")


def gradient_penalty(trial: Trial) -> None:
    """The gradient of a gradient is that of finite differences, or refused, but never silently something else."""
    conv, graph = _all_terms(trial), trial.graph(5)
    direction = torch.randn_like(graph.x)

    def penalty(x: Tensor, differentiable: bool) -> Tensor:
        out = trial.run(conv, replace(graph, x=x.requires_grad_()))
        loss = out.square().sum()
        (slope,) = torch.autograd.grad(loss, x, create_graph=differentiable, allow_unused=True)
        if slope is None:
            raise SkipTest("no gradient reaches the features")
        return slope.square().sum()

    x = graph.x.clone()
    try:
        loss = penalty(x, True)
        found = torch.autograd.grad(loss, x, allow_unused=True)[0] if loss.requires_grad else None
    except (NotImplementedError, RuntimeError):
        return  # refused
    assert found is not None, "The gradient of a gradient is silently left out."
    ends = [float(penalty(graph.x + sign * STEP * direction, False)) for sign in (1, -1)]
    expected = (ends[0] - ends[1]) / (2 * STEP)
    gap, size = abs(float((found * direction).sum()) - expected), max(1.0, abs(expected))
    assert gap <= CLOSE * size, f"The gradient of a gradient is off by {gap / size:.1e}, relative to its size."


class _Run(torch.nn.Module):
    """A convolution on a graph, as a module: parameters can then be replaced for one call."""

    def __init__(self, trial: Trial, conv: torch.nn.Module) -> None:
        super().__init__()
        self.trial, self.conv = trial, conv

    def forward(self, graph: Graph) -> Tensor:
        return self.trial.run(self.conv, graph)


def _all_terms(trial: Trial) -> Any:
    conv = trial.conv()
    for part in conv.modules():
        if hasattr(part, "grad_terms"):
            part.grad_terms = None  # a truncated gradient is not meant to be exact
    return conv


def _compare(function: Callable[[Tensor], Tensor], at: Tensor, name: str) -> None:
    value = at.detach().clone().requires_grad_()
    try:
        gradcheck(
            function,
            (value,),
            eps=STEP,
            atol=CLOSE,
            rtol=CLOSE,
            nondet_tol=STEP,
            check_undefined_grad=False,
            fast_mode=True,
        )
    except GradcheckError as error:
        raise AssertionError(f"The gradient of {name} is not the derivative by finite differences.") from error
