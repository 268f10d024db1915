"""`pprgnn evaluate`: the scores of a trained model, to the final tolerance."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from pprgnn.cli.saved_run import NewData, NewEdges, NewNodes, RunArgument, open_data, open_model
from pprgnn.cli.tables import READING, takes
from pprgnn.training.terminal import paragraph, width


@takes("reading", READING)
def evaluate_command(
    run: RunArgument,
    edges: NewEdges = None,
    nodes: NewNodes = None,
    data: NewData = None,
    reading: Any = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Score a trained model.

    On the parts of its own data, or on everything that is labelled in new data.
    """
    from pprgnn.training.evaluation import evaluate, final_metrics
    from pprgnn.training.run import Run
    from pprgnn.training.systems import find_system
    from pprgnn.training.trivial import prior_logits, trivial_levels

    model = open_model(run)
    dataset = open_data(run, model, edges, nodes, data, reading)
    own = edges is None and data is None
    masks = Run.open(run).split.masks(dataset) if own else {"labelled": _labelled(dataset)}
    note = dataset.facts.note
    if own and find_system(model.config.model.system).kind == "kernel":
        masks.pop("val", None)
        more = "The machine was fitted to the validation part, too: summary.json has its honest score."
        note = f"{note} {more}".strip()
    metrics, batches = final_metrics(model.config, model.facts), model.batches(dataset)
    on_device = {part: mask.to(model.device) for part, mask in masks.items()}
    scores, layers, predicted = evaluate(model, batches, on_device, metrics)
    y, several = dataset.labels(), model.facts.multi_label
    prior = prior_logits(y[masks["train"]], len(model.facts.class_names)) if own else model.prior
    summary = {
        "data": dataset.facts.title,
        "metric": metrics[0],
        "scores": scores,
        "predicted": predicted.get("test" if own else "labelled"),
        "threshold": model.threshold.to_dict() if several else None,
        "trivial": trivial_levels(prior, y[masks["test" if own else "labelled"]], several, metrics),
        "layers": layers,
    }
    if as_json:
        typer.echo(json.dumps(summary | {"note": note}, indent=2))
        return
    from pprgnn.training.view import layer_table, remarks, score_table

    for line in (*score_table(summary), "", *remarks(summary)):
        typer.echo(line)
    if note:
        typer.echo(paragraph("note     ", note, width()))
    for line in ("", *layer_table(layers)) if layers else ():
        typer.echo(line)


def _labelled(dataset: Any) -> Any:
    from pprgnn.training.errors import TrainingError

    known = dataset.labelled()
    if not bool(known.any()):
        raise TrainingError(f"Nothing in {dataset.facts.name} is labelled; use `pprgnn predict` instead.")
    return known
