"""The ways back through a network: all of them agree with each other, and tell what they leave out."""

import threading

import pytest
import torch

from pprgnn.core.depth import Fixed
from pprgnn.explore import run_view as graph_view
from pprgnn.explore.answers import Question
from pprgnn.explore.local import LocalGraph
from pprgnn.explore.traced import LeftError, LinearGraph, WholeGraph, asker_gone, is_linear
from pprgnn.nn.infinite_layer import infinite_layers
from pprgnn.training.explain import explain_node
from pprgnn.training.model import forward

from ..problems import ZOO
from ..training.small_data import one_graph, wide_graph, with_dense_features
from ..training.test_explain import of_graph, untrained
from .questions import answers, explain

USUAL = ("hidden=6", "eps=0.3", "eval_tol=1e-7")
NONLINEAR = [
    ("activation=relu",),
    ("activation=leaky_relu", "smooth_input=true"),
    ("activation=tanh",),
    ("activation=relu", "layers=2", "norm=batch", "dropout=0.5"),
    ("activation=relu", "layers=3", "jk=cat", "residual=true", "norm=layer"),
    ("activation=identity", "layers=2"),
    ("activation=tanh", "input_layer=true", "learn_eps=channel"),
]
LINEAR = [
    (),
    ("smooth_input=true",),
    ("norm=layer",),
    ("learn_eps=channel", "bias=false"),
    ("norm=batch", "jk=cat"),
]


def draw_norms(model):
    """Batch norms as after training: neither means nor variances are those of the start."""
    draw = torch.Generator().manual_seed(1)
    for each in model.network.modules():
        if isinstance(each, torch.nn.BatchNorm1d):
            each.running_mean.normal_(generator=draw)
            each.running_var.uniform_(0.5, 2.0, generator=draw)
    return model


def pair(graph, settings, *, channels=4, multi_label=False):
    """The same model twice: one to ask in the usual way, one for the explorer."""
    dataset = of_graph(ZOO[graph] if isinstance(graph, str) else graph, channels=channels, multi_label=multi_label)
    return dataset, *(draw_norms(untrained(dataset, *USUAL, *settings)) for _ in range(2))


def check(dataset, usual, found, nodes, target=None):
    for node in nodes:
        wanted = explain_node(usual, dataset, node, top=10_000, target=target)
        answer = explain(found, node, target=target)
        for name in ("score", "inputs", "biases", "rest", "probability"):
            expected = pytest.approx(getattr(wanted.decision, name), rel=1e-4, abs=2e-4)
            assert answer["decision"][name] == expected, name
        got = {each["node"]: each for each in answer["nodes"]}
        for each in wanted.influential:
            if each.distance is not None:
                assert got[each.node]["contribution"] == pytest.approx(each.contribution, rel=1e-3, abs=1e-4)
                assert got[each.node]["share"] == pytest.approx(each.share, rel=1e-2, abs=1e-4)
                assert got[each.node]["hop"] == each.distance
        for hop, share, signed, count in zip(
            answer["hops"],
            wanted.share_by_distance,
            wanted.signed_by_distance,
            wanted.nodes_by_distance,
            strict=True,
        ):
            assert (hop["share"], hop["signed"]) == pytest.approx((share, signed), abs=1e-4)
            assert hop["nodes"] == count
        assert answer["radius"] == wanted.radius
        assert answer["exact"] is True
        assert answer["left_out"] == ""


def forced(monkeypatch, kind, rows=None):
    """Take the ways of large graphs on a small one, with so many rows followed, or all."""
    monkeypatch.setattr(graph_view, "AT_ONCE", 0)
    if kind is LocalGraph:
        monkeypatch.setattr(graph_view, "is_linear", lambda network: False)
        monkeypatch.setattr(
            graph_view, "LocalGraph", lambda *given: LocalGraph(*given[:-1], rows or len(given[1].x))
        )


@pytest.mark.parametrize("graph", ["directed_weighted", "isolated_nodes"])
@pytest.mark.parametrize("settings", NONLINEAR, ids=" ".join)
def test_all_nodes_followed_is_exact(graph, settings, monkeypatch):
    dataset, usual, mine = pair(graph, settings)
    forced(monkeypatch, LocalGraph)
    found = answers(mine, dataset)
    assert isinstance(found.views[0].graph(0)._way, LocalGraph)
    check(dataset, usual, found, (0, 3), target=1)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(LocalGraph, ("layers=2",)), (LinearGraph, ("activation=identity",)), (WholeGraph, ("input_dropout=0.5",))],
)
def test_sparse_features(kind, settings, monkeypatch):
    dataset = wide_graph()
    usual, mine = (untrained(dataset, *USUAL, *settings) for _ in range(2))
    if kind is not WholeGraph:
        forced(monkeypatch, kind)
    found = answers(mine, dataset)
    assert isinstance(found.views[0].graph(0)._way, kind)
    check(with_dense_features(dataset), usual, found, (0, 3))


@pytest.mark.parametrize("graph", ["directed_weighted", "isolated_nodes"])
@pytest.mark.parametrize("settings", LINEAR, ids=" ".join)
@pytest.mark.parametrize("channels", [4, 0])
def test_without_an_activation_one_vector_per_level_is_exact(graph, settings, channels, monkeypatch):
    dataset, usual, mine = pair(graph, ("activation=identity", *settings), channels=channels)
    forced(monkeypatch, LinearGraph)
    found = answers(mine, dataset)
    assert isinstance(found.views[0].graph(0)._way, LinearGraph)
    check(dataset, usual, found, (0, 3))


@pytest.mark.parametrize("channels", [4, 0])
def test_small_graphs_go_the_whole_way(channels):
    dataset, usual, mine = pair("karate", ("layers=2",), channels=channels, multi_label=True)
    found = answers(mine, dataset)
    assert isinstance(found.views[0].graph(0)._way, WholeGraph)
    check(dataset, usual, found, (0, 33, 0), target=2)


@pytest.mark.parametrize(
    ("settings", "linear"),
    [
        (("activation=identity",), True),
        (("activation=relu",), False),
        (("activation=identity", "layers=2"), False),
        (("activation=identity", "residual=true"), False),
        (("activation=identity", "input_layer=true"), False),
    ],
)
def test_which_networks_are_linear(settings, linear):
    assert is_linear(untrained(of_graph(ZOO["karate"]), *settings).network) is linear


def test_norms_over_all_nodes_go_the_whole_way(monkeypatch):
    """Some rows alone would have another mean."""
    dataset, usual, mine = pair("karate", ("layers=2", "norm=graph"))
    monkeypatch.setattr(graph_view, "AT_ONCE", 0)
    found = answers(mine, dataset)
    assert isinstance(found.views[0].graph(0)._way, WholeGraph)
    check(dataset, usual, found, (5,))
    assert set(explain(found, 5)["reach"]) == {None}


def test_what_was_not_followed_is_told(monkeypatch):
    """Nothing is negative here, so that what is missing from a node is at most what is missing from the score."""
    dataset = one_graph(300, edges=450, multi_label=True)
    dataset._data.x.abs_()
    usual, mine = (untrained(dataset, *USUAL, "bias=false", "layers=2") for _ in range(2))
    for model in (usual, mine):
        for parameter in model.network.parameters():
            parameter.data = parameter.data.abs()
        model.network.head.bias.data.zero_()
    forced(monkeypatch, LocalGraph, rows=60)
    found, wanted = answers(mine, dataset), explain_node(usual, dataset, 7, top=300)
    answer = explain(found, 7)
    decision, exact = answer["decision"], {each.node: each.contribution for each in wanted.influential}
    missing = decision["rest"] / decision["score"]
    assert decision["score"] == pytest.approx(wanted.decision.score, rel=1e-4)
    assert 0.001 < missing < 0.9
    assert answer["exact"] is False
    assert f"leave {missing:.1%} of the score unexplained." in answer["left_out"]
    assert answer["left_out"].startswith(
        "Followed were the 60 nodes with the largest possible influence, which have "
    )
    near = [each for each in answer["nodes"] if each["hop"] <= 1]
    assert len(near) > 3
    for each in answer["nodes"]:
        assert each["contribution"] <= exact[each["node"]] * 1.001
        assert exact[each["node"]] - each["contribution"] <= decision["rest"] * 1.001
    followed = {each["node"] for each in answer["nodes"] if each["contribution"]}
    largest = {each.node for each in wanted.influential[:20]}
    assert len(followed & largest) > 15  # those that matter
    assert answer["partial"] is True
    whole = found.explain(Question(node=7), 300, True)
    assert (whole["exact"], whole["partial"], whole["left_out"]) == (True, False, "")
    assert whole["decision"]["rest"] == pytest.approx(0.0, abs=1e-4 * decision["score"])
    for each in whole["nodes"]:
        assert each["contribution"] == pytest.approx(exact[each["node"]], rel=1e-3, abs=1e-5)


def test_more_nodes_leave_less_out(monkeypatch):
    dataset = one_graph(200, edges=300)
    rests = []
    for rows in (20, 80, 200):
        with monkeypatch.context() as patch:
            forced(patch, LocalGraph, rows)
            answer = explain(answers(untrained(dataset, *USUAL), dataset), 7)
        rests.append(abs(answer["decision"]["rest"]))
    assert rests[0] > rests[1] > rests[2]
    assert rests[2] < 1e-4
    assert answer["exact"] is True


def test_terms_that_do_not_fit_are_told(monkeypatch):
    from pprgnn.explore import run_view

    dataset = of_graph(ZOO["karate"])
    monkeypatch.setattr(run_view, "plan_terms", lambda *_: (3, False))
    whole = explain(answers(untrained(dataset, *USUAL), dataset), 0)
    assert whole["exact"] is False
    assert whole["left_out"].startswith("Memory allows 3 of ")
    forced(monkeypatch, LocalGraph)
    local = explain(answers(untrained(dataset, *USUAL), dataset), 0)
    assert local["left_out"].startswith("Memory allows 3 of ")
    assert local["decision"]["inputs"] == pytest.approx(whole["decision"]["inputs"], rel=1e-4)


# --------------------------------------------------------------------------------------------------- giving up
@pytest.mark.parametrize(
    ("kind", "settings"),
    [(WholeGraph, ("layers=2",)), (LocalGraph, ("layers=2",)), (LinearGraph, ("activation=identity",))],
    ids=["whole", "local", "linear"],
)
def test_an_answer_that_is_given_up_leaves_the_model_as_it_was(kind, settings, monkeypatch):
    """At several of the places where it looks whether anybody waits; features look there, too."""
    dataset, usual, mine = pair("karate", settings)
    if kind is not WholeGraph:
        forced(monkeypatch, kind)
    found = answers(mine, dataset)
    assert isinstance(found.views[0].graph(0)._way, kind)
    questions = [lambda: explain(found, 3), lambda: found.features(Question(node=3))]
    before = [question() for question in questions]
    for question, wanted in zip(questions, before, strict=True):
        for looks in (0, 1, 2, 4, 8, 16, 32, 1 << 30):
            found.explain.clear()
            found.features.clear()
            before_it = asker_gone.set(GoneAfter(looks))
            try:
                question()
            except LeftError:
                continue
            finally:
                asker_gone.reset(before_it)
            assert looks > 0
            break
        found.explain.clear()
        found.features.clear()
        assert question() | {"seconds": 0} == wanted | {"seconds": 0}
    check(dataset, usual, found, (3,))


class GoneAfter(threading.Event):
    """Set after so many looks."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    def is_set(self):
        self.looks -= 1
        return self.looks < 0


# ----------------------------------------------------------------------------------------------------- by depth
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (WholeGraph, ("layers=2", "smooth_input=true", "norm=batch")),
        (LocalGraph, ("layers=2", "activation=tanh")),
        (LinearGraph, ("activation=identity", "smooth_input=true", "norm=layer", "learn_eps=channel")),
    ],
    ids=["whole", "local", "linear"],
)
@pytest.mark.parametrize(("graph", "multi_label"), [("karate", False), ("directed_weighted", True)])
def test_the_prediction_forms_as_at_fixed_depths(kind, settings, graph, multi_label, monkeypatch):
    dataset, usual, mine = pair(graph, settings, multi_label=multi_label)
    if kind is not WholeGraph:
        forced(monkeypatch, kind)
    found = answers(mine, dataset)
    answer, depths = explain(found, 3), found.runs()["runs"][0]["depths"]
    final = usual.probabilities(usual.logits(dataset))[3]
    assert [each["depth"] for each in answer["by_depth"]] == depths
    assert answer["by_depth"][-1]["probabilities"] == pytest.approx(final[answer["classes"]].tolist(), abs=1e-5)
    assert answer["classes"] == final.argsort(descending=True).tolist()
    layers = infinite_layers(usual.network)
    deepest = [each["depth"] for each in found.runs()["runs"][0]["layers"]]
    batches = usual.batches(dataset)
    for each in answer["by_depth"]:
        for (_, layer), most in zip(layers, deepest, strict=True):
            layer.depth_rule = Fixed(min(each["depth"], most))
        with torch.no_grad():
            logits = forward(usual.network.eval(), batches.batch(batches.all_graphs()))[3]
        wanted = usual.probabilities(logits[None])[0]
        assert each["probabilities"] == pytest.approx(wanted[answer["classes"]].tolist(), abs=1e-5)
        chosen = [i for i, one in enumerate(logits) if one > 0] if multi_label else [int(logits.argmax())]
        assert each["predicted"] == ["abc"[i] for i in chosen]
    hops = [sum(min(depth, most) + ("smooth_input=true" in settings) for most in deepest) for depth in depths]
    assert answer["reach"] == hops


def test_many_classes_keep_states_instead_of_logits():
    dataset = of_graph(ZOO["karate"], classes=8)
    mine, usual = untrained(dataset, "hidden=4"), untrained(dataset, "hidden=4")
    found = answers(mine, dataset)
    assert {kept.size(1) for kept in found.views[0].graph(0)._formed} == {4}
    answer = explain(found, 3)
    ((_, layer),) = infinite_layers(usual.network)
    layer.depth_rule = Fixed(2)
    with torch.no_grad():
        wanted = usual.logits(dataset)[3].softmax(0)[answer["classes"]]
    assert answer["by_depth"][2]["probabilities"] == pytest.approx(wanted.tolist(), abs=1e-5)
