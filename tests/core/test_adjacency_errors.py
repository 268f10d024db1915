"""Whatever is wrong with a graph: one sentence that names it and says what to do."""

import networkx as nx
import pytest
import scipy.sparse as sp
import torch
from torch._subclasses import FakeTensorMode

from pprgnn import Adjacency
from tests.problems import ZOO

EDGES = torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((EDGES.t().repeat(2, 1),), {}, r"edge_index must have shape \(2, num_edges\), but has shape \(4, 2\)"),
        ((EDGES[0],), {}, r"edge_index must have shape \(2, num_edges\), but has shape \(2,\)"),
        ((EDGES.float(),), {}, r"edge_index must hold integers, but has dtype torch.float32"),
        ((EDGES.bool(),), {}, r"edge_index must hold integers, but has dtype torch.bool"),
        ((EDGES, None, 2), {}, r"Node ids must be in 0 \.\.\. 1, but the edges name nodes 0 to 2"),
        ((EDGES - 1, None, 3), {}, r"Node ids must be in 0 \.\.\. 2, but the edges name nodes -1 to 1"),
        ((EDGES - 1,), {}, r"Node ids must be in 0 \.\.\. 1, .* nodes -1 to 1; renumber the nodes.$"),
        ((EDGES.to("meta"),), {}, r"edge_index must hold numbers in memory, but is a Tensor on meta"),
        ((EDGES, torch.ones(2).to("meta")), {}, r"edge_weight must hold numbers in memory"),
        ((EDGES, torch.ones(2).to("meta"), 3), {}, r"edge_weight must hold numbers in memory"),
        ((torch.eye(3).to_sparse(),), {}, r"has layout torch.sparse_coo; build .* Adjacency.from_torch"),
        ((EDGES, torch.tensor([1.0, float("nan")])), {}, r"must be finite, but edge 1 has weight nan"),
        ((EDGES, torch.tensor([float("inf"), 1.0])), {}, r"must be finite, but edge 0 has weight inf"),
        ((EDGES, torch.ones(3)), {}, r"edge_weight must hold one number per edge, shape \(2,\).*\(3,\)"),
        ((EDGES, torch.ones(2, 4)), {}, r"edge_weight must hold one number per edge.*\(2, 4\)"),
        ((EDGES, torch.tensor([1.0, -2.0])), {}, r"edges into node 2 add up to -2; use non-negative"),
        ((EDGES, torch.tensor([1.0, -2.0])), {"normalize": "row"}, r"Normalisation needs degrees >= 0"),
        ((EDGES[:, :0],), {}, r"The graph has no nodes; pass num_nodes >= 1"),
        ((EDGES[:, :0], None, 0), {}, r"The graph has no nodes"),
        ((EDGES,), {"normalize": "both"}, r"normalize must be 'sym', 'row' or None, but came as 'both'"),
    ],
)
def test_edge_index(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        Adjacency.from_edge_index(*arguments, **options)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (EDGES.tolist(), r"but came as list; convert it with torch.as_tensor\(edge_index\)"),
        (EDGES.numpy(), r"but came as ndarray; convert it with torch.as_tensor"),
        (sp.dia_array((3, 3)), r"but came as dia_array; build Adjacency.from_scipy\(matrix\)"),
        (None, r"but came as NoneType; a graph without edges is torch.empty\(2, 0, dtype=torch.long\)"),
    ],
)
def test_not_a_tensor(edges, message):
    with pytest.raises(TypeError, match=r"edge_index must be a tensor of shape \(2, num_edges\), " + message):
        Adjacency.from_edge_index(edges)


def test_tensors_of_trial_runs_and_transforms_never_reach_compiled_code():
    with FakeTensorMode():
        fake = torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(ValueError, match="but is a FakeTensor on cpu without any"):
        Adjacency.from_edge_index(fake, num_nodes=5)
    with pytest.raises(ValueError, match=r"must hold numbers in memory.* a transform of torch.func"):
        torch.func.grad(lambda w: Adjacency.from_edge_index(EDGES, w).to_dense().sum())(torch.ones(2))


@pytest.mark.parametrize("bad", range(6))
def test_the_node_is_named_as_the_caller_does(bad):
    edges = ZOO["directed"].edge_index
    weight = torch.where(edges[1] == bad, -1.0, 1.0)
    with pytest.raises(ValueError, match=f"edges into node {bad} add up to -"):
        Adjacency.from_edge_index(edges, weight, normalize="row", reorder=True)


def test_negative_weights_are_fine_without_normalisation():
    adj = Adjacency.from_edge_index(EDGES, torch.tensor([1.0, -2.0]), normalize=None)
    assert adj.to_dense().tolist() == [[0, 0, 0], [1, 0, 0], [0, -2, 0]]


def test_torch_not_square():
    with pytest.raises(ValueError, match=r"sparse adjacency tensor must be square, but has shape \(2, 3\)"):
        Adjacency.from_torch(torch.ones(2, 3).to_sparse_coo())


def test_torch_dense():
    with pytest.raises(ValueError, match=r"must be COO, CSR or CSC, but has layout torch.strided"):
        Adjacency.from_torch(torch.ones(3, 3))


def test_torch_nan():
    with pytest.raises(ValueError, match=r"Edge weights must be finite"):
        Adjacency.from_torch(torch.tensor([[0.0, float("nan")], [1.0, 0.0]]).to_sparse_coo())


def test_scipy_not_square():
    with pytest.raises(ValueError, match=r"SciPy adjacency matrix must be square, but has shape \(2, 3\)"):
        Adjacency.from_scipy(sp.csr_array((2, 3)))


def test_networkx_without_nodes():
    with pytest.raises(ValueError, match=r"The graph has no nodes"):
        Adjacency.from_networkx(nx.Graph())


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(7), r"x must have shape \(7, channels\), but has \(7,\)"),
        (torch.ones(6, 2), r"x must have shape \(7, channels\), but has \(6, 2\)"),
        (torch.ones(7, 2), r"x is torch.float32 on cpu, but the adjacency is torch.float64 on cpu; convert one"),
    ],
)
def test_product(x, message):
    with pytest.raises(ValueError, match=message):
        ZOO["path"].adjacency() @ x
