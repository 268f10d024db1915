"""Hops computed once, added up for any ε and w, are the recursion where φ changes nothing."""

import pytest
import torch

import pprgnn
from pprgnn.core.power_series import hops_of, sum_of_hops
from tests.problems import random_graph, ring


def number(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_the_sum_is_the_recursion(reorder, directed):
    adj = random_graph(0, 30, directed=directed, weighted=True).adjacency(reorder=reorder)
    b, rows = torch.randn(30, 3, dtype=torch.float64), torch.tensor([5, 5, 0, 29])
    hops = hops_of(b, adj, rows, 40)
    for eps, w in ((0.3, 1.5), (1.0, 0.7)):
        weight = w * torch.eye(3, dtype=torch.float64)
        whole = pprgnn.solve(b, weight, adj, eps=eps, depth=40, activation="identity").state
        torch.testing.assert_close(sum_of_hops(hops, number(w), number(eps)), whole[rows])


def test_no_hop_is_b_itself():
    b = torch.randn(5, 3, dtype=torch.float64)
    hops = hops_of(b, ring(5).adjacency(), torch.tensor([1]), 0)
    torch.testing.assert_close(sum_of_hops(hops, number(2.0), number(0.5)), b[[1]])


def test_gradients():
    adj = random_graph(1, 20, directed=False, weighted=False).adjacency()
    hops = hops_of(torch.randn(20, 2, dtype=torch.float64), adj, torch.arange(6), 8)
    leaves = [number(value).requires_grad_() for value in (1.3, 0.2)]
    assert torch.autograd.gradcheck(lambda w, eps: sum_of_hops(hops, w, eps), leaves)
