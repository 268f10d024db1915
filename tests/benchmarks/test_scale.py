"""The benchmark of one machine's limit, on small graphs."""

import json

import pytest
import torch

from benchmarks import scale


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", scale.KINDS)
def test_edges_come_in_both_directions_however_they_are_cut(kind, monkeypatch):
    edges = scale.edges_of(kind, 5000, 30_000)
    assert edges.dtype == torch.int32
    assert edges.shape == (2, 30_000)
    assert edges.min() >= 0
    assert edges.max() < 5000
    pairs, back = (ids.long()[0] * 5000 + ids.long()[1] for ids in (edges, edges.flip(0)))
    assert torch.equal(pairs.sort().values, back.sort().values)
    monkeypatch.setattr(scale, "CHUNK", 1000)
    assert scale.edges_of(kind, 5000, 30_000).shape == (2, 30_000)


def test_communities_are_there_to_be_found():
    def reach(kind, reorder):
        adj, facts = scale.build(kind, 60_000, 600_000, reorder)
        assert facts["symmetric"]
        assert facts["reordered"] == reorder
        assert adj.order is None
        return float((adj.row - adj.col).abs().double().median())

    found, shuffled, random = reach("communities", True), reach("communities", False), reach("random", True)
    assert found < 2000
    assert shuffled > 10_000
    assert random > 10_000


@pytest.fixture(scope="module")
def graph():
    return scale.build("communities", 3000, 20_000, True)[0]


def test_the_step_has_the_same_gradients_wherever_its_states_are(graph, tmp_path):
    how = scale.Step(width=24, depth=7, grad_terms=4)
    plain = scale.train_once(graph, how, None, None)
    assert set(plain["gradient_norms"]) == {"lin", "bias", "weight", "eps", "head"}
    assert all(norm > 0 for norm in plain["gradient_norms"].values())
    on_disk = scale.train_once(graph, how, tmp_path, tmp_path)
    assert (on_disk["loss"], on_disk["gradient_norms"]) == (plain["loss"], plain["gradient_norms"])
    kept = scale.train_once(graph, scale.Step(width=24, depth=7, grad_terms=4, checkpoint=False), None, None)
    assert kept["gradient_norms"] == pytest.approx(plain["gradient_norms"], rel=1e-4)


def test_the_rule_finds_a_depth(graph):
    assert scale.train_once(graph, scale.Step(width=8, depth=None), None, None)["status"] in (
        "CERTIFIED",
        "MEASURED",
    )


def test_bytes_that_must_move(graph):
    step = {"depth": 10, "seconds": {"all": 2.0}}
    roof = {"gemm_gflops": {"a": 100.0}, "stream_gbytes": {"triad": 10.0}}
    n, nnz, state = graph.num_nodes, graph.num_edges, 4 * graph.num_nodes * 8
    csr = 8 * nnz + 4 * (n + 1)
    kept = scale.roofline(graph, scale.Step(width=8, grad_terms=5, checkpoint=False), step, roof)
    assert kept["bytes_once"] == 2 * state + 10 * (3 * state + csr) + 5 * (5 * state + csr)
    assert kept["bytes_per_edge"] == kept["bytes_once"] + 15 * (4 * nnz * 8 - state)
    assert kept["memory_once"] == pytest.approx(kept["bytes_once"] / 20e9)
    repeated = scale.roofline(graph, scale.Step(width=8, grad_terms=5), step, roof)
    assert repeated["bytes_once"] == kept["bytes_once"] + 10 * (3 * state + csr)


def test_command(tmp_path, capsys):
    output = tmp_path / "scale.json"
    small = ["--nodes", "2_000", "--edges", "12_000", "--width", "8", "--depth", "3", "--smoke"]
    scale.main([*small, "--kind", "random", "--states", str(tmp_path), "--output", str(output)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["graph", "build", "step", "memory", "roofline"]
    assert "2,000 nodes" in lines[0]
    assert "worst case" in lines[0]
    assert "depth 3" in lines[2]
    assert json.loads(output.read_text())["step"]["depth"] == 3
