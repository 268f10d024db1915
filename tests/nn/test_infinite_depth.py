"""Any convolution, infinitely deep: what it computes, what is known about it, and what it refuses."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import (
    MLP,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    HeteroConv,
    MessagePassing,
    RGCNConv,
    SAGEConv,
    TransformerConv,
    to_hetero,
)
from torch_geometric.utils import to_torch_csr_tensor

from pprgnn import Adjacency, Certificate, ConvergenceWarning, Status
from pprgnn.nn import InfiniteDepth, PPRConv, depth_state, infinite_layers, measure_afresh, set_tolerance
from pprgnn.nn.known_convs import analyze_conv, exact_norm, lipschitz_of
from pprgnn.nn.linear_output import AS_PUBLISHED

NODES, EDGES, WIDTH = 9, 30, 8


class MyConv(MessagePassing):
    """A user's own: the largest message, through a linear map with tanh."""

    def __init__(self, channels):
        super().__init__(aggr="max")
        self.lin = torch.nn.Linear(channels, channels)

    def forward(self, x, edge_index):
        return torch.tanh(self.lin(self.propagate(edge_index, x=x)))


def mlp():
    return MLP([WIDTH, WIDTH, WIDTH], norm=None)


CONVS = {
    "gcn": lambda: (GCNConv(WIDTH, WIDTH), []),
    "gcn without bias": lambda: (GCNConv(WIDTH, WIDTH, bias=False), []),
    "gcn unnormalised": lambda: (GCNConv(WIDTH, WIDTH, normalize=False), []),
    "gcn weighted": lambda: (GCNConv(WIDTH, WIDTH), ["edge_weight"]),
    "gcn improved": lambda: (GCNConv(WIDTH, WIDTH, improved=True), []),
    "gat": lambda: (GATConv(WIDTH, 2, heads=4), []),
    "gatv2 with edges": lambda: (GATv2Conv(WIDTH, 2, heads=4, edge_dim=3), ["edge_attr"]),
    "gin": lambda: (GINConv(mlp(), train_eps=True), []),
    "gine": lambda: (GINEConv(mlp(), edge_dim=3), ["edge_attr"]),
    "sage": lambda: (SAGEConv(WIDTH, WIDTH), []),
    "sage sum": lambda: (SAGEConv(WIDTH, WIDTH, aggr="sum", root_weight=False), []),
    "sage max": lambda: (SAGEConv(WIDTH, WIDTH, aggr="max"), []),
    "graph": lambda: (GraphConv(WIDTH, WIDTH), ["edge_weight"]),
    "transformer": lambda: (TransformerConv(WIDTH, 4, heads=2), []),
    "rgcn": lambda: (RGCNConv(WIDTH, WIDTH, num_relations=3), ["edge_type"]),
    "own": lambda: (MyConv(WIDTH), []),
}
KNOWN = ("gcn", "gcn without bias", "gcn unnormalised", "gcn weighted", "gin", "sage", "sage sum", "graph")


class TwoLayers(torch.nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv, self.lin = conv, torch.nn.Linear(4, 2)

    def forward(self, x, edge_index):
        return self.lin(self.conv(x, edge_index))


class Graph:
    """Directed, with edge weights, features and types; node 0 gets no message."""

    def __init__(self, seed=0):
        generator = torch.Generator().manual_seed(seed)
        source = torch.randint(0, NODES, (EDGES,), generator=generator)
        target = torch.randint(1, NODES, (EDGES,), generator=generator)
        self.edge_index = torch.stack([source, target]).unique(dim=1)
        count = self.edge_index.size(1)
        self.x = torch.randn(NODES, WIDTH, generator=generator)
        self.edge_weight = torch.rand(count, generator=generator) + 0.5
        self.edge_attr = torch.randn(count, 3, generator=generator)
        self.edge_type = torch.randint(0, 3, (count,), generator=generator)

    def arguments(self, names):
        return [self.edge_index, *(getattr(self, name) for name in names)]


@pytest.fixture
def graph():
    return Graph()


@pytest.fixture(params=CONVS)
def case(request, graph):
    torch.manual_seed(1)
    conv, names = CONVS[request.param]()
    return request.param, conv, graph.arguments(names)


def unrolled(conv, b, arguments, eps, depth):
    """The definition, written out."""
    g = b.relu()
    for n in range(depth - 1, -1, -1):
        g = (conv(g, *arguments) / (1 + n * eps) + b).relu()
    return g


# ------------------------------------------------------------------------------------------------------- values
def test_is_the_limit_of_the_unrolled_recursion(case, graph):
    _, conv, arguments = case
    layer = InfiniteDepth(conv, eps=0.6)
    out = layer(graph.x, *arguments)
    assert layer.last_solution.converged
    torch.testing.assert_close(out, unrolled(conv, graph.x, arguments, 0.6, 150), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_a_fixed_depth_is_so_many_calls(case, graph, depth):
    _, conv, arguments = case
    layer = InfiniteDepth(conv, eps=0.6, depth=depth)
    torch.testing.assert_close(layer(graph.x, *arguments), unrolled(conv, graph.x, arguments, 0.6, depth))
    assert layer.last_solution.status is Status.FIXED


@pytest.mark.parametrize("learn_eps", [False, True, "channel"])
def test_with_a_gcn_inside_it_is_our_layer(graph, learn_eps):
    ours = PPRConv(WIDTH, WIDTH, eps=0.4, learn_eps=learn_eps, **AS_PUBLISHED)
    conv = GCNConv(WIDTH, WIDTH, bias=False)
    layer = InfiniteDepth(conv, WIDTH, eps=0.4, learn_eps=learn_eps)
    with torch.no_grad():
        conv.lin.weight.copy_(ours.weight.t())
        layer.lin.weight.copy_(ours.lin.weight)
    outs = [each(graph.x, graph.edge_index, graph.edge_weight) for each in (ours, layer)]
    assert torch.equal(*outs)
    assert layer.last_solution.depth == ours.last_solution.depth
    for out in outs:
        out.square().sum().backward()
    torch.testing.assert_close(conv.lin.weight.grad, ours.weight.grad.t())
    torch.testing.assert_close(layer.lin.weight.grad, ours.lin.weight.grad)
    torch.testing.assert_close(layer.bias.grad, ours.bias.grad)
    if learn_eps:
        torch.testing.assert_close(layer.log_eps.grad, ours.log_eps.grad)


def test_several_sets_of_features_on_one_graph(graph):
    layer = InfiniteDepth(GCNConv(WIDTH, WIDTH), eps=0.5)
    sets = torch.stack([graph.x, graph.x.flip(0)])
    apart = torch.stack([layer(each, graph.edge_index) for each in sets])
    torch.testing.assert_close(layer(sets, graph.edge_index), apart, atol=1e-4, rtol=1e-4)


def test_double_precision_and_sparse_layouts(graph):
    layer = InfiniteDepth(SAGEConv(WIDTH, WIDTH), eps=0.5, tol=1e-12).double()
    x = graph.x.double()
    out = layer(x, graph.edge_index)
    assert out.dtype == torch.float64
    sparse = to_torch_csr_tensor(graph.edge_index.flip(0), size=(NODES, NODES)).double()
    adj = Adjacency.from_edge_index(graph.edge_index, None, NODES, normalize="row", dtype=torch.float64)
    for other in (sparse, adj):
        torch.testing.assert_close(layer(x, other), out)


def test_autocast_keeps_full_precision(graph):
    layer = InfiniteDepth(GATConv(WIDTH, 2, heads=4), WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(graph.x, graph.edge_index)
    assert out.dtype == torch.float32
    assert layer.last_solution.converged


# ---------------------------------------------------------------------------------------------------- gradients
def test_gradcheck_with_all_terms(case, graph):
    name, conv, arguments = case
    conv = conv.double()
    arguments = [each.double() if each.is_floating_point() else each for each in arguments]
    layer = InfiniteDepth(conv, eps=0.5, depth=4, grad_terms=None, activation="tanh")
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x, *arguments))

    x = graph.x.double().requires_grad_()
    # A maximum and the perceptron of GIN have kinks; the differences must not cross one.
    step = 1e-7 if "max" in name or "gin" in name or name == "own" else 1e-6
    # Along random directions: one difference for each input, not for each number in it.
    assert torch.autograd.gradcheck(run, (x, *values), eps=step, atol=1e-8, rtol=1e-5, fast_mode=True)


def test_truncated_gradient_is_that_of_the_last_steps(case, graph):
    _, conv, arguments = case
    conv = conv.double()
    arguments = [each.double() if each.is_floating_point() else each for each in arguments]
    x = graph.x.double().requires_grad_()
    layer = InfiniteDepth(conv, eps=0.5, depth=9, grad_terms=3)
    wanted = [x, *conv.parameters()]
    out = layer(x, *arguments)
    found = torch.autograd.grad(out.square().sum(), wanted, materialize_grads=True)
    with torch.no_grad():
        g = x.relu()
        for n in range(8, 2, -1):
            g = (conv(g, *arguments) / (1 + n * 0.5) + x).relu()
    for n in range(2, -1, -1):
        g = (conv(g, *arguments) / (1 + n * 0.5) + x).relu()
    expected = torch.autograd.grad(g.square().sum(), wanted, materialize_grads=True)
    for got, right in zip(found, expected, strict=True):
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize("name", ["gat", "gin", "gine"])
def test_checkpointing_changes_nothing_but_memory(graph, name):
    torch.manual_seed(1)
    conv, names = CONVS[name]()
    gradients = []
    for checkpoint in (False, True):
        layer = InfiniteDepth(copy.deepcopy(conv), eps=0.5, checkpoint=checkpoint)
        layer(graph.x, *graph.arguments(names)).square().sum().backward()
        gradients.append([p.grad for p in layer.parameters()])
    for kept, repeated in zip(*gradients, strict=True):
        torch.testing.assert_close(kept, repeated)


@pytest.mark.parametrize("name", ["gat", "sage", "gcn without bias"])
def test_functional_gradients(graph, name):
    layer = InfiniteDepth(CONVS[name]()[0], eps=0.5).double()
    x = graph.x.double()
    parameters = {key: each.detach() for key, each in layer.named_parameters()}

    def loss(parameters):
        return torch.func.functional_call(layer, parameters, (x, graph.edge_index)).square().sum()

    expected = torch.autograd.grad(layer(x, graph.edge_index).square().sum(), list(layer.parameters()))
    found = torch.func.grad(loss)(parameters)
    for got, right in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(got, right, atol=1e-4, rtol=1e-4)


def test_edge_arguments_get_a_gradient(graph):
    edge_attr = graph.edge_attr.requires_grad_()
    layer = InfiniteDepth(GINEConv(mlp(), edge_dim=3)).requires_grad_(False)
    layer(graph.x, graph.edge_index, edge_attr).sum().backward()
    assert float(edge_attr.grad.abs().sum()) > 0


def test_it_learns(graph):
    torch.manual_seed(0)
    layer = InfiniteDepth(GATConv(WIDTH, 2, heads=4), WIDTH, eps=0.5, learn_eps=True)
    goal = torch.rand(NODES, WIDTH)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (layer(graph.x, graph.edge_index) - goal).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]
    assert layer.depth_rule.checks < 20  # in 60 steps: depths are re-used
    assert float(layer.log_eps.detach()) != pytest.approx(torch.tensor(0.5).log().item(), abs=1e-3)


# --------------------------------------------------------------------------------------------- what is known of it
def test_which_convolutions_are_known(case, graph):
    name, conv, arguments = case
    known = analyze_conv(conv, graph.x, tuple(arguments), {})
    assert (known is not None) == (name in KNOWN)
    if known is not None:
        torch.testing.assert_close(known.function(graph.x), conv(graph.x, *arguments))


@pytest.mark.parametrize("name", KNOWN)
@given(seed=st.integers(0, 1000), scale=st.floats(0.1, 5))
def test_lipschitz_bounds_hold(name, seed, scale):
    torch.manual_seed(seed)
    graph = Graph(seed)
    conv, names = CONVS[name]()
    for p in conv.parameters():
        p.data *= scale
    known = analyze_conv(conv, graph.x, tuple(graph.arguments(names)), {})
    bound = known.lipschitz(known.adj.norm_bound)
    with torch.no_grad():
        for _ in range(5):
            x, y = torch.randn(2, NODES, WIDTH)
            moved = known.function(x) - known.function(y)
            assert float(moved.norm()) <= bound * float((x - y).norm()) * (1 + 1e-4)


def test_the_bound_of_a_linear_convolution_is_tight():
    ring = torch.arange(6)
    edge_index = torch.stack([ring, ring.roll(1)])
    conv = GraphConv(2, 2, bias=False)
    with torch.no_grad():
        conv.lin_rel.weight.copy_(2 * torch.eye(2))
        conv.lin_root.weight.copy_(3 * torch.eye(2))
    known = analyze_conv(conv, torch.ones(6, 2), (edge_index,), {})
    assert known.lipschitz(known.adj.norm_bound) == pytest.approx(5.0, rel=1e-3)  # reached by a constant state
    assert float(known.function(torch.ones(6, 2)).detach().norm() / torch.ones(6, 2).norm()) == pytest.approx(
        5.0, rel=1e-5
    )


@pytest.mark.parametrize("name", KNOWN)
def test_known_convolutions_are_proved(graph, name):
    torch.manual_seed(1)
    conv, names = CONVS[name]()
    layer = InfiniteDepth(conv, eps=0.5)
    with measure_afresh(layer):
        layer(graph.x, *graph.arguments(names))
    assert layer.last_solution.status in (Status.MEASURED, Status.CERTIFIED)
    assert layer.last_solution.truncation_bound <= 1e-5
    proved = InfiniteDepth(conv, eps=0.5, depth=Certificate())
    proved(graph.x, *graph.arguments(names))
    assert proved.last_solution.status is Status.CERTIFIED


def test_hooks_and_subclasses_are_not_bypassed(graph):
    class Doubled(GCNConv):
        def message(self, x_j, edge_weight):
            return 2 * super().message(x_j, edge_weight)

    torch.manual_seed(1)
    own = Doubled(WIDTH, WIDTH)
    plain = GCNConv(WIDTH, WIDTH)
    plain.load_state_dict(own.state_dict())
    outs = [InfiniteDepth(conv, depth=3)(graph.x, graph.edge_index) for conv in (own, plain)]
    assert not torch.allclose(*outs)
    seen = []
    plain.register_propagate_forward_pre_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(InfiniteDepth(plain, depth=3)(graph.x, graph.edge_index), outs[1])
    assert len(seen) == 3


def test_a_given_constant_proves_depth(graph):
    conv = MyConv(WIDTH)
    norm = exact_norm(conv.lin.weight)
    largest = float(torch.bincount(graph.edge_index[0]).max()) ** 0.5  # how often a message counts, at most
    for given_bound in (largest * norm, lambda x, edge_index: largest * norm):
        layer = InfiniteDepth(conv, eps=0.5, lipschitz=given_bound)
        with measure_afresh(layer):
            out = layer(graph.x, graph.edge_index)
        assert layer.last_solution.status in (Status.MEASURED, Status.CERTIFIED)
        expected = unrolled(conv, graph.x, [graph.edge_index], 0.5, 100)
        torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="lipschitz must be a number >= 0"):
        InfiniteDepth(conv, lipschitz=-1.0, depth=Certificate())(graph.x, graph.edge_index)


def test_lipschitz_of_perceptrons():
    torch.manual_seed(0)
    first, second = torch.nn.Linear(4, 6), torch.nn.Linear(6, 4)
    product = exact_norm(first.weight) * exact_norm(second.weight)
    chain = torch.nn.Sequential(first, torch.nn.LeakyReLU(2.0), torch.nn.Dropout(0.5), second).eval()
    assert lipschitz_of(chain) == pytest.approx(2 * product)
    assert lipschitz_of(chain.train()) == pytest.approx(4 * product)
    assert lipschitz_of(torch.nn.Sequential(first, torch.nn.LayerNorm(6))) is None
    assert lipschitz_of(MLP([4, 6, 4], norm="layer_norm")) is None
    assert lipschitz_of(MLP([4, 6, 4], norm=None, act="tanh")) is not None
    assert lipschitz_of(MLP([4, 6, 4], norm=None, dropout=0.5)) is None
    assert lipschitz_of(MLP([4, 6, 4], norm=None, dropout=0.5).eval()) is not None


def test_depth_follows_the_weights(graph):
    """Between measurements: larger weights, deeper; what was measured before does not stay."""
    torch.manual_seed(1)
    layer = InfiniteDepth(GATConv(WIDTH, 2, heads=4), eps=0.5)
    layer(graph.x, graph.edge_index)
    before = layer.last_solution.depth
    for factor, status in ((1.05, Status.REUSED), (4, Status.COMPARED)):
        with torch.no_grad():
            layer.conv.lin.weight.mul_(factor)
        out = layer(graph.x, graph.edge_index)
        assert layer.last_solution.status is status
        assert layer.last_solution.depth > before or status is Status.REUSED
        expected = unrolled(layer.conv, graph.x, [graph.edge_index], 0.5, 200)
        assert float((out - expected).detach().norm() / graph.x.norm()) < 1e-4


# ------------------------------------------------------------------------------------------------------ randomness
def test_one_dropout_mask_for_all_steps(graph):
    layer = InfiniteDepth(GATConv(WIDTH, 2, heads=4, dropout=0.5), eps=0.5).train()
    torch.manual_seed(3)
    outs = [layer(graph.x, graph.edge_index) for _ in range(2)]
    assert layer.last_solution.converged
    assert not torch.allclose(*outs), "another pass has another mask"
    torch.manual_seed(3)
    layer.depth_rule.forget()
    torch.testing.assert_close(layer(graph.x, graph.edge_index), outs[0], atol=1e-4, rtol=1e-4)
    layer.eval()
    torch.testing.assert_close(layer(graph.x, graph.edge_index), layer(graph.x, graph.edge_index))


def test_a_pass_takes_as_many_random_numbers_as_one_call(graph):
    conv = GATConv(WIDTH, 2, heads=4, dropout=0.5)
    after = []
    for module in (conv, InfiniteDepth(conv)):
        torch.manual_seed(0)
        module.train()(graph.x, graph.edge_index)
        after.append(torch.rand(()))
    assert torch.equal(*after)


@pytest.mark.parametrize(
    "conv",
    [
        GINConv(MLP([WIDTH, WIDTH, WIDTH])),
        GINConv(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH))),
    ],
)
def test_batch_norm_is_refused(conv):
    with pytest.raises(ValueError, match=r"must not contain batch norm, .* use LayerNorm there"):
        InfiniteDepth(conv)


# ------------------------------------------------------------------------------------------- directions and types
def test_directions(graph):
    torch.manual_seed(0)
    conv = GATConv(WIDTH, 2, heads=4)
    along = InfiniteDepth(copy.deepcopy(conv), depth=4)
    against = InfiniteDepth(copy.deepcopy(conv), depth=4, direction="out")
    torch.testing.assert_close(against(graph.x, graph.edge_index), along(graph.x, graph.edge_index.flip(0)))
    assert not torch.allclose(against(graph.x, graph.edge_index), along(graph.x, graph.edge_index))

    both = InfiniteDepth(GCNConv(WIDTH, WIDTH), depth=4, direction="both")
    assert sum(p.numel() for p in both.parameters()) == 2 * (WIDTH * WIDTH + WIDTH)
    there, back = both.conv.along, both.conv.against
    assert not torch.equal(there.lin.weight, back.lin.weight)

    def mean(g, edge_index, edge_weight):
        back.flow = "source_to_target"
        return 0.5 * (there(g, edge_index, edge_weight) + back(g, edge_index.flip(0), edge_weight))

    out = both(graph.x, graph.edge_index, graph.edge_weight)
    torch.testing.assert_close(out, unrolled(mean, graph.x, [graph.edge_index, graph.edge_weight], 1.0, 4))
    with pytest.raises(ValueError, match="direction must be"):
        InfiniteDepth(conv, direction="up")
    with pytest.raises(ValueError, match=r"edge_index.flip\(0\)"):
        InfiniteDepth(torch.nn.Linear(3, 3), direction="out")


def heterogeneous():
    torch.manual_seed(0)
    x = {"paper": torch.randn(5, 4), "author": torch.randn(3, 4), "venue": torch.randn(2, 4)}
    edges = {
        ("author", "writes", "paper"): torch.tensor([[0, 1, 2, 2], [0, 1, 2, 3]]),
        ("paper", "of", "author"): torch.tensor([[0, 1, 2, 3], [0, 1, 2, 2]]),
        ("paper", "cites", "paper"): torch.tensor([[0, 1, 2], [1, 2, 4]]),
        ("venue", "holds", "paper"): torch.tensor([[0, 1], [0, 1]]),
    }
    return x, edges


def test_heterogeneous_states_are_dictionaries():
    x, edges = heterogeneous()
    with pytest.warns(UserWarning, match="venue"):
        conv = HeteroConv({kind: SAGEConv(4, 4) for kind in edges}, aggr="sum")
    layer = InfiniteDepth(conv, eps=0.5)
    out = layer(x, edges)
    assert {kind: each.shape for kind, each in out.items()} == {kind: each.shape for kind, each in x.items()}

    state = {kind: each.relu() for kind, each in x.items()}
    for n in range(99, -1, -1):
        messages = conv(state, edges)
        state = {kind: (messages.get(kind, 0) / (1 + n * 0.5) + x[kind]).relu() for kind in x}
    for kind in x:
        torch.testing.assert_close(out[kind], state[kind], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(out["venue"], x["venue"].relu())  # nothing leads there
    sum(each.sum() for each in out.values()).backward()
    assert all(p.grad is not None for p in layer.parameters())
    with pytest.raises(ValueError, match="HeteroDictLinear"):
        layer({**x, "venue": torch.randn(2, 3)}, edges)
    with pytest.raises(ValueError, match="HeteroDictLinear"):
        InfiniteDepth(conv, 7, channels=4)(x, edges)


@pytest.mark.parametrize("factory", [lambda: PPRConv(4, 4), lambda: InfiniteDepth(GATConv(4, 2, heads=2), 4)])
def test_inside_pygs_tools_for_heterogeneous_graphs(factory):
    x, _ = heterogeneous()
    x = {kind: x[kind] for kind in ("paper", "author")}
    edges = {
        ("paper", "cites", "paper"): torch.tensor([[0, 1, 2], [1, 2, 4]]),
        ("paper", "cited", "paper"): torch.tensor([[1, 2, 4], [0, 1, 2]]),
        ("author", "knows", "author"): torch.tensor([[0, 1], [1, 2]]),
    }
    convs = HeteroConv({kind: factory() for kind in edges})
    assert convs(x, edges)["paper"].shape == (5, 4)
    out = to_hetero(TwoLayers(factory()), (list(x), list(edges)))(x, edges)
    assert {kind: each.shape for kind, each in out.items()} == {"paper": (5, 2), "author": (3, 2)}


# ------------------------------------------------------------------------------------------------- as a PyG layer
def test_copies_state_dict_and_reset(graph):
    layer = InfiniteDepth(GATConv(WIDTH, 2, heads=4), WIDTH, eps=0.3, learn_eps=True)
    expected = layer(graph.x, graph.edge_index)
    twin = InfiniteDepth(GATConv(WIDTH, 2, heads=4), WIDTH, eps=0.9, learn_eps=True)
    twin.load_state_dict(layer.state_dict())
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), twin):
        torch.testing.assert_close(other(graph.x, graph.edge_index), expected, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        layer.log_eps.fill_(3)
    layer.reset_parameters()
    assert layer.last_solution is None
    assert float(layer.eps.detach()) == pytest.approx(0.3)
    assert not torch.allclose(layer(graph.x, graph.edge_index), expected)


def test_a_convolution_keeps_the_weights_it_comes_with():
    conv = GCNConv(WIDTH, WIDTH)
    before = conv.lin.weight.clone()
    assert torch.equal(InfiniteDepth(conv).conv.lin.weight, before)


def test_repr():
    assert repr(InfiniteDepth(GCNConv(4, 4))) == "InfiniteDepth(GCNConv(4, 4), eps=1)"
    layer = InfiniteDepth(GATConv(4, 2, heads=2), 16, eps=0.25, learn_eps="channel", depth=3)
    assert repr(layer) == "InfiniteDepth(GATConv(4, 2, heads=2), 16, eps=0.25, learn_eps='channel', depth=3)"


def test_lazy_input(graph):
    layer = InfiniteDepth(GCNConv(WIDTH, WIDTH), -1)
    assert layer(torch.randn(NODES, 5), graph.edge_index).shape == (NODES, WIDTH)
    assert layer.lin.weight.shape == (WIDTH, 5)


def test_networks_find_it(graph):
    layer = InfiniteDepth(GATConv(WIDTH, 2, heads=4))
    model = torch.nn.ModuleList([PPRConv(WIDTH, WIDTH), layer])
    assert [name for name, _ in infinite_layers(model)] == ["0", "1"]
    set_tolerance(model, 1e-2)
    assert layer.tol == 1e-2
    layer(graph.x, graph.edge_index)
    assert "1" in depth_state(model)[0]
    rule = layer.depth_rule
    with measure_afresh(model):
        layer(graph.x, graph.edge_index)
        assert layer.last_solution.status is Status.COMPARED
        assert layer.depth_rule is not rule
    assert layer.depth_rule is rule


def test_gnn_explainer_finds_the_edge_that_matters():
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    x = torch.zeros(5, 2)
    x[2] = 1.0
    torch.manual_seed(0)
    conv = GCNConv(2, 2, bias=False)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.eye(2))
    layer = InfiniteDepth(conv, eps=0.1)
    explainer = Explainer(
        layer,
        GNNExplainer(epochs=60, lr=0.1),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
    )
    mask = explainer(x, edge_index, index=0).edge_mask
    assert mask[3] > mask[4:].max()  # 2 -> 1 carries the signal
    assert mask[1] > mask[4:].max()  # 1 -> 0 carries it on
    assert not layer.explain
    assert not conv.explain


def test_the_cache_of_the_convolution_counts(graph):
    conv = GCNConv(WIDTH, WIDTH, cached=True)
    layer = InfiniteDepth(conv, depth=3)
    first = layer(graph.x, graph.edge_index)
    torch.testing.assert_close(first, unrolled(conv, graph.x, [graph.edge_index], 1.0, 3))
    torch.testing.assert_close(layer(graph.x, graph.edge_index[:, :4]), first)  # as in GCNConv: the cache wins
    layer.reset_parameters()
    fewer = layer(graph.x, graph.edge_index[:, :4])
    torch.testing.assert_close(fewer, unrolled(copy.deepcopy(conv), graph.x, [graph.edge_index[:, :4]], 1.0, 3))


@pytest.mark.parametrize("name", KNOWN)
def test_edges_and_loops_that_come_twice(graph, name):
    """As the convolution itself has it, whatever that is."""
    conv, _ = CONVS[name]()
    loops = torch.tensor([[1, 1, 2, 3], [1, 1, 2, 3]])
    edge_index = torch.cat([graph.edge_index, graph.edge_index[:, :5], loops], dim=1)
    out = InfiniteDepth(conv, depth=3)(graph.x, edge_index)
    torch.testing.assert_close(out, unrolled(conv, graph.x, [edge_index], 1.0, 3))


@pytest.mark.parametrize("conv", [GCNConv(WIDTH, WIDTH), SAGEConv(WIDTH, WIDTH)])
def test_sparse_matrices_are_turned_too(graph, conv):
    layer = InfiniteDepth(conv, depth=3, direction="out")
    sparse = to_torch_csr_tensor(graph.edge_index.flip(0), size=(NODES, NODES))
    turned = InfiniteDepth(conv, depth=3)
    conv.flow = "source_to_target"
    expected = turned(graph.x, sparse.t().to_sparse_csr())
    conv.flow = "target_to_source"
    torch.testing.assert_close(layer(graph.x, sparse), expected)


# ------------------------------------------------------------------------------------------------------ bad input
def test_not_converged_warns(graph):
    layer = InfiniteDepth(GATConv(WIDTH, 2, heads=4), eps=0.01, max_depth=6)
    with pytest.warns(ConvergenceWarning, match="Raise max_depth, use a larger eps"):
        layer(graph.x, graph.edge_index)
    assert layer.last_solution.status is Status.CAPPED


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InfiniteDepth(GCNConv(4, 8)), "takes 4 and returns 8"),
        (lambda: InfiniteDepth(GATConv(8, 8, heads=4)), "takes 8 and returns 32"),
        (lambda: InfiniteDepth(GCNConv(4, 4), channels=8), "channels=8 was given"),
        (lambda: InfiniteDepth(GINConv(mlp()), 16), "give channels="),
        (lambda: InfiniteDepth(GINConv(mlp()), learn_eps="channel"), "give channels="),
        (lambda: InfiniteDepth(GINConv(mlp()), eps=(1.0, 0.5)), "give channels="),
        (lambda: InfiniteDepth(GCNConv(4, 4), eps=-1.0), "eps must be positive"),
        (lambda: InfiniteDepth(GCNConv(4, 4), learn_eps="node"), "learn_eps must be"),
        (lambda: InfiniteDepth(GCNConv), "conv must be a module"),
        (lambda: InfiniteDepth(PPRConv(4, 4)), "infinitely deep already"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_inputs(graph):
    layer = InfiniteDepth(GATConv(WIDTH, 2, heads=4))
    with pytest.raises(ValueError, match=r"x must have 8 columns.*give in_channels=5"):
        layer(torch.randn(NODES, 5), graph.edge_index)
    with pytest.raises(ValueError, match="tuple of node features"):
        layer((graph.x, graph.x.clone()), graph.edge_index)
    with pytest.raises(ValueError, match="floating-point"):
        layer(graph.x.long(), graph.edge_index)
    with pytest.raises(ValueError, match="must be finite"):
        layer(graph.x * float("nan"), graph.edge_index)
    with pytest.raises(TypeError, match=r"shape \(num_nodes, channels\), but came as str"):
        layer("x", graph.edge_index)
    with pytest.raises(ValueError, match="The graph has no nodes"):
        layer(graph.x[:0], graph.edge_index[:, :0])
    assert layer(graph.x, graph.edge_index[:, :0]).shape == (NODES, WIDTH)
    with pytest.raises(ValueError, match="must return the shape it is given"):
        InfiniteDepth(GINConv(torch.nn.Linear(WIDTH, 3)))(graph.x, graph.edge_index)
    with pytest.raises(ValueError, match=r"Node ids must be in 0 ... 8, but the edges name nodes 20 to"):
        layer(graph.x, graph.edge_index + 20)
    with pytest.raises(ValueError, match="TransformerConv does not take several sets of features at once"):
        InfiniteDepth(TransformerConv(WIDTH, 4, heads=2))(torch.stack([graph.x] * 3), graph.edge_index)
    with pytest.raises(TypeError, match="edge_wieght"):
        layer(graph.x, graph.edge_index, edge_wieght=graph.edge_weight)
