"""The bound of ‖Ã‖₂ is one, rounding included: depths are proved with it."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from pprgnn import Adjacency


def random_matrices(count, seed=0):
    """Many shapes and sizes of entries: stars, chains, blocks, weights from 1e-30 to 1e30, of both signs."""
    generator = torch.Generator().manual_seed(seed)

    def integer(high):
        return int(torch.randint(high, (), generator=generator))

    for _ in range(count):
        n, kind = 2 + integer(40), integer(4)
        edges = torch.randint(0, n, (2, 1 + integer(4 * n)), generator=generator)
        if kind == 0:  # a star, into its centre or out of it
            edges = torch.stack([torch.arange(n), torch.zeros(n, dtype=torch.long)])
            edges = edges.flip(0) if integer(2) else edges
        elif kind == 1:
            edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
        weight = torch.rand(edges.size(1), generator=generator, dtype=torch.float64)
        weight = weight * 10.0 ** (integer(5) * torch.randn(edges.size(1), generator=generator).clamp(-6, 6))
        if integer(2):
            edges, weight = torch.cat([edges, edges.flip(0)], dim=1), weight.repeat(2)
        signs = integer(3) == 0
        yield edges, torch.where(weight > weight.median(), -weight, weight) if signs else weight, n, signs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-24, 1e20])
@pytest.mark.filterwarnings("ignore:Symmetric normalisation gives weight 0:UserWarning")
def test_norm_bound_holds_for_hundreds_of_matrices(dtype, scale):
    for edges, weight, n, signs in random_matrices(150):
        normalize = None if signs else [None, "sym", "row"][n % 3]
        adj = Adjacency.from_edge_index(edges, (weight * scale).to(dtype), n, normalize=normalize)
        dense = adj.to_dense().double()
        largest = float(dense.abs().max()) or 1.0
        true = largest * float(torch.linalg.matrix_norm(dense / largest, ord=2))
        assert true * (1 - 1e-14) <= adj.norm_bound, (n, normalize)
        assert adj.norm_bound <= 1.5 * largest * float(torch.linalg.matrix_norm((dense / largest).abs(), ord=2))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("normalize", [None, "sym", "row"])
def test_norm_bound_of_a_large_star_in_single_precision(normalize, symmetric):
    leaves = 200_000
    star = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
    star = torch.cat([star, star.flip(0)], dim=1) if symmetric else star
    weight = torch.rand(leaves, generator=torch.Generator().manual_seed(0)).repeat(2 if symmetric else 1)
    adj = Adjacency.from_edge_index(star, weight, leaves + 1, normalize=normalize, add_self_loops=True)
    matrix = adj.matrix
    exact = csr_array(
        (matrix.values().double().numpy(), matrix.col_indices().numpy(), matrix.crow_indices().numpy()),
        shape=matrix.shape,
    )
    x = np.ones(leaves + 1)
    for _ in range(100):
        x = exact.T @ (exact @ x)
        x /= np.linalg.norm(x)
    true = np.linalg.norm(exact @ x)  # or a little less
    assert true * (1 - 1e-12) <= adj.norm_bound <= 1.05 * true


def test_tiny_weights_have_no_norm_of_zero():
    adj = Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]), torch.full((2,), 1e-24), normalize=None)
    assert adj.norm_bound == pytest.approx(1e-24)
    assert Adjacency.from_edge_index(torch.tensor([[0], [1]]), torch.zeros(1), normalize=None).norm_bound == 0.0
