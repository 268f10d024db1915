"""`pprgnn explain`: why a model decided as it did about one node or one graph; which features decide overall."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pprgnn.cli.main import Explain
from pprgnn.cli.output import Labelled, show_hint, show_json, show_labelled, show_table, under
from pprgnn.cli.saved_run import open_data, open_model
from pprgnn.data.dataset import GraphDataset, find_node
from pprgnn.errors import DataError
from pprgnn.training.attribution import LayerReach
from pprgnn.training.explain import (
    FAR,
    Decision,
    GraphExplanation,
    InfluentialNode,
    NodeExplanation,
    check_system,
    explain_graph,
    explain_node,
)
from pprgnn.training.explain_features import (
    FeatureExplanation,
    check_features_read,
    drawn_rows,
    explain_features,
    overall_features,
)
from pprgnn.training.model import Model
from pprgnn.training.optimization import collected_warnings
from pprgnn.training.run import Run
from pprgnn.training.terminal import is_terminal
from pprgnn.wording import counted, cut, percent

VISIBLE = 5e-4  # a share that is not shown as 0.0 %
MOST_BARS = 12
LONGEST = 30  # letters of a name or of a list of classes
PARTS = {"test": "test ", "val": "validation ", "train": "training "}


def explain(options: Explain) -> None:
    """One decision, or what decides in the mean over many."""
    run, node, graph, top = options.run, options.node, options.graph, options.top
    if is_terminal() and not options.as_json:
        show_hint(f"Reading {run} ...")
    model = open_model(run)
    if options.features and (node, graph, options.target) != (None, None, None):
        raise DataError(
            "--features is about many decisions, so it goes without --node, --graph and --target; drop it to "
            "explain one of them, with its features."
        )
    if not options.features and model.facts.task == "node" and node is None:
        raise DataError("This model labels nodes: say which with --node ID.")
    if not options.features and model.facts.task == "graph" and (graph is None or node is not None):
        raise DataError("This model labels whole graphs: say which with --graph NUMBER, and leave out --node.")
    dataset = open_data(run, model, options.new)
    warned: list[str] = []
    with collected_warnings(warned.append, set()):
        if options.features:
            has_parts = run.is_dir() and not options.new.is_given
            explain_overall(model, dataset, run if has_parts else None, options, warned)
            return
        found = _explained(model, dataset, node, graph, _target(model, options.target), top)
        by_feature = _by_feature(model, dataset, found, top)
    if options.as_json:
        told = found.to_dict() | {"features": None if by_feature is None else by_feature.to_dict()}
        show_json(told | {"data": dataset.facts.title, "warnings": warned})
        return
    _show(found, by_feature, dataset, model, warned)


# -------------------------------------------------------------------------------------------------------- question
def _target(model: Model, text: str | None) -> int | None:
    """The number of a class, from its name or its number."""
    names = model.facts.class_names
    if text is None or text in names:
        return None if text is None else names.index(text)
    if text.isdecimal() and int(text) < len(names):
        return int(text)
    close = difflib.get_close_matches(text, names, 3, cutoff=0.4) or names[:3]
    raise DataError(f"There is no class {text!r} among the {len(names)} of this model; try {', '.join(close)}.")


def _explained(
    model: Model, dataset: GraphDataset, node: str | None, graph: int | None, target: int | None, top: int
) -> GraphExplanation:
    if node is None:
        assert graph is not None
        return explain_graph(model, dataset, graph, target=target, top=top)
    if graph is None and len(dataset) > 1:
        raise DataError(
            f"{dataset.facts.name} has {len(dataset):,} graphs: say which with --graph NUMBER, from 0; --node is "
            f"then the node in that graph."
        )
    number = find_node(dataset, node, graph or 0)
    return explain_node(model, dataset, number, target=target, top=top, graph=graph or 0)


def _by_feature(
    model: Model, dataset: GraphDataset, found: GraphExplanation, top: int
) -> FeatureExplanation | None:
    """The same decision by feature; ``None``: there are none, or nobody asked."""
    if not top or model.shape.num_nodes is not None:
        return None
    node = found.node if isinstance(found, NodeExplanation) else None
    target = model.facts.class_names.index(found.decision.target)
    return explain_features(model, dataset, node, graph=found.graph, target=target, top=top)


# ---------------------------------------------------------------------------------------------------------- answer
def _show(
    found: GraphExplanation,
    by_feature: FeatureExplanation | None,
    dataset: GraphDataset,
    model: Model,
    warned: Sequence[str],
) -> None:
    by_node = isinstance(found, NodeExplanation)
    lines = _lines(found, dataset, model)
    if by_feature is not None:
        lines.append(("features", _feature_line(by_feature)))
    show_labelled([*lines, *(("warning", text) for text in warned)], 13)
    if by_feature is not None:
        _show_features(by_feature, by_node)
    _show_nodes("Most influential nodes", found.influential, by_node)
    if isinstance(found, NodeExplanation):
        shown = {each.node for each in found.influential}
        far = [each for each in found.far if abs(each.share) >= VISIBLE]
        if not {each.node for each in far} <= shown:
            _show_nodes(f"Most influential among those more than {FAR} hops away", far, by_node)


def _lines(found: GraphExplanation, dataset: GraphDataset, model: Model) -> list[Labelled]:
    place = f"graph {found.graph} of {dataset.facts.title}" if len(dataset) > 1 else dataset.facts.title
    lines = [("node", f"{found.name} in {place}")] if isinstance(found, NodeExplanation) else [("graph", place)]
    lines += _decision_lines(found.decision, model.facts.multi_label)
    lines += under("depth", map(_depth_text, found.layers))
    if isinstance(found, NodeExplanation):
        lines += _reach_lines(found)
    if not found.complete:
        lines += _truncation_lines(found)
    return lines


def _depth_text(layer: LayerReach) -> str:
    bound = layer.truncation_bound
    error = "" if bound is None else f", truncation error at most {bound:.1g} of the input"
    if bound is not None and bound >= 1:
        error = ", no useful bound of the truncation error"
    return f"layer {layer.layer} looked {counted(layer.depth, 'hop')} deep ({layer.status.lower()}{error})"


def _decision_lines(decision: Decision, multi_label: bool) -> list[Labelled]:
    unknown = "not known" if decision.truth is None else _short(decision.truth)
    labels = f"predicted {_short(decision.predicted)}; true: {unknown}"
    what = f"logit of {decision.target}" + ("" if multi_label else " less the mean of the other logits")
    parts = f"inputs of nodes {decision.inputs:+.3g}, biases {decision.biases:+.3g}"
    rest = f", rest {decision.rest:+.3g}" if abs(decision.rest) > 1e-3 * abs(decision.score) else ""
    return [
        ("decision", labels),
        ("explained", f"{decision.target}, probability {percent(decision.probability)}"),
        ("score", f"{decision.score:+.3g}, the {what}: {parts}{rest}"),
    ]


def _reach_lines(found: NodeExplanation) -> list[Labelled]:
    if not any(found.share_by_distance) and not found.unreachable_share:
        return [("reach", "no node's input has any influence here; the biases decide")]
    if found.radius is None:
        text = "less than 95 % of the influence comes along paths"
    elif found.radius == 0:
        text = "at least 95 % of the influence comes from the node itself"
    else:
        text = f"95 % of the influence comes from within {counted(found.radius, 'hop')}"
    return under("reach", [text, *_bars(found)])


def _bars(found: NodeExplanation) -> list[str]:
    """A bar for every distance, or for ranges of distances; as far as there is anything to see."""
    shares, counts = found.share_by_distance, found.nodes_by_distance
    last = max((i for i, share in enumerate(shares) if share >= VISIBLE), default=0)
    step = math.ceil((last + 1) / MOST_BARS)
    rows = []
    for start in range(0, last + 1, step):
        end = min(start + step, last + 1)
        hops = f"{start}" if end - start == 1 else f"{start}–{end - 1}"
        rows.append((hops, sum(shares[start:end]), sum(counts[start:end])))
    if last + 1 < len(shares):
        rows.append((f"{last + 1}+", sum(shares[last + 1 :]), sum(counts[last + 1 :])))
    if found.unreachable_share:
        rows.append(("no path", found.unreachable_share, found.unreachable_nodes))
    longest = max(len(hops) for hops, _, _ in rows)
    return [
        f"{hops:>{longest}} {'█' * math.ceil(20 * share - 0.01):<20} {percent(share):>7} "
        f"({counted(count, 'node')})"
        for hops, share, count in rows
    ]


def _truncation_lines(found: GraphExplanation) -> list[Labelled]:
    lines = []
    for layer in found.layers:
        if layer.terms <= layer.depth:
            useful = layer.left_out is not None and layer.left_out < 1
            bound = f"at most {layer.left_out:.2g} of it" if useful else "no useful bound"
            lines.append(
                f"memory allows {layer.terms} of {layer.depth + 1} terms of the gradient of layer {layer.layer}: "
                f"influence over longer ways is missing ({bound}, relative to the gradient that comes in)"
            )
    return under("left out", lines)


def _show_nodes(title: str, influential: Sequence[InfluentialNode], by_node: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "node": cut(each.name, LONGEST),
            "hops": each.distance,
            "share": f"{100 * each.share:+.1f} %".rjust(8),
            "class": None if each.classes is None else _short(each.classes),
        }
        for each in influential
    ]
    known = ("node", "hops", "share", "class") if by_node else ("node", "share")
    show_table(title, [{key: row[key] for key in known} for row in rows], ["class"])


def _short(classes: Sequence[str]) -> str:
    return cut(", ".join(classes), LONGEST) if classes else "none"


# -------------------------------------------------------------------------------------------------------- features
def _feature_line(found: FeatureExplanation) -> str:
    """What the features add, and what the integral misses."""
    whole, residual = found.score - found.baseline, abs(found.residual)
    missed = percent(residual / abs(whole)) if whole else f"{residual:.1g}"
    return (
        f"they add {whole:+.3g} to the score, which is {found.baseline:+.3g} with all features at 0; "
        f"{missed} of it is left unexplained ({found.gradients} gradients)"
    )


def _show_features(found: FeatureExplanation, by_node: bool) -> None:
    """A table of those that mattered most."""
    rows: list[dict[str, Any]] = []
    for each in found.features:
        row = {
            "feature": cut(each.name, LONGEST),
            "value" if by_node else "mean": f"{each.value:.4g}",
            "adds": f"{each.contribution:+.3g}",
        }
        rows.append(row | ({"here": f"{each.own:+.3g}"} if by_node else {}))
    show_table("Features that mattered most", rows, ["here"])


# --------------------------------------------------------------------------------------------------------- overall
def explain_overall(
    model: Model,
    dataset: GraphDataset,
    run: Path | None,
    options: Explain,
    warned: Sequence[str],
) -> None:
    """Show which features decide in the mean over the test part of a run; without a run, over all of the data."""
    check_system(model)
    check_features_read(model)
    part, mask = _part(dataset, run)
    batches, available = model.batches(dataset), int(mask.sum())
    if is_terminal() and not options.as_json:
        show_hint(f"Explaining {min(options.sample, available)} decisions ...")
    found = overall_features(model, batches, drawn_rows(batches, mask, options.sample))
    if options.as_json:
        facts = {"part": part, "available": available, "data": dataset.facts.title, "warnings": warned}
        show_json(found.to_dict() | facts)
        return
    things = f"{PARTS.get(part, '')}{dataset.facts.task}s"
    lines = [
        ("features", f"{len(found.features):,} of {dataset.facts.title}"),
        ("mean over", f"{found.samples:,} of {available:,} {things}, for the class predicted for each"),
        ("unexplained", f"{percent(found.residual)} of what the features add ({found.gradients:,} gradients)"),
        *(("warning", text) for text in warned),
    ]
    show_labelled(lines, 13)
    show_table(
        "Features that matter most",
        [
            {
                "feature": cut(each.name, LONGEST),
                "share": percent(each.share).rjust(7),
                "adds": f"±{each.importance:.3g}",
            }
            for each in found.features[: options.top]
            if each.importance > 0
        ],
    )


def _part(dataset: GraphDataset, run: Path | None) -> tuple[str, Tensor]:
    """What to draw from: the test part if there is one; of new data, everything."""
    if run is None:
        size = dataset.num_nodes if dataset.facts.task == "node" else len(dataset)
        return "all", torch.ones(size, dtype=torch.bool)
    masks = Run.open(run).split.masks(dataset)
    return next((part, masks[part]) for part in PARTS if bool(masks[part].any()))
