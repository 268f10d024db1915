"""Compiled and transformed layers give the same numbers as plain ones, at depths that they choose themselves."""

import copy
import gc
import warnings

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from pprgnn import Activation, Adjacency, Certificate, ConvergenceWarning, Fixed, Status
from pprgnn.baselines.ignn import IGNNConv
from pprgnn.core.backend import buffers
from pprgnn.nn import PPRGNN, NodeNet, PPRConv, operators, set_tolerance
from pprgnn.nn.linear_output import AS_PUBLISHED
from tests.nn import two_processes

# Two self-loops at 3, one at 5; nobody but itself reads 6.
EDGES = torch.tensor([[0, 1, 1, 2, 3, 3, 4, 5, 5, 3, 5], [1, 0, 2, 1, 3, 4, 3, 4, 0, 3, 5]])
SOFTSIGN = Activation(torch.nn.functional.softsign, lambda z: (1 + z.abs()) ** -2, lipschitz=1.0)
EXACT = {"rtol": 1e-10, "atol": 1e-10}


class Shallow:
    """A rule of one's own, with less depth than the gradient has terms."""

    def choose(self, problem, tol, max_depth, levels):
        return Fixed(2).choose(problem, tol, max_depth, levels)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graph():
    torch.manual_seed(0)
    return torch.randn(7, 4, dtype=torch.float64), EDGES, torch.rand(11, dtype=torch.float64) + 0.5


def pair(backend="aot_eager", compile_options=None, **options):
    """A plain layer with weights that make it deep, a copy of it, and the copy compiled."""
    torch.manual_seed(1)
    plain = PPRConv(4, 6, **{"eps": 0.5, **options}).double()
    with torch.no_grad():
        plain.weight.mul_(2)
        torch.nn.init.uniform_(plain.bias)
    twin = copy.deepcopy(plain)
    return plain, twin, torch.compile(twin, backend=backend, fullgraph=True, **(compile_options or {}))


def gradients(call, layer, x, edge_index, edge_weight=None, learn_weights=False):
    x = x.clone().requires_grad_()
    if edge_weight is not None:
        edge_weight = edge_weight.clone().requires_grad_(learn_weights)
    layer.zero_grad()
    out = call(x, edge_index, edge_weight)
    (out * torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
    found = {name: parameter.grad for name, parameter in layer.named_parameters()}
    return {"out": out.detach(), "x": x.grad, **found} | ({"edges": edge_weight.grad} if learn_weights else {})


OPTIONS = {
    "default": {},
    "checkpoint": {"checkpoint": True},
    "all_terms": {"grad_terms": None},
    "one_term": {"grad_terms": 1},
    "fixed": {"depth": 3},
    "nothing": {"depth": 0},
    "certificate": {"depth": Certificate()},
    "own_rule": {"depth": Shallow()},
    "own_rule_checkpoint": {"depth": Shallow(), "checkpoint": True},
    "tanh": {"activation": "tanh"},
    "leaky": {"activation": "leaky_relu"},
    "own_activation": {"activation": SOFTSIGN},
    "rates": {"eps": (1.0, 0.25)},
    "learned": {"learn_eps": True},
    "learned_rates": {"eps": (1.0, 0.25), "learn_eps": True},
    "learned_channels": {"learn_eps": "channel"},
    "smooth": {"smooth_input": True},
    "row": {"normalize": "row"},
    "row_bare": {"normalize": "row", "add_self_loops": False},
    "as_is": {"normalize": False},
    "reverse": {"flow": "target_to_source", "smooth_input": True},
    "cached": {"cached": True},
}


# Weights that are learned take another way; all others differ only in what the graph is.
WEIGHTS = {"default": ("plain", "weighted", "learned"), "cached": ("weighted",), "all_terms": ("plain",)}


@pytest.mark.parametrize(
    ("name", "weights"), [(name, kind) for name in OPTIONS for kind in WEIGHTS.get(name, ("learned",))]
)
def test_same_values_and_gradients(graph, name, weights):
    options = OPTIONS[name]
    x, edge_index, edge_weight = graph
    plain, twin, fast = pair(**options)
    edge_weight = None if weights == "plain" else edge_weight
    wanted = gradients(plain, plain, x, edge_index, edge_weight, weights == "learned")
    found = gradients(fast, twin, x, edge_index, edge_weight, weights == "learned")
    assert found.keys() == wanted.keys()
    for each in wanted:
        torch.testing.assert_close(
            found[each], wanted[each], **EXACT, msg=lambda text, each=each: f"{each}: {text}"
        )
    assert twin.last_solution.depth == plain.last_solution.depth
    assert twin.last_solution.status is plain.last_solution.status


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # its own
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_other_backends(graph, backend):
    x, edge_index, edge_weight = graph
    plain, twin, fast = pair(backend, smooth_input=True, learn_eps="channel")
    wanted = gradients(plain, plain, x, edge_index, edge_weight, True)
    for name, value in gradients(fast, twin, x, edge_index, edge_weight, True).items():
        torch.testing.assert_close(value, wanted[name], **EXACT)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_edges_made_in_compiled_code_are_told_apart(graph):
    """Inductor gives the memory of the first edges to the second, without a trace in the tensor."""
    x, edge_index, _ = graph
    conv = PPRConv(4, 6, depth=4).double()

    def both(x, edge_index):
        first = conv(x, (edge_index + 1) % 7)
        return conv(first[:, :4] + x, (edge_index + 3) % 7)

    with torch.no_grad():
        fast = torch.compile(both, fullgraph=True)
        torch.testing.assert_close(fast(x, edge_index), both(x, edge_index), **EXACT)
        torch.testing.assert_close(fast(x, edge_index.flip(0)), both(x, edge_index.flip(0)), **EXACT)


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # dynamo's own
@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("smooth", [False, True])
def test_adjacency_as_input(graph, reorder, smooth):
    x, edge_index, edge_weight = graph
    plain, twin, fast = pair(smooth_input=smooth)
    learned = edge_weight.requires_grad_()
    for weight in (edge_weight.detach(), learned):
        adj = Adjacency.from_edge_index(edge_index, weight, 7, add_self_loops=True, reorder=reorder)
        seen = []
        for call, layer in ((plain, plain), (fast, twin)):
            learned.grad = None
            seen.append(gradients(call, layer, x, adj) | {"edges": learned.grad})
            adj = Adjacency.from_edge_index(edge_index, weight, 7, add_self_loops=True, reorder=reorder)
        for name, value in seen[0].items():
            torch.testing.assert_close(seen[1][name], value, **EXACT)


def test_learned_weights_of_a_graph_in_another_order(monkeypatch):
    monkeypatch.setattr("pprgnn.core.csr.LARGE_GRAPH", 0)
    generator = torch.Generator().manual_seed(0)
    x, edge_index = torch.randn(30, 4, dtype=torch.float64), torch.randint(0, 30, (2, 60), generator=generator)
    edge_weight = torch.rand(60, dtype=torch.float64, generator=generator)
    assert not torch.equal(Adjacency.from_edge_index(edge_index, None, 30, normalize=None).order, torch.arange(30))
    plain, twin, fast = pair(smooth_input=True)
    wanted = gradients(plain, plain, x, edge_index, edge_weight, True)
    for name, value in gradients(fast, twin, x, edge_index, edge_weight, True).items():
        torch.testing.assert_close(value, wanted[name], **EXACT)


def test_cached_keeps_the_first_graph(graph):
    x, edge_index, edge_weight = graph
    _, twin, fast = pair(cached=True, depth=4)
    first = fast(x, edge_index, edge_weight)
    torch.testing.assert_close(fast(x, edge_index.flip(0), edge_weight), first, **EXACT)
    twin.reset_parameters()
    torch.testing.assert_close(fast(x, edge_index.flip(0)), copy.deepcopy(twin)(x, edge_index.flip(0)), **EXACT)


def test_a_handle_that_names_another_graph_does_no_harm(graph):
    """As after storing and loading: the number may be that of another object."""
    x, edge_index, edge_weight = graph
    _, twin, fast = pair(depth=4)
    first = Adjacency.from_edge_index(edge_index, edge_weight, 7, add_self_loops=True)
    crow, col = first.indices
    others = [
        Adjacency(crow, col, first.value.flip(0), normalize="sym"),
        Adjacency(crow, col.clone(), first.value, normalize="sym"),
        Adjacency.from_edge_index(edge_index.flip(0), edge_weight, 7, add_self_loops=True),
    ]
    others[1].indices[1][:2] = torch.tensor([0, 5], dtype=col.dtype)
    with torch.no_grad():
        torch.testing.assert_close(fast(x, first), twin(x, first), **EXACT)
        for other in others:
            other.handle = first.handle
            assert not torch.allclose(twin(x, other), twin(x, first))
            torch.testing.assert_close(fast(x, other), twin(x, other), **EXACT)


def test_several_sets_of_features_on_one_graph(graph):
    _, edge_index, _ = graph
    plain, twin, fast = pair(smooth_input=True)
    x = torch.randn(3, 7, 4, dtype=torch.float64)
    x[1:] = 1e-3  # hardly a bias: what is left of it fades sooner
    wanted, found = gradients(plain, plain, x, edge_index), gradients(fast, twin, x, edge_index)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, **EXACT)
    assert twin.last_solution.depth == plain.last_solution.depth
    assert twin.last_solution.products == plain.last_solution.products
    assert torch.compile(twin, backend="aot_eager", fullgraph=True)(x[:0], edge_index).shape == (0, 7, 6)


def test_autocast_keeps_full_precision(graph):
    x, edge_index, _ = graph
    conv = PPRConv(4, 6, depth=5)
    fast = torch.compile(conv, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = fast(x.float(), edge_index)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out, conv(x.float(), edge_index))


def test_without_gradient_nothing_is_kept(graph):
    x, edge_index, _ = graph
    slots = []

    def spy(module, inputs):
        slots.extend(node.args[16] for node in module.graph.nodes if node.target is operators.solve)
        return module.forward

    _, _, fast = pair(spy)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            fast(x, edge_index)
    assert slots == [4, 0]  # the last of five terms is that of the linear step


def test_depth_adapts_inside_compiled_code(graph):
    x, edge_index, _ = graph
    counter = CompileCounter()
    _, twin, fast = pair(counter)
    fast(x, edge_index)
    shallow = twin.last_solution
    assert shallow.status is Status.COMPARED
    with torch.no_grad():
        twin.weight.mul_(3)
    fast(x, edge_index)
    assert twin.last_solution.depth > 1.5 * shallow.depth
    set_tolerance(twin, 1e-2)
    fast(x, edge_index)
    assert twin.last_solution.depth < shallow.depth * 3
    loose = twin.last_solution.depth
    set_tolerance(twin, 1e-9)
    fast(x, edge_index)
    assert twin.last_solution.depth > loose
    assert counter.frame_count == 1


def test_not_converged_warns_from_compiled_code(graph):
    x, edge_index, _ = graph
    _, twin, fast = pair(max_depth=6)
    with torch.no_grad():
        twin.weight.mul_(10)
    with pytest.warns(ConvergenceWarning, match="max_depth = 6"):
        fast(x, edge_index)
    assert twin.last_solution.status is Status.CAPPED


def test_bad_input_says_so(graph):
    x, edge_index, edge_weight = graph
    _, _, fast = pair()
    with pytest.raises(ValueError, match="b must be finite"):
        fast(x * torch.nan, edge_index)
    with pytest.raises(ValueError, match=r"Node ids must be in 0 \.\.\. 6"):
        fast(x, edge_index + 3)
    for options in ({}, {"normalize": "row"}):
        _, _, fast = pair(**options)
        with pytest.raises(ValueError, match="Edge weights must be finite"):  # the degree is negative
            fast(x, edge_index, (-edge_weight).requires_grad_())


@pytest.mark.parametrize("dynamic", [True, None])
def test_graphs_of_other_sizes_need_no_new_compilation(dynamic):
    counter = CompileCounter()
    plain, _, fast = pair(counter, {"dynamic": dynamic}, depth=None)
    generator = torch.Generator().manual_seed(0)
    for size in (7, 9, 12, 30, 31, 50):
        x = torch.randn(size, 4, dtype=torch.float64, generator=generator)
        edge_index = torch.randint(0, size, (2, 3 * size), generator=generator)
        torch.testing.assert_close(fast(x, edge_index), plain(x, edge_index), **EXACT)
    assert counter.frame_count == (1 if dynamic else 2)


def test_copies_share_the_code_but_not_the_memory(graph):
    x, edge_index, _ = graph
    counter = CompileCounter()
    _, twin, fast = pair(counter)
    fast(x, edge_index)
    before = twin.last_solution
    other = copy.deepcopy(fast)
    with torch.no_grad():
        other._orig_mod.weight.mul_(3)
    assert other._orig_mod.last_solution is None
    other(x, edge_index)
    assert twin.last_solution is before
    assert other._orig_mod.last_solution.depth > before.depth
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    "network",
    [
        lambda: PPRGNN(4, 6, 2, 3, eps=0.5, norm="batch", **AS_PUBLISHED),
        lambda: NodeNet(4, 3, hidden=6, layers=2, jk="cat", norm="layer"),
    ],
    ids=["PPRGNN", "NodeNet"],
)
def test_training_follows_the_same_curve(graph, network):
    x, edge_index, _ = graph
    torch.manual_seed(2)
    curves = []
    start = network().double()
    for compiled_too in (False, True):
        model = copy.deepcopy(start).eval()  # no dropout: its random numbers differ under a compiler
        call = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled_too else model
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        curve = []
        for _ in range(15):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(call(x, edge_index), torch.arange(7) % 3)
            loss.backward()
            optimizer.step()
            curve.append(float(loss.detach()))
        curves.append(curve)
    assert curves[1] == pytest.approx(curves[0], rel=1e-9)
    assert curves[0][-1] < 0.7 * curves[0][0]


def test_pyg_compile(graph):
    import torch_geometric

    x, edge_index, _ = graph
    plain, twin, _ = pair(depth=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is deprecated, but still there
        fast = torch_geometric.compile(twin, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(fast(x, edge_index), plain(x, edge_index), **EXACT)


def test_sparse_input_and_equilibria_break_the_graph_and_are_right(graph):
    x, edge_index, edge_weight = graph
    sparse = Adjacency.from_edge_index(edge_index, edge_weight, 7, normalize=None).matrix
    conv = PPRConv(4, 6, depth=4).double()
    with torch.no_grad():
        fast = torch.compile(conv, backend="eager")
        torch.testing.assert_close(fast(x, sparse), conv(x, edge_index, edge_weight), **EXACT)
        torch._dynamo.reset()
        ignn = IGNNConv(4, 6, depth=4).double()
        fast = torch.compile(ignn, backend="eager")
        torch.testing.assert_close(fast(x, edge_index), ignn(x, edge_index), **EXACT)
    assert ignn.last_solution.status is Status.FIXED


def arguments(graph, rule="measured", activation="relu", terms=5, checkpoint=False):
    _, edge_index, edge_weight = graph
    generator = torch.Generator().manual_seed(3)
    b, weight = (torch.randn(n, 4, dtype=torch.float64, generator=generator).requires_grad_() for n in (7, 4))
    eps = torch.tensor([0.5, 1.0, 0.3, 0.4], dtype=torch.float64, requires_grad=True)
    value = edge_weight.requires_grad_()
    slots = 0 if terms < 0 else 1 if checkpoint else min(terms, 3) if rule == "fixed 3" else terms
    graph = (edge_index, value, None, None, None, None, None, "edges none flipped")
    return (b, weight, eps, *graph, rule, activation, 1e-5, 500, terms, slots, checkpoint, True, 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rule": "fixed 3", "activation": "leaky_relu(0.3)"},
        {"terms": -1, "activation": "tanh"},
        {"checkpoint": True},
    ],
    ids=["default", "fixed", "all", "checkpoint"],
)
def test_operators_are_sound(graph, options):
    given = arguments(graph, **options)
    torch.library.opcheck(torch.ops.pprgnn.solve.default, given)
    torch.library.opcheck(torch.ops.pprgnn.propagate.default, (given[0], *given[3:11], False))


def test_operators_have_the_right_gradient(graph):
    given = arguments(graph, rule="fixed 9", terms=-1, activation="tanh")
    inputs = (*given[:3], given[4])

    def state(b, weight, eps, value):
        return torch.ops.pprgnn.solve(b, weight, eps, given[3], value, *given[5:])[0]

    assert torch.autograd.gradcheck(state, inputs)

    def product(x, value):
        return torch.ops.pprgnn.propagate(x, given[3], value, *given[5:11], True)

    assert torch.autograd.gradcheck(product, (inputs[0], inputs[3]))


# ------------------------------------------------------------------------------------------------------ torch.func
@pytest.mark.parametrize("smooth", [False, True])
def test_grad_vjp_jacrev_vmap(graph, smooth):
    x, edge_index, edge_weight = graph
    conv, _, _ = pair(depth=6, smooth_input=smooth, learn_eps=True)
    parameters = {name: parameter.detach() for name, parameter in conv.named_parameters()}

    def out(parameters, x, edge_weight):
        return torch.func.functional_call(conv, parameters, (x, edge_index, edge_weight))

    def loss(*args):
        return out(*args).square().sum()

    found = torch.func.grad(loss, argnums=(0, 1, 2))(parameters, x, edge_weight)
    inputs = [x.clone().requires_grad_(), edge_weight.clone().requires_grad_()]
    conv(inputs[0], edge_index, inputs[1]).square().sum().backward()
    for name, parameter in conv.named_parameters():
        torch.testing.assert_close(found[0][name], parameter.grad, **EXACT)
    torch.testing.assert_close(found[1], inputs[0].grad, **EXACT)
    torch.testing.assert_close(found[2], inputs[1].grad, **EXACT)

    value, pull = torch.func.vjp(lambda x: out(parameters, x, edge_weight), x)
    torch.testing.assert_close(pull(2 * value)[0], found[1], **EXACT)
    jacobian = torch.func.jacrev(lambda x: out(parameters, x, edge_weight))(x)
    torch.testing.assert_close(torch.einsum("ij,ijkl->kl", 2 * value, jacobian), found[1], **EXACT)

    several = torch.stack([x, -x, 2 * x])
    each = torch.func.vmap(torch.func.grad(loss, argnums=1), in_dims=(None, 0, None))(
        parameters, several, edge_weight
    )
    torch.testing.assert_close(each[0], found[1], **EXACT)
    with torch.no_grad():
        torch.testing.assert_close(
            torch.func.vmap(lambda x: conv(x, edge_index))(several), conv(several, edge_index), **EXACT
        )


def test_transformed_layers_adapt_their_depth_and_take_an_adjacency(graph):
    x, edge_index, edge_weight = graph
    plain, twin, _ = pair()
    adj = Adjacency.from_edge_index(edge_index, edge_weight, 7, add_self_loops=True)
    found = torch.func.grad(lambda x: twin(x, adj).square().sum())(x)
    x = x.clone().requires_grad_()
    plain(x, adj).square().sum().backward()
    torch.testing.assert_close(found, x.grad, **EXACT)
    assert twin.last_solution.depth == plain.last_solution.depth
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.func.grad(lambda x: torch.func.grad(lambda x: twin(x, adj).square().sum())(x).sum())(x.detach())


# ---------------------------------------------------------------------------------------------------------- memory
def test_lent_memory_comes_back_and_is_never_lent_twice(monkeypatch):
    monkeypatch.setattr(buffers, "SMALL", 0)
    buffers.release_buffers()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 4, dtype=torch.float64, generator=generator)
    edge_index = torch.randint(0, 50, (2, 200), generator=generator)
    plain, _, fast = pair(depth=8)
    with torch.no_grad():
        wanted = [plain(x * scale, edge_index) for scale in range(7)]
    allocated, alive, settled = [], [], 0
    real = torch.empty
    monkeypatch.setattr(
        buffers.torch, "empty", lambda *size, **kind: allocated.append(size) or real(*size, **kind)
    )
    for step in range(40):
        out = fast((x * (step % 7)).requires_grad_(), edge_index)
        alive = [*alive[-3:], (step % 7, out)]  # some results live on, one of them without a backward pass
        if step % 5:
            out.sum().backward()
        for scale, state in alive:
            torch.testing.assert_close(state.detach(), wanted[scale], **EXACT)
        settled = len(allocated) if step == 20 else settled
    assert len(allocated) == settled, "memory is not re-used"
    del alive, out
    gc.collect()
    buffers.collect()
    pointers = [tensor.data_ptr() for stock in buffers._free.values() for tensor in stock]
    assert len(set(pointers)) == len(pointers)
    buffers.release_buffers()


# ------------------------------------------------------------------------------------------------------------- DDP
def test_distributed_gradient_is_the_mean_over_both_halves(tmp_path):
    given = (tmp_path / "store", tmp_path)
    torch.multiprocessing.start_processes(two_processes.train, given, nprocs=2, start_method="forkserver")
    conv = two_processes.layer()
    for rank in (0, 1):
        (conv(*two_processes.half(rank)).square().sum() / 2).backward()
    for found, parameter in zip(torch.load(tmp_path / "grad.pt"), conv.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, **EXACT)
