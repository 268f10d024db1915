"""`pprgnn partition`: what it shows, what it keeps, and how it refuses."""

import json

import networkx as nx
import pytest
import torch
from safetensors import safe_open
from torch_geometric.data import Data
from typer.testing import CliRunner

from pprgnn.cli.main import app
from pprgnn.data.own.objects import from_pyg
from pprgnn.data.registry import load
from pprgnn.data.store import save
from pprgnn.distributed.partitions import choose_method, describe, partition
from pprgnn.distributed.simulate import NETWORKS

CLIQUES, SIZE = 24, 8


@pytest.fixture
def graph(tmp_path):
    """The file of a ring of cliques."""
    edges = torch.tensor(list(nx.ring_of_cliques(CLIQUES, SIZE).edges)).t()
    y = torch.arange(CLIQUES * SIZE) % 2
    data = Data(x=torch.randn(len(y), 3), edge_index=torch.cat([edges, edges.flip(0)], 1), y=y)
    path = tmp_path / "cliques.safetensors"
    save(from_pyg(data), path)
    return str(path)


def shown(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["partition", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def table(output: str, word: str) -> list[list[str]]:
    """The cells of the table that has this word in its header."""
    block = next(block for block in output.split("\n\n") if word in block.splitlines()[0].split())
    return [line.split() for line in block.splitlines()[1:]]


def test_json_tells_what_the_functions_tell(graph):
    found = json.loads(shown(graph, "--parts", "3", "--method", "range", "--json"))
    adj = load(graph).adjacency(add_self_loops=True)  # as it would be trained on
    facts = describe(adj, partition(adj, 3, "range"), 3)
    assert (found["num_nodes"], found["num_entries"]) == (adj.num_nodes, adj.num_edges)
    assert (found["parts"], found["method"], found["edge_cut"]) == (3, "range", facts.edge_cut)
    assert found["cut_share"] == facts.cut_share
    assert found["balance"] == facts.balance
    assert found["halo_rows"] == int(facts.halo_rows.sum())
    for name, column in found["per_part"].items():
        assert column == getattr(facts, name).tolist()
    step = found["prediction"]
    assert step["bytes"] == int(facts.sent_rows.sum()) * 4 * 64
    assert step["network"] == {"name": "10gbit", "latency": 50e-6, "bandwidth": 1.25e9}
    assert step["speed_up"] == pytest.approx(step["alone_seconds"] / step["seconds"])
    assert found["simulated"] == []


def test_the_text_has_cut_halo_balance_prediction_and_a_row_per_part(graph):
    output = shown(graph, "--parts", "3", "--method", "range", "--width", "8")
    assert "192 nodes, 1,584 entries" in output
    assert "edge cut 6 entries, 0.4%" in output
    assert "6 rows of others are read per step, 0.0 MB at width 8" in output
    assert "balance  1.0" in output
    assert "ms on one process: " in output
    rows = table(output, "neighbours")
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert [row[1] for row in rows] == ["64", "64", "64"]
    assert [row[4:7] for row in rows] == [["2", "2", "2"]] * 3


def test_many_parts_are_summed_up(graph):
    rows = table(shown(graph, "--parts", "24", "--method", "range"), "neighbours")
    assert [row[0] for row in rows] == ["least", "median", "most"]
    assert [row[1] for row in rows] == ["8", "8", "8"]


def test_several_numbers_of_parts_are_compared(graph):
    found = json.loads(shown(graph, "--parts", "2", "--simulate", "1,2,8", "--json", "--latency", "0.5"))
    assert [step["parts"] for step in found["simulated"]] == [1, 2, 8]
    one, two, eight = found["simulated"]
    assert one["speed_up"] == 1
    assert two == found["prediction"]  # not measured twice
    assert two["edge_cut"] < eight["edge_cut"]
    assert 0.5 < two["seconds"] < 0.6 < 1.0 < eight["seconds"]  # half a second per neighbour
    assert two["adjoint_seconds"] > 0.5
    output = shown(graph, "--simulate", "1,2,8")
    assert [row[0] for row in table(output, "speed-up")] == ["1", "2", "8"]


@pytest.mark.parametrize(
    ("arguments", "network"),
    [
        (["--network", "infiniband"], NETWORKS["infiniband"].__dict__),
        (["--latency", "1e-3", "--bandwidth", "5e8"], {"name": "given", "latency": 1e-3, "bandwidth": 5e8}),
        (["--bandwidth", "5e8"], {"name": "10gbit, changed", "latency": 50e-6, "bandwidth": 5e8}),
    ],
)
def test_networks(graph, arguments, network):
    found = json.loads(shown(graph, *arguments, "--json"))
    assert found["prediction"]["network"] == network


def test_the_parts_are_kept(graph, tmp_path):
    path = tmp_path / "new" / "parts.safetensors"
    found = json.loads(shown(graph, "-p", "3", "--seed", "5", "-o", str(path), "--json"))
    with safe_open(path, "pt") as file:
        owner, facts = file.get_tensor("owner"), file.metadata()
    assert owner.dtype == torch.int32
    assert torch.bincount(owner).tolist() == found["per_part"]["nodes"]
    assert facts == {"data": found["data"], "parts": "3", "method": choose_method("auto"), "seed": "5"}


def test_a_recipe_names_data_and_width(tmp_path):
    recipe = tmp_path / "small.toml"
    recipe.write_text('[data]\nname = "sbm"\noptions = {nodes = 200}\n[model]\nhidden = 6\nself_loops = false\n')
    found = json.loads(shown(str(recipe), "--json"))
    assert (found["data"], found["num_nodes"], found["prediction"]["width"]) == ("sbm", 200, 6)
    with_loops = json.loads(shown("sbm", "--json"))
    assert (with_loops["num_nodes"], with_loops["prediction"]["width"]) == (10_000, 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chains"], "chains has 140 graphs, which are distributed graph by graph, without a partition."),
        (["{graph}", "--parts", "0"], "The number of parts must be a whole number from 1 on, but is 0."),
        (["{graph}", "--method", "kway"], "one of auto, metis, range, random, but the method is 'kway'"),
        (["{graph}", "--network", "post"], "but is 'post'"),
        (["{graph}", "--width", "0"], "from 1 on, but are 0 and 1"),
        (["{graph}", "--bandwidth", "0"], "a bandwidth > 0"),
        (["{graph}", "--simulate", "8,"], "(8,64), but got '8,'"),
        (["{graph}", "--simulate", "0"], "(8,64), but got '0'"),
        (["no-such-data"], "is neither a recipe"),
    ],
)
def test_refusals_are_one_sentence(graph, arguments, message):
    done = CliRunner().invoke(app, ["partition", *(word.format(graph=graph) for word in arguments)])
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_it_fits_a_terminal(graph, monkeypatch):
    for module in ("cli.partition", "training.terminal"):
        monkeypatch.setattr(f"pprgnn.{module}.width", lambda: 80)
    output = shown(graph, "--parts", "24", "--simulate", "1,2,24")
    assert max(map(len, output.splitlines())) <= 80
