"""PyG's layers on an adjacency: the same numbers and gradients as on an edge_index, also after being copied."""

import copy
import pickle

import pytest
import torch
from torch_geometric.nn import APPNP, GCN2Conv, GCNConv, GINConv, GINEConv, GraphConv, SAGEConv

from pprgnn import Adjacency
from pprgnn.nn.through_adjacency import as_adjacency, through_adjacency

N, CHANNELS = 9, 4
NORMALIZED = {"normalize": "sym", "add_self_loops": True}


def graph(seed=0, edges=25):
    draw = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(N, (2, edges), generator=draw).unique(dim=1)  # directed, with some self-loops
    weight = torch.rand(edge_index.size(1), generator=draw, dtype=torch.float64) + 0.1
    x = torch.randn(N, CHANNELS, generator=draw, dtype=torch.float64)
    return edge_index, weight, x


def twins(make):
    """One layer for PyG's way, and one with the same weights for ours."""
    torch.manual_seed(0)
    ours = make(normalize=False).double()
    theirs = make(normalize=True).double()
    theirs.load_state_dict(ours.state_dict())
    return through_adjacency(ours), theirs


def gcn2(conv):
    return lambda x, edges, *weight: conv(x, x.flip(0), edges, *weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda **o: GCNConv(CHANNELS, 3, **o), lambda conv: conv),
        (lambda **o: GCN2Conv(CHANNELS, alpha=0.1, theta=0.5, layer=2, **o), gcn2),
        (lambda **o: GCN2Conv(CHANNELS, 0.1, 0.5, 2, shared_weights=False, **o), gcn2),
        (lambda **o: APPNP(3, 0.1, **o), lambda conv: conv),
    ],
)
def test_the_same_as_pyg_with_all_gradients(make, call, weighted):
    edge_index, weight, x = graph()
    ours, theirs = twins(make)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    weights = [weight.clone().requires_grad_() if weighted else None for _ in range(2)]
    adj = Adjacency.from_edge_index(edge_index, weights[0], N, dtype=torch.float64, **NORMALIZED)
    got = call(ours)(inputs[0], adj)
    expected = call(theirs)(inputs[1], edge_index, weights[1])
    torch.testing.assert_close(got, expected)
    direction = torch.randn_like(got)
    got.mul(direction).sum().backward()
    expected.mul(direction).sum().backward()
    for mine, its in zip((*inputs[:1], *ours.parameters()), (*inputs[1:], *theirs.parameters()), strict=True):
        torch.testing.assert_close(mine.grad, its.grad)
    if weighted:
        torch.testing.assert_close(weights[0].grad, weights[1].grad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GraphConv(CHANNELS, 3, aggr="add"),
        lambda: GINConv(torch.nn.Linear(CHANNELS, 3)),
        lambda: SAGEConv(CHANNELS, 3, aggr="sum"),
    ],
)
def test_layers_that_add_plain_neighbours_up(make):
    edge_index, _, x = graph()
    conv = make().double()
    expected = conv(x, edge_index)
    adj = Adjacency.from_edge_index(edge_index, None, N, normalize=None, dtype=torch.float64)
    torch.testing.assert_close(through_adjacency(conv)(x, adj), expected)


def test_a_plain_edge_index_still_goes_pygs_way():
    edge_index, weight, x = graph()
    conv = GCNConv(CHANNELS, 3, normalize=False).double()
    expected = conv(x, edge_index, weight)
    assert torch.equal(through_adjacency(conv)(x, edge_index, weight), expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda conv: pickle.loads(pickle.dumps(conv))])
def test_a_copy_multiplies_with_its_own_weights(copied):
    edge_index, _, x = graph()
    conv = through_adjacency(GCNConv(CHANNELS, 3, normalize=False).double())
    adj = Adjacency.from_edge_index(edge_index, None, N, dtype=torch.float64, **NORMALIZED)
    twin = copied(conv)
    assert isinstance(twin, GCNConv)
    with torch.no_grad():
        twin.lin.weight.mul_(2)
    torch.testing.assert_close(twin(x, adj), 2 * conv(x, adj))
    torch.testing.assert_close(twin(x, edge_index), 2 * conv(x, edge_index))
    assert [*conv.state_dict()] == ["bias", "lin.weight"]
    assert repr(conv) == "GCNConv(4, 3)"
    assert through_adjacency(twin) is twin  # twice does no harm
    torch.testing.assert_close(twin(x, adj), 2 * conv(x, adj))


def test_other_layers_of_the_class_are_left_alone():
    through_adjacency(GCNConv(CHANNELS, 3, normalize=False))
    assert type(GCNConv(CHANNELS, 3)) is GCNConv


def test_layers_that_are_no_product_are_refused():
    with pytest.raises(ValueError, match="aggr='mean'"):
        through_adjacency(SAGEConv(CHANNELS, 3))
    with pytest.raises(ValueError, match="normalize=False"):
        through_adjacency(GCNConv(CHANNELS, 3))
    with pytest.raises(ValueError, match="passes messages, but got Linear"):
        through_adjacency(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="target_to_source"):
        through_adjacency(GCNConv(CHANNELS, 3, normalize=False, flow="target_to_source"))
    edge_index, _, x = graph()
    adj = Adjacency.from_edge_index(edge_index, None, N, dtype=torch.float64, normalize=None)
    with_attributes = through_adjacency(GINEConv(torch.nn.Linear(CHANNELS, 3)).double())
    with pytest.raises(ValueError, match=r"more than x along the edges \(x, edge_attr\)"):
        with_attributes(x, adj, x)
    with pytest.raises(ValueError, match="carries its own weights"):
        through_adjacency(GCNConv(CHANNELS, 3, normalize=False).double())(x, adj, torch.ones(3))


def test_the_same_tensors_give_the_same_adjacency_until_they_change():
    edge_index, weight, _ = graph()
    options = {"normalize": "row", "add_self_loops": False}
    adj = as_adjacency(edge_index, weight, N, torch.float64, **options)
    expected = Adjacency.from_edge_index(edge_index, weight, N, dtype=torch.float64, **options)
    torch.testing.assert_close(adj.to_dense(), expected.to_dense())
    assert as_adjacency(edge_index, weight, N, torch.float64, **options) is adj
    assert as_adjacency(adj, None, N, torch.float64, **options) is adj
    assert as_adjacency(edge_index, weight, N, torch.float32, **options).dtype == torch.float32
    assert as_adjacency(edge_index, weight, N + 1, torch.float64, **options).num_nodes == N + 1
    assert as_adjacency(edge_index, None, N, torch.float64, **options) is not adj
    weight.mul_(torch.arange(1.0, len(weight) + 1))
    assert as_adjacency(edge_index, weight, N, torch.float64, **options) is not adj


def test_sparse_tensors_are_taken_as_pyg_takes_them():
    edge_index, weight, x = graph()
    adj_t = torch.sparse_coo_tensor(edge_index.flip(0), weight, (N, N))
    got = as_adjacency(adj_t, None, N, torch.float64, **NORMALIZED)
    expected = as_adjacency(edge_index, weight, N, torch.float64, **NORMALIZED)
    torch.testing.assert_close(got @ x, expected @ x)
    with pytest.raises(ValueError, match="carries its own weights"):
        as_adjacency(adj_t, weight, N, torch.float64, **NORMALIZED)
    with pytest.raises(ValueError, match="carries its own weights"):
        as_adjacency(expected, weight, N, torch.float64, **NORMALIZED)
