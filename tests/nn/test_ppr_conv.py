"""The layer is a PyG layer: words, defaults, layouts, copies, explanations."""

import copy
import pickle
import warnings

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCNConv, Sequential
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from pprgnn import Activation, Adjacency, Certificate, ConvergenceWarning, Fixed, Influence, Status
from pprgnn.nn import PPRConv
from pprgnn.nn.linear_output import AS_PUBLISHED


@pytest.fixture
def graph():
    torch.manual_seed(0)
    # Directed, weighted, with one self-loop (3) and one isolated node (6).
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 3, 4, 5, 5], [1, 0, 2, 1, 3, 4, 3, 4, 0]])
    return torch.randn(7, 4), edge_index, torch.rand(9) + 0.5


def dense_reference(conv, x, edge_index, edge_weight, depth):
    """The paper's equation with GCNConv's own normalised operator, written out."""
    gcn = GCNConv(conv.out_channels, conv.out_channels, bias=False, add_self_loops=conv.add_self_loops)
    with torch.no_grad():
        gcn.lin.weight.copy_(conv.weight.t())
    b = conv.lin(x) + (0 if conv.bias is None else conv.bias)
    g = b.relu()
    for n in range(depth - 1, -1, -1):
        g = (gcn(g, edge_index, edge_weight) / (1 + n * conv.eps) + b).relu()
    return g


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_equals_a_loop_of_gcn_convs(graph, add_self_loops, weighted, depth):
    x, edge_index, edge_weight = graph
    edge_weight = edge_weight if weighted else None
    conv = PPRConv(4, 8, eps=0.5, add_self_loops=add_self_loops, depth=depth, **AS_PUBLISHED)
    torch.nn.init.uniform_(conv.bias)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # edges cut by the normalisation; here on purpose
        out = conv(x, edge_index, edge_weight)
    torch.testing.assert_close(out, dense_reference(conv, x, edge_index, edge_weight, depth))
    assert conv.last_solution.depth == depth


@pytest.mark.parametrize("normalize", [True, "row", False])
def test_every_layout_gives_the_same_values(graph, normalize):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, eps=0.5, normalize=normalize)
    expected = conv(x, edge_index, edge_weight)
    adj = Adjacency.from_edge_index(
        edge_index,
        edge_weight,
        7,
        normalize={True: "sym", "row": "row", False: None}[normalize],
        add_self_loops=bool(normalize),
    )
    # PyG's convention: sparse matrices come transposed.
    converters = (to_torch_coo_tensor, to_torch_csr_tensor, to_torch_csc_tensor)
    layouts = [convert(edge_index.flip(0), edge_weight, size=(7, 7)) for convert in converters]
    for layout in [adj, *layouts]:
        torch.testing.assert_close(conv(x, layout), expected)


def test_self_loops_have_remaining_semantics_in_every_layout():
    edge_index = torch.tensor([[0, 0, 1], [0, 1, 0]])  # node 0 has a self-loop of weight 3
    weight = torch.tensor([3.0, 1.0, 1.0])
    adj = Adjacency.from_edge_index(edge_index, weight, normalize=None, add_self_loops=True)
    assert adj.to_dense().tolist() == [[3.0, 1.0], [1.0, 1.0]]
    conv, x = PPRConv(2, 3), torch.eye(2)
    torch.testing.assert_close(
        conv(x, edge_index, weight), conv(x, to_torch_csr_tensor(edge_index.flip(0), weight, size=(2, 2)))
    )


def test_smooth_input_feeds_the_neighbourhood(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, smooth_input=True, depth=0, bias=False, **AS_PUBLISHED)
    adj = Adjacency.from_edge_index(edge_index, edge_weight, 7, add_self_loops=True)
    torch.testing.assert_close(conv(x, edge_index, edge_weight), (adj @ conv.lin(x)).relu())


def test_flow_target_to_source_reads_the_other_way(graph):
    x, edge_index, edge_weight = graph
    there = PPRConv(4, 8, flow="target_to_source")
    back = copy.deepcopy(there)
    back.flow = "source_to_target"
    torch.testing.assert_close(there(x, edge_index, edge_weight), back(x, edge_index.flip(0), edge_weight))


@pytest.mark.parametrize("learn_eps", [False, True, "channel"])
def test_parameters_learn(graph, learn_eps):
    x, edge_index, edge_weight = graph
    conv = PPRConv(-1, 8, eps=0.25, learn_eps=learn_eps)
    conv(x, edge_index, edge_weight.requires_grad_()).square().sum().backward()
    names = {name for name, _ in conv.named_parameters()}
    assert names == {"lin.weight", "weight", "bias"} | ({"log_eps"} if learn_eps else set())
    for name, parameter in conv.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0, name
    assert float(edge_weight.grad.abs().sum()) > 0
    if learn_eps:
        assert conv.eps.shape == (() if learn_eps is True else (8,))
        torch.testing.assert_close(conv.eps.detach(), torch.full_like(conv.eps, 0.25))


def test_depth_options(graph):
    x, edge_index, edge_weight = graph
    for depth, status in [
        (3, Status.FIXED),
        (Fixed(3), Status.FIXED),
        (Certificate(), Status.CERTIFIED),
        (Influence(), Status.INFLUENCE),
        (None, Status.COMPARED),
    ]:
        conv = PPRConv(4, 8, eps=0.3, depth=depth)
        conv(x, edge_index, edge_weight)
        assert conv.last_solution.status is status
        assert not conv.last_solution.state.requires_grad
    assert conv(x, edge_index, edge_weight).shape == (7, 8)
    assert conv.last_solution.status is Status.REUSED


def test_not_converged_warns(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, eps=0.01, max_depth=4)
    with torch.no_grad():
        conv.weight.mul_(5)
    with pytest.warns(ConvergenceWarning, match=r"Raise max_depth, use a larger eps"):
        conv(x, edge_index, edge_weight)
    assert conv.last_solution.status is Status.CAPPED


def test_cached_keeps_the_first_graph_and_reset_forgets_it(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, cached=True, depth=3)
    first = conv(x, edge_index, edge_weight)
    kept = conv._cached_adj
    turned = torch.arange(edge_index.size(1) - 1, -1, -1)
    for edges, weight in [(edge_index.clone(), edge_weight.clone()), (edge_index[:, turned], edge_weight[turned])]:
        torch.testing.assert_close(conv(x, edges, weight), first)  # the same graph in other tensors
        assert torch.equal(conv._cached_adj.to_dense(), kept.to_dense())
    others = [
        (x, edge_index[:, :2], None),
        (x, edge_index, 2 * edge_weight + 1),
        (x[:-1], edge_index[:, :2], None),
    ]
    for arguments in [*others, (x, Adjacency.from_edge_index(edge_index, num_nodes=7, normalize=None))]:
        with pytest.raises(ValueError, match=r"cached=True keeps the graph of the first call, .* but another one"):
            conv(*arguments)
    again = conv.double()(x.double(), edge_index, edge_weight.double()).float()
    torch.testing.assert_close(again, first)  # as exact as the first one was
    conv.float().reset_parameters()
    assert conv.last_solution is None
    conv(x, edge_index[:, :2])
    assert conv._cached_adj.num_edges == 2 + 7


def test_cached_graphs_have_no_learned_weights(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, cached=True)
    with pytest.raises(ValueError, match="cannot be learned; use cached=False"):
        conv(x, edge_index, edge_weight.clone().requires_grad_())
    assert PPRConv(4, 8)(x, edge_index, edge_weight.clone().requires_grad_()).shape == (7, 8)


@pytest.mark.parametrize("cached", [False, True])
def test_copies_of_a_layer_that_has_seen_a_graph(graph, cached):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, cached=cached, depth=3)
    expected = conv(x, edge_index, edge_weight)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(twin(x, edge_index, edge_weight), expected)


def test_changed_edges_are_noticed_without_caching(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, depth=3)
    before = conv(x, edge_index, edge_weight)
    edge_weight.mul_(torch.linspace(0.1, 3, 9))  # in place: the same tensor objects
    after = conv(x, edge_index, edge_weight)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, conv(x, edge_index.clone(), edge_weight.clone()))


def test_copies_and_state_dict(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, eps=0.3, learn_eps=True)
    for _ in range(3):  # the memory of depths is in use
        expected = conv(x, edge_index, edge_weight)
    twin = PPRConv(4, 8, eps=0.7, learn_eps=True)
    twin.load_state_dict(conv.state_dict())
    for other in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv)), twin):
        torch.testing.assert_close(other(x, edge_index, edge_weight), expected)


def test_repr():
    assert str(PPRConv(16, 32)) == "PPRConv(16, 32, eps=1)"
    assert str(PPRConv(-1, 32, 0.25, learn_eps="channel")) == "PPRConv(-1, 32, eps=0.25, learn_eps='channel')"
    assert str(PPRConv(16, 32, depth=4)) == "PPRConv(16, 32, eps=1, depth=4)"


def test_batch_equals_single_graphs():
    torch.manual_seed(1)
    graphs = []
    for n in (3, 5, 1):
        edges = torch.randint(0, n, (2, 2 * n))
        graphs.append(Data(x=torch.randn(n, 4), edge_index=torch.cat([edges, edges.flip(0)], 1), num_nodes=n))
    batch = Batch.from_data_list(graphs)
    conv = PPRConv(4, 8, eps=0.3, tol=1e-7).double()
    together = conv(batch.x.double(), batch.edge_index)
    apart = torch.cat([conv(data.x.double(), data.edge_index) for data in graphs])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)


def test_several_sets_of_features_on_one_graph(graph):
    x, edge_index, edge_weight = graph
    sets = torch.stack([x, 2 * x.flip(0), torch.zeros_like(x)])
    conv = PPRConv(4, 8, eps=0.3, smooth_input=True)
    together = conv(sets, edge_index, edge_weight)
    assert together.shape == conv.last_solution.state.shape == (3, 7, 8)
    apart = torch.stack([conv(each, edge_index, edge_weight) for each in sets])
    torch.testing.assert_close(together, apart, atol=1e-4, rtol=1e-4)
    assert conv(sets[:0], edge_index, edge_weight).shape == (0, 7, 8)


def test_a_pair_of_the_same_nodes_is_these_nodes(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, depth=3)
    torch.testing.assert_close(conv((x, x), edge_index, edge_weight), conv(x, edge_index, edge_weight))


def test_in_sequential(graph):
    x, edge_index, _ = graph
    model = Sequential("x, edge_index", [(PPRConv(4, 8), "x, edge_index -> x"), torch.nn.Linear(8, 2)])
    assert model(x, edge_index).shape == (7, 2)


@pytest.mark.parametrize("options", [{}, {"normalize": "row"}, {"smooth_input": True}, {"learn_eps": "channel"}])
def test_messages_equal_the_fused_path(graph, options):
    """What explainers see must be what the layer computes."""
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, eps=0.5, depth=6, **options)
    fused = conv(x, edge_index, edge_weight)
    torch.testing.assert_close(conv._forward_message_passing(x, edge_index, edge_weight), fused)


def test_gnn_explainer_finds_the_edge_that_matters():
    # Node 0 is labelled by node 2, two hops away; the edge 3-4 has nothing to do with it.
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    x = torch.zeros(5, 1)
    x[2] = 1.0
    torch.manual_seed(0)
    conv = PPRConv(1, 2, eps=0.1, bias=False)
    with torch.no_grad():
        conv.lin.weight.fill_(1.0)
        conv.weight.copy_(torch.eye(2))
    explainer = Explainer(
        conv,
        GNNExplainer(epochs=60, lr=0.1),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
    )
    mask = explainer(x, edge_index, index=0).edge_mask
    assert mask[3] > mask[4:].max()  # 2 -> 1 carries the signal
    assert mask[1] > mask[4:].max()  # 1 -> 0 carries it on
    assert conv.explain is not True


def test_autocast_keeps_full_precision(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = conv(x, edge_index, edge_weight)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, conv(x, edge_index, edge_weight), atol=0.05, rtol=0.05)


def test_double_precision(graph):
    x, edge_index, edge_weight = graph
    assert PPRConv(4, 8).double()(x.double(), edge_index, edge_weight).dtype == torch.float64


def test_picklable_with_own_activation(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8, activation=Activation(torch.nn.functional.softsign, _softsign_slope, lipschitz=1.0))
    torch.testing.assert_close(
        pickle.loads(pickle.dumps(conv))(x, edge_index, edge_weight), conv(x, edge_index, edge_weight)
    )


def _softsign_slope(z):
    return (1 + z.abs()) ** -2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eps": 0.0}, "eps must be positive"),
        ({"eps": float("nan")}, "eps must be positive"),
        ({"normalize": "column"}, "normalize must be"),
        ({"normalize": False, "add_self_loops": True}, "does not add self-loops without normalisation"),
        ({"learn_eps": "node"}, "learn_eps must be"),
        ({"activation": "relu6"}, "activation must be one of"),
        ({"depth": "deep"}, "depth must be"),
        ({"depth": -1}, "depth must be >= 0"),
        ({"aggr": "mean"}, "adds messages up"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        PPRConv(4, 8, **arguments)


def test_typos_are_not_swallowed():
    with pytest.raises(TypeError, match="grad_term"):
        PPRConv(4, 8, grad_term=3)


def test_bad_inputs(graph):
    x, edge_index, edge_weight = graph
    conv = PPRConv(4, 8)
    sparse = to_torch_csr_tensor(edge_index, size=(7, 7))
    with pytest.raises(ValueError, match="tuple of node features"):
        conv((x, x.clone()), edge_index)
    with pytest.raises(ValueError, match=r"x must have shape \(num_nodes, in_channels\)"):
        conv(x[0], edge_index)
    with pytest.raises(ValueError, match=r"Node ids must be in 0 ... 6, but the edges name nodes 4 to 9"):
        conv(x, edge_index + 4)
    with pytest.raises(ValueError, match="carries its own weights"):
        conv(x, sparse, edge_weight)
    with pytest.raises(ValueError, match=r"must have shape \(5, 5\)"):
        conv(x[:5], sparse)
    with pytest.raises(ValueError, match=r"b must be finite, but b\[0, 0\] is nan"):
        conv(x.index_fill(0, torch.tensor([0]), float("nan")), edge_index)
    with pytest.raises(ValueError, match="The graph has no nodes"):
        conv(x[:0], edge_index[:, :0])


@pytest.mark.parametrize(("how", "factor"), [("identity", 1.0), (2.5, 2.5), (0, 0.0)])
def test_weights_start_as_a_multiple_of_the_identity(how, factor):
    conv = PPRConv(4, 3, weight_init=how, **AS_PUBLISHED)
    for _ in range(2):
        assert torch.equal(conv.weight, factor * torch.eye(3))
        conv.weight.data.normal_()
        conv.reset_parameters()


def test_weights_are_drawn_or_start_as_the_identity():
    assert torch.equal(PPRConv(4, 3, weight_scale=1).weight, torch.eye(3))
    drawn = PPRConv(4, 3, weight_init="glorot", weight_scale=1).weight
    assert bool((drawn != 0).all())
    assert bool((drawn.abs() <= 1).all())


@pytest.mark.parametrize("how", ["ones", None, float("nan"), [1.0]])
def test_weights_cannot_start_otherwise(how):
    with pytest.raises(ValueError, match="weight_init must be 'glorot', 'identity' or a number, but came as"):
        PPRConv(4, 3, weight_init=how)


@pytest.mark.parametrize("how", ["identity", 2.5, "glorot"])
def test_a_scale_changes_how_fast_weights_move_but_not_how_they_start(how):
    torch.manual_seed(0)
    plain = PPRConv(4, 3, weight_init=how, weight_scale=1)
    torch.manual_seed(0)
    slow = PPRConv(4, 3, weight_init=how, weight_scale=0.1)
    torch.testing.assert_close(slow.recurrent_weight(), plain.weight)
    x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    torch.testing.assert_close(slow(x, edge_index), plain(x, edge_index))
    moved = []
    for conv in (plain, slow):
        before, optimizer = conv.recurrent_weight().detach().clone(), torch.optim.Adam(conv.parameters(), lr=0.01)
        conv(x, edge_index).sum().backward()
        optimizer.step()
        moved.append(float((conv.recurrent_weight() - before).detach().abs().max()))
    assert moved[1] == pytest.approx(0.1 * moved[0], rel=1e-3)


def test_a_scaled_layer_is_the_same_to_copies_explainers_and_old_pickles():
    conv = PPRConv(4, 3, weight_scale=0.1).eval()
    x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    out = conv(x, edge_index)
    torch.testing.assert_close(copy.deepcopy(conv)(x, edge_index), out)
    torch.testing.assert_close(conv._forward_message_passing(x, edge_index, None), out)
    del conv.__dict__["weight_scale"]  # as one that was pickled before the option came
    assert conv.recurrent_weight() is conv.weight


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), float("inf"), "0.1", None])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(ValueError, match="weight_scale must be a finite number > 0, but came as"):
        PPRConv(4, 3, weight_scale=scale)
