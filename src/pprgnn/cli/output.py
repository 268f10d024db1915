"""How commands print: JSON, lines behind labels, tables under titles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from pprgnn.training.config import Setting
from pprgnn.training.terminal import labelled, paragraph, styled, table, width

Labelled = tuple[str, str]


def show_json(value: Any) -> None:
    """For programs."""
    typer.echo(json.dumps(value, indent=2))


def show(lines: Iterable[str]) -> None:
    """One line after the other."""
    for line in lines:
        typer.echo(line)


def show_labelled(lines: Iterable[Labelled], indent: int = 9) -> None:
    """Texts behind their labels."""
    show(labelled(lines, indent))


def under(label: str, texts: Iterable[str]) -> list[Labelled]:
    """Several texts, the first of them behind the label."""
    return [("" if number else label, text) for number, text in enumerate(texts)]


def show_hint(text: str) -> None:
    """What can be done next."""
    typer.echo(styled(text, dim=True))


def show_table(title: str, rows: Sequence[Mapping[str, Any]], droppable: Sequence[str] = ()) -> None:
    """A table under its title, without some of the columns in a narrow window; nothing without rows."""
    if rows:
        typer.echo(f"\n{styled(title, bold=True)}")
        show(table(rows, [key for key in droppable if key in rows[0]], width()))


def settings_lines(values: Iterable[tuple[Setting, Any]], **titles: str) -> list[str]:
    """Settings, their values and what they mean, each section under its name or title."""
    lines, section = [], ""
    for setting, value in values:
        if setting.section != section:
            section = setting.section
            lines += ["", styled(titles.get(section, f"[{section}]"), bold=True)]
        shown = value if isinstance(value, str) else json.dumps(value)
        label = f"  {setting.name + ' = ' + shown:<30} "
        lines.append(paragraph(label, f"{setting.text} ({setting.kind})", width()))
    return lines
