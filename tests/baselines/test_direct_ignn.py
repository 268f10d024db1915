"""IGNN as its published code computes it: what it finds, and how it ends, is what our core finds."""

import copy

import pytest
import torch

from pprgnn.baselines.direct_ignn import MAX_STEPS, STOP, direct_equilibrium
from pprgnn.baselines.ignn import IGNNConv
from pprgnn.core.solution import ConvergenceWarning, NotFiniteError, Status
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.model import Model
from pprgnn.training.train import train
from tests.problems import draw_b, random_graph
from tests.training.small_data import Recorder, divided, one_graph, several_graphs

GRAPHS = [
    random_graph(seed, 25, directed=directed, weighted=weighted)
    for seed, (directed, weighted) in enumerate([(False, False), (True, False), (True, True)])
]
NAMES = ["undirected", "directed", "directed and weighted"]


def pair(dtype=torch.float64, **options):
    """The same layer twice, on our core and direct; W far outside the ball."""
    torch.manual_seed(0)
    core = IGNNConv(3, 6, tol=1e-7, max_depth=300, kappa=0.8, **options).to(dtype)
    torch.nn.init.normal_(core.weight)
    direct = copy.deepcopy(core)
    direct.solver = "direct"
    return core, direct


def relative(one, other):
    return float((one - other).norm() / other.norm())


# ---------------------------------------------------------------------------------------- agreement with the core
@pytest.mark.parametrize("graph", GRAPHS, ids=NAMES)
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "identity"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_and_gradients_are_those_of_the_core(graph, activation, dtype):
    core, direct = pair(dtype, activation=activation)
    x = (10 * draw_b(graph.num_nodes, 3)).to(dtype)
    weights = None if graph.edge_weight is None else graph.edge_weight.to(dtype)
    upstream = 10 * draw_b(graph.num_nodes, 6, seed=1).to(dtype)
    found = []
    for conv in (direct, core):
        leaf = x.clone().requires_grad_()
        out = conv(leaf, graph.edge_index, weights)
        assert out.dtype == dtype
        out.backward(upstream)
        grads = {name: parameter.grad for name, parameter in conv.named_parameters()}
        found.append({"out": out.detach(), "x": leaf.grad, **grads})
    ours, wanted = found
    assert set(ours) == {"out", "x", "weight", "bias", "lin.weight"}
    for name, tensor in wanted.items():
        assert relative(ours[name], tensor) < 1e-5, name
    assert torch.equal(direct.weight, core.weight)  # both are projected
    assert float(direct.weight.detach().abs().sum(0).max()) <= 0.8 + 1e-6
    assert direct.last_solution.status is Status.COMPARED
    assert 5 < direct.last_solution.depth < MAX_STEPS
    assert not direct.last_solution.state.requires_grad


def test_the_inner_order_of_nodes_makes_no_difference():
    graph = GRAPHS[1]
    b, weight = draw_b(graph.num_nodes, 4), 0.5 * torch.eye(4, dtype=torch.float64)
    plain, inside = (graph.adjacency(reorder=reorder) for reorder in (False, True))
    assert inside.order is not None
    wanted, found = (direct_equilibrium(b, weight, adj).state for adj in (plain, inside))
    torch.testing.assert_close(found, wanted)


def test_steps_end_by_the_published_rule():
    """Absolute: the same problem in larger units takes more of them; the last but one still moved."""
    adj = GRAPHS[0].adjacency()
    b, weight = draw_b(25, 4).abs(), 0.8 * torch.eye(4, dtype=torch.float64)
    depths = [direct_equilibrium(unit * b, weight, adj).depth for unit in (1e-3, 1.0, 1e3)]
    assert depths == sorted(set(depths))
    states = [torch.zeros_like(b)]
    while len(states) < 2 or (states[-1] - states[-2]).abs().max() >= STOP:
        states.append(torch.relu(adj @ states[-1] @ weight + b))
    solution = direct_equilibrium(b, weight, adj)
    assert solution.depth == depths[1] == len(states) - 1
    assert solution.products == solution.depth + 1
    torch.testing.assert_close(solution.state, torch.relu(adj @ states[-1] @ weight + b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_a_fixed_depth_reaches_as_far(depth):
    core, direct = pair(depth=depth)
    x = draw_b(25, 3)
    torch.testing.assert_close(direct(x, GRAPHS[1].edge_index), core(x, GRAPHS[1].edge_index))
    assert direct.last_solution.depth == depth
    assert direct.last_solution.status is Status.FIXED
    messages = direct._forward_message_passing(x, GRAPHS[1].edge_index, None)
    torch.testing.assert_close(messages, core(x, GRAPHS[1].edge_index))


def test_the_gradient_belongs_to_the_weights_of_its_forward_pass():
    _, direct = pair()
    x = draw_b(25, 3)
    wanted = torch.autograd.grad(direct(x, GRAPHS[0].edge_index).square().sum(), direct.lin.weight)[0]
    loss = direct(x, GRAPHS[0].edge_index).square().sum()
    with torch.no_grad():
        direct.weight.mul_(0.1)
    torch.testing.assert_close(torch.autograd.grad(loss, direct.lin.weight)[0], wanted)


# -------------------------------------------------------------------------------------------------- how it ends
def test_not_converged_warns():
    adj = GRAPHS[0].adjacency(add_self_loops=True)
    b = draw_b(25, 4).abs().requires_grad_()
    weight = 0.999 * torch.eye(4, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match=r"equilibrium still changed.*3e-06 after max_depth = 300 .*kappa"):
        solution = direct_equilibrium(b, weight, adj)
    assert (solution.status, solution.depth, solution.converged) == (Status.CAPPED, 300, False)
    with pytest.warns(ConvergenceWarning, match="The gradient of IGNN's equilibrium still changed"):
        solution.state.sum().backward()


def test_overflow_is_said():
    adj, b = GRAPHS[0].adjacency(dtype=torch.float32), torch.ones(25, 2)
    with pytest.warns(ConvergenceWarning, match="overflowed"):
        assert direct_equilibrium(b, 1e3 * torch.eye(2), adj).status is Status.NOT_FINITE
    with pytest.raises(NotFiniteError, match="b must be finite"):
        direct_equilibrium(b * torch.nan, torch.eye(2), adj)


def test_no_channels():
    solution = direct_equilibrium(torch.empty(25, 0), torch.empty(0, 0), GRAPHS[0].adjacency(dtype=torch.float32))
    assert solution.state.shape == (25, 0)
    assert solution.converged


def test_what_it_cannot_do_is_refused():
    graph, (_, direct) = GRAPHS[2], pair()
    x = draw_b(25, 3)
    with pytest.raises(ValueError, match=r"no gradient for edge weights.*use solver='core'"):
        direct(x, graph.edge_index, graph.edge_weight.clone().requires_grad_())
    loss = direct(x, graph.edge_index).square().sum()
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(loss, direct.weight, create_graph=True)


def test_the_option():
    assert repr(IGNNConv(2, 3, solver="direct")) == "IGNNConv(2, 3, kappa=0.95, solver='direct')"
    assert IGNNConv(2, 3, solver="direct").max_depth == MAX_STEPS
    assert IGNNConv(2, 3, solver="direct", max_depth=50).max_depth == 50
    with pytest.raises(ValueError, match="solver must be 'core' or 'direct', but came as 'dirct'"):
        IGNNConv(2, 3, solver="dirct")


# --------------------------------------------------------------------------------------------- inside the harness
def config(solver):
    small = {"hidden": 8, "layers": 2, "dropout": 0.0, "lr": 0.02, "epochs": 2, "device": "cpu", "tol": 1e-6}
    return Config.for_system("ignn").with_values({**small, "own.solver": solver})


def test_a_misspelt_setting_is_refused():
    assert Config.for_system("ignn").model.own["solver"] == "core"
    with pytest.raises(TrainingError, match=r"solver must be core \| direct, but is 'Direct'"):
        config("Direct")


@pytest.mark.parametrize("data", [one_graph, several_graphs])
def test_training_goes_the_same_way_and_is_kept(data, tmp_path):
    dataset, losses = data(), []
    for solver in ("core", "direct"):
        listener = Recorder()
        done = train(config(solver), dataset=dataset, split=divided(dataset), listener=listener)
        losses.append([record.loss for record in listener.records])
        assert not listener.warnings
        assert all(depth > 0 for record in listener.records for depth in record.depth)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    (summary,) = listener.summaries
    assert {layer["status"] for layer in summary["layers"]} == {"COMPARED"}
    done.model.save(tmp_path / "model.safetensors")
    loaded = Model.load(tmp_path / "model.safetensors")
    assert loaded.config.model.own["solver"] == "direct"
    assert torch.equal(loaded.logits(dataset), done.model.logits(dataset))
