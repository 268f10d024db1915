"""Ã: every way to build it, what normalisation does, and how it acts."""

import copy
import pickle

import networkx as nx
import pytest
import scipy.sparse as sp
import torch
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pprgnn import Adjacency, solve
from tests import reference
from tests.problems import ZOO, Graph, draw_b, draw_weight, random_graph

NORMALIZATIONS = ["sym", "row", None]
EVERY_GRAPH = pytest.mark.parametrize("graph", ZOO.values(), ids=str)
DIRECTED = ZOO["directed_weighted"]


def expected(graph: Graph, **options) -> torch.Tensor:
    return reference.dense_adjacency(graph.edge_index, graph.edge_weight, graph.num_nodes, **options)


def assert_equal(actual, wanted, atol=1e-13):
    torch.testing.assert_close(actual, wanted, rtol=0, atol=atol)


# ------------------------------------------------------------------------------------------------- builders
@EVERY_GRAPH
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("add_self_loops", [False, True])
def test_edge_index_gives_the_reference_matrix(graph, normalize, add_self_loops):
    options = {"normalize": normalize, "add_self_loops": add_self_loops}
    assert_equal(graph.adjacency(**options).to_dense(), expected(graph, **options))


@EVERY_GRAPH
@pytest.mark.parametrize("add_self_loops", [False, True])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
@pytest.mark.filterwarnings("ignore:Sparse CS")  # torch says once per process that it is in beta
def test_torch_sparse_gives_the_same_matrix(graph, add_self_loops, layout):
    raw = expected(graph, normalize=None)  # rows are targets: PyG's convention for sparse input
    sparse = {"coo": raw.to_sparse_coo, "csr": raw.to_sparse_csr, "csc": raw.to_sparse_csc}[layout]()
    adj = Adjacency.from_torch(sparse, add_self_loops=add_self_loops)
    assert_equal(adj.to_dense(), expected(graph, add_self_loops=add_self_loops))


@EVERY_GRAPH
@pytest.mark.parametrize("layout", ["coo_array", "csr_array", "csc_array", "csr_matrix"])
def test_scipy_gives_the_same_matrix(graph, layout):
    raw = expected(graph, normalize=None).t().numpy()  # SciPy's convention: entry (i, j) is the edge i -> j
    assert_equal(Adjacency.from_scipy(getattr(sp, layout)(raw)).to_dense(), expected(graph))


@EVERY_GRAPH
def test_networkx_gives_the_same_matrix(graph):
    made = nx.DiGraph()
    made.add_nodes_from(range(graph.num_nodes))
    weights = torch.ones(graph.edge_index.size(1)) if graph.edge_weight is None else graph.edge_weight
    made.add_weighted_edges_from(
        (s, t, w) for (s, t), w in zip(graph.edge_index.t().tolist(), weights.tolist(), strict=True)
    )
    assert_equal(Adjacency.from_networkx(made, dtype=torch.float64).to_dense(), expected(graph))


def test_networkx_undirected_keeps_the_order_of_the_nodes_and_the_name_of_the_weight():
    made = nx.Graph()
    made.add_nodes_from(["c", "a", "b"])
    made.add_edge("a", "c", cost=3.0, weight=7.0)
    dense = Adjacency.from_networkx(made, weight="cost", normalize=None).to_dense()
    wanted = torch.zeros(3, 3, dtype=torch.float64)
    wanted[0, 1] = wanted[1, 0] = 3.0
    assert_equal(dense, wanted)
    assert float(Adjacency.from_networkx(made, weight=None, normalize=None).to_dense().max()) == 1.0


def test_edges_that_occur_twice_are_added_up():
    edges = torch.tensor([[0, 1, 0, 0], [1, 0, 1, 1]])
    adj = Adjacency.from_edge_index(edges, torch.tensor([1.0, 2.0, 3.0, 0.5]), normalize=None)
    assert adj.num_edges == 2
    assert adj.to_dense().tolist() == [[0.0, 2.0], [4.5, 0.0]]


def test_existing_self_loops_keep_their_weight_and_the_others_get_one():
    edges, weights = torch.tensor([[0, 1, 1], [0, 0, 2]]), torch.tensor([5.0, 2.0, 3.0])
    adj = Adjacency.from_edge_index(edges, weights, normalize=None, add_self_loops=True)
    assert adj.to_dense().tolist() == [[5.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 3.0, 1.0]]


def test_weights_may_be_a_column_or_integers():
    edges = ZOO["path"].edge_index
    column = Adjacency.from_edge_index(edges, torch.full((12, 1), 2), normalize=None)
    assert column.dtype == torch.float32
    assert float(column.to_dense().sum()) == 24.0


# -------------------------------------------------------------------------------------------- normalisation
@EVERY_GRAPH
@pytest.mark.parametrize("add_self_loops", [False, True])
def test_symmetric_normalisation_is_gcn_norm(graph, add_self_loops):
    index, weight = gcn_norm(
        graph.edge_index, graph.edge_weight, graph.num_nodes, False, add_self_loops, dtype=torch.float64
    )
    wanted = reference.dense_adjacency(index, weight, graph.num_nodes, normalize=None)
    assert_equal(graph.adjacency(add_self_loops=add_self_loops).to_dense(), wanted)


@pytest.mark.parametrize("name", ["karate", "weighted", "directed_weighted", "self_loops", "isolated_nodes"])
@pytest.mark.parametrize("add_self_loops", [False, True])
def test_product_is_gcn_conv(name, add_self_loops):
    graph = ZOO[name]
    conv = GCNConv(3, 2, bias=False, add_self_loops=add_self_loops).double()
    x = draw_b(graph.num_nodes, 3)
    wanted = conv(x, graph.edge_index, graph.edge_weight)
    ours = graph.adjacency(add_self_loops=add_self_loops) @ conv.lin(x)
    assert_equal(ours, wanted, atol=1e-12)


def test_directed_edges_cut_by_symmetric_normalisation_are_announced():
    edges = torch.tensor([[0, 1, 2], [1, 2, 1]])  # nobody points to node 0
    with pytest.warns(UserWarning, match=r"gives weight 0 to 1 of 3 edges.*add_self_loops=True") as record:
        adj = Adjacency.from_edge_index(edges)
    assert record[0].filename == __file__  # the warning names the caller's line
    index, weight = gcn_norm(edges, None, 3, False, False)
    assert_equal(adj.to_dense().double(), reference.dense_adjacency(index, weight, 3, normalize=None), 1e-7)
    Adjacency.from_edge_index(edges, normalize="row")  # silent: nothing is cut
    Adjacency.from_edge_index(edges, add_self_loops=True)


# -------------------------------------------------------------------------------------------------- reorder
@pytest.mark.parametrize("name", ["grid", "karate", "directed_weighted", "isolated_nodes", "no_edges"])
def test_node_order_inside_is_invisible(name):
    graph = ZOO[name]
    plain, sorted_ = graph.adjacency(reorder=False), graph.adjacency(reorder=True)
    assert sorted_.order is not None
    assert plain.order is None
    assert_equal(sorted_.to_dense(), plain.to_dense())
    x = draw_b(graph.num_nodes, 3)
    assert_equal(sorted_ @ x, plain @ x)

    grad_out = draw_b(graph.num_nodes, 3, seed=1)
    for options in ({"grad_terms": None}, {"grad_terms": 3, "checkpoint": True}, {"activation": "tanh"}):
        results = []
        for adj in (plain, sorted_):
            b, weight = x.clone().requires_grad_(), draw_weight(3, 2.0).requires_grad_()
            state = solve(b, weight, adj, eps=0.5, depth=12, **options).state
            results.append((state, *torch.autograd.grad(state, (b, weight), grad_out)))
        for one, other in zip(*results, strict=True):
            assert_equal(one, other, atol=1e-11)


def test_gradient_of_edge_weights_arrives_in_the_callers_order():
    graph, found = DIRECTED, []
    for reorder in (False, True):
        weights = graph.edge_weight.clone().requires_grad_()
        adj = Adjacency.from_edge_index(graph.edge_index, weights, graph.num_nodes, reorder=reorder)
        state = solve(draw_b(6, 3), draw_weight(3, 2.0), adj, depth=6).state
        found.append(torch.autograd.grad((state**2).sum(), weights)[0])
    assert_equal(found[0], found[1], atol=1e-11)
    assert float(found[0].abs().max()) > 1e-3


# --------------------------------------------------------------------------------------------------- inside
@EVERY_GRAPH
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_one_matrix_serves_both_ways_exactly_when_symmetric(graph, normalize):
    adj = graph.adjacency(normalize=normalize)
    dense = expected(graph, normalize=normalize)
    symmetric = torch.equal(adj.to_dense(), adj.to_dense().t())
    assert symmetric == torch.allclose(dense, dense.t(), rtol=0, atol=1e-14)
    assert adj.is_symmetric == symmetric
    assert (adj.matrix_t is adj.matrix) == symmetric
    assert_equal(adj.matrix_t.to_dense(), dense.t())
    assert repr(adj).endswith("symmetric)" if symmetric else "directed)")


@pytest.mark.parametrize("name", ["karate", "directed_weighted", "no_edges"])
def test_indices_inside_take_half_the_memory(name):
    adj = ZOO[name].adjacency()
    for matrix in (adj.matrix, adj.matrix_t):
        assert matrix.crow_indices().dtype == torch.int32
        assert matrix.col_indices().dtype == torch.int32


@EVERY_GRAPH
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norm_bound_is_an_upper_bound(graph, normalize, dtype):
    true = reference.spectral_norm(expected(graph, normalize=normalize))
    assert graph.adjacency(normalize=normalize, dtype=dtype).norm_bound >= true * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("directed", [False, True])
def test_norm_bound_on_random_graphs_with_negative_weights(seed, directed):
    graph = random_graph(seed, 9, directed=directed, weighted=True)
    weights = graph.edge_weight * torch.where(torch.arange(len(graph.edge_weight)) % 3 == 0, -1.0, 1.0)
    adj = Adjacency.from_edge_index(graph.edge_index, weights, 9, normalize=None)
    assert adj.norm_bound >= reference.spectral_norm(adj.to_dense()) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("name", "normalize"),
    [
        *[("karate", "sym"), ("karate", "row"), ("karate", None), ("directed", "row"), ("star", None)],
        *[("directed_weighted", None), ("weighted", "sym"), ("no_edges", "sym"), ("isolated_nodes", "sym")],
    ],
)
def test_norm_bound_is_tight(name, normalize):
    true = reference.spectral_norm(expected(ZOO[name], normalize=normalize))
    assert ZOO[name].adjacency(normalize=normalize).norm_bound <= true * 1.01


# --------------------------------------------------------------------------------------------------- action
@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("add_self_loops", [False, True])
def test_product_with_weights_that_are_all_one(reorder, add_self_loops):
    graph, x = ZOO["karate"], draw_b(34, 4)
    adj = graph.adjacency(normalize=None, reorder=reorder, add_self_loops=add_self_loops)
    assert adj.value.is_contiguous()
    assert_equal(adj @ x, expected(graph, normalize=None, add_self_loops=add_self_loops) @ x)


@EVERY_GRAPH
def test_product_with_a_state(graph):
    x = draw_b(graph.num_nodes, 4)
    assert_equal(graph.adjacency() @ x, expected(graph) @ x)
    assert_equal(graph.adjacency() @ x.t().contiguous().t(), expected(graph) @ x)  # not contiguous


@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("add_self_loops", [False, True])
def test_product_gradcheck_with_edge_weights(reorder, normalize, add_self_loops):
    def product(x, weights):
        adj = Adjacency.from_edge_index(
            DIRECTED.edge_index, weights, 6, normalize=normalize, add_self_loops=add_self_loops, reorder=reorder
        )
        return adj @ x

    inputs = draw_b(6, 2).requires_grad_(), DIRECTED.edge_weight.clone().requires_grad_()
    assert torch.autograd.gradcheck(product, inputs)


@pytest.mark.parametrize("reorder", [False, True])
def test_to_another_type(reorder):
    adj = ZOO["karate"].adjacency(dtype=torch.float32, reorder=reorder)
    assert adj.to(torch.float32) is adj
    assert adj.to("cpu") is adj
    double = adj.to(torch.float64)
    assert double.dtype == double.matrix.dtype == double.matrix_t.dtype == torch.float64
    assert adj.matrix.dtype == torch.float32
    assert_equal(double.to_dense(), adj.to_dense().double())
    assert_equal(double @ torch.eye(34, dtype=torch.float64), adj.to_dense().double())


@pytest.mark.parametrize("graph", [DIRECTED, ZOO["karate"]], ids=str)
def test_transposed_after_a_conversion(graph):
    adj = graph.adjacency()
    symmetric = adj.is_symmetric
    single = adj.to(torch.float32)
    assert single.is_symmetric == symmetric
    assert torch.equal(single.matrix_t.to_dense(), single.matrix.to_dense().t())


def test_gradients_flow_through_a_conversion():
    weights = DIRECTED.edge_weight.float().requires_grad_()
    adj = Adjacency.from_edge_index(DIRECTED.edge_index, weights, 6, normalize=None).to(torch.float64)
    (adj @ torch.ones(6, 1, dtype=torch.float64)).sum().backward()
    assert_equal(weights.grad, torch.ones(10))


@pytest.mark.parametrize("directed", [False, True])
def test_in_inner_order(directed):
    edges = torch.randint(50, (2, 300), generator=torch.Generator().manual_seed(0))
    edges = edges if directed else torch.cat([edges, edges.flip(0)], dim=1)
    weight = torch.rand(edges.size(1), generator=torch.Generator().manual_seed(1), requires_grad=directed)
    given = weight if directed else None
    adj = Adjacency.from_edge_index(edges, given, num_nodes=50, normalize="row", reorder=True)
    inner, order = adj.in_inner_order()
    assert inner.order is None
    assert inner.is_symmetric == adj.is_symmetric
    assert inner.matrix.col_indices().data_ptr() == adj.matrix.col_indices().data_ptr()  # not copied
    x = torch.rand(50, 3, generator=torch.Generator().manual_seed(2))
    assert torch.equal(inner @ x[order], (adj @ x)[order])
    assert torch.equal(inner.matrix_t.to_dense(), adj.matrix_t.to_dense())
    if directed:
        outs = (inner @ x[order], adj @ x)
        grads = [torch.autograd.grad(out.square().sum(), weight, retain_graph=True)[0] for out in outs]
        torch.testing.assert_close(*grads)
    plain = Adjacency.from_edge_index(edges, num_nodes=50, normalize=None, reorder=False)
    assert plain.in_inner_order()[1] is None


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda adj: pickle.loads(pickle.dumps(adj))])
@pytest.mark.parametrize("reorder", [False, True])
def test_copies_are_equal_and_independent(duplicate, reorder):
    edges = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 0, 1]])
    adj = Adjacency.from_edge_index(edges, torch.rand(5), reorder=reorder, add_self_loops=True)
    twin = duplicate(adj)
    assert repr(twin) == repr(adj)
    assert torch.equal(twin.to_dense(), adj.to_dense())
    assert int(twin.handle) != int(adj.handle)
    x = torch.randn(4, 2)
    assert torch.equal(twin @ x, adj @ x)


def test_learned_weights_cannot_be_copied():
    adj = Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]), torch.ones(2, requires_grad=True))
    with pytest.raises(ValueError, match=r"learned edge weights cannot be copied, .*; copy the weights"):
        copy.deepcopy(adj)


@pytest.mark.parametrize("options", [{}, {"sort_order": "row"}, {"sort_order": "col"}, {"is_undirected": True}])
def test_edge_index_of_pyg(options):
    edges = torch.tensor([[0, 0, 1, 1, 2, 3], [1, 2, 0, 3, 0, 1]])
    if options.get("sort_order") == "col":
        edges = edges[:, edges[1].argsort()]
    given = EdgeIndex(edges, sparse_size=(5, 5), **options)
    expected = Adjacency.from_edge_index(edges, num_nodes=5, add_self_loops=True)
    for each in (given, given.fill_cache_() if given.is_sorted else given):
        adj = Adjacency.from_edge_index(each, add_self_loops=True)
        assert torch.equal(adj.to_dense(), expected.to_dense())
