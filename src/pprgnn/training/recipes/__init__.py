"""Recipes that ship with the package: settings for known data, as TOML files in this folder."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def recipe_names() -> list[str]:
    """The names of all recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_recipe(name: str) -> Path | None:
    """A recipe's file: the path itself, or a shipped one by its name; None: there is none."""
    if name.endswith(".toml"):
        return Path(name)
    shipped = FOLDER / f"{name.lower()}.toml"
    return shipped if shipped.is_file() else None
