"""What is known of PyG's convolutions is what they do themselves: every one, on every layout of every graph."""

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv, GINConv, GraphConv, SAGEConv

from pprgnn.nn import InfiniteDepth
from pprgnn.nn.known_convs import analyze_conv

NODES, WIDTH = 11, 4  # two nodes have no edges
CONVS = {
    "GCN": lambda: GCNConv(WIDTH, WIDTH),
    "GCN without bias": lambda: GCNConv(WIDTH, WIDTH, bias=False),
    "GCN without loops": lambda: GCNConv(WIDTH, WIDTH, add_self_loops=False),
    "GCN as it is": lambda: GCNConv(WIDTH, WIDTH, normalize=False),
    "GCN cached": lambda: GCNConv(WIDTH, WIDTH, cached=True),
    "SAGE": lambda: SAGEConv(WIDTH, WIDTH),
    "SAGE sum": lambda: SAGEConv(WIDTH, WIDTH, aggr="add"),
    "GraphConv": lambda: GraphConv(WIDTH, WIDTH),
    "GIN": lambda: GINConv(torch.nn.Linear(WIDTH, WIDTH)),
}


def graphs():
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES - 2, (2, 20), generator=draw)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    loops = torch.tensor([[0, 3], [0, 3]])
    return {
        "directed": edges,
        "undirected": torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1),
        "loops": torch.cat([edges, loops], dim=1),
        "double loops": torch.cat([edges, loops, loops], dim=1),
        "duplicates": torch.cat([edges, edges[:, :5]], dim=1),
        "no edges": edges[:, :0],
    }


GRAPHS = graphs()


def matrix(edges, weight):
    return torch.sparse_coo_tensor(edges.flip(0), weight, (NODES, NODES))


def sorted_index(edges, by):
    order = edges[0 if by == "row" else 1].argsort(stable=True)
    return EdgeIndex(edges[:, order].contiguous(), sort_order=by, sparse_size=(NODES, NODES))


LAYOUTS = {
    "edge_index": lambda edges, weight: (edges,),
    "weighted": lambda edges, weight: (edges, weight),
    "COO": lambda edges, weight: (matrix(edges, weight).coalesce(),),
    "CSR": lambda edges, weight: (matrix(edges, weight).to_sparse_csr(),),
    "CSC": lambda edges, weight: (matrix(edges, weight).to_sparse_csc(),),
    "CSR of ones": lambda edges, weight: (matrix(edges, torch.ones_like(weight)).to_sparse_csr(),),
    "EdgeIndex": lambda edges, weight: (EdgeIndex(edges.contiguous(), sparse_size=(NODES, NODES)),),
    "EdgeIndex, no size": lambda edges, weight: (EdgeIndex(edges.contiguous()), weight),
    "EdgeIndex by row": lambda edges, weight: (sorted_index(edges, "row"),),
    "EdgeIndex by column": lambda edges, weight: (sorted_index(edges, "col"),),
}


def answer(layer, b, arguments):
    """The output and its gradient, or the error."""
    b = b.clone().requires_grad_()
    try:
        out = layer(b, *arguments)
        return out.detach(), *torch.autograd.grad(out.square().sum(), b)
    except (IndexError, NotImplementedError, RuntimeError, ValueError) as error:
        return error


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", CONVS)
@pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")
@pytest.mark.filterwarnings("ignore:Symmetric normalisation gives weight 0:UserWarning")
def test_one_step_is_the_convolution_itself(name, graph):
    edges = GRAPHS[graph]
    torch.manual_seed(0)
    weight = torch.rand(edges.size(1), dtype=torch.float64) + 0.2
    b, conv = torch.randn(NODES, WIDTH, dtype=torch.float64), CONVS[name]().double()
    layer = InfiniteDepth(conv, depth=1, activation=None)  # β₀ = 1
    for layout, make in LAYOUTS.items():
        conv._cached_edge_index = None
        expected = answer(lambda b, *graph: conv(b, *graph) + b, b, make(edges, weight))
        conv._cached_edge_index = None
        out = answer(layer, b, make(edges, weight))
        if isinstance(expected, Exception):  # PyG cannot, for example GCN with CSC: whatever comes is more
            continue
        assert not isinstance(out, Exception), (layout, out)
        for mine, theirs in zip(out, expected, strict=True):
            assert torch.allclose(mine, theirs, rtol=0, atol=1e-12), layout


def test_the_quick_way_is_taken_wherever_it_can_be():
    edges, weight, b = GRAPHS["loops"], torch.rand(GRAPHS["loops"].size(1)), torch.randn(NODES, WIDTH)
    for name, layout in [
        ("GCN", "weighted"),
        ("GCN", "CSR"),
        ("SAGE", "CSR"),
        ("GIN", "COO"),
        ("GCN", "EdgeIndex"),
    ]:
        assert analyze_conv(CONVS[name](), b, LAYOUTS[layout](edges, weight), {}) is not None, (name, layout)


@pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")
@pytest.mark.parametrize("name", ["GCN", "SAGE", "GIN"])
def test_entries_of_a_matrix_in_any_order(name):
    """PyG's GCN layer takes them for sorted, even marks them so, and returns something else."""
    edges = GRAPHS["duplicates"]
    edges = edges[:, torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(0))]
    weight, b, conv = torch.rand(edges.size(1)), torch.randn(NODES, WIDTH), CONVS[name]()
    expected = conv(b, matrix(edges, weight).coalesce().to_sparse_csr()) + b
    given = matrix(edges, weight)
    layer = InfiniteDepth(conv, depth=1, activation=None)
    torch.testing.assert_close(layer(b, given), expected)
    conv(b, given)  # which marks them
    torch.testing.assert_close(layer(b, given), expected)
