"""GIND against its equation and its objective, written out densely, and against automatic differentiation."""

import math

import pytest
import torch

from pprgnn import Adjacency
from pprgnn.baselines.fixed_point import Anderson, fixed_point, iterate
from pprgnn.baselines.gind import GINDNet
from pprgnn.core.solution import ConvergenceWarning, NotFiniteError
from pprgnn.errors import DataError
from pprgnn.training.config import Config
from pprgnn.training.train import train
from tests.training.small_data import Recorder, all_for_training, divided, one_graph, random_edges, several_graphs

NODES = 10


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def graph(*, weighted=True, directed=False):
    draw = torch.Generator().manual_seed(3)
    if directed:
        edges = torch.randint(NODES - 1, (2, 20), generator=draw).unique(dim=1)  # with a self-loop, too
        assert (edges[0] == edges[1]).any()
    else:
        edges = random_edges(NODES, 16, draw)
    weight = torch.rand(edges.size(1), generator=draw, dtype=torch.double) + 0.2
    if weighted and not directed:  # the same in both directions
        keys = torch.minimum(*edges) * NODES + torch.maximum(*edges)
        weight = torch.rand(NODES * NODES, generator=draw, dtype=torch.double)[keys] + 0.2
    return edges, weight if weighted else None


def network(**options):
    return GINDNet(4, 3, **{"hidden": 5, "steady_tol": 1e-13, "max_steps": 5000} | options).double().eval()


def features():
    return torch.randn(NODES, 4, dtype=torch.double)


def dense_parts(edges, weight, self_loops):
    """Each directed edge as a row of G with half its weight, and the degrees of the symmetric graph."""
    weight = torch.ones(edges.size(1), dtype=torch.double) if weight is None else weight
    rows = torch.arange(edges.size(1))
    g = torch.zeros(edges.size(1), NODES, dtype=torch.double)
    g[rows, edges[0]] += 1
    g[rows, edges[1]] -= 1
    a = torch.zeros(NODES, NODES, dtype=torch.double).index_put((edges[1], edges[0]), weight, accumulate=True)
    degree = ((a + a.t()) / 2).sum(1)
    if self_loops:
        degree = degree + (a.diagonal() == 0)
    return g, weight / 2, degree


def dense_right_side(net, u, b, parts):
    g, weight, degree = parts
    k = net.diffusion.weight
    flow = weight[:, None] * torch.tanh(g @ u @ k.t())
    return b - torch.where(degree > 0, 1 / degree, 0)[:, None] * (g.t() @ flow @ k)


CASES = [
    {"weighted": False, "directed": False},
    {"weighted": True, "directed": False},
    {"weighted": True, "directed": True},
]


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_state_solves_the_published_equation(case, self_loops):
    edges, weight = graph(**case)
    net, x = network(self_loops=self_loops), features()
    u = net.encode(x, edges, weight)
    parts = dense_parts(edges, weight, self_loops)
    assert torch.allclose(dense_right_side(net, u, net.read(x), parts), u, atol=1e-11)
    adj = Adjacency.from_edge_index(edges, weight, NODES, dtype=torch.double, **net.adjacency_options)
    assert torch.allclose(net.encode(x, adj), u, atol=1e-11)


def test_is_the_equilibrium_in_the_form_of_the_paper():
    """Z = -Ĝᵀ tanh(Ĝ (Z + D^½ b) Kᵀ) K with both directions of every edge and Ĝ = G (2D)^-½."""
    edges, _ = graph(weighted=False)
    net, x = network(self_loops=True), features()
    degree = torch.bincount(edges[0], minlength=NODES) + 1.0
    norm = (2 * degree.double()).rsqrt()[:, None]
    b, k = net.read(x) / norm, net.diffusion.weight
    g, _, _ = dense_parts(edges, None, True)
    z = torch.zeros(NODES, 5, dtype=torch.double)
    for _ in range(400):
        flow = torch.tanh(g @ (norm * ((z + b) @ k.t())))
        z = 0.9 * z - 0.1 * norm * (g.t() @ flow) @ k
    assert torch.allclose(net.encode(x, edges), norm * z + net.read(x), atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_state_minimises_the_objective(case):
    edges, weight = graph(**case)
    net, x = network(), features()
    g, half, degree = dense_parts(edges, weight, True)
    k, b = net.diffusion.weight.detach(), net.read(x).detach()

    def objective(u):
        difference = g @ u @ k.t()
        log_cosh = torch.logaddexp(difference, -difference) - math.log(2)
        return (degree[:, None] * (u - b) ** 2).sum() / 2 + (half[:, None] * log_cosh).sum()

    u = net.encode(x, edges, weight).detach().requires_grad_()
    smallest = objective(u)
    slope = torch.autograd.grad(smallest, u)[0]
    assert slope.abs().max() < 1e-10
    for _ in range(5):
        assert objective(u + 0.1 * torch.randn_like(u)) > smallest


def test_gradient_is_that_of_a_long_unrolled_iteration():
    edges, weight = graph()
    net, x = network(), features().requires_grad_()
    weight.requires_grad_()
    read = torch.randn(NODES, 5, dtype=torch.double)
    wanted_for = [x, weight, net.diffusion.weight, *net.read.parameters()]
    state = net.encode(x, edges, weight)
    mine = torch.autograd.grad((state * read).sum(), wanted_for)
    b, parts = net.read(x), dense_parts(edges, weight, True)
    u = b
    for _ in range(300):
        u = u + 0.1 * (dense_right_side(net, u, b, parts) - u)
    assert torch.allclose(u, state, atol=1e-10)
    for a, b in zip(mine, torch.autograd.grad((u * read).sum(), wanted_for), strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-9)


def test_gradcheck():
    edges, weight = graph()
    net = network()
    inputs = (features().requires_grad_(), weight.requires_grad_())
    torch.autograd.gradcheck(
        lambda x, weight: net.encode(x, edges, weight), inputs, fast_mode=True, check_undefined_grad=False
    )


def test_converges_for_any_size_of_the_weights():
    edges, weight = graph()
    for scale in (0.0, 0.1, 4.0):
        net, x = network(steady_tol=1e-9, max_steps=10000), features()
        with torch.no_grad():
            net.diffusion.weight.mul_(scale)
        u = net.encode(x, edges, weight)
        off = dense_right_side(net, u, net.read(x), dense_parts(edges, weight, True)) - u
        assert off.norm() <= 1e-8 * u.norm() * max(1, scale**2)


def test_other_numbers_for_the_nodes_permute_the_states():
    edges, weight = graph()
    net, x = network(), features()
    order = torch.randperm(NODES)
    rank = order.argsort()
    moved = net.encode(x[order], rank[edges], weight)
    assert torch.allclose(moved, net.encode(x, edges, weight)[order], atol=1e-11)


def test_large_graphs_are_computed_in_another_order_inside():
    draw = torch.Generator().manual_seed(0)
    edges = random_edges(NODES, 16, draw)
    net, x = network(), features()
    plain, moved = (
        Adjacency.from_edge_index(
            edges, num_nodes=NODES, reorder=reorder, dtype=torch.double, **net.adjacency_options
        )
        for reorder in (False, True)
    )
    assert moved.order is not None
    assert not torch.equal(moved.order, torch.arange(NODES))
    assert torch.allclose(net.encode(x, plain), net.encode(x, moved), atol=1e-11)


def test_memory_does_not_grow_with_the_number_of_steps():
    edges, weight = graph()
    kept = []
    for tol in (1e-2, 1e-12):
        total = 0

        def count(tensor):
            nonlocal total
            total += tensor.numel()
            return tensor

        net = network(steady_tol=tol)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            net.encode(features(), edges, weight)
        kept.append(total)
    assert kept[0] == kept[1] > 0


def test_graphs_of_a_batch_do_not_mix():
    net = network(steady_tol=1e-12)
    net_graph = GINDNet(4, 3, "graph", hidden=5, steady_tol=1e-12).double().eval()
    edges, _ = graph(weighted=False)
    x, more = features(), features()
    both = torch.cat([edges, edges + NODES], dim=1)
    assert torch.allclose(net.encode(torch.cat([x, more]), both)[:NODES], net.encode(x, edges), atol=1e-9)
    batch = torch.arange(2).repeat_interleave(NODES)
    alone = net_graph(x, edges, batch=torch.zeros(NODES, dtype=torch.long))
    assert torch.allclose(net_graph(torch.cat([x, more]), both, batch=batch)[:1], alone, atol=1e-9)


def test_a_node_without_edges_keeps_its_features():
    net, x = network(self_loops=False), features()
    edges, weight = graph()
    assert torch.allclose(net.encode(x, edges, weight)[-1], net.read(x)[-1])
    assert torch.allclose(net.encode(x, edges[:, :0]), net.read(x))


def test_refuses_negative_weights():
    edges, weight = graph()
    with pytest.raises(DataError, match="not negative"):
        network().encode(features(), edges, -weight)


def test_the_cap_warns_with_a_remedy():
    edges, weight = graph()
    with pytest.warns(ConvergenceWarning, match=r"not steady after 3 steps .*max_steps"):
        network(max_steps=3).encode(features(), edges, weight)


@pytest.mark.parametrize("options", [{"steady_tol": 0.0}, {"max_steps": 0}])
def test_options_are_checked(options):
    with pytest.raises(ValueError, match="must be"):
        GINDNet(4, 3, **options)


def test_learns_nodes_and_graphs():
    for dataset, split in ((one_graph(weighted=True), divided), (several_graphs(), all_for_training)):
        config = Config.for_system("gind").with_values({"epochs": 40, "hidden": 16, "dropout": 0.0, "patience": 0})
        config = config.with_values({"input_dropout": 0.0, "weight_decay": 0.0, "device": "cpu", "eval_every": 40})
        summary = train(config, dataset=dataset, split=split(dataset), listener=Recorder()).summary
        assert summary["scores"]["train"]["accuracy"] > 0.9


def test_shares_a_pass_with_validation_only_without_dropout_on_features():
    assert GINDNet(3, 2).encode_is_deterministic
    assert not GINDNet(3, 2, input_dropout=0.1).encode_is_deterministic


# ------------------------------------------------------------------------------------------------- the iteration
@pytest.mark.parametrize("accelerate", [False, True])
def test_fixed_point_of_a_linear_map_and_its_gradient(accelerate):
    a = torch.randn(6, 6, dtype=torch.double)
    a = (a / torch.linalg.matrix_norm(a, ord=2) * 0.8).requires_grad_()
    b = torch.randn(6, 2, dtype=torch.double, requires_grad=True)
    options = {"step": 0.7, "tol": 1e-14, "cap": 1000, "remedy": "do something", "accelerate": accelerate}
    x = fixed_point(lambda x: a @ x + b, torch.zeros(6, 2, dtype=torch.double), **options)
    wanted = torch.linalg.solve(torch.eye(6, dtype=torch.double) - a, b)
    assert torch.allclose(x, wanted)
    read = torch.randn_like(x)
    mine = torch.autograd.grad((x * read).sum(), (a, b))
    theirs = torch.autograd.grad((wanted * read).sum(), (a, b))
    assert all(torch.allclose(*pair) for pair in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("accelerate", [False, True])
def test_iteration_leaves_its_start_alone_and_stops_when_numbers_overflow(accelerate):
    start, options = torch.ones(3, 1), {"step": 1.0, "tol": 1e-3, "cap": 50, "remedy": "do something"}
    with pytest.raises(NotFiniteError, match=r"overflowed .*; do something"):
        iterate(lambda x: 1e20 * (x + 1e-3 * x**2), start, accelerate=accelerate, **options)
    assert torch.equal(start, torch.ones(3, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_acceleration_needs_fewer_steps_to_the_same_tolerance(dtype):
    torch.manual_seed(2)
    a = torch.randn(30, 30, dtype=dtype)
    a = a @ a.t()
    a = 0.99 * a / torch.linalg.matrix_norm(a, ord=2)
    b, calls = torch.randn(30, 2, dtype=dtype), []
    wanted = torch.linalg.solve(torch.eye(30, dtype=torch.double) - a.double(), b.double())
    for accelerate in (False, True):
        count = [0]

        def function(x, count=count):
            count[0] += 1
            return a @ x + b

        x = iterate(function, b, step=1.0, tol=1e-5, cap=5000, remedy="do something", accelerate=accelerate)
        assert float((x - wanted).norm() / wanted.norm()) < 100 * 1e-5  # as 1 / (1 - 0.99) allows
        calls.append(count[0])
    assert calls[1] < calls[0] / 3


@pytest.mark.parametrize("garbage", [1e6, math.nan])
def test_bad_mixtures_are_rejected(monkeypatch, garbage):
    monkeypatch.setattr(Anderson, "mix", lambda self, out: bool(out.fill_(garbage).numel()))
    options = {"step": 1.0, "tol": 1e-9, "cap": 100, "remedy": "do something", "accelerate": True}
    x = iterate(lambda x: x.cos(), torch.zeros(2, 1, dtype=torch.double), **options)
    torch.testing.assert_close(x, torch.full_like(x, 0.7390851332151607))


def test_gind_is_the_same_with_and_without_acceleration():
    edges, weight = graph()
    x, found = features(), []
    for acceleration in ("none", "anderson"):
        torch.manual_seed(1)
        net = network(acceleration=acceleration)
        out = net(x, edges, weight)
        found.append((out, *torch.autograd.grad(out.square().sum(), [*net.parameters()])))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)
