"""Answers for a few nodes: those of a full pass, from a part of the graph, or with the reason why not."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from pprgnn import NodeClassifier
from pprgnn.data import load
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.store import open_file, save
from pprgnn.local import neighbourhood
from pprgnn.local.neighbourhood import RowGrowth
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.training import few_nodes
from pprgnn.training.build import Shape, build_network, feature_kind, features
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.few_nodes import FewNodes
from pprgnn.training.model import Model
from tests.training.small_data import facts, is_sentence, one_graph, several_graphs, without_signs

NODES = 600
ASKED = torch.tensor([300, 17, 300])


def long_graph(*, channels=6, directed=False, weighted=False, seed=0, classes=3):
    """A path of which the last node has no edge: most nodes are far from most others."""
    draw = torch.Generator().manual_seed(seed)
    here = torch.arange(NODES - 2)
    edges = torch.stack([here, here + 1])
    edges = edges if directed else torch.cat([edges, edges.flip(0)], dim=1)
    data = Data(edge_index=edges, y=torch.arange(NODES) % classes, num_nodes=NODES)
    if channels:
        data.x = torch.randn(NODES, channels, generator=draw)
    if weighted:
        weight = torch.rand(NODES - 2, generator=draw) + 0.3
        data.edge_weight = weight if directed else torch.cat([weight, weight])
    return GraphDataset.from_graphs([data], facts("path", "node", classes))


def untrained(dataset, *settings, tol=1e-4, scale=0.6, seed=0):
    """A model with random weights, W of norm ``scale``, and unusual statistics of batch norm."""
    torch.manual_seed(seed)
    config = Config().with_settings(["hidden=8", "eps=1.0", f"eval_tol={tol}", *settings])
    kind = feature_kind(dataset, config.data.features)
    shape = Shape.of(dataset, features(dataset, kind))
    network = build_network(config.model, shape).eval()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, PPRConv):
                module.weight.mul_(scale / torch.linalg.matrix_norm(module.weight, ord=2))
            if isinstance(module, torch.nn.BatchNorm1d):
                module.running_mean.uniform_(-0.5, 0.5)
                module.running_var.uniform_(0.5, 2.0)
                module.weight.uniform_(-1.5, 1.5)
        if getattr(network, "embedding", None) is not None:
            network.embedding.weight.normal_()
    return Model(network, config, dataset.facts, shape, kind)


def precise(model):
    """The same model with an error that does not count."""
    training = replace(model.config.training, eval_tol=1e-7)
    return replace(model, config=replace(model.config, training=training))


def last_layer(model):
    return [module for module in model.network.modules() if isinstance(module, PPRConv)][-1]


def check_promise(model, dataset, asked, monkeypatch):
    """‖G - G∞‖_F <= eval_tol · ‖B‖_F over the asked rows of the last layer; and the logits behind them."""
    inputs, conv = [], last_layer(model)
    term = PPRConv._input_term
    with monkeypatch.context() as patch:

        def noted(layer, b):
            inputs.append((layer, term(layer, b)))
            return inputs[-1][1]

        patch.setattr(PPRConv, "_input_term", noted)
        wanted = precise(model).logits(dataset)[asked]
        b = next(each for layer, each in reversed(inputs) if layer is conv)
    rows = asked.unique()
    state, scale = conv.last_solution.state[rows], float(torch.linalg.vector_norm(b[rows]))
    logits, effort = FewNodes(model, dataset).logits(asked)
    assert effort.certified, effort.reason
    tol = model.config.training.eval_tol
    made = float(torch.linalg.vector_norm(conv.last_solution.state[: len(rows)] - state))
    assert made <= tol * scale * 1.001 + 2e-6 * scale  # the second term: single precision
    assert effort.error_bound <= tol * 1.001
    torch.testing.assert_close(logits, wanted, rtol=0, atol=max(100 * tol * scale, 1e-4))
    return effort


STACKS = {
    "plain": [],
    "small eps": ["eps=0.5"],
    "several rates": ["eps=[1.0, 0.5]"],
    "rate per channel": ["learn_eps=channel"],
    "tanh": ["activation=tanh"],
    "smooth": ["smooth_input=true"],
    "no loops": ["self_loops=false"],
    "row": ["normalize=row"],
    "input layer": ["input_layer=true"],
    "given depth": ["depth=4"],
    "certificate": ["depth=certificate"],
    "normalized": ["data.features=normalized"],
    "degree": ["data.features=degree"],
    "degree beside": ["data.features=given+degree"],
    "batch norm": ["norm=batch"],
    "layer norm": ["norm=layer"],
    "residual": ["residual=true"],
    "two": ["layers=2"],
    "two smooth": ["layers=2", "smooth_input=true"],
    "two with batch norm": ["layers=2", "norm=batch"],
    "two with layer norm": ["layers=2", "norm=layer"],
    "three residual, cat": ["layers=3", "residual=true", "jk=cat"],
    "two, max": ["layers=2", "jk=max", "norm=batch", "residual=true"],
    "PPI": ["architecture=ppi", "hidden=2"],
}


@pytest.mark.parametrize("settings", STACKS.values(), ids=STACKS)
def test_each_architecture_keeps_the_promise(settings, monkeypatch):
    dataset = without_signs(long_graph()) if STACKS["normalized"] == settings else long_graph()
    effort = check_promise(untrained(dataset, *settings), dataset, ASKED, monkeypatch)
    assert effort.asked == 2
    assert 2 < effort.nodes < NODES / 2
    assert 0 < effort.edges < effort.all_edges / 2


@pytest.mark.parametrize("architecture", ["node", "co-purchase"])
@pytest.mark.parametrize("smooth", ["true", "false"])
def test_learned_rows(architecture, smooth, monkeypatch):
    dataset = long_graph(channels=0)
    settings = [f"architecture={architecture}"] + ([f"smooth_input={smooth}"] if architecture == "node" else [])
    effort = check_promise(untrained(dataset, *settings), dataset, ASKED, monkeypatch)
    assert effort.nodes < NODES / 2


@pytest.mark.filterwarnings("ignore:Symmetric normalisation gives weight 0")
@pytest.mark.parametrize("settings", [[], ["normalize=row"], ["smooth_input=true", "layers=2"]])
@pytest.mark.parametrize("weighted", [False, True])
def test_directed_and_weighted(settings, weighted, monkeypatch):
    dataset = long_graph(directed=True, weighted=weighted)
    effort = check_promise(untrained(dataset, *settings), dataset, ASKED, monkeypatch)
    assert effort.nodes < NODES / 2


@pytest.mark.parametrize("seed", range(6))
def test_crowded_graphs(seed, monkeypatch):
    monkeypatch.setattr(neighbourhood, "WORTH", 1e9)  # even where a full pass is the better choice
    dataset = one_graph(60, edges=150, weighted=seed % 2 == 0, seed=seed)
    asked = torch.randperm(60, generator=torch.Generator().manual_seed(seed))[:3]
    model = untrained(dataset, f"layers={1 + seed % 2}", tol=10.0 ** -(1 + seed % 4), scale=0.4 + 0.3 * seed)
    check_promise(model, dataset, asked, monkeypatch)


@pytest.mark.parametrize(
    ("lin", "settings"),
    [(5.0, []), (0.02, ["residual=true"]), (5.0, ["smooth_input=true"]), (0.02, ["jk=cat"])],
    ids=["strong", "around", "smooth", "seen"],
)
def test_two_layers_use_up_what_they_may(lin, settings):
    """Everything is positive, so errors add up: a share that is forgotten anywhere would break the promise."""
    dataset = long_graph(channels=1)
    dataset._data.x.fill_(1.0)
    model = untrained(dataset, "layers=2", "hidden=1", "activation=identity", "bias=false", *settings, tol=3e-2)
    first, second = model.network.convs
    with torch.no_grad():
        for conv in (first, second):
            conv.weight.fill_(0.9)
        first.lin.weight.fill_(1.0)
        second.lin.weight.fill_(lin)
        model.network.head.weight.fill_(1.0)
    wanted = precise(model).logits(dataset)[[300], 0]
    scale = lin * float(first.last_solution.state[300])
    logits, effort = FewNodes(model, dataset).logits([300])
    assert effort.certified
    made = float((wanted - logits[:, 0]).abs()) / scale
    assert 0.3 * effort.error_bound <= made <= effort.error_bound * 1.01 + 1e-5
    assert effort.error_bound <= 3e-2


def test_better_answers_take_more_nodes(monkeypatch):
    dataset = long_graph()
    efforts = [
        check_promise(untrained(dataset, tol=tol), dataset, ASKED, monkeypatch) for tol in (1e-1, 1e-3, 1e-5)
    ]
    counts = [effort.nodes for effort in efforts]
    assert counts == sorted(set(counts))


def test_far_nodes_are_not_touched():
    """Neither their features nor their edges: both are NaN, once what holds for the whole graph is known."""
    for settings in ([], ["smooth_input=true"], ["layers=2"]):
        dataset = long_graph()
        few = FewNodes(untrained(dataset, *settings), dataset)
        before, effort = few.logits([300])
        far = (torch.arange(NODES) - 300).abs() > effort.nodes
        assert far.sum() > NODES / 2
        dataset._data.x[far] = torch.nan
        inner = far if few.adj.order is None else far[few.adj.order]
        few.adj.matrix.values()[inner[few.adj.row]] = torch.nan
        after, _ = few.logits([300])
        assert torch.equal(before, after)
        with pytest.raises(TrainingError, match="is nan"):  # whoever needs them does notice
            few.logits([5])


def test_features_that_are_needed_must_be_finite():
    dataset = long_graph()
    few = FewNodes(untrained(dataset), dataset)
    dataset._data.x[301, 2] = torch.nan
    with pytest.raises(TrainingError, match="feature 2 of node 301 of path is nan"):
        few.logits([300])
    with pytest.raises(TrainingError, match="feature 2 of node 301 of path is nan"):
        FewNodes(untrained(long_graph()), dataset)


def test_a_node_without_edges():
    dataset = long_graph()
    model = untrained(dataset, "self_loops=false")
    logits, effort = FewNodes(model, dataset).logits([NODES - 1])
    assert (effort.nodes, effort.edges, effort.certified) == (1, 0, True)
    torch.testing.assert_close(logits, precise(model).logits(dataset)[[NODES - 1]])


def test_repeated_nodes_come_back_in_their_order():
    dataset = long_graph()
    model = untrained(dataset)
    few = FewNodes(model, dataset)
    logits, effort = few.logits([5, 200, 5, 9])
    assert effort.asked == 3
    assert torch.equal(logits[0], logits[2])
    torch.testing.assert_close(logits, model.logits(dataset)[[5, 200, 5, 9]], rtol=0, atol=1e-3)


def test_all_nodes_take_the_full_pass():
    dataset = long_graph()
    model = untrained(dataset)
    logits, effort = FewNodes(model, dataset).logits(torch.arange(NODES))
    assert not effort.certified
    assert "of all edges matter" in effort.reason
    assert (effort.nodes, effort.edges) == (NODES, effort.all_edges)
    assert torch.equal(logits, model.logits(dataset))


def test_strong_weights_take_the_full_pass():
    dataset = one_graph(80, edges=400)
    model = untrained(dataset, "eps=0.1", scale=3.0)
    logits, effort = FewNodes(model, dataset).logits([3])
    assert not effort.certified
    assert effort.error_bound is None
    assert torch.equal(logits, model.logits(dataset)[[3]])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["norm=graph"], "GraphNorm mixes the rows of all nodes"),
        (["system=gcn"], "no bound is known for GCN"),
        (["system=ignn"], "no bound is known for IGNNConv"),
        (["system=infinite"], "no bound is known for"),
    ],
)
def test_networks_without_a_bound_say_so(settings, reason):
    dataset = long_graph()
    config = Config().with_settings([*settings, "hidden=8"])
    shape = Shape.of(dataset, features(dataset, "given"))
    model = Model(build_network(config.model, shape).eval(), config, dataset.facts, shape, "given")
    logits, effort = FewNodes(model, dataset).logits([4, 2])
    assert not effort.certified
    assert reason in effort.reason
    torch.testing.assert_close(
        logits, model.logits(dataset)[[4, 2]]
    )  # an equilibrium starts where the last one ended


def test_several_graphs_take_the_full_pass():
    dataset = several_graphs(task="node")
    model = untrained(dataset)
    logits, effort = FewNodes(model, dataset).logits([7, 0])
    assert effort.reason == "there are several graphs"
    assert torch.equal(logits, model.logits(dataset)[[7, 0]])


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([], "At least one node"),
        ([NODES], "in 0 ... 599, but came as 600 to 600"),
        ([3, -1], "in 0 ... 599, but came as -1 to 3"),
        ([0.5], "whole numbers"),
    ],
)
def test_impossible_nodes(nodes, said):
    dataset = long_graph()
    with pytest.raises(TrainingError, match=said) as error:
        FewNodes(untrained(dataset), dataset).logits(nodes)
    assert is_sentence(str(error.value))


def test_other_data_is_refused():
    model = untrained(long_graph())
    with pytest.raises(TrainingError, match="reads 6 features per node, but path has 5"):
        FewNodes(model, long_graph(channels=5))
    learned = untrained(long_graph(channels=0))
    with pytest.raises(TrainingError, match="other edges"):
        FewNodes(learned, long_graph(channels=0, directed=True))
    graphs = several_graphs()
    for_graphs = untrained(graphs, "architecture=graph")
    with pytest.raises(TrainingError, match="labels whole graphs"):
        FewNodes(for_graphs, graphs)


def test_nothing_remains_changed():
    dataset = long_graph()
    model = untrained(dataset, "dropout=0.5")
    conv = last_layer(model)
    model.network.train()
    before = (conv.depth_rule, conv.tol, conv.training)
    first = model.logits(dataset, nodes=[3])
    assert (conv.depth_rule, conv.tol, conv.training) == before
    assert torch.equal(first, model.logits(dataset, nodes=torch.tensor([3])))


def test_classifier():
    classifier = NodeClassifier(hidden=8, epochs=2, dropout=0.0, eps=2.0).fit(long_graph())
    nodes = [3, 30, 3]
    torch.testing.assert_close(
        classifier.predict_proba(nodes=nodes), classifier.predict_proba()[nodes], rtol=0, atol=1e-3
    )
    assert torch.equal(classifier.predict(nodes=nodes), classifier.predict()[nodes])


def test_what_holds_for_the_graph_is_found_once(tmp_path, monkeypatch):
    monkeypatch.setattr(few_nodes, "LARGE_GRAPH", 10)
    save(long_graph(), tmp_path / "path.safetensors")
    model = untrained(long_graph())
    first, _ = FewNodes(model, open_file(tmp_path / "path.safetensors")).logits([9])
    with monkeypatch.context() as patch:
        patch.setattr(RowGrowth, "of", lambda _: pytest.fail("found again"))
        patch.setattr(few_nodes, "largest_row", lambda *_, **__: pytest.fail("found again"))
        again, _ = FewNodes(model, open_file(tmp_path / "path.safetensors")).logits([9])
    assert torch.equal(first, again)
    other = long_graph(seed=1)
    other._data.x *= 1000
    save(other, tmp_path / "path.safetensors")  # another file in its place: nothing of the old one counts
    few = FewNodes(model, open_file(tmp_path / "path.safetensors"))
    assert few.size == pytest.approx(FewNodes(model, other).size)


def test_com_dblp(data_root, monkeypatch):
    if not (data_root / "com-dblp").is_dir():
        pytest.skip("needs com-DBLP in PPRGNN_DATA")
    dataset = load("com-DBLP")
    model = untrained(dataset, "hidden=2", "self_loops=false", tol=1e-3, scale=0.5)
    effort = check_promise(model, dataset, torch.tensor([17, 4711]), monkeypatch)
    assert effort.nodes < 0.1 * effort.all_nodes
