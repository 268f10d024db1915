"""`pprgnn explain`: what it shows, and how it ends."""

import itertools
import json
from unittest import mock

import pytest
import torch
from typer.testing import CliRunner

from pprgnn.cli import explain as command
from pprgnn.cli import output as cli_output
from pprgnn.cli.main import app
from pprgnn.data import load
from pprgnn.data.own.tables import from_tables
from pprgnn.training import terminal
from pprgnn.training.config import Config
from pprgnn.training.explain import explain_node
from pprgnn.training.explain_features import drawn_rows, explain_features, overall_features
from pprgnn.training.model import Model
from pprgnn.training.train import train

NAMES = ["ann", "bob", "cleo", "dan", "eve", "fay", "gus", "hal"]
EDGES = "source,target\n" + "".join(f"{a},{b}\n" for a, b in itertools.pairwise(NAMES))
TEAMS = ["red", "blue", "red", "blue", "red", "blue", "red", ""]
SPLITS = ["train", "train", "val", "val", "test", "test", "test", ""]
NODES = "id,age,height,team,split\n" + "".join(
    f"{name},{3 * i % 7},{i * i % 5}.5,{team},{split}\n"
    for i, (name, team, split) in enumerate(zip(NAMES, TEAMS, SPLITS, strict=True))
)
QUICK = ("epochs=3", "hidden=4", "eps=0.3")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Three runs: a user's own graph, chains (several graphs) and a set of graphs with labels of their own."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "edges.csv").write_text(EDGES)
    (folder / "nodes.csv").write_text(NODES)
    own = from_tables(folder / "edges.csv", folder / "nodes.csv", label="team", name="friends")
    train(
        Config().with_settings([*QUICK, "activation=leaky_relu", "smooth_input=true"]),
        dataset=own,
        folder=folder / "own",
    )
    chains = Config().with_settings(
        [*QUICK, "name=chains", "options.length=30", "options.train=2", "options.val=1", "options.test=1"]
    )
    chains = chains.with_settings(["activation=identity", "bias=false", "eps=0.02"])
    train(chains, folder=folder / "chains")
    return folder


@pytest.fixture(autouse=True)
def _plain(monkeypatch, tmp_path):
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PPRGNN_DEBUG", raising=False)


def call(*arguments):
    return CliRunner().invoke(app, ["explain", *map(str, arguments)])


def test_a_node_by_its_name(home):
    result = call(home / "own", "--node", "cleo", "--target", "blue", "--top", 3)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    model, dataset = Model.load(home / "own"), load(home / "own" / "data.safetensors")
    found = explain_node(model, dataset, 2, target=model.facts.class_names.index("blue"), top=3)
    assert lines[0] == "node         cleo in friends"
    assert lines[1].startswith(f"decision     predicted {found.decision.predicted[0]}; true: red")
    assert lines[2] == f"explained    blue, probability {100 * found.decision.probability:.1f} %"
    assert lines[3].startswith(f"score        {found.decision.score:+.3g}, the logit of blue less the mean of the")
    assert f"layer convs.0 looked {found.layers[0].depth} hops deep" in lines[4]
    assert lines[5].startswith(f"reach        95 % of the influence comes from within {found.radius} hop")
    for hop, share in enumerate(found.share_by_distance[: found.radius + 1]):
        assert lines[6 + hop].split()[0] == str(hop)
        assert f"{100 * share:.1f} %" in lines[6 + hop]
    start = lines.index("Most influential nodes")
    bars = [line for line in lines[6:start] if line.endswith((" node)", " nodes)"))]
    assert sum(float(line.split(" %")[0].split()[-1]) for line in bars) == pytest.approx(100, abs=0.5)
    assert sum(int(line.split("(")[1].split()[0]) for line in bars) == 8
    assert lines[start + 1].split() == ["node", "hops", "share", "class"]
    for line, each in zip(lines[start + 2 :], found.influential, strict=False):
        sign = f"{100 * each.share:+.1f}"
        assert line.split() == [each.name, str(each.distance), sign, "%", each.classes[0] if each.classes else "–"]


def test_json_is_the_whole_explanation(home):
    result = call(home / "own", "--node", "hal", "--json")
    told = json.loads(result.output)
    model, dataset = Model.load(home / "own"), load(home / "own" / "data.safetensors")
    features = explain_features(model, dataset, 7).to_dict()
    more = {"features": features, "data": "friends", "warnings": []}
    assert told == explain_node(model, dataset, 7).to_dict() | more
    assert told["decision"]["truth"] is None


def test_the_features_of_a_node(home):
    result = call(home / "own", "--node", "cleo", "--target", "blue")
    lines = result.output.splitlines()
    model, dataset = Model.load(home / "own"), load(home / "own" / "data.safetensors")
    found = explain_features(model, dataset, 2, target=model.facts.class_names.index("blue"))
    difference = found.score - found.baseline
    (said,) = (line for line in lines if line.startswith("features "))
    assert f"they add {difference:+.3g} to the score, which is {found.baseline:+.3g} with all features at" in said
    missed = f"{100 * abs(found.residual / difference):.1f} %"
    assert said.endswith(f"; {missed} of it is left unexplained ({found.gradients} gradients)")
    start = lines.index("Features that mattered most")
    assert lines[start + 1].split() == ["feature", "value", "adds", "here"]
    assert lines[start + 4] == ""
    table = [line.split() for line in lines[start + 2 : start + 4]]
    expected = [[f.name, f"{f.value:.4g}", f"{f.contribution:+.3g}", f"{f.own:+.3g}"] for f in found.features]
    assert table == expected
    assert {row[0]: row[1] for row in table} == {"age": "6", "height": "4.5"}  # as they stand in the table
    assert "eatures" not in call(home / "own", "--node", "cleo", "--top", 0).output


def test_features_in_the_mean(home, tmp_path):
    output = call(home / "own", "--features").output
    model, dataset = Model.load(home / "own"), load(home / "own" / "data.safetensors")
    batches, test = model.batches(dataset), torch.tensor([split == "test" for split in SPLITS])
    found = overall_features(model, batches, drawn_rows(batches, test, 32))
    lines = output.splitlines()
    assert lines[0] == "features     2 of friends"
    assert lines[1] == "mean over    3 of 3 test nodes, for the class predicted for each"
    assert lines[2].startswith(f"unexplained  {100 * found.residual:.1f} % of what the features add (")
    assert lines[4] == "Features that matter most"
    for line, each in zip(lines[6:], found.features, strict=True):
        assert line.split() == [each.name, f"{100 * each.share:.1f}", "%", f"±{each.importance:.3g}"]
    told = json.loads(call(home / "own", "--features", "--json").output)
    assert told == found.to_dict() | {"part": "test", "available": 3, "data": "friends", "warnings": []}
    assert "mean over    2 of 30 test nodes" in call(home / "chains", "--features", "--sample", 2).output
    (tmp_path / "edges.csv").write_text("source,target\nzoe,yan\nyan,xia\n")
    (tmp_path / "nodes.csv").write_text("id,age,height,team\nzoe,1,2.5,\nyan,2,0.5,red\nxia,5,1.5,\n")
    tables = ("--edges", tmp_path / "edges.csv", "--nodes", tmp_path / "nodes.csv")
    assert "mean over    3 of 3 nodes, " in call(home / "own", *tables, "--features").output


def test_a_new_graph(home, tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\nzoe,yan\nyan,xia\n")
    (tmp_path / "nodes.csv").write_text("id,age,height,team\nzoe,1,2.5,\nyan,2,0.5,red\nxia,5,1.5,\n")
    tables = ("--edges", tmp_path / "edges.csv", "--nodes", tmp_path / "nodes.csv")
    told = json.loads(call(home / "own" / "model.safetensors", *tables, "--node", "xia", "--json").output)
    assert told["name"] == "xia"
    assert told["nodes_by_distance"] == [1, 1, 1]
    assert {each["name"]: each["classes"] for each in told["influential"]}["yan"] == ["red"]


def test_a_node_of_one_of_several_graphs(home):
    result = call(home / "chains", "--graph", 2, "--node", 29)
    assert result.exit_code == 0, result.output
    assert "node         29 in graph 2 of chains" in result.output
    assert "95 % of the influence comes from within 29 hops" in result.output
    bars = [line for line in result.output.splitlines() if "nodes)" in line]
    assert len(bars) <= command.MOST_BARS  # distances are put together
    assert bars[-1].split() == ["27–29", "█" * 20, "100.0", "%", "(3", "nodes)"]
    assert bars[0].split() == ["0–2", "0.0", "%", "(3", "nodes)"]
    row = result.output.splitlines()[-1].split()
    assert row[:2] == ["0", "29"]
    assert "more than 3 hops" not in result.output  # it would say the same again


def test_far_nodes_have_a_table_of_their_own(home):
    with mock.patch.object(command, "VISIBLE", 0.0):
        output = call(home / "own", "--node", "ann", "--top", 1).output
    assert "Most influential among those more than 3 hops away" in output
    assert output.splitlines()[-1].split()[0] in NAMES[4:]
    assert "more than 3 hops" not in call(home / "own", "--node", "ann", "--top", 1).output  # all round to 0.0 %


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("own",), "This model labels nodes: say which with --node ID."),
        (("own", "--node", "Cleo"), "has no node 'Cleo'; the closest are cleo."),
        (("own", "--node", "ann", "--target", "bleu"), "no class 'bleu' among the 2 of this model; try blue."),
        (("own", "--node", "ann", "--graph", "1"), "but graph 1 was asked for."),
        (("chains", "--node", "3"), "has 4 graphs: say which with --graph NUMBER"),
        (
            ("chains", "--node", "30", "--graph", "0"),
            "chains (graph 0) has no node '30'; the closest are 0 to 29.",
        ),
        (("chains", "--node", "3", "--graph", "9"), "has 4 graphs, numbered from 0, but graph 9 was asked for."),
        (("own", "--node", "ann", "--nodes", "x.csv"), "--nodes goes with --edges"),
        (("own", "--node", "ann", "--features"), "--features is about many decisions, so it goes without --node"),
        (("nowhere", "--node", "ann"), "nowhere"),
    ],
)
def test_errors_are_one_sentence(home, arguments, sentence):
    result = call(home / arguments[0], *arguments[1:])
    assert result.exit_code == 1
    assert sentence in result.output
    assert "Traceback" not in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_graph(home, monkeypatch, tmp_path):
    from torch_geometric.data import Data

    from pprgnn.data.dataset import Facts, GraphDataset

    draw = torch.Generator().manual_seed(0)
    ring = torch.stack([torch.arange(5), torch.arange(5).roll(1)])
    graphs = [
        Data(
            x=torch.rand(5, 3, generator=draw),
            edge_index=torch.cat([ring, ring.flip(0)], 1),
            y=torch.tensor([i % 2]),
        )
        for i in range(20)
    ]
    dataset = GraphDataset.from_graphs(graphs, Facts("rings", "graph", False, "accuracy", ("no", "yes")))
    train(Config().with_settings(QUICK), dataset=dataset, folder=tmp_path / "rings")
    output = call(tmp_path / "rings", "--graph", 3, "--top", 4).output
    assert output.startswith("graph        graph 3 of rings\ndecision     predicted ")
    assert "true: yes" in output
    assert "reach" not in output
    lines = output.splitlines()
    table = lines[lines.index("Most influential nodes") + 1 :]
    assert table[0].split() == ["node", "share"]
    assert len(table) == 5
    features = lines[lines.index("Features that mattered most") + 1 :][:4]
    assert features[0].split() == ["feature", "mean", "adds"]
    assert sorted(line.split()[1] for line in features[1:]) == ["0", "1", "2"]
    overall = call(tmp_path / "rings", "--features").output
    assert " test graphs, for the class predicted for each" in overall
    for arguments in ((), ("--graph", 1, "--node", 2)):
        result = call(tmp_path / "rings", *arguments)
        assert "This model labels whole graphs: say which with --graph NUMBER" in result.output


def test_what_memory_leaves_out_is_told(home, monkeypatch):
    from pprgnn.training import memory

    monkeypatch.setattr(memory, "available_memory", lambda device: 0)
    output = call(home / "own", "--node", "ann").output
    assert "left out     memory allows 1 of " in output
    assert "at most " in output
    assert json.loads(call(home / "own", "--node", "ann", "--json").output)["complete"] is False


def test_fits_into_a_terminal(home, monkeypatch):
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    for module in (cli_output, terminal):
        monkeypatch.setattr(module, "width", lambda: 60)
    output = call(home / "own", "--node", "ann").output
    assert output.startswith("Reading ")
    assert max(len(line) for line in output.splitlines()[1:]) <= 60
    output = call(home / "own", "--features").output
    assert max(len(line) for line in output.splitlines()[1:]) <= 60
