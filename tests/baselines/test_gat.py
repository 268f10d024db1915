"""GAT: the formula of its paper by loops over nodes and heads, and what it refuses."""

import pytest
import torch
from torch.nn import functional as F

from pprgnn import Adjacency
from pprgnn.baselines.classic import GATNet
from pprgnn.errors import DataError
from tests.baselines.dense import N, build, graph


def attend(conv, x, edge_index, heads, channels):
    """(outputs, attention) of all heads, node by node."""
    states = (x @ conv.lin.weight.t()).view(N, heads, channels)
    sources = {node: [node] for node in range(N)}
    for source, target in edge_index.t().tolist():
        sources[target].append(source)
    out = torch.zeros(N, heads, channels, dtype=torch.float64)
    for node, neighbours in sources.items():
        for head in range(heads):
            mine = (states[node, head] * conv.att_dst[0, head]).sum()
            theirs = (states[neighbours, head] * conv.att_src[0, head]).sum(1)
            attention = F.leaky_relu(mine + theirs, 0.2).softmax(0)
            out[node, head] = attention @ states[neighbours, head]
    return out


def test_the_formula_node_by_node():
    edge_index, _, x = graph()
    network = build(GATNet, hidden=2, heads=3, output_heads=2)
    first, last = network.convs
    hidden = F.elu(attend(first, x, edge_index, 3, 2).flatten(1) + first.bias)
    expected = attend(last, hidden, edge_index, 2, 3).mean(1) + last.bias
    torch.testing.assert_close(network(x, edge_index), expected)


def test_skips_go_around_the_hidden_layers_between_others():
    edge_index, _, x = graph()
    network = build(GATNet, hidden=2, heads=3, layers=3, output_heads=2, skip=True)
    first, middle, last = network.convs
    hidden = F.elu(attend(first, x, edge_index, 3, 2).flatten(1) + first.bias)
    skipped = hidden @ middle.res.weight.t()
    hidden = F.elu(attend(middle, hidden, edge_index, 3, 2).flatten(1) + skipped + middle.bias)
    expected = attend(last, hidden, edge_index, 2, 3).mean(1) + last.bias
    torch.testing.assert_close(network(x, edge_index), expected)
    assert float(skipped.detach().abs().max()) > 0.1


def test_residual_goes_around_every_layer_and_norm_before_elu():
    edge_index, _, x = graph()
    network = build(GATNet, hidden=2, heads=3, output_heads=2, residual=True, norm="layer")
    first, last = network.convs
    hidden = attend(first, x, edge_index, 3, 2).flatten(1) + x @ first.res.weight.t() + first.bias
    hidden = F.elu(network.norms[0](hidden))
    skipped = (hidden @ last.res.weight.t()).view(N, -1, last.out_channels).mean(1)
    expected = attend(last, hidden, edge_index, 2, 3).mean(1) + skipped + last.bias
    torch.testing.assert_close(network(x, edge_index), expected)


def test_the_authors_network_for_ppi():
    first, middle, last = GATNet(50, 121, hidden=256, layers=3, heads=4, output_heads=6, skip=True).convs
    assert [tuple(conv.lin.weight.shape) for conv in (first, middle, last)] == [
        (1024, 50),
        (1024, 1024),
        (6 * 121, 1024),
    ]
    assert (first.res, last.res) == (None, None)
    assert middle.res.weight.shape == (1024, 1024)


def test_graphs_get_all_heads_side_by_side():
    edge_index, _, x = graph()
    network = build(GATNet, "graph", hidden=2, heads=3, layers=1)
    (conv,) = network.convs
    expected = F.elu(attend(conv, x, edge_index, 3, 2).flatten(1) + conv.bias)
    torch.testing.assert_close(network.encode(x, edge_index), expected)
    assert network(x, edge_index, batch=torch.arange(N) // 5, num_graphs=3).shape == (3, 3)


def test_attention_sums_to_one_for_each_node_and_head():
    edge_index, _, x = graph()
    network = build(GATNet, hidden=2, heads=3)
    _, (edges, attention) = network.convs[0](x, edge_index, return_attention_weights=True)
    sums = torch.zeros(N, 3, dtype=torch.float64).index_add_(0, edges[1], attention)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_the_defaults_are_the_papers():
    network = GATNet(1433, 7)
    first, last = network.convs
    assert (first.heads, first.out_channels, first.concat, first.dropout) == (8, 8, True, 0.6)
    assert (last.heads, last.out_channels, last.concat, last.dropout) == (1, 7, False, 0.6)
    assert network.dropout == 0.6


def test_attention_is_dropped_while_training():
    edge_index, _, x = graph()
    network = build(GATNet, dropout=0.0, attention_dropout=0.5).train()
    assert not torch.equal(network(x, edge_index), network(x, edge_index))
    assert not network.encode_is_deterministic
    dry = build(GATNet, dropout=0.0, attention_dropout=0.0).train()
    assert torch.equal(dry(x, edge_index), dry(x, edge_index))
    assert dry.encode_is_deterministic


def test_edge_weights_and_adjacencies_are_refused():
    edge_index, weight, x = graph()
    network = build(GATNet)
    with pytest.raises(DataError, match="cannot use edge weights"):
        network(x, edge_index, weight)
    with pytest.raises(DataError, match="plain edge_index"):
        network(x, Adjacency.from_edge_index(edge_index))
