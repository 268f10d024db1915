"""What `pprgnn train` shows at its end: the scores of a run, of several, or of several systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from pprgnn.cli.group import STOPPED
from pprgnn.cli.output import Labelled, show, show_hint, show_json, show_labelled
from pprgnn.distributed.team import Team
from pprgnn.training.terminal import (
    aligned,
    clock,
    comparison_table,
    layer_table,
    paragraph,
    percent,
    remarks,
    score_table,
    width,
)
from pprgnn.wording import counted

Summary = Mapping[str, Any]


def finish(summary: Summary, as_json: bool, team: Team | None = None) -> None:
    """Show it, in one of the processes, and end with the right code."""
    leads = team is None or team.is_main
    if leads and as_json:
        show_json(summary)
    elif leads:
        typer.echo()
        view = show_comparison if "systems" in summary else show_study if "runs" in summary else show_run
        view(summary)
    if not summary["finished"] and not summary.get("failed"):
        if leads and not as_json:
            when = f" after epoch {summary['epochs']}" if "epochs" in summary else ""
            typer.echo(f"Stopped{when}; go on with `pprgnn train --resume {summary['folder']}`.")
        raise typer.Exit(STOPPED)


def show_run(summary: Summary) -> None:
    """All scores, where the weights come from, and each layer."""
    show([*score_table(summary), ""])
    who = "the test part" if summary["test_chose_the_epoch"] else "validation"
    chosen = f"epoch {summary['best_epoch']} of {summary['epochs']}, chosen by {who}"
    if "chosen" in summary:  # graph kernels and label propagation have no epochs
        values = ", ".join(f"{name} = {value:g}" for name, value in summary["chosen"].items())
        chosen = f"{values}, chosen by {summary.get('chosen_by', 'cross-validation')} among {summary['epochs']}"
    show(remarks(summary))
    lines = [("weights", f"{chosen}; {clock(summary['seconds'])}"), ("kept in", summary["folder"])]
    if summary["note"]:
        lines.append(("note", summary["note"]))
    show_labelled(lines)
    if summary["layers"]:
        show(["", *layer_table(summary["layers"]), ""])
    if summary["finished"]:
        show_hint(f"`pprgnn predict {summary['folder']} -o predictions.csv` uses it.")


def show_study(summary: Summary) -> None:
    """A row for each run, then mean and standard deviation."""
    metric, runs = summary["metric"], summary["runs"]
    parts = [part for part in ("val", "test") if part in summary["mean"]]
    rows = [["run", *(f"{part} {metric}" for part in parts), "epoch"]]
    rows += [
        [each["run"], *(percent(each["scores"][part][metric]) for part in parts), str(each["best_epoch"])]
        for each in runs
    ]
    show(aligned(rows) if runs else ())
    for part in parts:
        typer.echo(f"{part} {metric}: {_spread(summary, part)} over {counted(len(runs), 'run')}")
    known = {name: values.get(metric) for name, values in (summary.get("trivial") or {}).items()}
    trivial = ", ".join(f"{name} {percent(value)}" for name, value in known.items() if value is not None)
    if trivial:
        typer.echo(f"test {metric} without looking at anything: {trivial}")
    if "ensemble" in summary:
        together = _spread(summary["ensemble"] | {"metric": metric}, "test")
        typer.echo(f"test {metric} of the seeds together: {together} over the splits")
    splits = summary.get("splits", ())  # those of folds are numbered
    lines: list[Labelled] = [("split", splits[0])] if len(splits) == 1 else []
    show_labelled([*lines, ("kept in", summary["folder"])])


def _spread(summary: Summary, part: str) -> str:
    mean, std = (percent(summary[what][part][summary["metric"]]) for what in ("mean", "std"))
    return f"{mean} ± {std}"


def show_comparison(summary: Summary) -> None:
    """A row for each system, and why some failed."""
    show(comparison_table(summary["systems"]))
    for name, why in summary["failed"].items():
        typer.echo(paragraph(f"{name} failed: ", why, width()))
    show_labelled([("kept in", ", ".join(each["folder"] for each in summary["systems"].values()))])
