"""``InfiniteDepth`` under torch's compilers: the same values and gradients, depth as adaptive as before."""

import copy
import warnings

import pytest
import torch
import torch_geometric
from torch_geometric.nn import MLP, GATConv, GCNConv, GINConv, GINEConv, HeteroConv, SAGEConv

from pprgnn import ConvergenceWarning, Status
from pprgnn.nn import InfiniteDepth, freeze_depth

NODES, WIDTH = 20, 8


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, NODES, (2, 60), generator=generator).unique(dim=1)
    count = edge_index.size(1)
    return {
        "x": torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64),
        "edge_index": edge_index,
        "edge_attr": torch.randn(count, 3, generator=generator, dtype=torch.float64),
        "edge_weight": torch.rand(count, generator=generator, dtype=torch.float64) + 0.5,
    }


CONVS = {
    "gat": (lambda: GATConv(WIDTH, 2, heads=4), ()),
    "sage": (lambda: SAGEConv(WIDTH, WIDTH), ()),
    "gcn": (lambda: GCNConv(WIDTH, WIDTH), ("edge_weight",)),
    "gin": (lambda: GINConv(MLP([WIDTH, WIDTH, WIDTH], norm=None)), ()),
    "gine": (lambda: GINEConv(MLP([WIDTH, WIDTH, WIDTH], norm=None), edge_dim=3), ("edge_attr",)),
}


# (RGCNConv is missing: PyG's own code for it has data-dependent branches and does not compile.)
def layer_for(name, **options):
    torch.manual_seed(1)
    return InfiniteDepth(CONVS[name][0](), WIDTH, channels=WIDTH, eps=0.5, **options).double()


def arguments(graph, name):
    return [graph["x"], graph["edge_index"], *(graph[each] for each in CONVS[name][1])]


def values_and_gradients(module, layer, given):
    out = module(*given)
    return [out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))]


ADAPTIVE, FIXED = {"learn_eps": True, "grad_terms": 2}, {"depth": 4, "grad_terms": 2}
CASES = [*((name, ADAPTIVE) for name in CONVS), ("sage", FIXED)]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_values_and_gradients_are_those_of_eager_code(graph, name, options):
    layer = layer_for(name, **options)
    twin = copy.deepcopy(layer)
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")
    expected = values_and_gradients(layer, layer, arguments(graph, name))
    for got, right in zip(values_and_gradients(compiled, twin, arguments(graph, name)), expected, strict=True):
        torch.testing.assert_close(got, right)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*arguments(graph, name)), layer(*arguments(graph, name)))


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # by torch itself
def test_inductor_and_pygs_compile(graph):
    layer = layer_for("sage", grad_terms=2)
    twin = copy.deepcopy(layer)  # so that both have their first step, at the same depth
    expected = layer(*arguments(graph, "sage"))
    with pytest.warns(UserWarning, match="deprecated in favor of 'torch.compile'"):
        compiled = torch_geometric.compile(twin, fullgraph=True)
    torch.testing.assert_close(compiled(*arguments(graph, "sage")), expected)


def test_depth_follows_the_weights_and_is_told(graph):
    layer = layer_for("gat")
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    compiled(*arguments(graph, "gat"))
    shallow = layer.last_solution
    assert shallow.status is Status.COMPARED
    compiled(*arguments(graph, "gat"))
    assert layer.last_solution.status is Status.REUSED
    with torch.no_grad():
        layer.conv.lin.weight.mul_(6)
    out = compiled(*arguments(graph, "gat"))
    assert layer.last_solution.depth > shallow.depth
    torch.testing.assert_close(out, copy.deepcopy(layer)(*arguments(graph, "gat")), atol=1e-4, rtol=1e-4)


def test_not_converged_warns(graph):
    layer = layer_for("gat", max_depth=7)
    with torch.no_grad():
        layer.conv.lin.weight.mul_(6)
    with pytest.warns(ConvergenceWarning, match="Raise max_depth"):
        torch.compile(layer, fullgraph=True, backend="eager")(*arguments(graph, "gat"))


def test_two_sizes_of_graphs_one_graph_of_code(graph):
    layer = layer_for("sage")
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(layer, fullgraph=True, backend=counter, dynamic=True)
    for nodes in (20, 15, 11):
        kept = (graph["edge_index"] < nodes).all(0)
        x, edges = graph["x"][:nodes].clone(), graph["edge_index"][:, kept]
        torch.testing.assert_close(compiled(x, edges), copy.deepcopy(layer)(x, edges), atol=1e-5, rtol=1e-5)
    assert counter.frame_count == 1


def test_training_is_the_same(graph):
    curves = []
    for compile_it in (False, True):
        layer = layer_for("sage", learn_eps=True)
        module = torch.compile(layer, fullgraph=True, backend="aot_eager") if compile_it else layer
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = module(*arguments(graph, "sage")).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        curves.append(losses)
    assert curves[0] == pytest.approx(curves[1], rel=1e-6)
    assert curves[0][-1] < curves[0][0]


def test_the_operator_is_sound(graph):
    layer = layer_for("gat")
    layer(*arguments(graph, "gat"))
    eps = torch.tensor(0.5, dtype=torch.float64)
    given = (graph["x"], eps, layer.handle, list(layer.conv.parameters()), [graph["edge_index"]], ["0"], 2)
    torch.library.opcheck(torch.ops.pprgnn.settle, given, test_utils=("test_schema", "test_faketensor"))
    state = torch.ops.pprgnn.settle(*given)
    assert state.shape == graph["x"].shape


def test_exported_at_the_depth_found(graph, tmp_path):
    layer = layer_for("gat", tol=1e-2).eval()  # few steps: each of them is exported
    expected = layer(*arguments(graph, "gat")).detach()
    with pytest.raises(ValueError, match="freeze_depth"):
        torch.export.export(layer, tuple(arguments(graph, "gat")))
    frozen = freeze_depth(layer)
    torch.testing.assert_close(frozen(*arguments(graph, "gat")), expected)
    assert layer.last_solution.status is Status.FIXED
    program = torch.export.export(frozen, tuple(arguments(graph, "gat")))
    torch.export.save(program, tmp_path / "layer.pt2")
    again = torch.export.load(tmp_path / "layer.pt2").module()
    torch.testing.assert_close(again(*arguments(graph, "gat")), expected)


@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_onnx_at_the_depth_found(graph, tmp_path, name):
    runtime = pytest.importorskip("onnxruntime", reason="needs pprgnn[export]")
    pytest.importorskip("onnxscript", reason="needs pprgnn[export]")
    layer = layer_for(name, tol=1e-2).float().eval()  # few steps: each of them is exported
    given = [each.float() if each.is_floating_point() else each for each in arguments(graph, name)]
    expected = layer(*given).detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        torch.onnx.export(freeze_depth(layer), tuple(given), tmp_path / "layer.onnx", dynamo=True, verbose=False)
    session = runtime.InferenceSession(str(tmp_path / "layer.onnx"))
    names = [each.name for each in session.get_inputs()]
    found = session.run(None, dict(zip(names, (each.numpy() for each in given), strict=True)))[0]
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-5)


def test_what_cannot_be_compiled_says_so(graph):
    def message(layer, *given):
        with pytest.raises(Exception, match=r"\w") as caught:  # dynamo wraps it
            torch.compile(layer, fullgraph=True, backend="eager")(*given)
        return str(caught.value)

    assert "grad_terms" in message(layer_for("gat", grad_terms=None), *arguments(graph, "gat"))
    dropping = InfiniteDepth(GATConv(WIDTH, 2, heads=4, dropout=0.5)).double()
    assert "put dropout around the layer" in message(dropping, graph["x"], graph["edge_index"])
    kind = ("a", "to", "a")
    typed = InfiniteDepth(HeteroConv({kind: SAGEConv(WIDTH, WIDTH)})).double()
    assert "tensors alone" in message(typed, {"a": graph["x"]}, {kind: graph["edge_index"]})
