"""Where a page comes from: settings, machine, commit, data, and the commands that make it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pprgnn.data.catalog import find
from pprgnn.data.download import known_checksums, sha256
from pprgnn.data.registry import folder_of
from pprgnn.data.roots import data_root
from pprgnn.errors import DataError
from pprgnn.report.shown import Table
from pprgnn.report.subject import Subject
from pprgnn.report.wording import counted, memory
from pprgnn.training.config import settings
from pprgnn.training.run import CONFIG, DATA

VERDICTS = {"ok": "as published", "bad": "NOT as published", "missing": "not here", "unknown": "not in the list"}


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
            found[f"{before}{key}"] = (
                "–"
                if value in ({}, "")
                else str(value).lower()
                if value in (True, False) and isinstance(value, bool)
                else str(value)
            )
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
    return f"SHA-256 {found} ({VERDICTS['unknown' if expected is None else 'ok' if found == expected else 'bad']})"


def commands(subjects: Sequence[Subject], page: Path) -> list[tuple[str, str]]:
    """What made each run, what repeats it, and what makes this page again."""
    lines, several = [], len(subjects) > 1
    for each in subjects:
        of = f" {each.name}" if several else " this run" if not each.is_study else " this study"
        if each.command:
            lines.append((f"made{of}", each.command))
        lines.append((f"repeats{of}", _repeat(each)))
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
