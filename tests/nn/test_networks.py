"""The networks keep their common promises: encode, decode, one graph in two forms, clear errors."""

import copy
import itertools
import json

import pytest
import torch

from pprgnn import Adjacency, Certificate, DepthMemory, Fixed, Measured, solve
from pprgnn.errors import DataError
from pprgnn.nn import (
    ConvStack,
    CoPurchaseNet,
    GraphNet,
    NodeNet,
    PaperGraphNet,
    PPINet,
    PPRConv,
    depth_state,
    measure_afresh,
    ppr_layers,
    restore_depth_state,
    set_tolerance,
)
from pprgnn.nn.linear_output import AS_PUBLISHED
from pprgnn.nn.network import EmbeddedNet

N, FEATURES, CLASSES = 9, 5, 3
RING = torch.stack([torch.arange(N), torch.arange(N).roll(1)])
EDGES = torch.cat([RING, RING.flip(0), torch.tensor([[0, 4], [4, 0]])], dim=1)
BATCH = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])
FIXED = {"depth": 4}


def features() -> torch.Tensor:
    return torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(0))


NETWORKS = {
    "node": lambda **o: NodeNet(FEATURES, CLASSES, hidden=8, **o),
    "node_deep": lambda **o: NodeNet(FEATURES, CLASSES, hidden=8, layers=3, norm="layer", jk="cat", **o),
    "node_deep_dry": lambda **o: NodeNet(FEATURES, CLASSES, hidden=8, layers=2, dropout=0.0, residual=True, **o),
    "node_input_dropout": lambda **o: NodeNet(FEATURES, CLASSES, hidden=8, input_dropout=0.5, **o),
    "node_input_layer": lambda **o: NodeNet(FEATURES, CLASSES, hidden=8, input_layer=True, **o),
    "node_input_layer_dry": lambda **o: NodeNet(FEATURES, CLASSES, input_layer=True, dropout=0.0, **o),
    "node_batch_norm": lambda **o: NodeNet(FEATURES, CLASSES, hidden=8, norm="batch", **o),
    "node_rows": lambda **o: NodeNet(None, CLASSES, hidden=8, num_nodes=N, **o),
    "node_rows_input_layer": lambda **o: NodeNet(None, CLASSES, hidden=8, num_nodes=N, input_layer=True, **o),
    "graph": lambda **o: GraphNet(FEATURES, CLASSES, hidden=8, **o),
    "graph_deep": lambda **o: GraphNet(FEATURES, CLASSES, hidden=8, layers=2, pooling="mean", head_layers=3, **o),
    "ppi": lambda **o: PPINet(FEATURES, CLASSES, hidden=4, **o),
    "co_purchase": lambda **o: CoPurchaseNet(N, CLASSES, hidden=8, **o),
    "paper_graph": lambda **o: PaperGraphNet(FEATURES, CLASSES, hidden=8, **o),
    "gcn": lambda **o: ConvStack(FEATURES, CLASSES, conv="gcn", hidden=8),
    "gcn_dry": lambda **o: ConvStack(FEATURES, CLASSES, conv="gcn", hidden=8, dropout=0.0),
    "gcn_rows": lambda **o: EmbeddedNet(ConvStack(6, CLASSES, hidden=8, dropout=0.0), N, 6),
    "gat": lambda **o: ConvStack(FEATURES, CLASSES, conv="gat", hidden=8),
    "gcn_graph": lambda **o: ConvStack(FEATURES, CLASSES, "graph", conv="gcn", hidden=8, dropout=0.0),
}
RANDOM = {
    "node_deep",
    "node_input_dropout",
    "node_input_layer",
    "node_batch_norm",
    "node_rows_input_layer",
    "graph_deep",
    "gcn",
    "gat",
}
PER_GRAPH = {"graph", "graph_deep", "paper_graph", "gcn_graph"}
every_network = pytest.mark.parametrize("name", NETWORKS)


def build(name, **options):
    torch.manual_seed(1)
    net = NETWORKS[name](**options)
    return net, None if net.num_nodes else features()


def adjacency(net):
    options = net.adjacency_options
    return EDGES if options is None else Adjacency.from_edge_index(EDGES, num_nodes=N, **options)


# ---------------------------------------------------------------------------------------------- the interface
@every_network
def test_shapes_and_encode_decode_is_forward(name):
    net, x = build(name, **FIXED)
    net.eval()
    graphs = (BATCH, 4) if name in PER_GRAPH else (None, None)  # the fourth graph is empty
    out = net(x, EDGES, None, *graphs)
    assert out.shape == (4 if name in PER_GRAPH else N, CLASSES)
    state = net.encode(x, EDGES)
    assert state.size(0) == N
    assert torch.equal(net.decode(state, *graphs), out)
    if name in PER_GRAPH:
        torch.testing.assert_close(net(x, EDGES, None, BATCH), out[:3])
    else:
        rows = torch.tensor([7, 2])
        torch.testing.assert_close(net.decode(state[rows]), out[rows])  # some rows are enough


@every_network
def test_an_adjacency_is_the_same_graph(name):
    net, x = build(name, **FIXED)
    net.eval()
    if net.adjacency_options is None:
        assert not ppr_layers(net)
        return
    assert set(net.adjacency_options) == {"normalize", "add_self_loops"}
    assert torch.equal(net.encode(x, adjacency(net)), net.encode(x, EDGES))


@every_network
def test_encode_is_deterministic_is_the_truth(name):
    net, x = build(name, **FIXED)
    net.train()
    torch.manual_seed(3)
    passes = [net.encode(x, EDGES) for _ in range(3)]
    net.eval()
    passes.append(net.encode(x, EDGES))
    same = all(torch.equal(a, b) for a, b in itertools.pairwise(passes))
    assert same == net.encode_is_deterministic == (name not in RANDOM)


@every_network
def test_every_parameter_learns(name):
    net, x = build(name, **FIXED)
    net.train()
    graphs = (BATCH, 3) if name in PER_GRAPH else (None, None)
    net(x, EDGES, None, *graphs).square().sum().backward()
    for key, parameter in net.named_parameters():
        assert parameter.grad is not None, key
        if "norms" not in key and not key.endswith("bias"):
            assert float(parameter.grad.abs().sum()) > 0, key


@every_network
def test_state_dict_and_reset(name):
    net, x = build(name, **FIXED)
    net.eval()
    expected = net.encode(x, EDGES)
    torch.manual_seed(2)
    twin = NETWORKS[name](**FIXED).eval()
    assert not torch.equal(twin.encode(x, EDGES), expected)
    twin.load_state_dict(net.state_dict())
    assert torch.equal(twin.encode(x, EDGES), expected)
    before = {key: value.clone() for key, value in net.named_parameters()}
    torch.manual_seed(7)
    net.reset_parameters()
    drawn = [key for key, value in net.named_parameters() if value.dim() == 2]
    assert drawn
    assert not any(torch.equal(before[key], net.get_parameter(key)) for key in drawn)
    torch.manual_seed(7)
    twin.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), twin.parameters(), strict=True))


# ------------------------------------------------------------------------------------------- the general ones
@pytest.mark.parametrize("kind", [NodeNet, GraphNet])
@pytest.mark.parametrize("jk", [None, "last", "cat", "max"])
@pytest.mark.parametrize("norm", [None, "batch", "layer", "graph", "pair"])
@pytest.mark.parametrize("residual", [False, True])
def test_options_go_together(kind, jk, norm, residual):
    options = {"jk": jk, "norm": norm, "residual": residual, "layers": 2, "hidden": 6, "eps": (1.0, 0.1)}
    if kind is GraphNet and norm in ("graph", "pair"):
        with pytest.raises(ValueError, match="would mix the graphs of a batch"):
            kind(FEATURES, CLASSES, **options)
        return
    net = kind(FEATURES, CLASSES, learn_eps=True, **options)
    out = net(features(), EDGES, None, BATCH)
    assert out.shape == (3 if kind is GraphNet else N, CLASSES)
    out.square().sum().backward()
    assert net.convs[0].log_eps.shape == (2,)
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_node_net_is_its_formula():
    net = NodeNet(FEATURES, CLASSES, hidden=8, layers=2, norm="layer", residual=True, jk="max", input_layer=True)
    net.eval()
    x = net.input_layer(features()).relu()
    first = net.norms[0](net.convs[0](x, EDGES)) + x
    second = net.norms[1](net.convs[1](first, EDGES)) + first
    expected = net.head(torch.maximum(first, second))
    torch.testing.assert_close(net(features(), EDGES), expected, atol=1e-4, rtol=1e-4)


def test_residual_maps_features_to_the_width():
    net = NodeNet(FEATURES, CLASSES, hidden=8, residual=True, depth=0, bias=False).eval()
    expected = net.convs[0].lin(features()).relu() + features() @ net.skips[0].weight.t()
    torch.testing.assert_close(net.encode(features(), EDGES), expected)
    with_rows = NodeNet(None, CLASSES, hidden=8, num_nodes=N, residual=True, depth=0, bias=False).eval()
    rows = with_rows.embedding.weight
    torch.testing.assert_close(with_rows.encode(None, EDGES), rows.relu() + rows)
    assert float(rows.detach().abs().max()) <= 8**-0.5


@pytest.mark.parametrize("pooling", ["sum", "mean", "max"])
def test_pooling(pooling):
    net = GraphNet(FEATURES, CLASSES, hidden=8, pooling=pooling, head_layers=1).eval()
    state = net.encode(features(), EDGES)
    pool = {"sum": lambda s: s.sum(0), "mean": lambda s: s.mean(0), "max": lambda s: s.amax(0)}[pooling]
    expected = net.head.out(torch.stack([pool(state[graph == BATCH]) for graph in range(3)]))
    torch.testing.assert_close(net.decode(state, BATCH, 3), expected)


def test_layers_get_their_options():
    options = {"depth": Certificate(), "tol": 1e-3, "max_depth": 77, "grad_terms": 3, "checkpoint": True}
    options |= {"smooth_input": True, "add_self_loops": False, "normalize": "row", "bias": False, "eps": 0.5}
    net = NodeNet(FEATURES, CLASSES, layers=2, activation="tanh", **options)
    for _, conv in ppr_layers(net):
        assert (conv.depth_rule, conv.tol, conv.max_depth, conv.grad_terms) == (Certificate(), 1e-3, 77, 3)
        assert (conv.checkpoint, conv.smooth_input, conv.bias, conv.eps) == (True, True, None, 0.5)
        assert conv.activation is net.activation
    assert net.adjacency_options == {"normalize": "row", "add_self_loops": False}
    with pytest.raises(TypeError, match="hiden"):
        NodeNet(FEATURES, CLASSES, hiden=8)


# ------------------------------------------------------------------------------------------------ several ε
@pytest.mark.parametrize("learn_eps", [False, True, "channel"])
def test_several_rates_share_the_channels(learn_eps):
    torch.manual_seed(0)  # a channel may have nothing but zeros behind ReLU
    conv = PPRConv(FEATURES, 8, eps=(1.0, 0.25, 0.06), learn_eps=learn_eps, depth=6, **AS_PUBLISHED)
    channels = torch.tensor([1.0] * 3 + [0.25] * 3 + [0.06] * 2)
    torch.testing.assert_close(conv.eps.detach(), channels)
    adj = Adjacency.from_edge_index(EDGES, add_self_loops=True)
    expected = solve(conv.lin(features()), conv.weight, adj, eps=channels, depth=6).state
    out = conv(features(), EDGES)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(conv._forward_message_passing(features(), EDGES, None), expected)
    shapes = {name: tuple(p.shape) for name, p in conv.named_parameters() if name == "log_eps"}
    assert shapes == {False: {}, True: {"log_eps": (3,)}, "channel": {"log_eps": (8,)}}[learn_eps]
    if learn_eps:
        out.sum().backward()
        assert bool((conv.log_eps.grad != 0).all())
    twin = PPRConv(FEATURES, 8, eps=(1.0, 0.25, 0.06), learn_eps=learn_eps, depth=6, **AS_PUBLISHED)
    twin.load_state_dict(conv.state_dict())
    for other in (twin, copy.deepcopy(conv)):
        assert torch.equal(other(features(), EDGES), out)
    double = conv.double().eps
    assert double.dtype == torch.float64
    if not learn_eps:
        assert torch.equal(double, channels.double().new_tensor([1.0] * 3 + [0.25] * 3 + [0.06] * 2))
    learned = {False: "", True: ", learn_eps=True", "channel": ", learn_eps='channel'"}[learn_eps]
    assert str(conv) == f"PPRConv({FEATURES}, 8, eps=(1, 0.25, 0.06){learned}, depth=6)"


def test_one_rate_in_a_list_is_one_rate():
    assert PPRConv(4, 8, eps=[0.25]).eps == PPRConv(4, 8, eps=torch.tensor(0.25)).eps == 0.25
    assert PPRConv(4, 8, eps=[0.25], learn_eps=True).log_eps.shape == ()
    assert PPRConv(4, 3, eps=(1.0, 0.5, 0.1)).eps.tolist() == pytest.approx([1.0, 0.5, 0.1])


@pytest.mark.parametrize(
    ("eps", "message"),
    [
        ((), "empty list"),
        ((1.0, 0.0), r"positive and finite, but came as \(1.0, 0.0\)"),
        ((1.0, float("inf")), "positive and finite"),
        ((1.0,) * 9, "has 9 for 8 channels"),
    ],
)
def test_bad_rates(eps, message):
    with pytest.raises(ValueError, match=message):
        PPRConv(4, 8, eps=eps)


def test_input_that_is_the_term_already():
    conv, b = PPRConv(None, 8, depth=5, bias=False, **AS_PUBLISHED), torch.randn(N, 8, requires_grad=True)
    assert [name for name, _ in conv.named_parameters()] == ["weight"]
    adj = Adjacency.from_edge_index(EDGES, add_self_loops=True)
    out = conv(b, EDGES)
    assert torch.equal(out, solve(b, conv.weight, adj, depth=5).state)
    out.sum().backward()
    assert b.grad is not None
    conv.reset_parameters()
    assert str(conv) == "PPRConv(None, 8, eps=1, depth=5)"
    with pytest.raises(ValueError, match=r"x must have 8 columns.*but has 5; give in_channels=5"):
        conv(features(), EDGES)


# --------------------------------------------------------------------------------------------------- depths
def train(net, x, steps, optimizer, scale=1.0):
    depths = []
    for _ in range(steps):
        optimizer.zero_grad()
        (net(x, EDGES).square().sum() * scale).backward()
        optimizer.step()
        depths.append([conv.last_solution.depth for _, conv in ppr_layers(net)])
    return depths


def fading(tol=1e-3):
    torch.manual_seed(4)
    net = NodeNet(FEATURES, CLASSES, hidden=8, layers=2, dropout=0.0, eps=0.1, learn_eps=True, tol=tol)
    return net, torch.optim.Adam(net.parameters(), lr=0.05)


def test_prediction_under_measure_afresh_forgets_the_training_history():
    veteran, optimizer = fading()
    train(veteran, features(), 8, optimizer)
    with torch.no_grad():
        veteran(features(), EDGES)  # evaluations teach the memory nothing
    train(veteran, features(), 7, optimizer)
    novice, _ = fading()
    novice.load_state_dict(veteran.state_dict())
    memories = [conv.depth_rule for _, conv in ppr_layers(veteran)]
    remembered = [memory.state() for memory in memories]
    predictions = []
    for net in (veteran, novice):
        with measure_afresh(net), torch.no_grad():
            predictions.append(net(features(), EDGES))
            assert all(conv.depth_rule == Measured() for _, conv in ppr_layers(net))
    assert torch.equal(*predictions)
    assert [conv.depth_rule for _, conv in ppr_layers(veteran)] == memories
    for memory, before in zip(memories, remembered, strict=True):
        after = memory.state()
        assert after.pop("tensors").keys() == before.pop("tensors").keys()
        assert after == before
        assert after["checks"] > 0
    with torch.no_grad():  # else the test proves nothing: the memory does matter
        assert not torch.equal(veteran(features(), EDGES), predictions[0])


def test_measure_afresh_restores_after_an_error_and_leaves_other_rules_alone():
    shared = DepthMemory()
    net = torch.nn.ModuleList([PPRConv(4, 8, depth=shared), PPRConv(8, 8, depth=shared), PPRConv(8, 8, depth=3)])

    def interrupted():
        with measure_afresh(net):
            assert net[0].depth_rule is net[1].depth_rule is not shared
            assert net[2].depth_rule == Fixed(3)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    assert net[0].depth_rule is net[1].depth_rule is shared


def test_set_tolerance():
    net, _ = fading()
    set_tolerance(net, 0.25)
    assert [conv.tol for _, conv in ppr_layers(net)] == [0.25, 0.25]
    assert [name for name, _ in ppr_layers(net)] == ["convs.0", "convs.1"]
    with pytest.raises(ValueError, match="tol must be > 0"):
        set_tolerance(net, 0)


def test_training_resumes_exactly():
    whole, optimizer = fading()
    expected = train(whole, features(), 12, optimizer)

    first, optimizer = fading()
    start = train(first, features(), 6, optimizer)
    values, tensors = depth_state(first)
    values = json.loads(json.dumps(values, allow_nan=False))
    second, resumed = fading()
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(optimizer.state_dict())
    restore_depth_state(second, values, {key: tensor.clone() for key, tensor in tensors.items()})
    assert start + train(second, features(), 6, resumed) == expected
    for key, value in whole.state_dict().items():
        assert torch.equal(second.state_dict()[key], value), key
    assert depth_state(second)[0] == depth_state(whole)[0]

    amnesiac, resumed = fading()  # without the depths it goes on differently: the state is needed
    amnesiac.load_state_dict(first.state_dict())
    resumed.load_state_dict(optimizer.state_dict())
    train(amnesiac, features(), 6, resumed)
    assert depth_state(amnesiac)[0] != depth_state(whole)[0]


def test_depths_of_other_layers_are_refused():
    net, _ = fading()
    with pytest.raises(
        ValueError, match=r"must be those of the layers \['convs.0', 'convs.1'\], but are those of"
    ):
        restore_depth_state(net, {"conv": {}}, {})


# --------------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize("name", ["node", "graph", "ppi", "paper_graph", "gcn"])
def test_wrong_features(name):
    net, _ = build(name)
    with pytest.raises(DataError, match=r"reads 5 features per node, but got none \(x is None\)"):
        net.encode(None, EDGES)
    with pytest.raises(DataError, match=r"reads 5 features per node, but x has shape \(9, 4\).*in_channels=4"):
        net.encode(features()[:, :4], EDGES)


@pytest.mark.parametrize("name", ["node_rows", "co_purchase"])
def test_another_graph_is_refused_by_learned_rows(name):
    net, _ = build(name)
    other = Adjacency.from_edge_index(EDGES, num_nodes=N + 1, add_self_loops=True)
    message = "a learned row for each of 9 nodes, so it cannot be used on another graph .*; train with features"
    with pytest.raises(DataError, match=message):
        net.encode(None, other)
    with pytest.raises(DataError, match=message):
        net.encode(None, torch.eye(4).to_sparse())
    with pytest.raises(DataError, match="pass x=None, or train with features"):
        net.encode(features(), EDGES)


@pytest.mark.parametrize("name", sorted(PER_GRAPH))
def test_graphs_need_a_batch(name):
    net, x = build(name)
    with pytest.raises(DataError, match="needs batch, the number of the graph of every node"):
        net(x, EDGES)
    with pytest.raises(DataError, match="one number for each of the 9 nodes"):
        net(x, EDGES, None, BATCH[:4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"norm": "bach"}, "norm must be one of batch, layer, graph, pair or None, but came as 'bach'"),
        ({"jk": "lstm"}, "jk must be"),
        ({"layers": 0}, "layers must be >= 1"),
        ({"num_nodes": 9}, "either reads features"),
    ],
)
def test_bad_options(arguments, message):
    with pytest.raises(ValueError, match=message):
        NodeNet(FEATURES, CLASSES, **arguments)


def test_bad_options_of_heads_and_pyg_models():
    with pytest.raises(ValueError, match="head_layers must be >= 1"):
        GraphNet(FEATURES, CLASSES, head_layers=0)
    with pytest.raises(ValueError, match="must read features"):
        GraphNet(None, CLASSES, num_nodes=9)
    with pytest.raises(ValueError, match="either reads features"):
        NodeNet(None, CLASSES)
    with pytest.raises(ValueError, match="task must be"):
        ConvStack(FEATURES, CLASSES, "edge")
    with pytest.raises(DataError, match="conv = 'sage' cannot use edge weights"):
        ConvStack(FEATURES, CLASSES, conv="sage").encode(features(), EDGES, torch.ones(EDGES.size(1)))
    with pytest.raises(DataError, match="needs a plain edge_index"):
        ConvStack(FEATURES, CLASSES).encode(features(), Adjacency.from_edge_index(EDGES))


def test_edge_weights_matter():
    weight = torch.linspace(0.1, 3, EDGES.size(1))
    for name in ("node", "ppi", "gcn_dry", "graph"):
        net, x = build(name)
        net.eval()
        assert not torch.allclose(net.encode(x, EDGES, weight), net.encode(x, EDGES))


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_sparse_features_of_any_layout(layout):
    network = NodeNet(FEATURES, CLASSES, hidden=8, input_dropout=0.5)
    x = features()
    network.eval()
    expected = network(x, EDGES)
    assert torch.allclose(network(getattr(x, layout)(), EDGES), expected, atol=1e-6)
    assert network.train()(getattr(x, layout)(), EDGES).shape == expected.shape


def test_features_that_want_a_gradient_get_it():
    network = NodeNet(FEATURES, CLASSES, hidden=8)
    x = features().requires_grad_()
    network(x.to_sparse_csr(), EDGES).sum().backward()
    assert float(x.grad.abs().sum()) > 0
