"""PairNorm: the dense formula, and that all pairs together stay as far apart as the scale says."""

import pytest
import torch

from pprgnn.baselines.classic import GCNNet
from pprgnn.baselines.deep import PairNormNet
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, normalized


@pytest.mark.parametrize("individually", [False, True])
def test_the_dense_formula(individually):
    edge_index, weight, x = graph()
    network = build(PairNormNet, hidden=4, layers=2, scale=2.0, individually=individually)
    a, (first, last) = normalized(edge_index, weight), network.convs
    state = a @ x @ first.lin.weight.t() + first.bias
    state = state - state.mean(0)
    if individually:
        state = 2 * state / state.norm(dim=1, keepdim=True)
    else:
        state = 2 * state / state.square().sum(1).mean().sqrt()
    expected = a @ state.relu() @ last.lin.weight.t() + last.bias
    torch.testing.assert_close(network(x, edge_index, weight), expected, rtol=1e-4, atol=1e-5)  # PyG adds 1e-5


@pytest.mark.parametrize("layers", [2, 40])
def test_pairs_keep_their_total_distance_at_any_depth(layers):
    edge_index, _, x = graph(edges=80)
    network = build(PairNormNet, hidden=8, layers=layers, scale=1.5, individually=False)
    seen = []
    for norm in network.norms:
        norm.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    network(x, edge_index)
    assert len(seen) == layers - 1
    for state in seen:
        total = torch.cdist(state, state).square().sum()
        torch.testing.assert_close(total, torch.tensor(2 * N**2 * 1.5**2, dtype=total.dtype), rtol=1e-2, atol=0.0)


def test_a_gcn_of_that_depth_makes_nodes_alike():
    edge_index, _, x = graph(edges=80)
    rows = {}
    for kind in (GCNNet, PairNormNet):
        network = build(kind, hidden=8, layers=40)
        with torch.no_grad():
            for conv in network.convs:
                conv.bias.zero_()
            rows[kind] = network(x, edge_index)[:-1]
    spread = {kind: float(torch.cdist(each, each).mean()) for kind, each in rows.items()}
    assert spread[PairNormNet] > 1000 * spread[GCNNet]


def test_graphs_are_refused():
    with pytest.raises(ValueError, match="for node tasks"):
        PairNormNet(FEATURES, CLASSES, "graph")
