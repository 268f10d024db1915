"""`pprgnn evaluate`: the scores of a trained model, to the final tolerance."""

from __future__ import annotations

from torch import Tensor

from pprgnn.cli.commands import Evaluate
from pprgnn.cli.output import show, show_json, show_labelled
from pprgnn.cli.saved_run import open_data, open_model
from pprgnn.data.dataset import GraphDataset
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import evaluate as scores_of
from pprgnn.training.evaluation import final_metrics, prior_logits, trivial_levels
from pprgnn.training.run import Run
from pprgnn.training.systems import find_system
from pprgnn.training.terminal import layer_table, remarks, score_table


def evaluate(options: Evaluate) -> None:
    """Score the parts of the run, or all that is labelled in new data."""
    model = open_model(options.run)
    dataset = open_data(options.run, model, options.new)
    own = not options.new.is_given
    masks = Run.open(options.run).split.masks(dataset) if own else {"labelled": _labelled(dataset)}
    note, last = dataset.facts.note, "test" if own else "labelled"
    if own and find_system(model.config.model.system).kind == "kernel":
        masks.pop("val", None)
        more = "The machine was fitted to the validation part, too: summary.json has its honest score."
        note = f"{note} {more}".strip()
    metrics, batches = final_metrics(model.config, model.facts), model.batches(dataset)
    on_device = {part: mask.to(model.device) for part, mask in masks.items()}
    scores, layers, predicted = scores_of(model, batches, on_device, metrics)
    y, several = dataset.labels(), model.facts.multi_label
    prior = prior_logits(y[masks["train"]], len(model.facts.class_names)) if own else model.prior
    summary = {
        "data": dataset.facts.title,
        "metric": metrics[0],
        "scores": scores,
        "predicted": predicted.get(last),
        "threshold": model.threshold.to_dict() if several else None,
        "trivial": trivial_levels(prior, y[masks[last]], several, metrics),
        "layers": layers,
    }
    if options.as_json:
        show_json(summary | {"note": note})
        return
    show([*score_table(summary), "", *remarks(summary)])
    show_labelled([("note", note)] if note else ())
    show(["", *layer_table(layers)] if layers else ())


def _labelled(dataset: GraphDataset) -> Tensor:
    known = dataset.labelled()
    if not bool(known.any()):
        raise TrainingError(f"Nothing in {dataset.facts.name} is labelled; use `pprgnn predict` instead.")
    return known
