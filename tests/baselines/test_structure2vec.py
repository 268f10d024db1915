"""structure2vec against its formula, written out densely."""

import pytest
import torch

from pprgnn import Adjacency
from pprgnn.baselines.sse import Structure2VecNet
from pprgnn.training.config import Config
from pprgnn.training.train import train
from tests.training.small_data import Recorder, all_for_training, divided, one_graph, several_graphs


def weighted_graph(nodes=9, edges=14):
    draw = torch.Generator().manual_seed(1)
    edge_index = torch.randint(nodes - 1, (2, edges), generator=draw).unique(dim=1)  # the last node is alone
    return edge_index, torch.rand(edge_index.size(1), generator=draw, dtype=torch.double) + 0.1


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_is_the_published_recursion(rounds, aggregate):
    edge_index, weight = weighted_graph()
    net = Structure2VecNet(4, 3, hidden=6, rounds=rounds, aggregate=aggregate).double().eval()
    x = torch.randn(9, 4, dtype=torch.double)
    a = torch.zeros(9, 9, dtype=torch.double)
    for (source, target), value in zip(edge_index.t().tolist(), weight.tolist(), strict=True):
        a[target, source] += value
    if aggregate == "mean":
        a = a / a.sum(1, keepdim=True).clamp(min=1e-300)
    mu = torch.zeros(9, 6, dtype=torch.double)
    for _ in range(rounds):
        mu = (x @ net.read.weight.t() + net.read.bias + a @ mu @ net.mix.weight.t()).relu()
    wanted = mu @ net.head[1].weight.t() + net.head[1].bias
    assert torch.allclose(net(x, edge_index, weight), wanted, rtol=1e-12, atol=1e-12)
    adj = Adjacency.from_edge_index(edge_index, weight, 9, **net.adjacency_options)
    assert torch.allclose(net(x, adj), wanted, rtol=1e-12, atol=1e-12)


def test_graphs_are_summed_up_and_do_not_mix():
    net = Structure2VecNet(4, 3, "graph", hidden=6).double().eval()
    first, second = torch.randn(3, 4, dtype=torch.double), torch.randn(2, 4, dtype=torch.double)
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    alone = net(first, edges, batch=torch.zeros(3, dtype=torch.long))
    both = torch.cat([edges, torch.tensor([[3, 4], [4, 3]])], dim=1)
    together = net(torch.cat([first, second]), both, batch=torch.tensor([0, 0, 0, 1, 1]))
    assert torch.allclose(together[:1], alone)
    head = net.head
    summed = head.hidden[0](net.encode(first, edges).sum(0, keepdim=True)).relu()
    assert torch.allclose(alone, head.out(summed))


def test_states_explode_with_the_sum_on_large_degrees_and_not_with_the_mean():
    """A clique of 200: each round multiplies by up to 199 ‖W₂‖; the docstring warns of it."""
    edges = torch.triu_indices(200, 200, offset=1)
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    x = torch.ones(200, 3)
    sizes = {}
    for aggregate in ("sum", "mean"):
        torch.manual_seed(0)
        net = Structure2VecNet(3, 2, rounds=4, aggregate=aggregate)
        sizes[aggregate] = float(net.encode(x, edges).detach().abs().max())
    assert sizes["mean"] < 10
    assert sizes["sum"] > 1e5


def test_learns_graphs_by_heart():
    dataset = several_graphs()
    config = Config.for_system("structure2vec").with_values(
        {"epochs": 60, "hidden": 32, "dropout": 0.0, "patience": 0}
    )
    config = config.with_values({"weight_decay": 0.0, "device": "cpu", "eval_every": 60})
    summary = train(config, dataset=dataset, split=all_for_training(dataset), listener=Recorder()).summary
    assert summary["scores"]["train"]["accuracy"] > 0.95


@pytest.mark.parametrize("channels", [8, 0])
def test_learns_nodes_with_and_without_features(channels):
    dataset = one_graph(channels=channels)
    config = Config.for_system("structure2vec").with_values({"epochs": 80, "dropout": 0.0, "patience": 0})
    recorder = Recorder()
    train(config, dataset=dataset, split=divided(dataset), listener=recorder)
    assert recorder.records[-1].train["accuracy"] > 0.9


def test_rounds_are_checked():
    with pytest.raises(ValueError, match="rounds must be >= 1"):
        Structure2VecNet(3, 2, rounds=0)
