"""SSE: the steady state against a dense solve, the gradient against the formula, and what training keeps."""

import copy

import pytest
import torch

from pprgnn import Adjacency
from pprgnn.baselines.sse import SSENet
from pprgnn.core.solution import ConvergenceWarning, NotFiniteError
from pprgnn.training.config import Config
from pprgnn.training.loop import Training
from pprgnn.training.model import Model
from pprgnn.training.train import resume, train
from tests.training.small_data import Recorder, all_for_training, divided, one_graph, random_edges, several_graphs

NODES = 12


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def graph():
    draw = torch.Generator().manual_seed(5)
    edges = random_edges(NODES, 20, draw)
    return edges, torch.rand(edges.size(1), generator=draw, dtype=torch.double) + 0.1


def network(**options):
    return SSENet(4, 3, **{"hidden": 6, "steady_tol": 1e-12, "max_sweeps": 2000} | options).double()


def features():
    return torch.randn(NODES, 4, dtype=torch.double)


def dense(edges, weight, aggregate):
    a = torch.zeros(NODES, NODES, dtype=torch.double).index_put((edges[1], edges[0]), weight, accumulate=True)
    return a / a.sum(1, keepdim=True).clamp(min=1e-300) if aggregate == "mean" else a


def contracting(net, a):
    """The part of W₂ for embeddings, scaled down to the bound."""
    slope = net.mix.weight.svd().S[0] * net.lift.weight.svd().S[0]
    if net.aggregate == "sum":
        slope = slope * torch.linalg.matrix_norm(a, ord=2)
    return net.mix.weight * (net.contraction / slope).clamp(max=1) if net.contraction else net.mix.weight


def operator(net, h, x, a, mix=None):
    """T as the paper writes it: one W₂ for [x_v, Σ h_u, Σ x_u]."""
    mix = contracting(net, a) if mix is None else mix
    w2 = torch.cat([net.read.weight, mix, net.read_neighbours.weight], dim=1)
    inner = torch.cat([x, a @ h, a @ x], dim=1) @ w2.t() + net.read.bias
    return inner.relu() @ net.lift.weight.t() + net.lift.bias


@torch.no_grad()
def steady(net, x, a):
    h, mix = torch.zeros(NODES, 6, dtype=torch.double), contracting(net, a)
    for _ in range(300):
        h = operator(net, h, x, a, mix)
    return h


def shrink(net, scale=0.3):
    with torch.no_grad():
        net.mix.weight.mul_(scale)
    return net


@pytest.mark.parametrize("contraction", [0.0, 0.9])
@pytest.mark.parametrize("aggregate", ["mean", "sum"])
def test_evaluation_finds_the_steady_state(aggregate, contraction):
    (edges, weight), x = graph(), features()
    net = shrink(network(aggregate=aggregate, contraction=contraction)).eval()
    a = dense(edges, weight, aggregate)
    wanted = steady(net, x, a)
    assert torch.allclose(operator(net, wanted, x, a), wanted)
    rtol = 1e-5 if (aggregate, contraction) == ("sum", 0.9) else 1e-9  # the bound of the norm of A is not sharp
    assert torch.allclose(net.encode(x, edges, weight), wanted, rtol=rtol, atol=rtol)


def test_random_updates_reach_the_steady_state():
    (edges, weight), x = graph(), features()
    net = shrink(network(share=0.25, updates=20)).train()
    for _ in range(15):
        state = net.encode(x, edges, weight)
    wanted = steady(net, x, dense(edges, weight, "mean"))
    assert torch.allclose(net.state, wanted, atol=1e-9)
    assert torch.allclose(state, wanted, atol=1e-9)


def test_an_update_changes_the_chosen_nodes_only():
    (edges, weight), x = graph(), features()
    net = network(share=0.25, updates=1, step=0.3).train()
    for _ in range(3):
        net.encode(x, edges, weight)
    before = net.state.clone()
    net.encode(x, edges, weight)
    changed = (net.state != before).any(1)
    assert int(changed.sum()) == 3
    a = dense(edges, weight, "mean")
    wanted = 0.7 * before + 0.3 * operator(net, before, x, a)
    assert torch.allclose(net.state[changed], wanted[changed])


def test_nodes_may_have_another_order_inside():
    (edges, weight), x = graph(), features()
    net = shrink(network(updates=30, share=0.2, step=0.9)).train()
    adj = Adjacency.from_edge_index(
        edges, weight, NODES, reorder=True, dtype=torch.double, **net.adjacency_options
    )
    assert adj.order is not None
    for _ in range(10):
        net.encode(x, adj)
    assert torch.allclose(net.state, steady(net, x, dense(edges, weight, "mean")), atol=1e-9)


@pytest.mark.parametrize("scale", [0.3, 3.0])  # the second: the bound on the contraction is at work
def test_gradient_is_that_of_one_application(scale):
    (edges, weight), x = graph(), features()
    net = shrink(network(), scale).train()
    net.encode(x, edges, weight)
    read = torch.randn(NODES, 6, dtype=torch.double)
    wanted_for = [p for name, p in net.named_parameters() if not name.startswith("head")]
    mine = torch.autograd.grad((net.encode(x, edges, weight) * read).sum(), wanted_for)
    kept = net.state.clone()
    assert kept.abs().sum() > 0
    theirs = torch.autograd.grad((operator(net, kept, x, dense(edges, weight, "mean")) * read).sum(), wanted_for)
    assert all(torch.allclose(*pair) for pair in zip(mine, theirs, strict=True))


def test_evaluation_depends_on_history_to_within_the_tolerance_only_and_changes_nothing():
    (edges, weight), x = graph(), features()
    net = shrink(network(steady_tol=1e-8)).train()
    fresh = copy.deepcopy(net).eval().encode(x, edges, weight)
    for _ in range(4):
        net.encode(x, edges, weight)
        kept = net.state.clone()
        assert not torch.allclose(kept, fresh, atol=1e-3)
        assert torch.allclose(net.eval().encode(x, edges, weight), fresh, atol=1e-6)
        assert torch.equal(net.state, kept)
        net.train()


def test_other_graphs_start_from_zero_and_leave_the_embeddings_alone():
    (edges, weight), x = graph(), features()
    net = shrink(network()).train()
    net.encode(x, edges, weight)
    kept = net.state.clone()
    other, more = random_edges(5, 6, torch.Generator().manual_seed(1)), torch.randn(5, 4, dtype=torch.double)
    found = net.eval().encode(more, other)
    assert torch.equal(net.state, kept)
    assert torch.equal(copy.deepcopy(net).eval().encode(more, other), found)


def test_several_training_graphs_keep_nothing_and_sweep_from_zero():
    (edges, weight), x = graph(), features()
    net = network(updates=3, step=0.4).train()
    net.encode(torch.randn(5, 4, dtype=torch.double), random_edges(5, 6, torch.Generator().manual_seed(1)))
    assert net.state.shape == (5, 6)
    a, h = dense(edges, weight, "mean"), torch.zeros(NODES, 6, dtype=torch.double)
    for _ in range(3):
        h = 0.6 * h + 0.4 * operator(net, h, x, a)
    for _ in range(2):
        assert torch.allclose(net.encode(x, edges, weight), operator(net, h, x, a))
        assert net.state.shape == (0, 6)


def test_graphs_with_the_same_edges_are_told_apart_by_their_features():
    (edges, weight), x = graph(), features()
    net = network().train()
    net.encode(x, edges, weight)
    net.encode(x.clone(), edges, weight)
    assert net.state.shape == (NODES, 6)
    loaded = network().train()
    loaded.load_state_dict(net.state_dict())
    for each in (net, loaded):
        each.encode(x.flip(0), edges, weight)
        assert each.state.shape == (0, 6)


def test_without_a_bound_it_need_not_converge_and_says_so():
    (edges, weight), x = graph(), features()
    net = network(contraction=0.0, max_sweeps=5).eval()
    with torch.no_grad():  # nothing is cut off by ReLU, and T triples what it gets
        net.mix.weight.copy_(3 * torch.eye(6))
        net.lift.weight.copy_(torch.eye(6))
        net.read.bias.fill_(10.0)
        net.lift.bias.fill_(1.0)
    with pytest.warns(ConvergenceWarning, match=r"not steady after 5 steps .*contraction"):
        net.encode(x, edges, weight)
    net.max_sweeps = 5000
    with pytest.raises(NotFiniteError, match="overflowed"):
        net.encode(x, edges, weight)
    net.contraction = 0.9
    assert torch.isfinite(net.encode(x, edges, weight)).all()


def test_weights_and_embeddings_are_loaded_whatever_the_size_of_the_graph():
    (edges, weight), x = graph(), features()
    net = network().train()
    net.encode(x, edges, weight)
    other = network().train()
    other.load_state_dict(net.state_dict())
    torch.manual_seed(1)
    mine = net.encode(x, edges, weight)
    torch.manual_seed(1)
    assert torch.equal(other.encode(x, edges, weight), mine)
    assert torch.equal(other.state, net.state)
    with pytest.raises(RuntimeError, match="size mismatch"):
        network(hidden=7).load_state_dict(net.state_dict())
    net.reset_parameters()
    assert net.state.shape == (0, 6)


@pytest.mark.parametrize(
    "options", [{"updates": 0}, {"share": 1.5}, {"step": 0.0}, {"contraction": 1.0}, {"steady_tol": 0.0}]
)
def test_options_are_checked(options):
    with pytest.raises(ValueError, match="must be"):
        SSENet(4, 3, **options)


# ----------------------------------------------------------------------------------------------------- in training
def config(**values):
    usual = {"epochs": 6, "hidden": 8, "device": "cpu", "patience": 0, "checkpoint_seconds": 0.0}
    return Config.for_system("sse").with_values(usual | values)


class Stops(Recorder):
    """Asks for an end after some epochs, as Ctrl-C does."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def epoch(self, record):
        super().epoch(record)
        if record.epoch == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("channels", [8, 0])
def test_a_run_that_was_stopped_goes_on_to_the_last_bit(tmp_path, channels, monkeypatch):
    monkeypatch.setattr("pprgnn.training.loop.CHECKPOINT_SHARE", float("inf"))  # a checkpoint in every epoch
    dataset = one_graph(channels=channels)
    split = divided(dataset)
    whole = train(config(), dataset=dataset, split=split, folder=tmp_path / "whole", listener=Recorder())
    with pytest.raises(KeyboardInterrupt):
        train(config(), dataset=dataset, split=split, folder=tmp_path / "half", listener=Stops(4))
    assert (tmp_path / "half" / "checkpoint.safetensors").is_file()
    resumed = resume(tmp_path / "half", listener=Recorder())
    lines = [[{**line, "seconds": 0} for line in each.run.records()] for each in (whole, resumed)]
    assert len(lines[0]) == 6
    assert lines[0] == lines[1]
    mine, theirs = (each.model.network.state_dict() for each in (whole, resumed))
    assert any(name.endswith("state") and tensor.numel() for name, tensor in mine.items())
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    loaded = Model.load(tmp_path / "half")
    assert torch.equal(loaded.logits(dataset), whole.model.logits(dataset))


def test_the_best_epoch_brings_its_embeddings_along():
    dataset = one_graph()
    training = Training(config(epochs=12), dataset, divided(dataset), listener=Recorder())
    summary = training.fit()
    batch = training.fixed[0]
    network = training.network.eval()
    with torch.no_grad():
        logits = network(batch.x, batch.edges)[batch.rows]
    assert float((logits.argmax(1) == batch.y).float().mean()) == pytest.approx(summary["best"])


def test_learns_nodes_graphs_and_several_graphs():
    for dataset, split in (
        (one_graph(weighted=True), divided),
        (several_graphs(), all_for_training),
        (several_graphs(count=8, task="node"), lambda data: divided(data, unit="graph")),
    ):
        values = {"epochs": 40, "hidden": 32, "dropout": 0.0, "weight_decay": 0.0, "eval_every": 40}
        summary = train(config(**values), dataset=dataset, split=split(dataset), listener=Recorder()).summary
        assert summary["scores"]["train"]["accuracy"] > 0.9


def test_learns_chains():
    """The class is written on the first of 10 nodes only: chance is one half, seeing few hops little more."""
    values = {"epochs": 100, "hidden": 32, "dropout": 0.0, "weight_decay": 0.0, "batch_size": 20, "eval_every": 20}
    own = {"contraction": 0.99, "updates": 20, "step": 1.0}
    data = {"data.name": "chains", "data.options": {"length": 10, "train": 10, "val": 6, "test": 10}}
    trained = train(config(**values, **own, **data), listener=Recorder())
    assert trained.summary["scores"]["test"]["accuracy"] > 0.8


def test_learns_cora(data_root):
    values = {"data.name": "Cora", "features": "normalized", "epochs": 60, "hidden": 32, "eval_every": 20}
    summary = train(config(**values, lr=0.02, dropout=0.5), listener=Recorder()).summary
    assert summary["scores"]["test"]["accuracy"] > 0.6
