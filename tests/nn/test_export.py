"""Models leave the process: exported programs with adaptive depth, ONNX with a fixed one."""

import warnings

import pytest
import torch

from pprgnn import Activation, Adjacency, Certificate, Fixed, Status
from pprgnn.baselines.ignn import IGNNConv
from pprgnn.nn import PPRGNN, NodeNet, PPRConv, freeze_depth
from tests import warm

EDGES = torch.tensor(
    [[0, 1, 1, 2, 3, 3, 4, 5, 5, 3], [1, 0, 2, 1, 3, 4, 3, 4, 0, 3]]
)  # two self-loops at 3; 6 alone
SOFTSIGN = Activation(torch.nn.functional.softsign, lambda z: (1 + z.abs()) ** -2, lipschitz=1.0)
NODES, COLUMNS = torch.export.Dim("nodes", min=2), torch.export.Dim("edges", min=2)
EXACT = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graph():
    torch.manual_seed(0)
    return torch.randn(7, 4), EDGES, torch.rand(10) + 0.5


@pytest.fixture
def other():
    """A graph of another size."""
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(0, 11, (2, 40), generator=generator)
    return torch.randn(11, 4, generator=generator), edge_index, torch.rand(40, generator=generator) + 0.5


def exported(model, x, edge_index, **options):
    return torch.export.export(model, (x, edge_index), dynamic_shapes=({0: NODES}, {1: COLUMNS}), **options)


# --------------------------------------------------------------------------------------------------- torch.export
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_measures_its_own_depth(graph, other, strict):
    conv = PPRConv(4, 6, eps=0.5, depth=Certificate(), tol=1e-10).double().eval()
    program = exported(conv, graph[0].double(), graph[1], strict=strict).module()
    handled = conv.last_solution
    for x, edge_index, _ in (graph, other):
        torch.testing.assert_close(program(x.double(), edge_index), conv(x.double(), edge_index), **EXACT)
    assert handled is None  # not told: the program has nothing to do with the layer


def test_round_trip_through_a_file_in_a_fresh_process(graph, other, tmp_path):
    model = NodeNet(4, 3, hidden=6, layers=2, eps=(1.0, 0.25), smooth_input=True, activation="tanh", tol=1e-9)
    model = model.double().eval()
    x, edge_index, _ = other
    torch.export.save(exported(model, graph[0].double(), graph[1]), tmp_path / "model.pt2")
    torch.save([x.double(), edge_index], tmp_path / "input.pt")
    code = (
        "import torch, pprgnn.nn, sys; folder = sys.argv[1]\n"
        "live = [pprgnn.nn.PPRConv(4, 6, depth=0) for _ in range(99)]  # not those of the program\n"
        "program = torch.export.load(folder + '/model.pt2').module()\n"
        "torch.save(program(*torch.load(folder + '/input.pt')), folder + '/output.pt')\n"
    )
    warm.run(code, tmp_path).check_returncode()
    torch.testing.assert_close(
        torch.load(tmp_path / "output.pt"), model(x.double(), edge_index), rtol=1e-7, atol=1e-7
    )


def test_a_graph_inside_the_model_is_exported_with_it(graph):
    x, edge_index, edge_weight = graph

    class OnOneGraph(torch.nn.Module):
        def __init__(self, reorder):
            super().__init__()
            self.conv = PPRConv(4, 6, depth=5)
            self.adj = Adjacency.from_edge_index(edge_index, edge_weight, 7, add_self_loops=True, reorder=reorder)

        def forward(self, x):
            return self.conv(x, self.adj)

    for reorder in (False, True):
        model = OnOneGraph(reorder).eval()
        program, wanted = torch.export.export(model, (x,)).module(), model(x)
        del model.adj
        torch.testing.assert_close(program(x), wanted)
        torch.testing.assert_close(program(2 * x), model.conv(2 * x, edge_index, edge_weight))

    conv = PPRConv(4, 6, depth=5, cached=True).eval()
    wanted = conv(x, edge_index, edge_weight)
    torch.testing.assert_close(torch.export.export(conv, (x, edge_index)).module()(x, edge_index), wanted)


def test_a_program_exported_in_training_mode_can_be_trained(graph):
    x, edge_index, _ = graph
    conv = PPRConv(4, 6, depth=5).double()
    x = x.double()
    conv(x, edge_index).square().sum().backward()
    wanted = {name: parameter.grad for name, parameter in conv.named_parameters()}
    conv.zero_grad()
    program = exported(conv, x, edge_index).module()
    program(x, edge_index).square().sum().backward()
    for name, parameter in program.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], **EXACT)
    program = exported(conv.eval(), x, edge_index).module()
    with pytest.raises(RuntimeError, match="export it in training mode"):
        program(x, edge_index).sum().backward()


class TwoSteps:
    def choose(self, problem, tol, max_depth, levels):
        return Fixed(2).choose(problem, tol, max_depth, levels)


@pytest.mark.parametrize("options", [{"activation": SOFTSIGN}, {"depth": TwoSteps()}], ids=["activation", "rule"])
def test_what_cannot_be_exported_says_so(graph, options):
    with pytest.raises(ValueError, match="of your own cannot be exported"):
        exported(PPRConv(4, 6, **options), *graph[:2])


# ----------------------------------------------------------------------------------------------------------- ONNX
def onnx_session(model, arguments, path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs pprgnn[export]")
    pytest.importorskip("onnxscript", reason="needs pprgnn[export]")
    shapes = ({0: NODES}, {1: COLUMNS}, {0: COLUMNS})[: len(arguments)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(model, arguments, dynamo=True, dynamic_shapes=shapes, verbose=False)
        program.save(str(path))
    assert {node.domain for node in program.model_proto.graph.node} <= {""}  # standard operators, nothing of ours
    session = onnxruntime.InferenceSession(str(path))
    names = [given.name for given in session.get_inputs()]

    def run(*arguments):
        given = {name: tensor.numpy() for name, tensor in zip(names, arguments, strict=True)}
        return torch.from_numpy(session.run(None, given)[0])

    return run


MODELS = {
    "PPRConv": lambda: PPRConv(
        4,
        6,
        eps=0.5,
        normalize="row",
        learn_eps="channel",
        smooth_input=True,
        activation="tanh",
        flow="target_to_source",
    ),
    "PPRGNN": lambda: PPRGNN(4, 6, 2, 3, eps=1.0, tol=1e-2),
    "NodeNet": lambda: NodeNet(4, 3, hidden=6, eps=(1.0, 0.5), tol=1e-2, activation="leaky_relu"),
}


@pytest.mark.parametrize("name", MODELS)
def test_onnx_gives_the_same_numbers_on_graphs_of_any_size(graph, other, tmp_path, name):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    given, others = (graph, other) if name == "PPRConv" else (graph[:2], other[:2])  # one of them with weights
    with torch.no_grad():
        model(*given)
        run = onnx_session(freeze_depth(model), given, tmp_path / "model.onnx")
        for arguments in (given, others):
            torch.testing.assert_close(run(*arguments), model(*arguments), rtol=1e-5, atol=1e-5)


def test_onnx_of_adaptive_depth_names_the_way_out(graph):
    pytest.importorskip("onnxscript", reason="needs pprgnn[export]")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception, match=r"freeze_depth\(model\)"):
            torch.onnx.export(PPRConv(4, 6).eval(), graph[:2], dynamo=True, verbose=False)


# --------------------------------------------------------------------------------------------------- freeze_depth
def test_freeze_depth_refuses_the_depth_of_a_training_step(graph):
    x, edge_index = graph[:2]
    conv = PPRConv(x.size(1), 8, eps=0.5)
    for _ in range(2):
        conv(x, edge_index)
    with pytest.raises(ValueError, match=r"was a training step.*torch\.no_grad\(\)"):
        freeze_depth(conv)
    with torch.no_grad():
        conv(x, edge_index)
    assert freeze_depth(conv).depth == conv.last_solution.depth


def test_freeze_depth_keeps_the_depth_that_was_found(graph):
    x, edge_index, _ = graph
    model = PPRGNN(4, 6, 2, eps=0.5).eval()
    wanted = model(x, edge_index)
    depths = [conv.last_solution.depth for conv in model.convs]
    assert freeze_depth(model) is model
    torch.testing.assert_close(model(x, edge_index), wanted)
    for conv, depth in zip(model.convs, depths, strict=True):
        assert conv.depth_rule == Fixed(depth)
        assert conv.last_solution.status is Status.FIXED
        assert f"depth={depth}" in repr(conv)
    freeze_depth(model, depth=2)(x, edge_index)
    assert [conv.last_solution.depth for conv in model.convs] == [2, 2]


def test_freeze_depth_stops_equilibria_after_as_many_steps(graph):
    x, edge_index, _ = graph
    mixing = IGNNConv(4, 6).eval()
    mixing(x, edge_index)
    with pytest.raises(ValueError, match="may count steps from mixtures of states"):
        freeze_depth(mixing)
    conv = IGNNConv(4, 6, acceleration="none").eval()
    conv(x, edge_index)
    depth = conv.last_solution.depth
    freeze_depth(conv)(x, edge_index)
    assert (conv.last_solution.depth, conv.last_solution.status) == (depth, Status.FIXED)


def test_freeze_depth_is_all_or_nothing(graph):
    x, edge_index, _ = graph
    model = torch.nn.ModuleList([PPRConv(4, 4), PPRConv(4, 4)])
    model[0](x, edge_index)
    with pytest.raises(ValueError, match="layer '1' is not known yet; run the model once"):
        freeze_depth(model)
    assert not isinstance(model[0].depth_rule, Fixed)
    with pytest.raises(ValueError, match="infinite-depth layers, but Linear has none"):
        freeze_depth(torch.nn.Linear(2, 2))
