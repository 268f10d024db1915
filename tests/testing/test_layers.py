"""Our layers pass the whole suite; layers of PyG pass it but for what is known of them."""

from functools import partial

import pytest
import torch
from torch_geometric.nn import APPNP, GATConv, GCNConv, GINConv, SAGEConv

from pprgnn.baselines import EIGNNConv, IGNNConv, MGNNIConv
from pprgnn.nn import InfiniteDepth, PPRConv
from pprgnn.testing import Outcome, check_conv

OURS = {
    "PPRConv": PPRConv,
    "row": partial(PPRConv, normalize="row", learn_eps="channel"),
    "not normalised": partial(PPRConv, normalize=False, learn_eps=True),
    "smooth_input": partial(PPRConv, smooth_input=True, add_self_loops=False),
    "depth": partial(PPRConv, depth=4),
    "MGNNIConv": MGNNIConv,
}


def mlp(channels):
    return torch.nn.Sequential(torch.nn.Linear(channels, channels), torch.nn.ReLU())


def propagate(in_channels, out_channels):
    return APPNP(K=5, alpha=0.1)


CSC = {"csc_layout": "PyG's normalisation refuses CSC matrices"}
LOOPS = {"self_loops": "PyG adds to an existing self-loop in matrices and keeps it in edge_index"}
GCN = CSC | {
    **LOOPS,
    "unknown_nodes": "torch's index error comes through",
}
OUTPUT = {"in_place_activation": "the output is the equilibrium, which the gradient needs"}
KNOWN = {
    "EIGNNConv": (EIGNNConv, OUTPUT),
    "IGNNConv": (
        IGNNConv,
        OUTPUT | {"gradient": "each pass first moves the weights to where the equilibrium is unique"},
    ),
    "GCNConv": (GCNConv, GCN),
    "APPNP": (propagate, GCN | {"tuple_features": "a tuple is not looked for"}),
}
INFINITE = {
    "GCN": (lambda width: GCNConv(width, width), LOOPS),
    "GCN out": (lambda width: GCNConv(width, width), LOOPS),
    "SAGE": (lambda width: SAGEConv(width, width), {}),
    "GIN": (lambda width: GINConv(mlp(width)), {}),
    "GAT": (
        lambda width: GATConv(width, width),
        CSC | {"static_graph": "GATConv refuses static graphs"},
    ),
}


@pytest.mark.parametrize("name", OURS)
def test_our_layers_pass(name):
    report = check_conv(OURS[name])
    assert {result.outcome for result in report.results} <= {Outcome.PASSED, Outcome.SKIPPED}


@pytest.mark.parametrize("name", KNOWN)
def test_other_layers_fail_only_what_is_known(name):
    factory, known = KNOWN[name]
    check_conv(factory, in_channels=8, out_channels=8, expected_failures=known)


@pytest.mark.parametrize("name", INFINITE)
def test_convolutions_repeated_without_end_pass(name):
    conv, known = INFINITE[name]
    direction = "out" if name.endswith("out") else "in"
    depth = 4 if name in ("GAT", "GIN") else None  # a search for the depth takes hundreds of passes through them
    check_conv(
        lambda in_channels, width: InfiniteDepth(
            conv(width), in_channels, channels=width, eps=2.0, depth=depth, direction=direction
        ),
        expected_failures=known,
    )
