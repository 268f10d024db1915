"""What cannot be right is refused in one sentence, where it can be known: at construction if possible."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch._subclasses import FakeTensorMode
from torch_geometric.nn import GCNConv

from pprgnn.nn import InfiniteDepth, PPRConv

LAYERS = {
    "PPRConv": lambda **kind: PPRConv(4, 4, **kind),
    "GCN": lambda **kind: InfiniteDepth(GCNConv(4, 4), **kind),
}
EVERY = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


@EVERY
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": -1}, "tol must be > 0, but came as -1"),
        ({"tol": float("nan")}, "tol must be > 0, but came as nan"),
        ({"grad_terms": 0}, "grad_terms must be >= 1 or None"),
        ({"max_depth": 0}, "max_depth must be >= 1, but came as 0"),
        ({"eps": 1e39}, r"eps must be positive and finite, but came as 1e\+39 \(in float32 \[inf\]\)"),
        ({"eps": 1e-50}, r"eps must be positive and finite, but came as 1e-50 \(in float32 \[0.0\]\)"),
        ({"depth": -1}, "depth must be >= 0, but came as -1"),
    ],
)
def test_numbers_that_make_no_sense(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_no_channels():
    with pytest.raises(ValueError, match="out_channels must be >= 1, but came as 0"):
        PPRConv(4, 0)
    with pytest.raises(ValueError, match="channels must be >= 1, but came as 0"):
        InfiniteDepth(GCNConv(4, 4), channels=0)


@EVERY
def test_numbers_of_numpy(make):
    layer = make(depth=np.int64(3), eps=np.float32(0.5), tol=np.float64(1e-4), max_depth=np.int32(9))
    assert layer(torch.randn(3, 4), EDGES).shape == (3, 4)
    assert layer.last_solution.depth == 3


@EVERY
@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (EDGES.tolist(), r"came as list; convert it with torch.as_tensor"),
        (EDGES.numpy(), r"came as ndarray; convert it with torch.as_tensor"),
        (None, r"came as NoneType; a graph without edges is torch.empty\(2, 0, dtype=torch.long\)"),
        (sp.dia_array((3, 3)), r"came as dia_array; build Adjacency.from_scipy\(matrix\)"),
    ],
)
def test_edges_that_are_no_tensor(make, edges, message):
    with pytest.raises(TypeError, match=r"edge_index must be a tensor of shape \(2, num_edges\), but " + message):
        make()(torch.randn(3, 4), edges)


@EVERY
@pytest.mark.parametrize(
    ("x", "weight", "message"),
    [
        ([[1.0] * 4] * 3, None, "x must be a tensor .* came as list; convert it with torch.as_tensor"),
        (None, None, "x must be a tensor of shape .* came as NoneType"),
        (np.zeros((3, 4)), None, "x must be a tensor .* came as ndarray; convert it with torch.as_tensor"),
        (torch.zeros(3, 4).long(), None, "x must hold floating-point numbers, but has dtype torch.int64"),
        (torch.zeros(3, 4), [1.0] * 4, "edge_weight must be a tensor with one number per edge, but came as list"),
        (torch.zeros(3, 4), np.ones(4), "edge_weight must be a tensor .* came as ndarray; convert it with"),
    ],
)
def test_features_and_weights_that_are_no_numbers(make, x, weight, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()(x, EDGES, weight)


@EVERY
def test_negative_ids(make):
    with pytest.raises(ValueError, match=r"must be in 0 \.\.\. 2, but the edges name nodes -1 to 1; renumber"):
        make()(torch.randn(3, 4), EDGES - 1)


@EVERY
def test_tensors_without_numbers(make):
    layer, x = make(), torch.randn(3, 4)
    with pytest.raises(ValueError, match="computes with numbers, but x is on the meta device"):
        copy.deepcopy(layer).to("meta")(x.to("meta"), EDGES.to("meta"))
    with pytest.raises(ValueError, match="must hold numbers in memory, but is a Tensor on meta"):
        layer(x, EDGES.to("meta"))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(EDGES)
    with pytest.raises(ValueError, match="must hold numbers in memory, but is a FakeTensor"):
        layer(x, fake)


@EVERY
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripts(make):
    for model in (make(), torch.nn.Sequential(make())):
        with pytest.raises(
            ValueError, match=r"torch.jit.script cannot follow .*; use torch.compile or torch.export"
        ):
            torch.jit.script(model)


# ---------------------------------------------------------------------------------------------------------- hooks
HOOKS = [
    "propagate_forward",
    "propagate_forward_pre",
    "message_forward",
    "message_forward_pre",
    "aggregate_forward",
]


@EVERY
@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_on_messages_are_called(make, kind):
    layer, x, calls = make(depth=3), torch.randn(3, 4), []
    before = layer(x, EDGES)
    handle = getattr(layer, f"register_{kind}_hook")(lambda *_: calls.append(kind))
    torch.testing.assert_close(layer(x, EDGES), before)
    assert len(calls) == 3
    torch.testing.assert_close(copy.deepcopy(layer)(x, EDGES), before)
    handle.remove()
    calls.clear()
    layer(x, EDGES)
    assert not calls


def test_hooks_that_would_never_be_called_are_refused():
    x, conv, both = torch.randn(3, 4), PPRConv(4, 4), InfiniteDepth(GCNConv(4, 4), direction="both")
    conv.register_message_and_aggregate_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="register hooks on these, such as register_message_forward_hook"):
        conv(x, EDGES)
    both.register_message_forward_hook(lambda *_: None)
    with pytest.raises(
        ValueError, match="sends no messages of its own; register hooks on the convolutions in Both"
    ):
        both(x, EDGES)
    watched = PPRConv(4, 4)
    watched.register_message_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"hooks on messages need an edge_index of shape \(2, num_edges\)"):
        watched(x, torch.eye(3).to_sparse_csr())
