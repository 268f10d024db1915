"""The fused CPU kernel gives what the torch operations give, for every shape that it treats in its own way."""

import numpy as np
import pytest
import torch

from pprgnn import Activation, Adjacency, leaky_relu, solve
from pprgnn.core import training_step
from pprgnn.core.activation import RELU, TANH
from pprgnn.core.backend import kernel
from pprgnn.core.problem import Problem
from tests.problems import ZOO, draw_b, draw_weight

needs_kernel = pytest.mark.skipif(kernel._library(None) is None, reason="the CPU kernel was not built")


def sparse_directed(num_nodes: int, dtype: torch.dtype) -> Adjacency:
    """About four edges a node, some nodes without any, one that everybody points to."""
    draw = torch.Generator().manual_seed(num_nodes)
    edges = torch.randint(num_nodes, (2, 4 * num_nodes), generator=draw)
    hub = torch.stack([torch.arange(num_nodes), torch.zeros(num_nodes, dtype=torch.long)])
    edges = torch.cat([edges, hub], dim=1)
    weight = torch.rand(edges.size(1), generator=draw, dtype=dtype) + 0.1
    return Adjacency.from_edge_index(edges, weight, num_nodes, normalize="row")


def results(adj, channels, phi, grad_terms=4, per_channel=False) -> list[torch.Tensor]:
    """State and gradients. b and weight in the type of the graph."""
    b = draw_b(adj.num_nodes, channels).to(adj.dtype).requires_grad_()
    weight = draw_weight(channels, 2.0).to(adj.dtype).requires_grad_()
    eps = torch.linspace(0.2, 0.9, channels) if per_channel else torch.tensor(0.5)
    eps = eps.to(adj.dtype).requires_grad_()
    activation = leaky_relu(phi) if isinstance(phi, float) else phi
    options = {"depth": 6, "grad_terms": grad_terms, "activation": activation}
    state = solve(b, weight, adj, eps=eps, **options).state
    grad_out = draw_b(adj.num_nodes, channels, seed=1).to(adj.dtype)
    return [state.detach(), *torch.autograd.grad(state, (b, weight, eps), grad_out)]


def both(monkeypatch, *args, **options) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    monkeypatch.delenv("PPRGNN_KERNEL", raising=False)
    fused = results(*args, **options)
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    return fused, results(*args, **options)


def assert_same(fused, plain, tolerance):
    for one, other in zip(fused, plain, strict=True):
        assert float((one - other).norm()) <= tolerance * float(other.norm())


@needs_kernel
@pytest.mark.parametrize("channels", [1, 3, 4, 8, 15, 16, 17, 31, 33, 64, 67, 128, 129, 200, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("phi", [RELU, TANH], ids=["relu", "tanh"])
def test_every_width(channels, dtype, phi, monkeypatch):
    accuracy = 1e-12 if dtype == torch.float64 else 2e-5 if phi is RELU else 1e-4  # with tanh, sums cancel
    assert_same(*both(monkeypatch, sparse_directed(101, dtype), channels, phi), accuracy)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 19])
def test_tanh_is_right_to_twice_eps_wherever_it_is_asked(dtype, channels, monkeypatch):
    """Of numbers from the smallest to the largest; the next more precise type tells what is right."""
    monkeypatch.delenv("PPRGNN_KERNEL", raising=False)
    info, count = torch.finfo(dtype), 20_000 * channels
    sizes = torch.logspace(-37, 38, count, dtype=torch.float64)
    edges = torch.tensor([0.0, info.tiny, info.eps, 0.17328, 0.34657, 0.3466, 9.01, 19.06, info.max, torch.inf])
    z = torch.cat([edges.double(), sizes, torch.linspace(0, 25, count, dtype=torch.float64)]).to(dtype)
    z = torch.stack([z, -z], dim=1).flatten()[: 4 * count].reshape(-1, channels)
    alone = Adjacency.from_edge_index(torch.empty(2, 0).long(), num_nodes=len(z), dtype=dtype)
    found = torch.empty_like(z)
    fused = Problem(z, torch.zeros(channels, channels, dtype=dtype), torch.ones((), dtype=dtype), alone, TANH)
    kernel.descend(kernel.library_for(fused), fused, kernel.PartRows.whole(alone.matrix), [found], 0)
    right = z.numpy().astype("longdouble" if dtype == torch.float64 else "float64")
    right = np.tanh(right)
    wrong = np.abs(found.numpy() - right) / np.maximum(np.abs(right), info.tiny)
    assert float(wrong.max()) <= 2 * info.eps
    assert float(found.abs().max()) == 1.0


@needs_kernel
def test_what_is_not_a_number_stays_one_under_tanh(monkeypatch):
    monkeypatch.delenv("PPRGNN_KERNEL", raising=False)
    given = problem(activation=TANH, channels=5)
    given.b[1, 2] = torch.nan
    found = torch.empty_like(given.b)
    kernel.descend(kernel.library_for(given), given, kernel.PartRows.whole(given.adj.matrix), [found], 0)
    assert found.isnan().nonzero().tolist() == [[1, 2]]


@needs_kernel
@pytest.mark.parametrize("num_nodes", [1, 2, 5, 95, 96, 97, 192, 193, 400])
@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
def test_every_number_of_rows_and_slope(num_nodes, slope, monkeypatch):
    assert_same(*both(monkeypatch, sparse_directed(num_nodes, torch.float64), 9, slope, per_channel=True), 1e-12)


@needs_kernel
@pytest.mark.parametrize("grad_terms", [1, 2, 7, None])
def test_every_number_of_terms(grad_terms, monkeypatch):
    assert_same(*both(monkeypatch, sparse_directed(50, torch.float64), 9, 0.0, grad_terms), 1e-12)


@needs_kernel
@pytest.mark.parametrize("name", ZOO)
def test_every_graph(name, monkeypatch):
    for reorder in (False, True):
        assert_same(*both(monkeypatch, ZOO[name].adjacency(reorder=reorder), 5, 0.0), 1e-12)


@needs_kernel
@pytest.mark.parametrize("num_nodes", [1, 3, 250])
def test_threads_change_nothing_but_rounding_and_repeat_exactly(num_nodes):
    adj, before, found = sparse_directed(num_nodes, torch.float64), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 3):
            torch.set_num_threads(threads)
            found.append(results(adj, 20, 0.1))
    finally:
        torch.set_num_threads(before)
    assert_same(found[1], found[0], 1e-12)
    assert_same(found[2], found[0], 1e-12)
    assert all(torch.equal(one, other) for one, other in zip(found[2], found[3], strict=True))


def problem(channels=3, activation=RELU, dtype=torch.float64) -> Problem:
    adj = ZOO["path"].adjacency(dtype=dtype)
    b, weight = torch.ones(7, channels, dtype=dtype), torch.eye(channels, dtype=dtype)
    return Problem(b, weight, torch.ones((), dtype=dtype), adj, activation)


@needs_kernel
def test_it_is_used_exactly_where_it_fits(monkeypatch):
    monkeypatch.delenv("PPRGNN_KERNEL", raising=False)
    assert kernel.library_for(problem()) is not None
    assert kernel.library_for(problem(dtype=torch.float32, activation=leaky_relu(0.2))) is not None
    assert kernel.library_for(problem(channels=kernel.MAX_CHANNELS)) is not None
    assert kernel.library_for(problem(channels=kernel.MAX_CHANNELS + 1)) is None
    assert kernel.library_for(problem(activation=TANH)) is not None
    softsign = Activation(torch.nn.functional.softsign, lambda z: (1 + z.abs()) ** -2, lipschitz=1.0)
    assert kernel.library_for(problem(activation=softsign)) is None
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    assert kernel.library_for(problem()) is None


def test_beyond_its_width_the_torch_path_takes_over():
    channels = kernel.MAX_CHANNELS + 1
    b, weight = draw_b(7, channels), draw_weight(channels, 2.0)
    adj = ZOO["path"].adjacency()
    wanted = torch.relu(adj.to_dense() @ torch.relu(b) @ weight + b)
    torch.testing.assert_close(solve(b, weight, adj, depth=1).state, wanted, rtol=1e-10, atol=1e-10)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e30])
def test_a_look_at_a_step_is_that_of_torch(dtype, scale):
    generator = torch.Generator().manual_seed(0)
    sketch, weight = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((16, 7), (7, 7)))
    weight *= scale
    sketch[:, 3] = 0.0
    found = kernel.look(sketch, weight, 1e-10)
    expected = training_step.look(sketch.double(), weight.double(), 1e-10)
    torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-6, atol=1e-12)
    assert found[1] == pytest.approx(expected[1], rel=1e-6)


def test_a_look_at_what_c_cannot_read_is_left_to_torch():
    sketch, weight = torch.ones(16, 4), torch.ones(4, 4)
    for unreadable in (
        (sketch, torch.ones(3, 4)),
        (sketch, weight.double()),
        (sketch.half(), weight.half()),
        (sketch, torch.ones(4, 8)[:, ::2]),
        (sketch.to("meta"), weight.to("meta")),
        (torch.ones(16, 0), torch.ones(0, 0)),
    ):
        assert kernel.look(*unreadable, 1e-10) is None
