"""PyG's explainers see as far as the layers do, or say that they cannot."""

import copy

import pytest
import torch
from torch_geometric.explain import (
    AttentionExplainer,
    CaptumExplainer,
    DummyExplainer,
    Explainer,
    GNNExplainer,
    GraphMaskExplainer,
    PGExplainer,
)
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.explain.algorithm.utils import set_masks
from torch_geometric.nn import GATConv, GCNConv

from pprgnn.nn import InfiniteDepth, PPRConv
from pprgnn.nn.linear_output import AS_PUBLISHED

LENGTH = 30
NODE_MODEL = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
EPOCHS = 5


def layer_of(name, **options):
    """Carries a class from the head of a chain to its tail."""
    options = {"eps": 0.01} | options
    if name == "PPRConv":
        layer = PPRConv(2, 2, normalize="row", add_self_loops=False, bias=False, **AS_PUBLISHED, **options)
        weight = layer.weight
    else:
        inside = {"GCN": GCNConv(2, 2, normalize=False, bias=False), "GAT": GATConv(2, 2, add_self_loops=False)}
        layer = InfiniteDepth(inside[name], 2, **options)
        weight = layer.conv.lin.weight
    with torch.no_grad():
        weight.copy_(1.1 * torch.eye(2))
        layer.lin.weight.copy_(torch.eye(2))
    return layer.eval()


def chain(length=LENGTH):
    """A chain, and a second one that has nothing to do with it."""
    steps = torch.stack([torch.arange(length - 1), torch.arange(1, length)])
    x = torch.zeros(2 * length, 2)
    x[0, 0] = x[length, 1] = 1.0
    return x, torch.cat([steps, steps + length], dim=1)


def explain(layer, algorithm, x, edge_index, node):
    phenomenon = isinstance(algorithm, PGExplainer)
    explainer = Explainer(
        layer,
        algorithm,
        explanation_type="phenomenon" if phenomenon else "model",
        edge_mask_type="object",
        model_config=NODE_MODEL,
    )
    target = None
    if phenomenon:
        target = layer(x, edge_index).argmax(dim=-1).detach()
        for epoch in range(EPOCHS):
            algorithm.train(epoch, layer, x, edge_index, target=target, index=torch.tensor([node]))
    return explainer(x, edge_index, target=target, index=node).edge_mask


EVERY = pytest.mark.parametrize("name", ["PPRConv", "GCN", "GAT"])
ALGORITHMS = {"GNN": lambda: GNNExplainer(epochs=20, lr=0.05), "PG": lambda: PGExplainer(epochs=EPOCHS)}


@EVERY
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True:UserWarning")  # PGExplainer does
def test_the_head_of_a_chain_is_found(name, algorithm):
    torch.manual_seed(0)
    x, edge_index = chain()
    mask = explain(layer_of(name), ALGORITHMS[algorithm](), x, edge_index, LENGTH - 1)
    path, elsewhere = mask[: LENGTH - 1], mask[LENGTH - 1 :]
    assert float(path.min()) > 0, "every edge of the path has a share"
    assert float(elsewhere.max()) == 0, "no other edge has"


def test_attention_is_collected_along_the_whole_chain():
    x, edge_index = chain()
    mask = explain(layer_of("GAT"), AttentionExplainer(), x, edge_index, LENGTH - 1)
    assert mask.tolist() == [1.0] * (LENGTH - 1) + [0.0] * (LENGTH - 1)


@pytest.mark.parametrize("name", ["PPRConv", "GCN"])
def test_without_attention_there_is_nothing_to_collect(name):
    with pytest.raises(ValueError, match="Could not collect any attention coefficients"):
        explain(layer_of(name), AttentionExplainer(), *chain(), LENGTH - 1)


@EVERY
def test_random_explanations(name):
    assert explain(layer_of(name), DummyExplainer(), *chain(), LENGTH - 1).shape == (2 * (LENGTH - 1),)


@EVERY
def test_graph_mask_is_refused_and_leaves_no_trace(name):
    layer, (x, edge_index) = layer_of(name), chain()
    before = layer(x, edge_index)
    with pytest.raises(ValueError, match=r"GraphMaskExplainer normalises the messages .*; use GNNExplainer"):
        explain(layer, GraphMaskExplainer(1, epochs=2, log=False), x, edge_index, LENGTH - 1)
    assert torch.equal(layer(x, edge_index), before)
    assert float(explain(layer, ALGORITHMS["GNN"](), x, edge_index, LENGTH - 1)[0]) > 0


@EVERY
def test_captum(name):
    pytest.importorskip("captum")
    mask = explain(layer_of(name), CaptumExplainer("IntegratedGradients"), *chain(), LENGTH - 1)
    assert float(mask[0].abs()) > 0


# ---------------------------------------------------------------------------------------------------------- depth
@EVERY
@pytest.mark.parametrize("before", [None, 3])
def test_every_input_has_a_depth_of_its_own(name, before):
    """Whatever graph came last, what is explained is what the layer answers."""
    layer, (x, edge_index) = layer_of(name).double(), chain()
    x = x.double()
    expected = copy.deepcopy(layer)(x, edge_index)
    if before is not None:
        layer(chain(before)[0].double(), chain(before)[1])
    set_masks(layer, torch.ones(edge_index.size(1)), edge_index, apply_sigmoid=False)
    torch.testing.assert_close(layer(x, edge_index), expected, atol=1e-4, rtol=1e-4)
    x, edge_index = chain(4)
    set_masks(layer, torch.ones(edge_index.size(1)), edge_index, apply_sigmoid=False)
    expected = layer_of(name).double()(x.double(), edge_index)
    torch.testing.assert_close(layer(x.double(), edge_index), expected, atol=1e-4, rtol=1e-4)
    assert layer.last_solution.depth < 10, "its own, not that of the long chain"


@pytest.mark.parametrize("depth", [1, 3])
@EVERY
def test_a_finite_depth_is_kept(name, depth):
    layer, (x, edge_index) = layer_of(name, depth=depth), chain(8)
    _, edges = ExplainerAlgorithm._get_hard_masks(layer, 7, edge_index, 16)
    assert edges.tolist() == [step >= 7 - depth for step in range(7)] + [False] * 7
    mask = explain(layer, GNNExplainer(epochs=2), x, edge_index, 2)
    assert float(mask[:2].min()) > 0 if depth == 3 else float(mask[0]) == 0


def test_how_far_explainers_look():
    _, edge_index = chain(5)
    nodes, edges = ExplainerAlgorithm._get_hard_masks(layer_of("PPRConv"), 2, edge_index, 10)
    assert nodes.tolist() == [True] * 3 + [False] * 7
    assert edges.tolist() == [True] * 2 + [False] * 6
    assert ExplainerAlgorithm._get_hard_masks(layer_of("PPRConv"), None, edge_index, 10) == (None, None)
    for direction, reached in (("out", [2, 3, 4]), ("both", [0, 1, 2, 3, 4])):
        turned = InfiniteDepth(GATConv(2, 2), direction=direction)
        nodes, _ = ExplainerAlgorithm._get_hard_masks(turned, 2, edge_index, 10)
        assert nodes.nonzero().flatten().tolist() == reached
    plain = torch.nn.ModuleList([GCNConv(2, 2), GCNConv(2, 2)])
    nodes, _ = ExplainerAlgorithm._get_hard_masks(plain, 4, edge_index, 10)
    assert nodes.nonzero().flatten().tolist() == [2, 3, 4], "other models are left as they are"


def test_several_self_loops_are_one_message():
    edge_index = torch.tensor([[0, 1, 1, 1, 2], [1, 0, 1, 1, 1]])
    x, weight = torch.randn(3, 4), torch.rand(5)
    for options in ({}, {"normalize": "row"}, {"normalize": False}):
        conv = PPRConv(4, 4, depth=4, **options)
        expected = conv(x, edge_index, weight)
        torch.testing.assert_close(conv._forward_message_passing(x, edge_index, weight), expected)
        sets = torch.stack([x, -x])
        torch.testing.assert_close(
            conv._forward_message_passing(sets, edge_index, weight), conv(sets, edge_index, weight)
        )
