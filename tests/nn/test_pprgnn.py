"""The stack takes BasicGNN's options and builds each graph once."""

import pytest
import torch
from torch_geometric.nn import summary

from pprgnn.core.adjacency import Adjacency
from pprgnn.nn import PPRGNN, through_adjacency

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


@pytest.mark.parametrize("out_channels", [None, 5])
@pytest.mark.parametrize("jk", [None, "last", "cat", "max", "lstm"])
@pytest.mark.parametrize("norm", [None, "batch_norm", "LayerNorm"])
def test_options(out_channels, jk, norm):
    model = PPRGNN(4, 8, 2, out_channels, dropout=0.5, jk=jk, norm=norm, act="elu", eps=0.5, learn_eps=True)
    out = model(torch.randn(4, 4), EDGES, edge_weight=torch.rand(6))
    assert out.shape == (4, out_channels or 8)
    assert str(model) == f"PPRGNN(4, {out_channels or 8}, num_layers=2)"


def test_logits_may_be_negative():
    torch.manual_seed(0)
    assert bool((PPRGNN(4, 8, 1, 3)(torch.randn(4, 4), EDGES) < 0).any())


def test_layers_share_one_adjacency(monkeypatch):
    through_adjacency._entries.clear()
    built = []
    original = Adjacency._build.__func__
    monkeypatch.setattr(
        Adjacency, "_build", classmethod(lambda cls, *args: built.append(1) or original(cls, *args))
    )
    model, edge_index = PPRGNN(4, 8, 3, 2), EDGES.clone()
    for _ in range(3):
        model(torch.randn(4, 4), edge_index).sum().backward()
    assert len(built) == 1


def test_lazy_and_summary():
    model = PPRGNN(-1, 8, 2, 3)
    assert "PPRConv" in summary(model, torch.randn(4, 4), EDGES)


def test_learns_a_long_range_label():
    """Ten hops on a path: out of reach for few layers, within reach for one infinite one."""
    torch.manual_seed(0)
    n = 12
    path = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    edges = torch.cat([path, path.flip(0)], 1)
    edges = torch.cat([edges, edges + n], 1)  # two paths, told apart at their heads only
    x = torch.zeros(2 * n, 2)
    x[0, 0] = x[n, 1] = 1.0
    label = torch.arange(2).repeat_interleave(n)
    model = PPRGNN(2, 8, 1, 2, eps=0.1, learn_eps=True, grad_terms=None)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(120):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x, edges), label).backward()
        optimizer.step()
    assert bool((model(x, edges).argmax(1) == label).all())
