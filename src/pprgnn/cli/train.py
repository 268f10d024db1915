"""`pprgnn train`: from a recipe, a data set or a user's own tables to a run."""

from __future__ import annotations

import contextlib
import difflib
import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.cli.processes import folder_of_all, joined, new_folder, start_processes
from pprgnn.cli.report import WantedReport, write_after_training
from pprgnn.cli.tables import (
    COLUMNS,
    READING,
    Directed,
    Edges,
    Header,
    Name,
    Nodes,
    Target,
    aligned_columns,
    named_columns,
    spelled,
    takes,
)
from pprgnn.distributed.launch import is_launched, is_restarted
from pprgnn.training.config import Config, Setting, settings
from pprgnn.training.errors import TrainingError
from pprgnn.training.recipes import find_recipe, recipe_names
from pprgnn.training.run import CONFIG, Run
from pprgnn.training.systems import find_system, find_systems
from pprgnn.training.terminal import paragraph, styled, width
from pprgnn.wording import counted

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset
    from pprgnn.distributed.team import Team
    from pprgnn.training.comparison import Comparison
    from pprgnn.training.listener import Listener
    from pprgnn.training.workers import Workers

ONE_RUN = "--jobs and --backend are for several trainings, but this is one; say which with --folds or --seeds."
STOPPED = 130  # what a shell reports for Ctrl-C
What = Annotated[
    str | None,
    typer.Argument(
        metavar="[WHAT]", help="A .safetensors graph, a known data set, or a recipe (.toml or a name)."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a setting; --settings lists them. Repeatable."),
]
System = Annotated[
    str | None, typer.Option("--model", "-m", metavar="NAME", help="Which system; `pprgnn models` lists them.")
]
Systems = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME[,NAME...]",
        help="Which system; `pprgnn models` lists them. Several, as in pprgnn,gcn,appnp, are compared on the same "
        "splits.",
    ),
]
Jobs = Annotated[int | None, typer.Option("--jobs", help="Trainings at once, one CPU thread each.", min=1)]
OldJobs = Annotated[int | None, typer.Option("--workers", hidden=True, min=1)]  # as --jobs was called before
Backend = Annotated[str | None, typer.Option(metavar="NAME", help="Where: loky (this machine), dask or ray.")]
Address = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Of the Dask or Ray cluster.")]
Json = Annotated[bool, typer.Option("--json", help="The summary as JSON, for programs; no progress.")]


@takes("given", COLUMNS | READING)
def train_command(
    what: What = None,
    edges: Edges = None,
    nodes: Nodes = None,
    target: Target = None,
    model: Systems = None,
    changes: Set = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Of the run; runs/... by default.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with this run; with --set epochs=N, also beyond its end."),
    ] = None,
    folds: Annotated[
        str | None, typer.Option(metavar="N|all", help="Train once per split: 'all', or how many.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Train once per seed.", min=1)] = 1,
    ensemble: Annotated[
        bool, typer.Option("--ensemble", help="Score the seeds of a split together, too.")
    ] = False,
    nproc: Annotated[
        int | None,
        typer.Option(help="So many processes train together: parts of one graph, or many graphs.", min=1),
    ] = None,
    restarts: Annotated[
        int, typer.Option(help="With --nproc: how often to go on by itself after a failure.", min=0)
    ] = 0,
    jobs: Jobs = None,
    workers_before: OldJobs = None,
    backend: Backend = None,
    address: Address = None,
    given: Any = None,
    directed: Directed = False,
    header: Header = None,
    name: Name = None,
    as_json: Json = False,
    report: WantedReport = True,
    show_settings: Annotated[
        bool, typer.Option("--settings", help="List all settings with their defaults, and the recipes.")
    ] = False,
) -> None:
    """Train a model.

    On your own tables, on a known data set, or by a recipe. Every run is a folder; Ctrl-C saves, --resume goes on.
    """
    from pprgnn.training.comparison import Comparison, is_comparison

    jobs = jobs or workers_before
    systems = [None] if model is None else [system.name for system in find_systems(model)]
    if show_settings:
        for system in systems:
            for line in _settings_lines(config_for(what, changes or [], system)):
                typer.echo(line)
        return
    named = named_columns(given, target)
    own = {"nodes": nodes, "directed": directed or None, "header": header, "name": name, **named}
    own = {key: value for key, value in own.items() if value is not None}
    if resume is not None:
        if what is not None or edges is not None or model or own:
            raise TrainingError(
                "--resume takes all settings from the run's folder; leave out everything but --set epochs=N."
            )
        if is_comparison(resume):
            if changes:
                raise TrainingError(f"{resume} holds several systems, whose settings are fixed; leave out --set.")
            workers = chosen_workers(jobs, backend, address)
            _compare(Comparison.open(resume), workers, as_json, report)
            return
        if nproc is not None and not is_launched():
            start_processes(nproc, restarts, resume, resumed=True)
            return
        with _team(Run.open(resume).config.training.device) as team:
            summary = _resume(resume, changes or [], as_json, chosen_workers(jobs, backend, address), team)
            _finish(summary, as_json, team)
        if report and team.leads:
            write_after_training(summary, as_json)
        return
    check_source(what, edges, own)
    configs = [config_for(what, changes or [], system) for system in systems]
    config = configs[0]
    workers = chosen_workers(jobs, backend, address)
    several = folds is not None or seeds > 1
    if workers is not None and not workers.is_this_process and not several:
        raise TrainingError(ONE_RUN)
    if (several or len(configs) > 1) and (nproc is not None or is_launched()):
        raise TrainingError("Several processes train one model; for several trainings at once use --jobs.")
    repeats: dict[str, Any] = {"folds": _wanted_folds(folds), "seeds": seeds, "ensemble": ensemble}
    repeats |= {"workers": workers or 1, "command": typed_command()}
    stem = name or Path(edges).stem if edges is not None else Path(config.data.name).stem
    if nproc is not None and not is_launched():
        start_processes(nproc, restarts, output or new_folder(stem), resumed=False)
        return
    with _team(config.training.device) as team:
        dataset = None
        if edges is not None:
            dataset = own_tables(edges, nodes, name, header, directed, named, as_json or not team.leads)
            configs = [each.with_values({"data.name": dataset.facts.name}) for each in configs]
            config, stem = configs[0], Path(dataset.facts.name).stem
        folder = folder_of_all(output, stem, team)
        if len(configs) > 1:
            comparison = Comparison.create(folder, configs, dataset, **repeats)
            _compare(comparison, workers, as_json, report)
            return
        if several:
            summary = _several(config, dataset, folder, repeats, as_json)
        else:
            summary = _train(config, dataset, folder, as_json, team)
        _finish(summary, as_json, team)
    if report and team.leads:  # the others have left: nobody waits for the page
        write_after_training(summary, as_json)


@contextlib.contextmanager
def _team(device: str) -> Iterator[Team]:
    """The processes that train together, if torchrun has started this one as one of several."""
    from pprgnn.distributed.team import Team

    if is_launched():
        with joined(device) as team:
            yield team
    else:
        yield Team.alone()


# --------------------------------------------------------------------------------------------------- what is meant
def config_for(what: str | None, changes: list[str], model: str | None = None) -> Config:
    """The settings: of a recipe, or a system's usual ones for a data set; then the changes.

    For another system than a recipe's own, there may be a recipe (cora-gat for GAT on cora); otherwise only the
    data are taken from the recipe.
    """
    if model is None:
        return _of_recipe(what).with_settings(changes)
    system = find_system(model).name
    special = None if what is None else find_recipe(f"{what}-{system}")
    if special is not None:
        return Config.from_toml(special).with_settings(changes)
    return _of_recipe(what).with_values({"model.system": system}).with_settings(changes)


def _of_recipe(what: str | None) -> Config:
    config = Config.for_task("node")
    if what is not None:
        recipe = find_recipe(what)
        if recipe is not None:
            config = Config.from_toml(recipe)
            relative = recipe.parent / config.data.name
            if config.data.name.endswith(".safetensors") and relative.is_file():  # beside the recipe
                config = config.with_values({"data.name": str(relative.resolve())})
        elif what.endswith(".safetensors"):
            config = config.with_values({"data.name": str(Path(what).resolve())})
        else:
            config = _of_known(what)
    return config


def _of_known(what: str) -> Config:
    """The usual settings for a data set that has no recipe of its own."""
    from pprgnn.data.catalog import find, handle
    from pprgnn.data.roots import data_root
    from pprgnn.errors import DataError

    try:
        card = find(what, data_root())
    except DataError as error:
        close = difflib.get_close_matches(what.lower(), recipe_names(), 1)
        recipes = f"did you mean {close[0]!r}?" if close else "`pprgnn train --settings` lists them"
        raise TrainingError(f"{what!r} is neither a recipe ({recipes}) nor known data: {error}") from error
    return Config.for_task(card.task).with_values({"data.name": handle(card)})


def check_source(what: str | None, edges: Path | None, own: Mapping[str, Any]) -> None:
    """Either known data or the user's own tables; ``own`` is what was said about the latter."""
    if what is None and edges is None:
        raise TrainingError("Expected a recipe or data set (see `pprgnn train --settings`), or --edges FILE.")
    if what is not None and edges is not None:
        raise TrainingError(f"Expected a data set or --edges, but {what} and --edges {edges} came; drop one.")
    if what is not None and own:
        raise TrainingError(
            f"{spelled(next(iter(own)))} is about your own tables (--edges), but {what} brings its own data; drop "
            f"one of them."
        )


def own_tables(
    edges: Path, nodes: Path | None, name: str | None, header: bool | None, directed: bool, named: Any, quiet: bool
) -> GraphDataset:
    """The user's own labelled graph; tells what was guessed unless ``quiet``."""
    from pprgnn.data.own.tables import from_tables

    dataset = from_tables(edges, nodes, name=name, header=header, directed=directed, **named)
    if not dataset.facts.class_names:
        raise TrainingError("There is nothing to learn: name the column of the label with --target.")
    if not quiet:
        for i, line in enumerate(aligned_columns(dataset.facts.columns)):
            typer.echo(paragraph("columns  " if i == 0 else "         ", line, width()))
        for i, note in enumerate(dataset.facts.guessed):
            typer.echo(paragraph("guessed  " if i == 0 else "         ", note, width()))
    return dataset


# --------------------------------------------------------------------------------------------------------- running
def _train(config: Config, dataset: GraphDataset | None, folder: Path, quiet: bool, team: Team) -> dict[str, Any]:
    from pprgnn.training.train import resume, train

    listener = _listener(quiet, team)
    told: dict[str, Any] = {"listener": listener, "team": team}
    with _ending_well(folder, listener):
        if is_restarted() and team.shared((folder / CONFIG).is_file()):
            trained = resume(folder, **told)
        else:
            trained = train(config, dataset=dataset, folder=folder, command=typed_command(), **told)
    return trained.summary | {"folder": str(folder)}


def _listener(quiet: bool, team: Team) -> Listener | None:
    """Who shows how it goes: one of the processes does, unless nobody should."""
    from pprgnn.training.listener import Mute
    from pprgnn.training.view import view

    return Mute() if not team.leads else None if quiet else view()


def chosen_workers(jobs: int | None, backend: str | None, address: str | None) -> Workers | None:
    """How many trainings at once, and where; ``None``: not said."""
    from pprgnn.training.workers import Workers

    said = (jobs, backend, address) != (None, None, None)
    return Workers(jobs or 1, backend or "loky", address or "") if said else None


def _resume(folder: Path, changes: list[str], quiet: bool, workers: Workers | None, team: Team) -> dict[str, Any]:
    from pprgnn.training.study import Study, is_study
    from pprgnn.training.train import resume

    if is_study(folder):
        if changes:
            raise TrainingError(f"{folder} holds several runs, whose settings are fixed; leave out --set.")
        with _ending_well(folder):
            return Study.open(folder, workers).run(_listeners(quiet))
    if workers is not None and not workers.is_this_process:
        raise TrainingError(ONE_RUN)
    listener = _listener(quiet, team)
    with _ending_well(folder, listener):
        trained = resume(folder, changes=changes, listener=listener, team=team)
    return trained.summary | {"folder": str(folder)}


def _wanted_folds(folds: str | None) -> int | None:
    if folds is not None and folds != "all" and not (folds.isdigit() and int(folds) > 0):
        raise TrainingError(f"--folds must be 'all' or a number from 1 on, but is {folds!r}.")
    return None if folds is None else -1 if folds == "all" else int(folds)


def _several(
    config: Config, dataset: GraphDataset | None, folder: Path, repeats: dict[str, Any], quiet: bool
) -> dict[str, Any]:
    from pprgnn.training.study import Study

    study = Study.create(folder, config, dataset, **repeats)
    with _ending_well(folder):
        return study.run(_listeners(quiet))


def _compare(comparison: Comparison, workers: Workers | None, as_json: bool, report: bool) -> None:
    """Train all systems, then one table and one page about all of them."""
    with _ending_well(comparison.folder):
        summary = comparison.run(_listeners(as_json), workers)
    _finish(summary, as_json)
    if report and summary["systems"]:
        write_after_training(summary, as_json)
    if summary["failed"]:
        raise typer.Exit(1)


def _listeners(quiet: bool) -> Any:
    from pprgnn.training.view import view

    return (lambda label: None) if quiet else (lambda label: view(f"{label}: "))


@contextlib.contextmanager
def _ending_well(folder: Path, listener: Any = None) -> Iterator[None]:
    """Whatever happens, the live line ends; who stopped it at once is told how to go on."""
    from pprgnn.training.comparison import is_comparison

    try:
        yield
    except KeyboardInterrupt as error:
        kept = (folder / CONFIG).is_file() or is_comparison(folder)
        raise KeyboardInterrupt(f"go on with `pprgnn train --resume {folder}`." if kept else "") from error
    finally:
        if hasattr(listener, "stop"):
            listener.stop()


def typed_command() -> str:
    """What was typed, for the record."""
    return shlex.join(["pprgnn", *sys.argv[1:]])


# --------------------------------------------------------------------------------------------------------- the end
def _finish(summary: dict[str, Any], as_json: bool, team: Team | None = None) -> None:
    if team is not None and not team.leads:
        if not summary["finished"]:
            raise typer.Exit(STOPPED)
        return
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    elif "systems" in summary:
        _show_comparison(summary)
    elif "runs" in summary:
        _show_study(summary)
    else:
        _show(summary)
    if not summary["finished"] and not summary.get("failed"):
        if not as_json:
            when = f" after epoch {summary['epochs']}" if "epochs" in summary else ""
            typer.echo(f"Stopped{when}; go on with `pprgnn train --resume {summary['folder']}`.")
        raise typer.Exit(STOPPED)


def _show(summary: dict[str, Any]) -> None:
    from pprgnn.training.view import clock, layer_table, remarks, score_table

    typer.echo()
    for line in (*score_table(summary), ""):
        typer.echo(line)
    who = "the test part" if summary["test_chose_the_epoch"] else "validation"
    chosen = f"epoch {summary['best_epoch']} of {summary['epochs']}, chosen by {who}"
    if "chosen" in summary:  # graph kernels and label propagation have no epochs
        values = ", ".join(f"{name} = {value:g}" for name, value in summary["chosen"].items())
        chosen = f"{values}, chosen by {summary.get('chosen_by', 'cross-validation')} among {summary['epochs']}"
    chosen += f"; {clock(summary['seconds'])}"
    for line in remarks(summary):
        typer.echo(line)
    for label, text in (("weights", chosen), ("kept in", summary["folder"])):
        typer.echo(paragraph(f"{label:<9}", text, width()))
    if summary["note"]:
        typer.echo(paragraph(f"{'note':<9}", summary["note"], width()))
    for line in ("", *layer_table(summary["layers"]), "") if summary["layers"] else ():
        typer.echo(line)
    if summary["finished"]:
        typer.echo(styled(f"`pprgnn predict {summary['folder']} -o predictions.csv` uses it.", dim=True))


def _show_study(summary: dict[str, Any]) -> None:
    from pprgnn.training.view import aligned, percent

    metric = summary["metric"]
    parts = [part for part in ("val", "test") if part in summary["mean"]]
    rows = [["run", *(f"{part} {metric}" for part in parts), "epoch"]]
    rows += [
        [each["run"], *(percent(each["scores"][part][metric]) for part in parts), str(each["best_epoch"])]
        for each in summary["runs"]
    ]
    typer.echo()
    for line in aligned(rows) if summary["runs"] else ():
        typer.echo(line)
    for part in parts:
        mean, std = summary["mean"][part][metric], summary["std"][part][metric]
        runs = counted(len(summary["runs"]), "run")
        typer.echo(f"{part} {metric}: {percent(mean)} ± {percent(std)} over {runs}")
    known = {name: values.get(metric) for name, values in (summary.get("trivial") or {}).items()}
    trivial = ", ".join(f"{name} {percent(value)}" for name, value in known.items() if value is not None)
    if trivial:
        typer.echo(f"test {metric} without looking at anything: {trivial}")
    if "ensemble" in summary:
        mean, std = (summary["ensemble"][what]["test"][metric] for what in ("mean", "std"))
        typer.echo(f"test {metric} of the seeds together: {percent(mean)} ± {percent(std)} over the splits")
    splits = summary.get("splits", ())  # those of folds are numbered
    for label, text in ([("split", splits[0])] if len(splits) == 1 else []) + [("kept in", summary["folder"])]:
        typer.echo(paragraph(f"{label:<9}", text, width()))


def _show_comparison(summary: dict[str, Any]) -> None:
    from pprgnn.training.view import comparison_table

    typer.echo()
    for line in comparison_table(summary["systems"]):
        typer.echo(line)
    for name, why in summary["failed"].items():
        typer.echo(paragraph(f"{name} failed: ", why, width()))
    typer.echo(
        paragraph(f"{'kept in':<9}", ", ".join(each["folder"] for each in summary["systems"].values()), width())
    )


def _settings_lines(config: Config) -> list[str]:
    lines, section = [], ""
    for each in settings(config.model.system):
        if each.section != section:
            section = each.section
            lines += ["", styled(f"[{section}]", bold=True)]
        lines.append(setting_line(each, config.value(each.key)))
    return [*lines[1:], "", paragraph("Recipes: ", ", ".join(recipe_names()), width())]


def setting_line(setting: Setting, value: Any) -> str:
    """A setting, its value, and what it means."""
    shown = value if isinstance(value, str) else json.dumps(value)
    label = f"  {setting.name + ' = ' + shown:<30} "
    return paragraph(label, f"{setting.text} ({setting.kind})", width())
