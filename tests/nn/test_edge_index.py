"""PyG's EdgeIndex, a tensor without memory of its own, is taken wherever an ``edge_index`` is."""

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from pprgnn.baselines import EIGNNConv
from pprgnn.nn import PPRGNN, InfiniteDepth, NodeNet, PPRConv

NODES = 50
LAYERS = {
    "PPRConv": lambda: PPRConv(8, 8),
    "cached": lambda: PPRConv(8, 8, cached=True),
    "EIGNNConv": lambda: EIGNNConv(8, 8),
    "PPRGNN": lambda: PPRGNN(8, 8, 2, 3),
    "NodeNet": lambda: NodeNet(8, 3, hidden=8),
    "InfiniteDepth(GCN)": lambda: InfiniteDepth(GCNConv(8, 8)),
    "InfiniteDepth(SAGE)": lambda: InfiniteDepth(SAGEConv(8, 8)),
    "InfiniteDepth(GIN)": lambda: InfiniteDepth(GINConv(torch.nn.Linear(8, 8)), depth=3),
    "InfiniteDepth(GAT)": lambda: InfiniteDepth(GATConv(8, 8), depth=3),
}


@pytest.fixture
def edges():
    torch.manual_seed(0)
    half = torch.randint(0, NODES, (2, 100))
    return torch.cat([half, half.flip(0)], dim=1)


def every_kind(edges):
    size = (NODES, NODES)
    by_row, by_column = (edges[:, edges[side].argsort(stable=True)].contiguous() for side in (0, 1))
    yield EdgeIndex(edges)
    yield EdgeIndex(edges, sparse_size=size)
    yield EdgeIndex(by_row, sparse_size=size, sort_order="row")
    yield EdgeIndex(by_column, sparse_size=size, sort_order="col")
    yield EdgeIndex(by_row, sparse_size=size, sort_order="row", is_undirected=True).fill_cache_()


@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients_are_those_of_the_plain_tensor(name, edges):
    layer, x = LAYERS[name]().eval(), torch.randn(NODES, 8, requires_grad=True)
    expected = layer(x, edges)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    for given in every_kind(edges):
        out = layer(x, given)
        torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(torch.autograd.grad(out.sum(), x)[0], gradient, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["PPRConv", "InfiniteDepth(GCN)", "InfiniteDepth(GAT)"])
def test_compiled_and_transformed(name, edges):
    torch._dynamo.reset()
    layer, x, given = LAYERS[name]().eval(), torch.randn(NODES, 8), EdgeIndex(edges, sparse_size=(NODES, NODES))
    expected = layer(x, edges)
    fast = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(fast(x, given), expected, atol=1e-4, rtol=1e-4)
    gradient = torch.func.grad(lambda x: layer(x, given).sum())(x)
    torch.testing.assert_close(gradient, torch.func.grad(lambda x: layer(x, edges).sum())(x))
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["PPRConv", "InfiniteDepth(GCN)"])
def test_weights_and_changes(name, edges):
    layer, x, weight = LAYERS[name]().eval(), torch.randn(NODES, 8), torch.rand(200)
    given = EdgeIndex(edges.clone(), sparse_size=(NODES, NODES))
    torch.testing.assert_close(layer(x, given, weight), layer(x, edges, weight))
    given.as_tensor()[0, :50] = 7
    torch.testing.assert_close(layer(x, given, weight), layer(x, given.as_tensor().clone(), weight))


@pytest.mark.parametrize("name", ["PPRConv", "InfiniteDepth(GCN)", "InfiniteDepth(SAGE)"])
def test_an_index_of_another_size(name, edges):
    with pytest.raises(ValueError, match=r"EdgeIndex must be made for the 50 rows of x|expected size 60"):
        LAYERS[name]()(torch.randn(NODES, 8), EdgeIndex(edges, sparse_size=(60, 60)))
