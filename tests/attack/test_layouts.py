"""The same problem in every form that a caller may have it in: strides, types, sparse layouts, devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from pprgnn import Adjacency, solve
from pprgnn.nn import InfiniteDepth, PPRConv
from pprgnn.nn.linear_output import AS_PUBLISHED
from tests import warm

from . import reference
from .problems import LAYOUTS

N, D = 12, 5
draw = torch.Generator().manual_seed(7)
EDGES = torch.randint(0, N, (2, 40), generator=draw).unique(dim=1).contiguous()
WEIGHTS = torch.rand(EDGES.size(1), generator=draw, dtype=torch.float64) + 0.1
B = torch.randn(N, D, generator=draw, dtype=torch.float64)
W = torch.randn(D, D, generator=draw, dtype=torch.float64) / 2
EPS = 0.5
A = reference.adjacency(EDGES, WEIGHTS, N, "row", False)
ANSWER = reference.answer(reference.Dense.of(B, W, A, EPS, "relu"), 1e-13)
TOL = 1e-9


def dense(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(N, N, dtype=dtype).index_put((EDGES[1], EDGES[0]), WEIGHTS.to(dtype))


def from_scipy(form: str) -> Adjacency:
    matrix = scipy.sparse.coo_array((WEIGHTS.numpy(), EDGES.numpy()), shape=(N, N))
    return Adjacency.from_scipy(matrix.asformat(form), normalize="row")


def from_networkx() -> Adjacency:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(N))
    graph.add_weighted_edges_from(zip(*EDGES.tolist(), WEIGHTS.tolist(), strict=True))
    return Adjacency.from_networkx(graph, normalize="row", dtype=torch.float64)


def from_edges(edges: Tensor, weights: Tensor = WEIGHTS, **options: Any) -> Adjacency:
    return Adjacency.from_edge_index(edges, weights, N, normalize="row", dtype=torch.float64, **options)


SHUFFLE = torch.randperm(EDGES.size(1), generator=draw)
GRAPHS: dict[str, Callable[[], Adjacency]] = {
    "edges": lambda: from_edges(EDGES),
    "edges_int32": lambda: from_edges(EDGES.int()),
    "edges_int16": lambda: from_edges(EDGES.to(torch.int16)),
    "edges_uint8": lambda: from_edges(EDGES.to(torch.uint8)),
    "edges_transposed": lambda: from_edges(EDGES.t().contiguous().t()),
    "edges_sliced": lambda: from_edges(EDGES.repeat_interleave(3, dim=1)[:, ::3]),
    "edges_shuffled": lambda: from_edges(EDGES[:, SHUFFLE], WEIGHTS[SHUFFLE]),
    "edges_in_two_halves": lambda: from_edges(EDGES.repeat(1, 2), WEIGHTS.repeat(2) / 2),
    "weights_sliced": lambda: from_edges(EDGES, torch.stack([WEIGHTS, -WEIGHTS], dim=1)[:, 0]),
    "weights_column": lambda: from_edges(EDGES, WEIGHTS[:, None]),
    "reordered": lambda: from_edges(EDGES, reorder=True),
    "not_reordered": lambda: from_edges(EDGES, reorder=False),
    "coo": lambda: Adjacency.from_torch(dense().to_sparse_coo(), normalize="row"),
    "csr": lambda: Adjacency.from_torch(dense().to_sparse_csr(), normalize="row"),
    "csc": lambda: Adjacency.from_torch(dense().to_sparse_csc(), normalize="row"),
    "csr_int32": lambda: Adjacency.from_torch(csr_int32(), normalize="row"),
    "scipy_coo": lambda: from_scipy("coo"),
    "scipy_csr": lambda: from_scipy("csr"),
    "scipy_csc": lambda: from_scipy("csc"),
    "networkx": from_networkx,
    "state": lambda: Adjacency.from_state(*from_edges(EDGES).state()),
}


def csr_int32() -> Tensor:
    matrix = dense().to_sparse_csr()
    indices = matrix.crow_indices().int(), matrix.col_indices().int()
    return torch.sparse_csr_tensor(*indices, matrix.values(), matrix.shape)


@pytest.mark.parametrize("graph", GRAPHS)
def test_graphs(graph):
    adj = GRAPHS[graph]()
    np.testing.assert_allclose(adj.to_dense(), A, rtol=1e-14, atol=0)
    assert ANSWER.error(solve(B, W, adj, eps=EPS, tol=TOL).state) <= TOL


@pytest.mark.parametrize("weight", LAYOUTS)
@pytest.mark.parametrize("b", LAYOUTS)
@pytest.mark.parametrize("reorder", [True, False])
def test_strides(b, weight, reorder):
    found = solve(LAYOUTS[b](B), LAYOUTS[weight](W), from_edges(EDGES, reorder=reorder), eps=EPS, tol=TOL)
    assert ANSWER.error(found.state) <= TOL
    assert found.state.is_contiguous()


def test_expanded_and_overlapping_inputs():
    adj, one = from_edges(EDGES), B[:1].expand(N, D)
    weight = torch.ones(1, dtype=torch.float64).expand(D, D) / 4
    wanted = reference.answer(reference.Dense.of(one, weight, A, EPS, "relu"), 1e-13)
    assert wanted.error(solve(one, weight, adj, eps=EPS, tol=TOL).state) <= TOL
    windows = torch.linspace(-1, 1, N + D, dtype=torch.float64).as_strided((N, D), (1, 1))
    wanted = reference.answer(reference.Dense.of(windows, W, A, EPS, "relu"), 1e-13)
    assert wanted.error(solve(windows, W, adj, eps=EPS, tol=TOL).state) <= TOL


def test_inputs_are_left_alone():
    b, weight, edges, weights = B.clone(), W.clone(), EDGES.clone(), -WEIGHTS
    adj = Adjacency.from_edge_index(edges, weights, N, normalize=None, dtype=torch.float64)
    before = adj.to_dense().clone()
    assert adj.norm_bound > 0
    solve(b, weight, adj, eps=EPS)
    for now, then in ((b, B), (weight, W), (edges, EDGES), (weights, -WEIGHTS), (adj.to_dense(), before)):
        assert torch.equal(now, then)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layers(layout):
    conv = PPRConv(
        None, D, EPS, tol=TOL, bias=False, normalize="row", add_self_loops=False, **AS_PUBLISHED
    ).double()
    conv.weight = torch.nn.Parameter(LAYOUTS[layout](W))  # a parameter may have any strides
    x = LAYOUTS[layout](B)
    for graph in ((EDGES, WEIGHTS), (dense().to_sparse_csr(),), (dense().to_sparse_coo(),), (from_edges(EDGES),)):
        assert ANSWER.error(conv(x, *graph)) <= TOL
    batch = torch.stack([x, x]).transpose(0, 1).contiguous().transpose(0, 1)
    assert all(ANSWER.error(out) <= TOL for out in conv(batch, EDGES, WEIGHTS))
    gcn = GCNConv(D, D, normalize=False, bias=False).double()
    gcn.lin.weight = torch.nn.Parameter(LAYOUTS[layout](W.t()))
    values = A[EDGES[1], EDGES[0]]
    assert ANSWER.error(InfiniteDepth(gcn, eps=EPS, tol=TOL)(x, EDGES, values)) <= TOL


# ------------------------------------------------------------------------------------------ types and devices
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_other_types_are_refused_in_one_sentence(dtype):
    with pytest.raises((ValueError, TypeError), match=r"float|dtype"):
        solve(B.to(dtype), W.to(dtype), from_edges(EDGES), eps=EPS)


def test_float32_and_float64_are_not_mixed():
    adj = from_edges(EDGES)
    for b, weight in ((B.float(), W), (B, W.float()), (B.float(), W.float())):
        with pytest.raises(ValueError, match="convert one"):
            solve(b, weight, adj, eps=EPS)
    assert ANSWER.error(solve(B.float(), W.float(), adj.to(torch.float32), eps=EPS).state) <= 2e-5


# In a process of its own: what reaches C by mistake may end it.
CRASHES = {
    "meta_b": "solve(B.to('meta'), W, adj)",
    "meta_weight": "solve(B, W.to('meta'), adj)",
    "meta_all": "solve(B.to('meta'), W.to('meta'), adj.to('meta'))",
    "meta_edges": "Adjacency.from_edge_index(EDGES.to('meta'), num_nodes=N)",
    "meta_edge_weight": "Adjacency.from_edge_index(EDGES, WEIGHTS.to('meta'), N)",
    "meta_csr": "Adjacency.from_torch(dense().to_sparse_csr().to('meta'))",
    "meta_layer": "PPRConv(D, D).to('meta')(B.float().to('meta'), EDGES.to('meta'))",
    "meta_input": "PPRConv(D, D)(B.float().to('meta'), EDGES)",
    "meta_infinite_depth": "InfiniteDepth(GCNConv(D, D)).to('meta')(B.float().to('meta'), EDGES.to('meta'))",
    "edge_index": "equal(PPRConv(D, D), EdgeIndex(EDGES, sparse_size=(N, N)))",
    "edge_index_sorted": "equal(PPRConv(D, D), EdgeIndex(EDGES, sparse_size=(N, N)).sort_by('col').values)",
    "edge_index_adjacency": "Adjacency.from_edge_index(EdgeIndex(EDGES, sparse_size=(N, N))).to_dense()",
    "edge_index_infinite_depth": "equal(InfiniteDepth(GCNConv(D, D)), EdgeIndex(EDGES, sparse_size=(N, N)))",
    "fake": "fake(lambda: solve(torch.empty(N, D), torch.empty(D, D), adj.to(torch.float32)))",
    "functional": "torch.func.vmap(lambda b: solve(b, W, adj).state)(B.expand(3, N, D))",
}
PROGRAM = """
import faulthandler, sys, warnings
faulthandler.enable()
warnings.simplefilter("ignore")
import torch
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv
from pprgnn import Adjacency, solve
from pprgnn.nn import InfiniteDepth, PPRConv
from tests.attack.test_layouts import B, CRASHES, D, EDGES, N, W, WEIGHTS, dense, from_edges

adj = from_edges(EDGES)

def equal(layer, edges):
    edges = edges if isinstance(edges, EdgeIndex) else edges[0]
    plain = edges.as_tensor() if hasattr(edges, "as_tensor") else edges
    torch.testing.assert_close(layer(B.float(), edges), layer(B.float(), plain))

def fake(call):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode(allow_non_fake_inputs=True):
        return call()

for name in sys.argv[1:]:
    print(name, end=": ", flush=True)
    try:
        eval(CRASHES[name])
        print("fine", flush=True)
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        print(type(error).__name__, str(error).splitlines()[0], flush=True)
"""


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What each line of CRASHES came to; the next process starts after the line at which one ended."""
    lines: dict[str, str] = {}
    while len(lines) < len(CRASHES):
        left = [name for name in CRASHES if name not in lines]
        done = warm.run(PROGRAM, *left)
        found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
        assert found, done.stderr[-2000:]
        if done.returncode:
            found[list(found)[-1]] = f"ended the process ({done.returncode})"
        lines |= found
    return lines


@pytest.mark.parametrize("name", CRASHES)
def test_nothing_ends_the_process(said, name):
    print(said[name])
    assert "ended" not in said[name]
    if name.startswith("meta"):  # a sentence of ours, or a result without numbers
        assert said[name] == "fine" or said[name].startswith(("ValueError", "TypeError")), said[name]
    if name.startswith("edge_index"):
        assert said[name] == "fine"
