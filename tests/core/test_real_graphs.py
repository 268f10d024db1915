"""Real graphs instead of drawn ones: skipped when PPRGNN_DATA does not name a folder that has them."""

import gzip

import numpy as np
import pytest
import torch

from pprgnn import Adjacency, Status, solve
from tests.problems import draw_weight


@pytest.fixture(scope="module")
def minesweeper(data_root):
    path = data_root / "heterophilous" / "minesweeper.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with np.load(path) as file:
        pairs = torch.from_numpy(file["edges"]).long().t()
    return torch.cat([pairs, pairs.flip(0)], 1), 10_000


def test_node_order_and_kernel_are_invisible(minesweeper, monkeypatch):
    edge_index, n = minesweeper
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(n, 8, dtype=torch.float64, generator=generator)
    upstream = torch.randn(n, 8, dtype=torch.float64, generator=generator)
    results = []
    for reorder, kernel in ((False, "torch"), (True, "torch"), (False, "auto"), (True, "auto")):
        monkeypatch.setenv("PPRGNN_KERNEL", kernel)
        adj = Adjacency.from_edge_index(edge_index, num_nodes=n, reorder=reorder, dtype=torch.float64)
        b, weight = start.clone().requires_grad_(), draw_weight(8, 3.0).requires_grad_()
        state = solve(b, weight, adj, eps=0.2, depth=30).state
        state.backward(upstream)
        results.append((state.detach(), b.grad, weight.grad))
    for other in results[1:]:
        for ours, expected in zip(other, results[0], strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


def test_measured_error_is_true(minesweeper):
    edge_index, n = minesweeper
    adj = Adjacency.from_edge_index(edge_index, num_nodes=n, dtype=torch.float64)
    b = torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight = draw_weight(4, 4.0)
    solution = solve(b, weight, adj, eps=0.1)
    assert solution.status is Status.MEASURED
    truth = solve(b, weight, adj, eps=0.1, depth=600).state
    assert float((solution.state - truth).norm() / b.norm()) <= solution.truncation_bound <= 1e-5


def test_com_dblp_has_its_published_size_and_is_reordered(data_root):
    path = data_root / "com-dblp" / "com-dblp.ungraph.txt.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with gzip.open(path, "rt") as file:
        pairs = np.loadtxt(file, comments="#", dtype=np.int64)
    nodes, numbered = np.unique(pairs, return_inverse=True)
    edge_index = torch.from_numpy(numbered.reshape(pairs.shape)).t()
    adj = Adjacency.from_edge_index(torch.cat([edge_index, edge_index.flip(0)], 1))
    assert (adj.num_nodes, adj.num_edges) == (len(nodes), 2 * 1_049_866) == (317_080, 2 * 1_049_866)
    assert adj.is_symmetric
    assert adj.order is not None
    assert adj.norm_bound <= 1.001
    # Neighbours have become neighbours in memory: half of the edges span less than 1,000 positions.
    assert (
        float((adj.row - adj.col).abs().float().median())
        < 1_000
        < float((edge_index[0] - edge_index[1]).abs().float().median())
    )
