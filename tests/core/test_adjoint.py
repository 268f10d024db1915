"""How to differentiate, as a value: the same as ``grad_terms`` and ``checkpoint``, and errors that help."""

import pytest
import torch

from pprgnn import Checkpointed, Full, Truncated, solve, solve_steps
from pprgnn.core.adjoint import as_adjoint
from tests.problems import ZOO, draw_b, draw_weight

ADJ = ZOO["directed_weighted"].adjacency()
PAIRS = {
    "truncated": (Truncated(3), {"grad_terms": 3}),
    "default": (Truncated(), {}),
    "full": (Full(), {"grad_terms": None}),
    "checkpointed": (Checkpointed(3), {"grad_terms": 3, "checkpoint": True}),
    "all checkpointed": (Checkpointed(None), {"grad_terms": None, "checkpoint": True}),
}


def gradients(any_step: bool, **options):
    b, weight = draw_b(6, 3).requires_grad_(), draw_weight(3, 2.0).requires_grad_()
    if any_step:
        state = solve_steps(b, lambda g: ADJ @ g @ weight, eps=0.5, depth=7, **options).state
    else:
        state = solve(b, weight, ADJ, eps=0.5, depth=7, **options).state
    return torch.autograd.grad(state.square().sum(), (b, weight))


@pytest.mark.parametrize("any_step", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_a_value_says_what_the_short_words_say(name, any_step):
    adjoint, words = PAIRS[name]
    for one, other in zip(gradients(any_step, adjoint=adjoint), gradients(any_step, **words), strict=True):
        assert torch.equal(one, other)


def test_terms_and_levels():
    assert [Truncated(3).terms_at(depth) for depth in (0, 2, 9)] == [1, 3, 3]
    assert [Full().terms_at(depth) for depth in (0, 2, 9)] == [1, 3, 10]
    assert (Truncated(3).levels, Checkpointed(3).levels, Full().levels) == (3, 3, 0)
    assert as_adjoint(None, 4, True) == Checkpointed(4) != Truncated(4)


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(ValueError, match=r"grad_terms must be >= 1 or None for all terms, but came as 0"):
        Truncated(0)
    with pytest.raises(ValueError, match=r"Truncated\(terms=3\) says how .* leave grad_terms and checkpoint out"):
        gradients(False, adjoint=Truncated(3), checkpoint=True)
    with pytest.raises(
        ValueError, match=r"adjoint must be Truncated\(N\).* but came as 'full'; grad_terms=N is short"
    ):
        gradients(True, adjoint="full")
