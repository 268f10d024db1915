"""Wrong input: refused in words, not passed over and not left to an index deep inside."""

from __future__ import annotations

from dataclasses import replace

import torch

from pprgnn.testing.trial import Graph, Trial, need_parameters


def wrong_columns(trial: Trial) -> None:
    """Features with too many columns are refused by an error that names a number of columns."""
    conv, graph = trial.conv(), trial.graph()
    need_parameters(conv)
    wide = replace(graph, x=torch.cat([graph.x, graph.x], dim=1))
    message = _refusal(trial, conv, wide, "features with too many columns")
    _must_name(message, str(trial.in_channels), str(2 * trial.in_channels))


def unknown_nodes(trial: Trial) -> None:
    """Edges to nodes that do not exist are refused by an error that speaks of nodes or edges."""
    conv, graph = trial.conv(), trial.graph()
    for node in (graph.num_nodes + 2, -1):
        edge_index = graph.edge_index.clone()
        edge_index[0, 1] = node
        message = _refusal(trial, conv, replace(graph, edge_index=edge_index), f"an edge from node {node}")
        _must_name(message, "node", "edge", "vert")


def nan_features(trial: Trial) -> None:
    """A feature that is not a number is refused, or seen in the output; it never becomes a number."""
    conv, graph = trial.conv(), trial.graph()
    graph.x[0, 0] = float("nan")
    try:
        out = trial.run(conv, graph)
    except Exception as error:
        _must_name(str(error), "nan", "finite")
    else:
        assert not bool(out.isfinite().all()), "A feature that is not a number gives an output of numbers."


def tuple_features(trial: Trial) -> None:
    """A pair of feature tensors gives a row per node, or is refused by an error that speaks of tuples."""
    conv, graph = trial.conv(), trial.graph()
    try:
        out = conv((graph.x, graph.x), graph.edge_index)
    except AttributeError as error:
        raise AssertionError(f"A tuple of features is not refused but crashes: {error}") from error
    except Exception as error:
        _must_name(str(error), "tuple", "bipartite")
    else:
        assert out.shape == (graph.num_nodes, trial.out_channels), "A tuple of features gives another shape."


def _refusal(trial: Trial, conv: torch.nn.Module, graph: Graph, what: str) -> str:
    try:
        trial.run(conv, graph)
    except Exception as error:
        return str(error)
    raise AssertionError(f"Not refused: {what}.")


def _must_name(message: str, *words: str) -> None:
    named = any(word in message.lower() for word in words)
    assert named, f"The error does not say what is wrong (no word of {', '.join(words)}): {message}"
