"""What the page is told: runs, searches and explanations, for every kind of data."""

import itertools
import json
import time

import pytest
import torch

from pprgnn.data.own.tables import from_tables
from pprgnn.errors import DataError
from pprgnn.explore.answers import Answers, Question, chosen_nodes, edges_among
from pprgnn.explore.dataset_view import Names, NotThereError
from pprgnn.explore.run_view import Opened, offered_depths
from pprgnn.training.config import Config
from pprgnn.training.explain import explain_graph, explain_node
from pprgnn.training.explain_features import explain_features
from pprgnn.training.model import Model
from pprgnn.training.reach import Readers
from pprgnn.training.run import Run
from pprgnn.training.systems import SYSTEMS
from pprgnn.training.train import train

from ..problems import ZOO
from ..training.small_data import is_sentence, one_graph, several_graphs
from ..training.test_explain import of_graph, untrained
from .questions import answers, explain

NAMES = ["ann", "Anna", 'the "great" joe', "zoë", "joe", "banana", "⟨x⟩ & <b>y</b>", "hal"]
TEAMS = ["red", "blue", "red", "blue", "red", "blue", "red", ""]
SPLITS = ["train", "train", "val", "val", "test", "test", "test", ""]


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


@pytest.fixture(scope="module")
def friends(tmp_path_factory):
    """A finished run on a user's own graph, a path of eight friends with names that are hard to write."""
    folder = tmp_path_factory.mktemp("friends")
    edges = "".join(f"{quoted(a)},{quoted(b)}\n" for a, b in itertools.pairwise(NAMES))
    rows = zip(NAMES, TEAMS, SPLITS, strict=True)
    nodes = "".join(f"{quoted(name)},{3 * i % 7},{team},{split}\n" for i, (name, team, split) in enumerate(rows))
    (folder / "edges.csv").write_text("source,target\n" + edges, encoding="utf-8")
    (folder / "nodes.csv").write_text("id,age,team,split\n" + nodes, encoding="utf-8")
    own = from_tables(folder / "edges.csv", folder / "nodes.csv", label="team", name="friends")
    train(Config().with_settings(["epochs=3", "hidden=4", "eps=0.3"]), dataset=own, folder=folder / "run")
    model = Model.load(folder / "run")
    return answers(model, own, Run.open(folder / "run"), "runs/friends")


@pytest.fixture(scope="module")
def karate():
    dataset = of_graph(ZOO["karate"])
    return answers(untrained(dataset, "hidden=6"), dataset)


# --------------------------------------------------------------------------------------------------------- runs
def test_what_was_opened(friends):
    told = friends.runs()
    (run,) = told["runs"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (run["index"], run["name"], run["system"], run["title"]) == (0, "friends", "pprgnn", "PPRGNN")
    assert (run["data"], run["task"], run["multi_label"]) == ("friends", "node", False)
    assert (run["num_graphs"], run["num_nodes"], run["num_edges"]) == (1, 8, 7)
    assert sorted(run["classes"]) == ["blue", "red"]
    assert run["metric"] == "accuracy"
    assert set(run["scores"]) == {"val", "test"}
    assert run["depths"][-1] == run["layers"][0]["depth"]
    assert is_sentence(run["layers"][0]["sentence"])
    assert told["problems"] == []
    places = {each["node"]: each["name"] for each in told["suggestions"]}
    assert len(places) == len(told["suggestions"])
    assert all(NAMES[node] == name for node, name in places.items())
    assert told["version"]


@pytest.mark.parametrize(
    ("deepest", "depths"),
    [
        (None, []),
        (0, [0]),
        (3, [0, 1, 2, 3]),
        (7, [0, 1, 2, 3, 4, 5, 6, 7]),
        (14, [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14]),
        (26, [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 26]),
    ],
)
def test_the_slider_offers_ever_fewer_depths(deepest, depths):
    assert offered_depths(deepest) == depths


def test_suggestions_are_what_they_say():
    dataset = one_graph(200, classes=3, edges=400)
    model, usual = untrained(dataset, "hidden=6"), untrained(dataset, "hidden=6")
    probabilities, y = usual.logits(dataset).softmax(1), dataset.labels()
    told = answers(model, dataset).runs()["suggestions"]
    assert 6 <= len(told) <= 12
    wrong = [each for each in told if each["why"].startswith("confidently wrong")]
    assert told[: len(wrong)] == wrong
    for each in wrong:
        assert int(probabilities[each["node"]].argmax()) != int(y[each["node"]])
        assert each["why"].endswith(f"is class {int(y[each['node']])}")
    (hub,) = (each for each in told if each["why"].startswith("a hub"))
    degree = torch.bincount(dataset._data.edge_index[1])
    assert degree[hub["node"]] == degree.max()
    assert hub["why"] == f"a hub: {int(degree.max())} neighbours"
    doubt = next(each for each in told if each["why"].startswith("undecided"))
    top = probabilities.topk(2).values
    gaps = top[:, 0] - top[:, 1]
    assert gaps[doubt["node"]] == gaps.min()


def test_several_runs_and_one_that_does_not_fit(tmp_path):
    dataset, wider = of_graph(ZOO["karate"]), of_graph(ZOO["karate"], channels=7)
    opened = [
        Opened(tmp_path / "one", untrained(dataset, "hidden=6"), dataset, None),
        Opened(tmp_path / "wide", untrained(wider, "hidden=6"), dataset, None),
        Opened(tmp_path / "gcn", untrained(dataset, "hidden=6", "system=gcn"), dataset, None),
    ]
    found = Answers(opened, ["a: b."], lambda text: None)
    told = found.runs()
    assert [(run["index"], run["name"]) for run in told["runs"]] == [(0, "one"), (1, "gcn")]
    assert told["problems"][0] == "a: b."
    assert told["problems"][1].startswith(f"{tmp_path / 'wide'}: This model reads 7 features per node")
    assert found.explain(Question(1, 0, 5), 10)["by_depth"][0]["depth"] is None
    with pytest.raises(DataError, match="reads 7 features"):
        Answers(opened[1:2], [], lambda text: None)


def test_logits_that_are_not_finite_are_refused():
    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, "hidden=6")
    model.network.head.bias.data[0] = float("nan")
    with pytest.raises(DataError, match="not finite here"):
        answers(model, dataset)


# ------------------------------------------------------------------------------------------------------- search
def found_names(found, q, **options):
    told = found.search(q, options.get("graph", 0), 0, options.get("limit", 20))
    return [each["name"] for each in told["results"]], told["more"]


def test_exact_names_come_first_then_starts_then_the_rest(friends):
    assert found_names(friends, "ANN")[0] == ["ann", "Anna"]
    assert found_names(friends, "an")[0] == ["ann", "Anna", "banana"]
    assert found_names(friends, "joe")[0] == ["joe", 'the "great" joe']
    assert found_names(friends, '"GREAT"')[0] == ['the "great" joe']
    assert found_names(friends, "ZOË")[0] == ["zoë"]
    assert found_names(friends, "<b>")[0] == ["⟨x⟩ & <b>y</b>"]
    assert found_names(friends, "nobody") == ([], False)
    assert found_names(friends, "", limit=3) == (NAMES[:3], True)
    assert found_names(friends, "an", limit=3)[1] is False
    (joe,) = friends.search("joe", 0, 0, 1)["results"]
    assert (joe["graph"], joe["node"], joe["truth"], joe["part"]) == (0, 4, ["red"], "test")
    (hal,) = friends.search("hal", 0, 0, 1)["results"]
    assert (hal["truth"], hal["part"]) == (None, None)


def test_numbers_are_names_too(karate):
    assert found_names(karate, "3")[0] == ["3", "30", "31", "32", "33", "13", "23"]


def test_nodes_of_a_class(karate):
    logits = karate.views[0].logits
    told = karate.search("class:B", 0, 0, 100)["results"]
    assert {each["node"] for each in told} == set((logits.argmax(1) == 1).nonzero().flatten().tolist())
    assert all(each["predicted"] == ["b"] for each in told)
    sure = [float(logits[each["node"]].softmax(0)[1]) for each in told]
    assert sure == sorted(sure, reverse=True)
    assert karate.search("class:nothing", 0, 0, 5)["results"] == []


def test_many_names_are_searched_fast():
    names = Names([f"author {number:06d} of many" for number in range(300_000)])
    names.search("", 1)
    start = time.process_time()
    assert names.search("299999 OF", 5) == [299_999]
    assert len(names.search("author", 21)) == 21
    assert names.search("nobody", 5) == []
    assert time.process_time() - start < 0.1


# --------------------------------------------------------------------------------------------------- explanations
def test_an_explanation_in_full(friends):
    answer = friends.explain(Question(name="zoë"), 150)
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert (answer["run"], answer["graph"], answer["node"], answer["name"], answer["part"]) == (
        0,
        0,
        3,
        "zoë",
        "val",
    )
    decision, first = answer["decision"], answer["nodes"][0]
    assert decision["class"] == friends.runs()["runs"][0]["classes"][decision["target"]]
    assert decision["truth"] == ["blue"]
    assert decision["score"] == pytest.approx(decision["inputs"] + decision["biases"] + decision["rest"])
    assert answer["classes"][0] == decision["target"]
    assert answer["by_depth"][-1]["probabilities"][0] == pytest.approx(decision["probability"])
    assert (first["node"], first["name"], first["hop"], first["truth"]) == (3, "zoë", 0, ["blue"])
    assert sum(each["share"] for each in answer["hops"]) == pytest.approx(1)
    assert answer["shown_share"] == pytest.approx(sum(abs(each["share"]) for each in answer["nodes"]))
    ways = {frozenset(answer["nodes"][place]["node"] for place in edge) for edge in answer["edges"]}
    assert ways == {frozenset(pair) for pair in itertools.pairwise(range(8))}
    assert answer["seconds"] > 0


def test_a_node_alone():
    dataset = one_graph(30)
    answer = explain(answers(untrained(dataset, "hidden=6"), dataset), 29)
    assert [each["node"] for each in answer["nodes"]] == [29]
    assert answer["edges"] == []
    assert answer["hops"] == [{"hop": 0, "share": 1.0, "signed": pytest.approx(1, abs=2), "nodes": 1}]
    assert answer["unreachable"]["nodes"] == 29


def test_several_labels():
    dataset = one_graph(30, multi_label=True)
    model, usual = (untrained(dataset, "hidden=6") for _ in range(2))
    answer = explain(answers(model, dataset), 4)
    probabilities = usual.logits(dataset)[4].sigmoid()
    assert answer["decision"]["predicted"] == [f"class {i}" for i, one in enumerate(probabilities) if one > 0.5]
    assert answer["decision"]["truth"] == [f"class {i}" for i, one in enumerate(dataset.labels()[4]) if one > 0]
    assert answer["decision"]["probability"] == pytest.approx(float(probabilities.max()), abs=1e-5)
    assert sum(answer["by_depth"][-1]["probabilities"]) == pytest.approx(float(probabilities.sum()), abs=1e-5)


def test_nodes_of_several_graphs():
    dataset = several_graphs(9, task="node")
    model, usual = (untrained(dataset, "hidden=6") for _ in range(2))
    found = answers(model, dataset)
    logits = usual.logits(dataset)
    for graph in (6, 0, 3, 4, 5, 6, 7):  # more than are kept
        start = sum(dataset.graph_sizes[:graph])
        last = dataset.graph_sizes[graph] - 1
        answer = explain(found, last, graph=graph)
        wanted = logits[start + last].softmax(0)[answer["classes"]]
        assert answer["by_depth"][-1]["probabilities"] == pytest.approx(wanted.tolist(), abs=1e-5)
        assert answer["decision"]["truth"] == [f"class {int(dataset.labels()[start + last])}"]
        assert answer["decision"]["rest"] == pytest.approx(0, abs=1e-4)
        assert all(0 <= each["node"] <= last for each in answer["nodes"])
    assert [each["node"] for each in found.search("", 6, 0, 50)["results"]] == list(range(7))
    with pytest.raises(NotThereError, match=r"several \(graph 6\) has no node '7'; the closest are 0 to 6."):
        explain(found, 7, graph=6)
    for each in found.runs()["suggestions"]:
        assert each["node"] < dataset.graph_sizes[each["graph"]]


def test_whole_graphs():
    dataset = several_graphs(9)
    model, usual = (untrained(dataset, "hidden=6") for _ in range(2))
    found = answers(model, dataset)
    answer, wanted = explain(found, graph=6), explain_graph(usual, dataset, 6)
    assert (answer["graph"], answer["node"], answer["name"], answer["hops"]) == (6, None, "6", [])
    assert answer["decision"]["score"] == pytest.approx(wanted.decision.score, rel=1e-3)
    assert answer["nodes"][0]["node"] == wanted.influential[0].node
    assert answer["nodes"][0]["contribution"] == pytest.approx(wanted.influential[0].contribution, rel=1e-3)
    assert answer["nodes"][0]["hop"] is None
    assert len(answer["nodes"]) == 7
    assert [each["depth"] for each in answer["by_depth"]] == found.runs()["runs"][0]["depths"]
    told = found.search("6", 0, 0, 5)["results"]
    assert [(each["graph"], each["node"], each["truth"]) for each in told] == [(6, None, ["class 0"])]
    with pytest.raises(DataError, match="labels whole graphs"):
        explain(found, 0)


def test_features():
    dataset = of_graph(ZOO["karate"])
    model, usual = (untrained(dataset, "hidden=6") for _ in range(2))
    found = answers(model, dataset)
    before = explain(found, 3)
    told = found.features(Question(node=3, target=1))
    wanted = explain_features(usual, dataset, 3, target=1)
    assert [each["name"] for each in told["features"]] == [each.name for each in wanted.features]
    for one, other in zip(told["features"], wanted.features, strict=True):
        assert one["contribution"] == pytest.approx(other.contribution, rel=1e-3)
    found.explain.clear()
    assert explain(found, 3) | {"seconds": 0} == before | {"seconds": 0}  # the model is as it was
    assert found.runs()["runs"][0]["has_features"] is True
    learned = of_graph(ZOO["karate"], channels=0)
    assert answers(untrained(learned, "hidden=6"), learned).runs()["runs"][0]["has_features"] is False


def test_systems_of_fixed_depth():
    dataset = of_graph(ZOO["karate"])
    found = answers(untrained(dataset, "hidden=6", "system=gcn", "layers=2"), dataset)
    answer = explain(found, 0)
    assert found.runs()["runs"][0]["depths"] == []
    assert [each["depth"] for each in answer["by_depth"]] == [None]
    assert answer["reach"] == [2]
    assert answer["decision"]["rest"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    "name",
    [each.name for each in SYSTEMS if "node" in each.tasks and each.kind != "kernel" and each.whole_gradient],
)
def test_every_system_that_has_a_gradient(name):
    dataset = of_graph(ZOO["karate"])
    model, usual = (untrained(dataset, f"system={name}", "hidden=6") for _ in range(2))
    found = answers(model, dataset)
    answer, again, wanted = explain(found, 3), explain(found, 3), explain_node(usual, dataset, 3)
    for part in ("score", "inputs", "biases"):
        assert answer["decision"][part] == pytest.approx(getattr(wanted.decision, part), rel=1e-3, abs=1e-4)
    assert again["decision"]["inputs"] == pytest.approx(
        answer["decision"]["inputs"]
    )  # what was kept is still there
    assert (
        len(answer["by_depth"]) == len(found.runs()["runs"][0]["depths"]) or answer["by_depth"][0]["depth"] is None
    )
    json.dumps([answer, found.runs()], allow_nan=False)


def test_equilibria_have_a_slider_too():
    dataset = of_graph(ZOO["karate"])
    model, usual = (untrained(dataset, "hidden=6", "system=ignn", norm=0.5) for _ in range(2))
    found = answers(model, dataset)
    answer = explain(found, 0)
    usual.network.convs[0].steps = 2
    wanted = usual.logits(dataset)[0].softmax(0)[answer["classes"]]
    assert answer["by_depth"][2]["probabilities"] == pytest.approx(wanted.tolist(), abs=1e-5)
    assert answer["by_depth"][2]["probabilities"] != pytest.approx(
        answer["by_depth"][-1]["probabilities"], abs=1e-5
    )


@pytest.mark.parametrize(
    ("question", "kind", "sentence"),
    [
        ((0, 0, 34, None, None, 9), NotThereError, "karate has no node '34'; the closest are 0 to 33."),
        ((0, 0, -1, None, None, 9), NotThereError, "karate has no node '-1'; the closest are 0 to 33."),
        ((0, 0, None, "x", None, 9), NotThereError, "karate has no node 'x'; the closest are 0, 1, 2."),
        ((1, 0, 0, None, None, 9), NotThereError, "There are runs 0 to 0, but run 1 was asked for."),
        ((-1, 0, 0, None, None, 9), NotThereError, "There are runs 0 to 0, but run -1 was asked for."),
        (
            (0, 1, 0, None, None, 9),
            NotThereError,
            "karate has 1 graph, numbered from 0, but graph 1 was asked for.",
        ),
        ((0, 0, 0, None, 3, 9), DataError, "target must be between 0 and 2, but came as 3."),
        ((0, 0, 0, None, None, 0), DataError, "limit must be between 1 and 1000, but came as 0."),
        (
            (0, 0, None, None, None, 9),
            DataError,
            "This model labels nodes: say which, with node=NUMBER or name=NAME.",
        ),
    ],
)
def test_what_is_not_there_is_told(karate, question, kind, sentence):
    with pytest.raises(kind) as caught:
        karate.explain(Question(*question[:-1]), question[-1])
    assert str(caught.value) == sentence


# ----------------------------------------------------------------------------------------------------- picture
def test_the_picture_hangs_together_and_shows_what_is_far():
    """A long path whose end matters most: the nodes between are there, however little they matter."""
    path = torch.arange(9)
    edges = torch.stack([torch.cat([path, path + 1]), torch.cat([path + 1, path])])
    readers = Readers(edges, 10)
    distance, before = readers.around(0)
    influence = torch.tensor([0.1, 0.1, 0, 0, 0, 0, 0.5, 0, 0, 0.3], dtype=torch.float64)
    shown = chosen_nodes(0, influence, distance, before, 7)
    assert shown[0] == 0
    assert sorted(shown) == [0, 1, 2, 3, 4, 5, 6]  # 9 would take three more
    assert sorted(map(sorted, ([shown[a], shown[b]] for a, b in edges_among(readers, shown)))) == [
        [i, i + 1] for i in range(6)
    ]
    assert chosen_nodes(0, influence, distance, before, 1) == [0]
    assert sorted(chosen_nodes(0, influence, distance, before, 50)) == list(range(10))


def test_every_edge_once_whatever_its_direction():
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 2, 0, 0]])
    assert edges_among(Readers(edges, 4), [2, 0, 1]) == [[0, 1], [0, 2], [1, 2]]
    assert Readers(edges, 4).around(0)[0].tolist() == [0, 1, 1, 1]
