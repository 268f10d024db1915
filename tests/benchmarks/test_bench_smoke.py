import json

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import contestants, machine, run, shapes
from pprgnn.core import csr


class CountProducts(TorchDispatchMode):
    """Counts products with a sparse matrix, and PyG's scatter (or, in the backward pass, its counterpart)."""

    products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        sparse = any(isinstance(a, torch.Tensor) and a.layout != torch.strided for a in args)
        if (sparse and "mm" in name) or name in ("scatter_add_", "scatter_add", "index_add", "index_add_"):
            self.products += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


DEPTH = 10


@pytest.fixture(scope="module")
def shape():
    return shapes.dress("tiny", *shapes.communities(400, 3000), channels=12, eps=0.25)


@pytest.fixture(scope="module")
def ours(shape):
    return contestants.Ours(shape, DEPTH).run()


@pytest.mark.parametrize("name", contestants.RIVALS)
@pytest.mark.parametrize("depth", [contestants.GRAD_TERMS, DEPTH, DEPTH + 1])
def test_contestants_compute_the_same_layer(shape, name, depth):
    contestant, ours = contestants.RIVALS[name](shape, depth), contestants.Ours(shape, depth).run()
    contestants.check_agreement(contestant.run(), ours, name)
    assert contestant.search() == pytest.approx(8, abs=1)
    contestants.check_agreement(contestant.run(), ours, name)  # in the same buffers


@pytest.mark.parametrize("product", ["into_buffer", "into_new"])
def test_expert_in_another_node_order(product, monkeypatch):
    monkeypatch.setattr(csr, "LARGE_GRAPH", 0)
    shape = shapes.dress("tiny", *shapes.communities(400, 3000), channels=12, eps=0.25)
    expert, ours = contestants.ExpertCsr(shape, DEPTH), contestants.Ours(shape, DEPTH)
    assert ours.adj.order is not None
    expert.product = getattr(expert, product)
    result = expert.run()
    assert contestants.relative_difference(result.state, ours.run().state) > 0.1
    contestants.check_agreement(result, ours.run(), "csr")


@pytest.mark.parametrize("name", contestants.CONTESTANTS)
def test_products_are_counted_right(shape, name, monkeypatch):
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")  # what the fused kernel does, torch does not see
    contestant = contestants.CONTESTANTS[name](shape, DEPTH)
    contestant.run()  # PyG looks at its methods here
    with CountProducts() as counter:
        result = contestant.run()
    assert result.products == counter.products == DEPTH + contestants.GRAD_TERMS
    if name != "ours":
        with CountProducts() as counter:
            hop = contestant.search()
        assert counter.products == hop + 1


def test_a_wrong_contestant_is_refused(shape, ours):
    wrong = shapes.dress("tiny", shape.edge_index, shape.num_nodes, shape.channels, eps=0.2)
    with pytest.raises(RuntimeError, match="differs from ours"):
        contestants.check_agreement(contestants.Coo(wrong, DEPTH).run(), ours, "coo")


@pytest.mark.parametrize(
    ("graph", "num_edges"),
    [
        (shapes.molecules(20, 300, 680), 680),
        (shapes.power_law(200, 3000), 3000),
        (shapes.communities(1000, 8000), 8000),
    ],
)
def test_graphs_are_symmetric_and_of_the_stated_size(graph, num_edges):
    edge_index, n = graph
    dense = torch.zeros(n, n).index_put((edge_index[0], edge_index[1]), torch.ones(()), accumulate=True)
    assert edge_index.size(1) == num_edges
    assert torch.equal(dense, dense.t())
    assert dense.max() == 1  # no edge twice
    assert dense.diagonal().sum() == 0


def test_roofline_counts_by_hand():
    n, d, nnz = 10, 4, 30
    work = machine.roofline(n, d, nnz, depth=3, grad_terms=2)
    assert work["flops"] == 2 * n * d * d * (3 + 2 + 1) + 2 * nnz * d * (3 + 2)
    csr = 8 * nnz + 4 * (n + 1)
    assert work["bytes"] == 4 * n * d * (2 + 3 * 3 + 2 * 5) + 5 * csr


def test_smoke_run_writes_json_and_markdown_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("PPRGNN_DATA", raising=False)
    output = tmp_path / "bench.json"
    run.main(["--smoke", "--repeats", "2", "--output", str(output)])
    data = json.loads(output.read_text())
    assert set(data["shapes"]) == set(shapes.NAMES)
    assert data["shapes"]["com-DBLP"] == {"skipped": "skipped: set PPRGNN_DATA"}
    assert data["shapes"]["million"]["contestants"]["pyg"]["products"] > 0
    roofline = data["shapes"]["million"]["roofline"]
    assert 0 < roofline["overlapped"] <= roofline["serial"]
    assert abs(data["memory_depth"]["relative_difference"]) < 0.2
    assert set(data["scaling"]) == {"depth", "nodes", "edges"}
    markdown = output.with_suffix(".md").read_text()
    assert "| million" in markdown
    runs = data["shapes"]["million"]["contestants"]
    ratios = {who: runs[who]["median_ms"] / runs["ours"]["median_ms"] for who in contestants.RIVALS}
    strongest = min(ratios, key=ratios.get)
    assert f"| {contestants.RIVALS[strongest].label}: {ratios[strongest]:.2f}×" in markdown
    assert {runs[who]["depth"] for who in contestants.CONTESTANTS} == {runs["ours"]["depth"]}
    assert "influence" in markdown
    assert markdown in capsys.readouterr().out

    run.main(["--smoke", "--resume", "--shapes", "million", "--output", str(output)])
    assert "Shape million: already measured" in capsys.readouterr().out
    assert json.loads(output.read_text())["shapes"]["million"] == data["shapes"]["million"]
