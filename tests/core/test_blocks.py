"""Blocks of a block-diagonal matrix, against slices of the dense one and against graphs built alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.blocks import cut_blocks, ranges, take_blocks
from pprgnn.core.solve import solve
from tests.problems import ZOO, Graph, draw_b, draw_weight, random_graph

SIZES = st.lists(st.integers(0, 6), max_size=6)


@given(SIZES, st.data())
def test_ranges_are_those_of_python(sizes, data):
    starts = data.draw(st.lists(st.integers(0, 50), min_size=len(sizes), max_size=len(sizes)))
    expected = [start + i for start, size in zip(starts, sizes, strict=True) for i in range(size)]
    found = ranges(torch.tensor(starts, dtype=torch.long), torch.tensor(sizes, dtype=torch.long))
    assert found.tolist() == expected
    assert found.dtype == torch.long


def put_together(graphs: list[Graph], **options) -> tuple[Adjacency, torch.Tensor, torch.Tensor]:
    """All graphs as one block-diagonal matrix, with the start and size of each block."""
    sizes = torch.tensor([graph.num_nodes for graph in graphs])
    starts = sizes.cumsum(0) - sizes
    edges = torch.cat([graph.edge_index + start for graph, start in zip(graphs, starts, strict=True)], dim=1)
    given_weights = [graph.edge_weight for graph in graphs]
    weight = None
    if any(each is not None for each in given_weights):
        weight = torch.cat(
            [
                torch.ones(graph.edge_index.size(1), dtype=torch.float64) if each is None else each
                for graph, each in zip(graphs, given_weights, strict=True)
            ]
        )
    options = {"dtype": torch.float64, "reorder": False, "add_self_loops": True} | options
    return Adjacency.from_edge_index(edges, weight, int(sizes.sum()), **options), starts, sizes


@st.composite
def drawn_graphs(draw):
    directed = draw(st.booleans())
    weighted = draw(st.booleans())
    several = st.tuples(st.integers(0, 1000), st.integers(1, 6))
    return [
        random_graph(seed, nodes, directed=directed, weighted=weighted)
        for seed, nodes in draw(st.lists(several, min_size=1, max_size=5))
    ]


@given(drawn_graphs(), st.data(), st.sampled_from(["sym", "row"]))
def test_blocks_are_slices_of_the_dense_matrix(graphs, data, normalize):
    adj, starts, sizes = put_together(graphs, normalize=normalize)
    ids = torch.tensor(data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=6)))
    blocks = take_blocks(adj, starts[ids], sizes[ids])
    dense = adj.to_dense()
    parts = [dense[s : s + n, s : s + n] for s, n in zip(starts[ids], sizes[ids], strict=True)]
    expected = torch.block_diag(*parts)
    assert torch.equal(blocks.to_dense(), expected)
    assert torch.equal(blocks.matrix_t.to_dense(), expected.t())
    assert blocks.num_nodes == int(sizes[ids].sum())
    assert blocks.matrix.crow_indices().dtype == adj.matrix.crow_indices().dtype
    assert blocks.normalize == normalize
    assert blocks.norm_bound >= float(torch.linalg.matrix_norm(expected, ord=2)) * (1 - 1e-9)


@given(drawn_graphs(), st.data(), st.sampled_from(["sym", "row"]))
def test_a_matrix_is_cut_as_its_dense_one(graphs, data, normalize):
    adj, starts, _ = put_together(graphs, normalize=normalize)
    inner = sorted(data.draw(st.lists(st.sampled_from(starts.tolist()), max_size=4)))
    cuts = [0, *inner, adj.num_nodes]
    blocks = list(cut_blocks(adj, cuts))
    assert len(blocks) == len(cuts) - 1
    for block, start, end in zip(blocks, cuts, cuts[1:], strict=False):
        part = adj.to_dense()[start:end, start:end]
        assert torch.equal(block.to_dense(), part)
        assert torch.equal(block.matrix_t.to_dense(), part.t())
        assert block.is_symmetric == torch.equal(part, part.t())
        assert block.norm_bound == adj.norm_bound


@given(drawn_graphs())
def test_a_block_is_the_graph_built_alone(graphs):
    adj, starts, sizes = put_together(graphs)
    for number, graph in enumerate(graphs):
        block = take_blocks(adj, starts[number : number + 1], sizes[number : number + 1])
        alone = graph.adjacency(add_self_loops=True)
        assert torch.allclose(block.to_dense(), alone.to_dense(), atol=1e-15)
        if adj.is_symmetric:
            assert block.is_symmetric


def test_symmetric_blocks_share_one_matrix_and_directed_ones_do_not():
    undirected, starts, sizes = put_together([ZOO["path"], ZOO["grid"]])
    assert take_blocks(undirected, starts[1:], sizes[1:]).is_symmetric
    mixed, starts, sizes = put_together([ZOO["path"], ZOO["directed"]])
    assert not take_blocks(mixed, starts[1:], sizes[1:]).is_symmetric
    assert take_blocks(mixed, starts[:1], sizes[:1]).is_symmetric  # found out anew: the path itself is


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_solve_on_blocks_is_a_solve_on_each_graph(activation):
    graphs = [ZOO[name] for name in ("karate", "one_node", "directed", "no_edges", "isolated_nodes")]
    adj, starts, sizes = put_together(graphs)
    ids = torch.tensor([3, 0, 2, 1])
    blocks = take_blocks(adj, starts[ids], sizes[ids])
    weight = draw_weight(3, 1.5).requires_grad_()
    inputs = [draw_b(graphs[i].num_nodes, 3, seed=i) for i in ids.tolist()]
    together = solve(torch.cat(inputs), weight, blocks, depth=40, grad_terms=None, activation=activation).state
    alone = torch.cat(
        [
            solve(
                b,
                weight,
                graphs[i].adjacency(add_self_loops=True),
                depth=40,
                grad_terms=None,
                activation=activation,
            ).state
            for i, b in zip(ids.tolist(), inputs, strict=True)
        ]
    )
    assert torch.allclose(together, alone, atol=1e-12)
    gradients = [torch.autograd.grad(state.square().sum(), weight)[0] for state in (together, alone)]
    assert torch.allclose(*gradients, atol=1e-9)


def test_blocks_without_edges_have_a_solution():
    adj, starts, sizes = put_together([ZOO["path"], ZOO["one_node"], ZOO["no_edges"]], add_self_loops=False)
    blocks = take_blocks(adj, starts[1:], sizes[1:])
    assert blocks.num_edges == 0
    b = draw_b(5, 2)
    assert torch.equal(solve(b, draw_weight(2, 3.0), blocks).state, b.relu())


def test_no_blocks_at_all():
    adj, starts, sizes = put_together([ZOO["path"]])
    assert take_blocks(adj, starts[:0], sizes[:0]).num_nodes == 0


def test_a_reordered_matrix_is_refused():
    graph = ZOO["grid"]
    adj = graph.adjacency(reorder=True)
    assert adj.order is not None
    with pytest.raises(ValueError, match="reorder=False"):
        take_blocks(adj, torch.tensor([0]), torch.tensor([graph.num_nodes]))
