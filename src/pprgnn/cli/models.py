"""`pprgnn models`: what can be trained, what each system reads, and how large it is on some data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pprgnn.cli.main import Models
from pprgnn.cli.output import settings_lines, show, show_json
from pprgnn.cli.train import config_for
from pprgnn.errors import DataError
from pprgnn.training.config import Config, ModelConfig, settings
from pprgnn.training.errors import TrainingError
from pprgnn.training.option import tomllib
from pprgnn.training.recipes import FOLDER, recipe_names
from pprgnn.training.systems import SYSTEMS, System, find_system
from pprgnn.training.terminal import is_terminal, labelled, paragraph, styled, table, width

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

KINDS = {
    "infinite": "Layers of infinite depth, in the same networks",
    "network": "Networks of their own",
    "kernel": "Graph kernels with a support vector machine",
    "labels": "Labels of other nodes alone",
}
INDENT = 4


def models(options: Models) -> None:
    """All systems, some of them, or how large they are on some data."""
    chosen = [find_system(name) for name in options.names or ()]
    if options.data is not None:
        found: Any = _sizes(chosen or SYSTEMS, options.data)
        lines = _size_lines(found)
    elif chosen:
        found = [_facts(system) | _settings(system) for system in chosen]
        lines = [line for each in found for line in ("", *_detail_lines(each))][1:]
        found = found[0] if len(found) == 1 else found
    else:
        found = [_facts(system) for system in SYSTEMS]
        lines = _list_lines(found)
    if options.as_json:
        show_json(found)
    else:
        show(lines)


# -------------------------------------------------------------------------------------------------------- the list
def _facts(system: System) -> dict[str, Any]:
    names = ("name", "title", "kind", "paper", "year", "link", "summary")
    return {name: getattr(system, name) for name in names} | {
        "tasks": list(system.tasks),
        "edge_weights": system.edge_weights,
        "new_graphs": system.new_graphs,
        "parameters": [name for name in system.reads if name != "architecture"] + list(system.own_names),
        "missing": system.missing,
    }


def _list_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each can do, under the title of its kind; below that what it is, its paper, and what can be set."""
    limit, yes = width(), ("no", "yes")
    rows = [
        {
            "name": each["name"],
            "title": each["title"],
            "year": str(each["year"]),
            "labels": ", ".join(f"{task}s" for task in each["tasks"]),
            "edge weights": yes[each["edge_weights"]],
            "new graphs": yes[each["new_graphs"]],
        }
        for each in found
    ]
    header, *lines = table(rows, ("title",), limit)
    shown, kind = [header], ""
    for each, line in zip(found, lines, strict=True):
        if each["kind"] != kind:
            kind = each["kind"]
            shown += ["", styled(KINDS[kind], bold=True)]
        missing = f" Needs {each['missing']}." if each["missing"] else ""
        shown += [line, paragraph(" " * INDENT, each["summary"] + missing, limit)]
        for label, text in (("paper", each["paper"]), ("parameters", ", ".join(each["parameters"]))):
            if text:
                shown.append(styled(paragraph(f"{' ' * INDENT}{label}: ", text, limit), dim=True))
    if is_terminal():
        more = "`pprgnn models NAME` tells more, `pprgnn train DATA --model NAME` trains one."
        shown += ["", styled(paragraph("", more, limit), dim=True)]
    return shown


# ----------------------------------------------------------------------------------------------------- one of them
def _settings(system: System) -> dict[str, Any]:
    """What it reads, with its usual values; where it trains otherwise than by default; recipes and an example."""
    read = [each for each in settings(system.name) if each.section.startswith("model") and each.name != "system"]
    usual, default = Config.for_system(system.name).training, Config().training
    training = {each.name: getattr(usual, each.name) for each in settings() if each.section == "training"}
    return {
        "settings": [
            {"key": each.key, "value": each.default, "kind": each.kind, "help": each.text} for each in read
        ],
        "training": {name: value for name, value in training.items() if value != getattr(default, name)},
        "recipes": [name for name in recipe_names() if _system_of(name) == system.name],
        "example": f"pprgnn train {'cora' if 'node' in system.tasks else 'mutag'} --model {system.name}",
    }


def _system_of(recipe: str) -> str:
    """Only this one line of a recipe: checking all lines of all recipes would take a while."""
    values = tomllib.loads((FOLDER / f"{recipe}.toml").read_text(encoding="utf-8"))
    name: str = values.get("model", {}).get("system", ModelConfig.system)
    return name


def _detail_lines(found: Mapping[str, Any]) -> list[str]:
    weights = "takes edges with weights" if found["edge_weights"] else "refuses edges with weights"
    unseen = (
        "can label graphs it has not seen" if found["new_graphs"] else "labels only the graph it was trained on"
    )
    facts = {
        "name": found["name"] + (f" ({found['title']})" * (found["title"] != found["name"])),
        "does": found["summary"],
        "paper": f"{found['paper']}, {found['year']}",
        "link": found["link"],
        "kind": KINDS[found["kind"]],
        "labels": " or ".join(f"{task}s" for task in found["tasks"]),
        "weights": weights,
        "graphs": unseen,
        "needs": f"{found['missing']}, which is missing" if found["missing"] else "",
        "recipes": ", ".join(found["recipes"]),
        "example": found["example"],
    }
    lines = labelled((key, text) for key, text in facts.items() if text)
    shown = (
        (each, each.default)
        for each in settings(found["name"])
        if each.name in found["training"] or (each.section.startswith("model") and each.name != "system")
    )
    return [*lines, *settings_lines(shown, training="[training], where not as `pprgnn train --settings` has it")]


# ----------------------------------------------------------------------------------------------------------- sizes
def _sizes(systems: Sequence[System], data: str) -> list[dict[str, Any]]:
    """How many parameters each would have in `pprgnn train DATA --model NAME`. Imports torch only now."""
    from pprgnn.training.train import load_data

    found: list[dict[str, Any]] = []
    loaded: dict[str, GraphDataset] = {}
    for system in systems:
        config = config_for(data, model=system.name)
        key = json.dumps([config.data.name, config.data.options])
        if key not in loaded:  # systems usually share them
            loaded[key] = load_data(config)
        dataset = loaded[key]
        try:
            parameters, why = _parameters(system, config, dataset), ""
        except DataError as error:  # of the system: it cannot be used with these data
            parameters, why = None, str(error)
        found.append({"name": system.name, "data": dataset.facts.name, "parameters": parameters, "why": why})
    return found


def _parameters(system: System, config: Config, dataset: GraphDataset) -> int:
    import torch

    from pprgnn.training.build import Shape, build_network, feature_kind, features
    from pprgnn.training.label_input import VisibleLabels

    if "edge_weight" in dataset._data and not system.edge_weights:
        raise TrainingError(f"{system.title} cannot use edge weights, but {dataset.facts.name} has some.")
    kind = feature_kind(dataset, config.data.features)
    nobody = torch.zeros(dataset.num_nodes, dtype=torch.bool)  # only the width matters here
    visible = VisibleLabels.of(dataset, nobody, kind)
    shape = Shape.of(dataset, features(dataset, kind, visible), bound=visible is not None)
    with torch.device("meta"):  # shapes without numbers
        network = build_network(config.model, shape)
    if system.kind == "kernel":
        raise TrainingError(f"{system.title} has support vectors instead of parameters.")
    return sum(each.numel() for each in network.parameters())


def _size_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row for each, with why it has no number."""
    header, *lines = table([{key: each[key] for key in ("name", "parameters")} for each in found], (), None)
    size = max(map(len, lines))
    pairs = zip(lines, found, strict=True)
    return [header, *(paragraph(f"{line:<{size}}  ", each["why"], width()).rstrip() for line, each in pairs)]
