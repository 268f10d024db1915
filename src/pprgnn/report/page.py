"""The pages as HTML: all sections of a report and where it comes from, and the page of all results."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pprgnn
from pprgnn.data.catalog import find
from pprgnn.data.download import known_checksums, sha256
from pprgnn.data.registry import folder_of
from pprgnn.data.roots import data_root
from pprgnn.drawing import canvas
from pprgnn.drawing.plot import Plot, side_by_side
from pprgnn.errors import DataError
from pprgnn.experiments import EXPERIMENTS
from pprgnn.experiments.figures import Pictures, size
from pprgnn.experiments.page import SECTIONS
from pprgnn.experiments.summary import Results
from pprgnn.report.classes import classes, features
from pprgnn.report.curves import depth_over_epochs, training_curves, weight_curves
from pprgnn.report.depth import convergence, cost, layers, truncation
from pprgnn.report.distance import decay, reach, smoothing
from pprgnn.report.scores import against_others, answer, compared, folds, in_short, not_comparable
from pprgnn.report.shown import Section, Shown, Table
from pprgnn.report.subject import Subject
from pprgnn.training.config import settings
from pprgnn.training.run import CONFIG, DATA
from pprgnn.wording import counted, memory

if TYPE_CHECKING:
    from jinja2 import Environment
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from pprgnn.experiments.store import Store

CODE = re.compile("`([^`]+)`")
CERTIFICATE = (
    "A layer of infinite depth is computed to a finite one. The error of stopping there is measured against a "
    "pass so deep that only rounding is left, and bounded by a product that needs no such pass: the certificate."
)
DISTANCE = (
    "A message is multiplied by βₙ = 1/(1+nε) on its n-th hop. What arrives from far away depends on that, on the "
    "weights and on the graph."
)
NOT_IN_AN_ANCHOR = re.compile(r"[^\w\- ]")


# --------------------------------------------------------------------------------------------- where it comes from
def settings_table(subjects: Sequence[Subject], only_different: bool = False) -> Table:
    """Every setting of every run, and what it means."""
    flat = [_flat(each.config.to_dict()) for each in subjects]
    texts = {each.key: each.text for subject in subjects for each in settings(subject.config.model.system)}
    keys = list(dict.fromkeys(key for each in flat for key in each))
    rows = [[key, *(each.get(key, "–") for each in flat), texts.get(key, "")] for key in keys]
    if only_different:
        rows = [row for row in rows if len(set(row[1:-1])) > 1]
    names = [each.name for each in subjects] if len(subjects) > 1 else ["value"]
    return Table(["setting", *names, "meaning"], rows, kind="text")


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{before}{key}.")
        else:
            written = str(value).lower() if isinstance(value, bool) else str(value)
            found[f"{before}{key}"] = "–" if value in ({}, "") else written
    return found


def environment_table(subject: Subject) -> Table:
    """Machine and versions."""
    facts = subject.environment
    cores, space, threads = (facts.get(key) or {} for key in ("cores", "memory", "threads"))
    rows = [
        ["processor", f"{facts.get('cpu') or 'unknown'}, {cores.get('logical', '?')} logical cores"],
        ["memory", memory(space["total"]) if space.get("total") else "unknown"],
        ["threads", f"{threads.get('torch', '?')} of torch"],
        ["device", ", ".join([str(facts.get("device")), *(facts.get("gpus") or ())])],
        ["kernel", str(facts.get("kernel") or "torch operations")],
        ["system", f"{facts.get('platform')}, Python {facts.get('python')}"],
        *([name, str(version)] for name, version in (facts.get("versions") or {}).items()),
        ["commit", str(facts.get("commit") or "not known: not run from a checkout")],
        ["started", str(facts.get("started") or "unknown")],
    ]
    return Table(["", "of the run"], rows, kind="text")


def data_table(subject: Subject) -> Table:
    """What tells these data, this split and this model from others."""
    split = subject.split
    sizes = ", ".join(f"{len(getattr(split, part)):,} {part}" for part in ("train", "val", "test"))
    rows = [
        ["labels and graph sizes", f"fingerprint {split.fingerprint}"],
        ["split", f"{split.description} {sizes} {split.unit}s; digest {split.digest()}"],
        ["model", f"fingerprint {subject.measured.fingerprint}"],
        *_files(subject),
    ]
    return Table(["", "of the data"], rows, kind="text")


def _files(subject: Subject) -> list[list[str]]:
    """The files of the data with their SHA-256, compared with the published ones as far as they are here."""
    own = next((path for path in (subject.folder / DATA, subject.detail_folder / DATA) if path.is_file()), None)
    if own is not None:
        return [[own.name, f"SHA-256 {sha256(own, gzipped=False)} (the copy in the run)"]]
    try:
        root = data_root()
        card = find(subject.config.data.name, root)
    except DataError:
        return [["files", f"{subject.config.data.name} is not among the known data"]]
    rows = []
    for source in card.sources:
        for name in source.files:
            full, path = f"{source.folder}/{name}", folder_of(card, source, root) / name
            if not (source.optional and not path.is_file()):
                rows.append([full, _checked(path, full)])
    return rows or [["files", "none: the data are generated from the settings"]]


def _checked(path: Path, name: str) -> str:
    expected = known_checksums().get(name)
    if not path.is_file():
        return f"SHA-256 {expected} as published; the file is not here now" if expected else "not here now"
    try:
        found = sha256(path, gzipped=name.endswith(".gz"))
    except (OSError, EOFError):
        return "cannot be read"
    if expected is None:
        return f"SHA-256 {found} (not in the list)"
    return f"SHA-256 {found} ({'as published' if found == expected else 'NOT as published'})"


def commands(subjects: Sequence[Subject], page: Path) -> list[tuple[str, str]]:
    """What made each run, what repeats it, and what makes this page again."""
    lines = []
    for each in subjects:
        which = each.label or f"this {'study' if each.is_study else 'run'}"
        if each.command:
            lines.append((f"made {which}", each.command))
        lines.append((f"repeats {which}", _repeat(each)))
    folders = [str(each.folder) for each in subjects]
    return [*lines, ("makes this page again", shlex.join(["pprgnn", "report", *folders, "-o", str(page)]))]


def _repeat(subject: Subject) -> str:
    words = ["pprgnn", "train", str(subject.folder / CONFIG), "-o", "NEW_FOLDER"]
    if subject.is_study:
        chosen, seeds = ({each[key] for each in subject.members} for key in ("fold", "seed"))
        words += ["--folds", str(len(chosen))] if len(chosen) > 1 else []
        words += ["--seeds", str(len(seeds))] if len(seeds) > 1 else []
    return shlex.join(words)


def measured_line(subject: Subject) -> str:
    """When, where and by which code the figures were measured."""
    found = subject.measured
    commit = f", commit {found.commit[:12]}" if found.commit else ""
    took = counted(max(1, round(found.seconds)), "second")
    return f"Measured on {found.date[:10]} in {took} on {found.machine}{commit}."


# -------------------------------------------------------------------------------------------------------- the page
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
        compared=compared(subjects) if several else None,
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
    from markupsafe import Markup, escape

    made = Environment(
        loader=PackageLoader("pprgnn.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # What stands between backticks is code; the rest is escaped like all text.
    made.filters["coded"] = lambda text: Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))
    return made


def _part(name: str) -> str:
    return (files("pprgnn.report") / "template" / name).read_text(encoding="utf-8").strip()


# ----------------------------------------------------------------------------------------- the page of all results
class Collected(Pictures):
    """Remembers what a picture shows instead of drawing it."""

    def __init__(self, page: Path, folder: Path) -> None:
        super().__init__(page, folder)
        self.plots: dict[str, Sequence[Plot]] = {}

    def add(self, name: str, plots: Sequence[Plot], says: str) -> list[str]:
        self.plots[self.link(name)] = plots
        return []


def render_results(store: Store, page: Path) -> str:
    """The page as HTML."""
    pictures = Collected(page, store.folder / "figures")
    for experiment in EXPERIMENTS.values():
        SECTIONS[experiment.name](Results.read(experiment, store), pictures)
    markdown = _markdown(pictures)
    tokens = markdown.parse(page.read_text(encoding="utf-8"))
    contents = []
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = NOT_IN_AN_ANCHOR.sub("", text.content.lower()).replace(" ", "-")  # what GitHub calls it
            opening.attrSet("id", anchor)
            if opening.tag == "h2":
                contents.append((anchor, text.content))
    # Markup in the text is shown as it was typed; only the line breaks in cells of tables are taken as such.
    body = markdown.renderer.render(tokens, markdown.options, {}).replace("&lt;br&gt;", "<br>")
    return fill("results.html.j2", title="Results", contents=contents, body=body, version=pprgnn.__version__)


def _markdown(pictures: Collected) -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markupsafe import escape

    def image(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
        says, link = tokens[place].content, unquote(str(tokens[place].attrGet("src")))
        if link not in pictures.plots:
            return f"<em>{escape(says)}</em>"
        plots = pictures.plots[link]
        drawing = canvas.svg(Path(link).stem, says, size(plots), lambda figure: side_by_side(figure, plots))
        return f'<span class="drawing">{drawing}</span>'

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("image", image)
    markdown.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>')
    markdown.add_render_rule("table_close", lambda *_: "</table></div>")
    return markdown
