"""`pprgnn doctor`: what this machine and this installation are like, whether they work, and what to improve."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import typer

from pprgnn.cli.main import Doctor
from pprgnn.cli.output import show_json
from pprgnn.data.catalog import CATALOG
from pprgnn.data.registry import state
from pprgnn.data.roots import cache_root, data_root
from pprgnn.errors import DataError
from pprgnn.training import checkup
from pprgnn.training.environment import EXTRAS, environment
from pprgnn.training.terminal import paragraph, state_word, styled, width

GIB = 1 << 30


def doctor(options: Doctor) -> None:
    """Show what is found; broken things end it with 1."""
    findings = examine()
    if options.as_json:
        show_json(findings)
    else:
        for label, text in _summary(findings).items():
            _show(label, text, bold=True)
        for line in findings["advice"]:
            _show("advice", line, fg="yellow", bold=True)
        for line in findings["broken"]:
            _show("broken", line, fg="red", bold=True)
    if findings["broken"]:
        raise typer.Exit(1)


def examine() -> dict[str, Any]:
    """Everything that `pprgnn doctor --json` prints."""
    broken = checkup.import_problems()
    check: dict[str, Any] = {"error": None, "ok": False}
    speed = None
    if not broken:
        check, speed = _measure(broken)
    facts = environment()
    cache = cache_root()
    writable, free = checkup.disk(cache)
    lines = checkup.advice(facts, speed, os.getloadavg()[0] if hasattr(os, "getloadavg") else None)
    if not writable:
        broken.append(f"The cache {cache} cannot be written: set PPRGNN_CACHE to a folder of yours.")
    elif free < checkup.LOW_DISK:
        lines.append(f"Only {free / GIB:.1f} GiB are free on the disk of {cache}: prepared graphs go there.")
    sets: dict[str, str] = {}
    try:
        root = data_root()
        sets = {card.name: state(card, root).word for card in CATALOG}
    except DataError as error:
        broken.append(str(error))
    return {
        "environment": facts,
        "data": sets,
        "cache": {"folder": str(cache), "writable": writable, "free": free},
        "check": check,
        "kernel_speed": speed,
        "advice": lines,
        "broken": broken,
    }


def _measure(broken: list[str]) -> tuple[dict[str, Any], float | None]:
    try:
        error = checkup.self_check()
        speed = checkup.kernel_speed()
    except Exception as problem:  # whatever it is, it is what the doctor is asked about
        broken.append(f"A small solve fails: {type(problem).__name__}: {problem}")
        return {"error": None, "ok": False}, None
    ok = error <= checkup.ALLOWED_ERROR  # not when it is NaN
    if not ok:
        broken.append(
            f"A small solve is off by {error:.1e} from the dense reference, where {checkup.ALLOWED_ERROR:.0e} is "
            f"allowed: try PPRGNN_KERNEL=torch, and install pprgnn anew if that helps."
        )
    return {"error": error, "ok": ok}, speed


def _summary(findings: Mapping[str, Any]) -> dict[str, str]:
    """Label and text of every line."""
    facts, check, speed = findings["environment"], findings["check"], findings["kernel_speed"]
    cores, memory, threads, blas = (facts[name] for name in ("cores", "memory", "threads", "blas"))
    quota = f", {cores['quota']:g} by quota" if cores["quota"] else ""
    versions = ", ".join(f"{name} {number or 'missing'}" for name, number in facts["versions"].items())
    commit = f" (commit {facts['commit']})" if facts["commit"] else ""
    lines = {
        "machine": f"{facts['cpu'] or 'unknown processor'}; {cores['physical'] or '?'} cores, {cores['allowed']} "
        f"processors to use{quota}; {_size(memory['available'])} of {_size(memory['total'])} memory available",
        "system": f"{facts['platform']}, Python {facts['python']}",
        "packages": versions + commit,
        "extras": _extras(facts["extras"]),
    }
    if threads is not None:
        parts = [
            f"{threads['torch']} of torch (1 for small graphs)",
            blas["library"],
            f"OpenMP {blas['openmp']}",
            blas["instructions"],
        ]
        lines["threads"] = ", ".join(part for part in parts if part and not part.endswith("None"))
        lines["kernel"] = facts["kernel"] + ("" if speed is None else f", {speed:.1f} times as fast as torch")
        lines["device"] = ", ".join([facts["device"], *facts["gpus"]])
    words = Counter(findings["data"].values())
    known = ", ".join(f"{count} {word}" for word, count in words.items()) or "unknown"
    lines["data"] = f"{known} (in {facts['data_root']})"
    cache = findings["cache"]
    lines["cache"] = f"{cache['folder']}, {_size(cache['free'])} free"
    solved = "not run" if check["error"] is None else f"error {check['error']:.0e} against a dense reference"
    return lines | {"check": f"{state_word('ok' if check['ok'] else 'bad')}, {solved}"}


def _extras(extras: Mapping[str, str | None]) -> str:
    there = ", ".join(f"{name} {number}" for name, number in extras.items() if number)
    missing = [name for name, number in extras.items() if number is None]
    if not missing:
        return there
    wanted = ",".join(dict.fromkeys(EXTRAS[name] for name in missing))
    remedy = f"missing: {', '.join(missing)} (pip install 'pprgnn[{wanted}]')"
    return f"{there}; {remedy}" if there else remedy


def _show(label: str, text: str, **style: Any) -> None:
    """A paragraph whose label is in a style, which comes last: its codes must not count as width."""
    plain = paragraph(f"{label:<9}", text, width())
    typer.echo(styled(plain[: len(label)], **style) + plain[len(label) :])


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{size / GIB:.1f} GiB"
