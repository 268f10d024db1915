"""From what was typed to what training takes: settings, data, workers. Without torch."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pprgnn.cli.options import AtOnce, TableDetails, Tables, spelled
from pprgnn.data.catalog import find, handle
from pprgnn.data.registry import attributes_file
from pprgnn.data.roots import data_root
from pprgnn.errors import DataError
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.recipes import find_recipe, recipe_names
from pprgnn.training.systems import find_system
from pprgnn.training.workers import Workers


def config_for(what: str | None, changes: Sequence[str] | None = None, model: str | None = None) -> Config:
    """The settings: of a recipe, or a system's usual ones for a data set; then the changes.

    For another system than a recipe's own, there may be a recipe (cora-gat for GAT on cora); otherwise only the
    data are taken from the recipe.
    """
    changes = list(changes or ())
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
    try:
        card = find(what, data_root())
    except DataError as error:
        close = difflib.get_close_matches(what.lower(), recipe_names(), 1)
        recipes = f"did you mean {close[0]!r}?" if close else "`pprgnn train --settings` lists them"
        raise TrainingError(f"{what!r} is neither a recipe ({recipes}) nor known data: {error}") from error
    numbers = {"data.options": {"node_attributes": True}} if attributes_file(card, data_root()) else {}
    return Config.for_task(card.task).with_values({"data.name": handle(card), **numbers})


def said_about_tables(tables: Tables, details: TableDetails) -> list[str]:
    """Which options were given that are about a user's own tables, other than --edges."""
    said = {
        "nodes": tables.nodes,
        "directed": details.directed or None,
        "header": details.header,
        "name": details.name,
        **details.named(tables.target),
    }
    return [spelled(key) for key, value in said.items() if value is not None]


def check_source(what: str | None, tables: Tables, details: TableDetails) -> None:
    """Either known data or the user's own tables."""
    if what is None and tables.edges is None:
        raise TrainingError("Expected a recipe or data set (see `pprgnn train --settings`), or --edges FILE.")
    if what is not None and tables.edges is not None:
        both = f"{what} and --edges {tables.edges}"
        raise TrainingError(f"Expected a data set or --edges, but {both} came; drop one.")
    said = said_about_tables(tables, details)
    if what is not None and said:
        raise TrainingError(
            f"{said[0]} is about your own tables (--edges), but {what} brings its own data; drop one of them."
        )


def chosen_workers(at_once: AtOnce) -> Workers | None:
    """How many trainings at once, and where; ``None``: not said."""
    jobs, backend, address = at_once.jobs or at_once.workers, at_once.backend, at_once.address
    said = (jobs, backend, address) != (None, None, None)
    return Workers(jobs or 1, backend or "loky", address or "") if said else None


def typed_command() -> str:
    """What was typed, for the record."""
    return shlex.join(["pprgnn", *sys.argv[1:]])
