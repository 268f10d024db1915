"""The page: sections and figures of one run, or of several side by side, in one file that needs no other."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pprgnn
from pprgnn.report.answer import answer, in_short, not_comparable, side_by_side
from pprgnn.report.classes import classes, features
from pprgnn.report.curves import depth_over_epochs, training_curves, weight_curves
from pprgnn.report.depth import convergence, cost, layers, truncation
from pprgnn.report.distance import decay, reach, smoothing
from pprgnn.report.provenance import commands, data_table, environment_table, measured_line, settings_table
from pprgnn.report.scores import against_others, folds
from pprgnn.report.shown import Section, Shown
from pprgnn.report.subject import Subject

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

CODE = re.compile("`([^`]+)`")
CERTIFICATE = (
    "A layer of infinite depth is computed to a finite one. The error of stopping there is measured against a "
    "pass so deep that only rounding is left, and bounded by a product that needs no such pass: the certificate."
)
DISTANCE = (
    "A message is multiplied by βₙ = 1/(1+nε) on its n-th hop. What arrives from far away depends on that, on the "
    "weights and on the graph."
)


def sections(subjects: Sequence[Subject]) -> list[Section]:
    """All figures, in the order in which one asks."""
    proof = [*convergence(subjects), *layers(subjects), depth_over_epochs(subjects), *truncation(subjects)]
    parts: list[tuple[str, str, str, list[Shown]]] = [
        ("result", "How good it is", "", [against_others(subjects), *folds(subjects)]),
        ("classes", "Class by class", "", classes(subjects)),
        ("training", "How training went", "", training_curves(subjects)),
        ("distance", "How far it sees", DISTANCE, [*reach(subjects), *decay(subjects), *smoothing(subjects)]),
        ("features", "Features", "", features(subjects)),
        ("depth", "Depth and its proof", CERTIFICATE, [*proof, *weight_curves(subjects)]),
        ("cost", "What it costs", "", cost(subjects)),
    ]
    return [Section(name, title, lead, _absent_last(shown)) for name, title, lead, shown in parts]


def _absent_last(shown: Sequence[Shown]) -> list[Shown]:
    """What is missing at the end, and together if for the same reason: it leaves no hole between figures."""
    absent: dict[str, list[Shown]] = {}
    for each in shown:
        if each.missing:
            absent.setdefault(each.missing, []).append(each)
    together = [
        replace(alike[0], title=" · ".join(dict.fromkeys(each.title for each in alike)))
        for alike in absent.values()
    ]
    return [*(each for each in shown if not each.missing), *together]


def render(subjects: Sequence[Subject], path: Path) -> str:
    """The page as text; ``path`` is only named on it."""
    several = len(subjects) > 1
    first, *_ = subjects
    title = " / ".join(each.name for each in subjects) if several else f"{first.system} on {first.data}"
    parts = sections(subjects)
    shown = {each.name: each for part in parts for each in part.figures}
    return fill(
        "report.html.j2",
        title=title,
        short=[] if several else in_short(first, shown),
        several=several,
        answers=[answer(each) for each in subjects],
        compared=side_by_side(subjects) if several else None,
        not_comparable=not_comparable(subjects) if several else [],
        sections=parts,
        commands=commands(subjects, path),
        differing=settings_table(subjects, only_different=True) if several else None,
        settings=settings_table(subjects),
        sources=[(each, environment_table(each), data_table(each), measured_line(each)) for each in subjects],
        version=pprgnn.__version__,
    )


def fill(template: str, **values: Any) -> str:
    """A template with its values; all that is not marked as safe is escaped."""
    script = _part("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = (
        _environment()
        .get_template(template)
        .render(style=_part("style.css"), script=script, script_hash=digest, **values)
    )
    return text.encode("utf-8", "replace").decode() + "\n"  # a path may hold what is no letter


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("pprgnn.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["coded"] = _coded
    return made


def _coded(text: str) -> Markup:
    """Text with what stands between backticks as code; the rest is escaped like all text."""
    from markupsafe import Markup, escape

    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


def _part(name: str) -> str:
    return (files("pprgnn.report") / "template" / name).read_text(encoding="utf-8").strip()
