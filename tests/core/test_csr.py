"""Sorting, permuting, ordering: graph.cpp and the torch and SciPy code give the same, to the last bit."""

import subprocess
import sys

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from pprgnn import Adjacency
from pprgnn.core import csr
from pprgnn.core.backend import kernel
from pprgnn.core.csr import cache_friendly_order
from pprgnn.core.entries import coalesce
from tests.problems import both_ways

CPU = torch.empty(0)
pytestmark = pytest.mark.skipif(kernel._load(("_graph",)) is None, reason="graph.cpp was not built")


@st.composite
def graphs(draw, max_nodes=40):
    """Row, col and number of nodes: any density, with duplicates, self-loops, isolated nodes, or without edges."""
    num_nodes = draw(st.integers(1, max_nodes))
    count = draw(st.integers(0, 3 * num_nodes))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    used = draw(st.integers(1, num_nodes))  # the nodes from here on are isolated
    edges = torch.randint(used, (2, count), generator=seed)
    if draw(st.booleans()):
        edges = both_ways(edges)
    edges = torch.cat([edges, edges[:, : draw(st.integers(0, 10))]], dim=1)  # some once more
    return *edges, num_nodes


def fast_and_plain(function, *arguments):
    """The results with the library and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PPRGNN_KERNEL", raising=False)
        assert kernel.graph_library(CPU, 1, 1) is not None
        fast = function(*arguments)
        patch.setenv("PPRGNN_KERNEL", "torch")
        assert kernel.graph_library(CPU, 1, 1) is None
        return fast, function(*arguments)


def assert_identical(fast, plain):
    assert len(fast) == len(plain)
    for one, other in zip(fast, plain, strict=True):
        assert one.tolist() == other.tolist()


# -------------------------------------------------------------------------------------------------- sorting
@given(graphs(), st.sampled_from([torch.int32, torch.int64]))
def test_sorting(graph, dtype):
    row, col, num_nodes = graph
    fast, plain = fast_and_plain(csr.sort_entries, row.to(dtype), col.to(dtype), num_nodes)
    assert_identical(fast, plain)
    assert [tensor.dtype for tensor in fast[:2]] == [tensor.dtype for tensor in plain[:2]] == [torch.int32] * 2
    pairs = sorted(zip(row.tolist(), col.tolist(), range(len(row)), strict=True))  # obviously right
    assert csr.rows(fast[0]).tolist() == [pair[0] for pair in pairs]
    assert fast[1].tolist() == [pair[1] for pair in pairs]
    assert fast[2].tolist() == [pair[2] for pair in pairs]


def test_sorting_takes_tensors_of_two_types():
    row, col = torch.randint(9, (2, 50), generator=torch.Generator().manual_seed(0))
    assert_identical(*fast_and_plain(csr.sort_entries, row, col.int(), 9))
    assert_identical(*fast_and_plain(csr.sort_entries, row.int(), col, 9))


@pytest.mark.parametrize("num_nodes", [511, 512, 513, 1024, 1025, 70_000])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_sorting_where_many_rows_share_a_bucket(num_nodes, threads):
    draw = torch.Generator().manual_seed(0)
    row, col = torch.randint(num_nodes, (2, 200_000), generator=draw)  # enough to wake several threads
    row[:5000] = num_nodes - 1  # one row that is long
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert_identical(*fast_and_plain(csr.sort_entries, row, col, num_nodes))
    finally:
        torch.set_num_threads(before)


def test_sorting_takes_tensors_that_are_not_contiguous():
    pairs = torch.randint(9, (50, 2), generator=torch.Generator().manual_seed(0))
    assert not pairs[:, 0].is_contiguous()
    assert_identical(*fast_and_plain(csr.sort_entries, pairs[:, 0], pairs[:, 1], 9))


@given(graphs())
def test_adding_up(graph):
    row, col, num_nodes = graph
    weight = torch.rand(len(row), generator=torch.Generator().manual_seed(0)) - 0.5
    fast, plain = fast_and_plain(coalesce, row, col, weight, num_nodes)
    assert_identical(fast, plain)
    dense = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    dense.index_put_((row, col), weight.double(), accumulate=True)
    crow, col, weight = fast
    assert len(set(zip(csr.rows(crow).tolist(), col.tolist(), strict=True))) == len(col)  # each once
    found = torch.zeros_like(dense).index_put((csr.rows(crow), col), weight.double())
    torch.testing.assert_close(found, dense, rtol=0, atol=1e-5)


# ------------------------------------------------------------------------------------------------ node order
def ordered(row, col, num_nodes):
    crow, col, _ = coalesce(row, col, torch.ones(len(row)), num_nodes)
    order = cache_friendly_order(crow, col, True)
    return order, *csr.permute(crow, col, order)


@given(graphs())
def test_order_and_permutation(graph):
    fast, plain = fast_and_plain(ordered, *graph)
    assert_identical(fast, plain)
    row, col, num_nodes = graph
    order, crow, moved_col, _, rank = fast
    assert order[rank].tolist() == list(range(num_nodes))
    assert order.sort()[0].tolist() == list(range(num_nodes))
    here = {(int(order[r]), int(order[c])) for r, c in zip(csr.rows(crow), moved_col, strict=True)}
    assert here == set(zip(row.tolist(), col.tolist(), strict=True))


@pytest.mark.parametrize("directed", [False, True])
def test_order_of_a_large_graph_with_several_threads(directed):
    draw = torch.Generator().manual_seed(0)
    edges = (torch.randn(2, 60_000, generator=draw) ** 3 * 2000).long().abs() % 30_000  # hubs and a long tail
    edges = edges if directed else both_ways(edges)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(fast_and_plain(ordered, *edges, 30_000))
    finally:
        torch.set_num_threads(before)
    assert_identical(found[0][0], found[0][1])
    assert_identical(found[1][0], found[0][0])
    assert_identical(found[2][0], found[0][0])


@pytest.mark.parametrize("kernel_choice", ["", "torch"])
def test_order_keeps_communities_together(kernel_choice, monkeypatch):
    monkeypatch.setenv("PPRGNN_KERNEL", kernel_choice)
    draw = torch.Generator().manual_seed(0)
    size, count = 50, 100
    shuffled = torch.randperm(size * count, generator=draw)
    inside = torch.randint(size, (2, 20 * size * count), generator=draw)
    inside += size * torch.randint(count, (20 * size * count,), generator=draw)
    across = torch.randint(size * count, (2, 4 * size * count), generator=draw)
    order = ordered(*shuffled[both_ways(torch.cat([inside, across], dim=1))], size * count)[0]
    community = torch.argsort(shuffled)[order] // size
    changes = int((community.diff() != 0).sum())  # 99 if every community were in one piece, 4950 at random
    assert changes < 800


@pytest.mark.parametrize("kernel_choice", ["", "torch"])
def test_order_of_a_star_takes_one_step(kernel_choice, monkeypatch):
    monkeypatch.setenv("PPRGNN_KERNEL", kernel_choice)
    hub = torch.full((999,), 999)
    order = ordered(*both_ways(torch.stack([hub, torch.arange(999)])), 1000)[0]
    assert order.tolist() == list(range(1000))


# ------------------------------------------------------------------------------------------------- symmetry
def test_symmetry_is_seen_in_every_entry():
    edges = both_ways(torch.randint(300, (2, 2000), generator=torch.Generator().manual_seed(0)))
    crow, col, weight = coalesce(*edges, torch.ones(4000), 300)
    entries = list(zip(csr.rows(crow).tolist(), col.tolist(), strict=True))
    off_diagonal = [place for place, (row, other) in enumerate(entries) if row != other]
    for dtype in (torch.float32, torch.float64, torch.float16):  # there is no library for the last one
        weight = weight.to(dtype)
        matrix = csr.csr_tensor(crow, col, weight)
        assert csr.transpose(matrix) is matrix
        for place in off_diagonal[::397]:
            value = weight.clone()
            value[place] += 1
            changed = csr.csr_tensor(crow, col, value)
            assert csr.transpose(changed) is not changed


@pytest.mark.parametrize("upper", [False, True])
def test_a_triangle_is_not_symmetric(upper):
    row, col = torch.combinations(torch.arange(20)).t()
    crow, col, weight = coalesce(*((row, col) if upper else (col, row)), torch.ones(190), 20)
    matrix = csr.csr_tensor(crow, col, weight)
    assert torch.equal(csr.transpose(matrix).to_dense(), matrix.to_dense().t())


@given(graphs())
def test_transposing(graph):
    row, col, num_nodes = graph
    matrix = csr.csr_tensor(*coalesce(row, col, torch.ones(len(row)), num_nodes))
    fast, plain = fast_and_plain(csr.transpose, matrix)
    assert (fast is matrix) == (plain is matrix)
    assert torch.equal(fast.to_dense(), plain.to_dense())


# ----------------------------------------------------------------------------------------------------- whole
@given(graphs(), st.sampled_from([torch.int32, torch.int16, torch.uint8]))
@pytest.mark.filterwarnings("ignore:Symmetric normalisation gives weight 0")
def test_the_type_of_the_ids_does_not_matter(graph, dtype):
    row, col, num_nodes = graph
    edges = torch.stack([col, row])

    def parts(ids):
        adj = Adjacency.from_edge_index(ids, num_nodes=num_nodes, add_self_loops=True, reorder=True)
        return adj.row, adj.col, adj.value, adj.order

    wide, narrow = fast_and_plain(parts, edges), fast_and_plain(parts, edges.to(dtype))
    assert_identical(wide[0], narrow[0])
    assert_identical(wide[1], narrow[1])


@given(graphs(), st.sampled_from([torch.int32, torch.int64]), st.booleans())
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_with_narrow_and_wide_indices(graph, dtype, by_row):
    row, col, num_nodes = graph
    crow, col, weight = coalesce(row, col, torch.rand(len(row)) + 1, num_nodes)
    make = torch.sparse_csr_tensor if by_row else torch.sparse_csc_tensor
    given_matrix = make(crow.to(dtype), col.to(dtype), weight, (num_nodes, num_nodes))
    fast, plain = fast_and_plain(lambda: Adjacency.from_torch(given_matrix, normalize=None).to_dense())
    assert torch.equal(fast, plain)
    assert torch.equal(fast, given_matrix.to_dense())


BUILD = """
import torch
from pathlib import Path
from pprgnn import Adjacency

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))

def edges(nodes, count):
    half = torch.randint(nodes, (2, count // 2), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    return torch.cat([half, half.flip(0)], dim=1)

Adjacency.from_edge_index(edges(1000, 200_000), num_nodes=1000, reorder=True).matrix_t  # threads and libraries
ids = edges(200_000, 6_000_000)
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
adj = Adjacency.from_edge_index(ids, num_nodes=200_000, reorder=False)
assert adj.is_symmetric
print((status("VmHWM") - before) / ids.size(1))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_building_takes_little_memory(monkeypatch):
    monkeypatch.delenv("PPRGNN_KERNEL", raising=False)
    done = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert float(done.stdout) < 42  # bytes an edge; the ids have 8, the matrix has 8


@given(graphs(), st.booleans(), st.sampled_from(["sym", "row", None]), st.booleans())
@pytest.mark.filterwarnings("ignore:Symmetric normalisation gives weight 0")
def test_adjacency(graph, weighted, normalize, add_self_loops):
    row, col, num_nodes = graph
    weight = torch.rand(len(row), generator=torch.Generator().manual_seed(0)) if weighted else None

    def parts():
        options = {"normalize": normalize, "add_self_loops": add_self_loops, "reorder": True}
        adj = Adjacency.from_edge_index(torch.stack([col, row]), weight, num_nodes, **options)
        assert torch.equal(adj.matrix_t.to_dense(), adj.matrix.to_dense().t())
        return [
            *(adj.row, adj.col, adj.value, adj.order, adj.rank),
            *(adj.matrix.crow_indices(), adj.matrix_t.crow_indices(), adj.matrix_t.col_indices()),
            *(adj.matrix_t.values(), torch.tensor(adj.is_symmetric)),
        ]

    assert_identical(*fast_and_plain(parts))


@given(graphs())
def test_gradient_of_weights(graph):
    row, col, num_nodes = graph
    assume(len(row))
    draw = torch.Generator().manual_seed(0)
    weight, x = (torch.rand(k, generator=draw, dtype=torch.float64) + 0.1 for k in (len(row), num_nodes))

    def gradient():
        leaf = weight.clone().requires_grad_()
        adj = Adjacency.from_edge_index(torch.stack([col, row]), leaf, num_nodes, normalize="row", reorder=True)
        return torch.autograd.grad((adj @ x.unsqueeze(1)).square().sum(), leaf)[0]

    fast, plain = fast_and_plain(gradient)
    torch.testing.assert_close(fast, plain, rtol=1e-12, atol=1e-12)


def test_it_is_used_exactly_where_it_fits(monkeypatch):
    monkeypatch.delenv("PPRGNN_KERNEL", raising=False)
    assert kernel.graph_library(CPU, 2**31 - 2, 2**31 - 2) is not None
    assert kernel.graph_library(CPU, 2**31 - 1, 1) is None  # positions would no longer fit 32 bits
    assert kernel.graph_library(CPU, 1, 2**31 - 1) is None
    assert kernel.graph_library(torch.empty(0, device="meta"), 1, 1) is None
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    assert kernel.graph_library(CPU, 1, 1) is None


def test_ids_beyond_32_bits_are_refused_before_they_are_cut_off():
    edges = torch.tensor([[0, 2**32], [1, 1]])
    with pytest.raises(ValueError, match=r"the edges name nodes 0 to 4294967296"):
        Adjacency.from_edge_index(edges, num_nodes=2)


def test_the_library_needs_no_scipy(monkeypatch):
    monkeypatch.delenv("PPRGNN_KERNEL", raising=False)
    code = (
        "import sys, torch, pprgnn;"
        "pprgnn.Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 2]]), normalize=None, reorder=True);"
        "print('scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
