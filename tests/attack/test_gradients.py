"""Gradients against plain autograd through a dense unrolled recursion, for hostile inputs and layouts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pprgnn

from . import reference
from .problems import ACTIVATIONS, CHUNKS, LAYOUTS, Attack, draw, seeds

NAMES = ("b", "weight", "eps", "edge_weight")


def leaves(attack: Attack) -> dict[str, Tensor]:
    """Everything that may have a gradient, with the strides it came with."""
    eps = torch.as_tensor(attack.eps, dtype=torch.float64)
    values = dict(zip(NAMES, (attack.b, attack.weight, eps, attack.edge_weight), strict=True))
    return {name: x.detach().requires_grad_() for name, x in values.items() if x is not None}


def product(attack: Attack, at: dict[str, Tensor], **options) -> pprgnn.Solution:
    adj = pprgnn.Adjacency.from_edge_index(
        attack.edges,
        at.get("edge_weight"),
        attack.num_nodes,
        normalize=attack.normalize,
        add_self_loops=attack.self_loops,
        dtype=torch.float64,
    )
    return pprgnn.solve(
        at["b"], at["weight"], adj, eps=at["eps"], activation=ACTIVATIONS[attack.phi], **attack.options | options
    )


def plain(attack: Attack, at: dict[str, Tensor], depth: int, terms: int | None) -> Tensor:
    weight = at.get("edge_weight")
    a = reference.adjacency(attack.edges, weight, attack.num_nodes, attack.normalize, attack.self_loops)
    return reference.unrolled(at["b"], at["weight"], a, at["eps"], attack.phi, depth, terms)


def differences(attack: Attack, depth: int, terms: int | None, checkpoint: bool) -> list[str]:
    """Names of the gradients that are wrong, and by how much."""
    at = leaves(attack)
    solution = product(attack, at, depth=depth, grad_terms=terms, checkpoint=checkpoint)
    direction = torch.randn(solution.state.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = torch.autograd.grad(solution.state, list(at.values()), direction, allow_unused=True)
    same = leaves(attack)
    wanted = torch.autograd.grad(
        plain(attack, same, depth, terms), list(same.values()), direction, allow_unused=True
    )
    wrong = []
    for (name, leaf), gradient, right in zip(at.items(), found, wanted, strict=True):
        gradient, right = (torch.zeros_like(leaf) if g is None else g for g in (gradient, right))
        unit = leaf.detach() if name == "edge_weight" else 1.0  # weights of 1e-24 have slopes of 1e24 that cancel
        least = 1e-4 * float(direction.norm() * (1 + attack.b.detach().norm()))
        error = float(((gradient - right) * unit).norm()) / max(float((right * unit).norm()), least)
        if gradient.shape != leaf.shape or not error <= 1e-7:
            wrong.append(f"{name} is off by {error:.1e}")
    return wrong


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.filterwarnings("ignore:Symmetric normalisation gives weight 0")
def test_random_problems(chunk):
    failures, tried = [], 0
    for seed in seeds(chunk):
        attack = draw(seed, torch.float64)
        attack.weight.data.mul_(0.9877)  # no sum is zero by chance: at a kink, both slopes are right
        dense = attack.dense(attack.adjacency())
        depth, terms = seed % 13, [None, 1, 5][seed % 3]
        if dense.log_growth[: depth + 2].max() > 20 or not 1e-3 < dense.size < 1e3:
            continue  # where rounding is amplified, gradients tell nothing
        tried += 1
        for checkpoint in (False, True):
            wrong = differences(attack, depth, terms, checkpoint)
            what = f"seed {seed}, depth {depth}, {terms} terms, checkpoint={checkpoint}"
            failures += [f"{what}: {'; '.join(wrong)} [{attack.facts}]"] if wrong else []
    print(f"{tried} problems")
    assert not failures, f"{len(failures)} failures\n" + "\n".join(failures[:12])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("terms", [None, 1, 3, 5, 12])
def test_layouts_of_the_weight(layout, checkpoint, terms):
    b, weight = (LAYOUTS[layout](noise(seed, n, 4)) for seed, n in enumerate((9, 4)))
    edges = torch.randint(0, 9, (2, 30), generator=torch.Generator().manual_seed(2))
    attack = Attack(b, weight, 0.5, "relu", edges, None, 9, self_loops=True)
    assert not differences(attack, 14, terms, checkpoint)


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ------------------------------------------------------------------------------------------- second derivatives
@pytest.mark.parametrize("outer", [torch.sum, lambda out: out.square().sum()], ids=["linear", "square"])
def test_a_gradient_penalty_is_right_or_refused(outer):
    """Never silence: the second derivative is that of the unrolled recursion, or an error says that it is not."""
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])
    attack = Attack(noise(4, 6, 3), noise(5, 3, 3), 0.5, "tanh", edges, None, 6, options={"grad_terms": None})

    def penalty(out: Tensor, at: dict[str, Tensor]) -> Tensor:
        (slope,) = torch.autograd.grad(outer(out), at["b"], create_graph=True)
        return out.sum() + slope.square().sum()

    right, at = leaves(attack), leaves(attack)
    penalty(plain(attack, right, 8, None), right).backward()
    try:
        penalty(product(attack, at, depth=8).state, at).backward()
    except (RuntimeError, NotImplementedError):
        return
    for name in ("b", "weight", "eps"):
        torch.testing.assert_close(at[name].grad, right[name].grad, rtol=1e-8, atol=1e-8)
