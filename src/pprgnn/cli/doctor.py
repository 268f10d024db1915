"""`pprgnn doctor`: what this machine and this installation are like, whether they work, and what to improve."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from pprgnn.cli.main import Doctor
from pprgnn.cli.output import show_json
from pprgnn.data.catalog import CATALOG
from pprgnn.data.registry import state
from pprgnn.data.roots import cache_root, data_root
from pprgnn.errors import DataError
from pprgnn.training.environment import EXTRAS, GIB, environment
from pprgnn.training.terminal import paragraph, state_word, styled, width

ALLOWED_ERROR = 1e-8  # of a solve in double precision to a tolerance of 1e-10
LOW_MEMORY, LOW_DISK = 2 * GIB, GIB


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
    broken = import_problems()
    check: dict[str, Any] = {"error": None, "ok": False}
    speed = None
    if not broken:
        check, speed = _measure(broken)
    facts = environment()
    cache = cache_root()
    writable, free = disk(cache)
    lines = advice(facts, speed, os.getloadavg()[0] if hasattr(os, "getloadavg") else None)
    if not writable:
        broken.append(f"The cache {cache} cannot be written: set PPRGNN_CACHE to a folder of yours.")
    elif free < LOW_DISK:
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
        error = self_check()
        speed = kernel_speed()
    except Exception as problem:  # whatever it is, it is what the doctor is asked about
        broken.append(f"A small solve fails: {type(problem).__name__}: {problem}")
        return {"error": None, "ok": False}, None
    ok = error <= ALLOWED_ERROR  # not when it is NaN
    if not ok:
        broken.append(
            f"A small solve is off by {error:.1e} from the dense reference, where {ALLOWED_ERROR:.0e} is "
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


# ----------------------------------------------------------------------------------------------- what is measured
def import_problems() -> list[str]:
    """Which of the packages that everything needs cannot be imported, and why."""
    name = ""
    try:
        for name in ("torch", "torch-geometric"):  # PyG needs torch: one cause, one line
            import_module(name.replace("-", "_"))
    except Exception as error:  # a broken installation may raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        return [f"{name} cannot be imported ({reason}); install it anew: pip install --force-reinstall {name}"]
    return []


def self_check() -> float:
    """Relative error of state and gradients of a small problem, against dense matrices and plain autograd."""
    import torch

    from pprgnn import Adjacency, solve
    from pprgnn.core.recursion import descend

    draw = torch.Generator().manual_seed(0)
    num_nodes, channels, eps = 40, 8, 0.5
    dense = (torch.rand(num_nodes, num_nodes, generator=draw) < 0.08).double()
    dense = torch.maximum(dense, dense.t())
    edges = dense.nonzero().t()
    scale = dense.sum(1).clamp(min=1).rsqrt()
    dense = scale.unsqueeze(1) * dense * scale
    b = torch.randn(num_nodes, channels, generator=draw, dtype=torch.float64).requires_grad_()
    weight = torch.randn(channels, channels, generator=draw, dtype=torch.float64).div(2).requires_grad_()

    def step(n: int, g: torch.Tensor) -> torch.Tensor:
        return torch.relu(dense @ g @ weight / (1 + n * eps) + b)

    expected = descend(step, torch.relu(b), range(80))  # 80 factors of about 2 / (1 + n/2): far below rounding
    adj = Adjacency.from_edge_index(edges, num_nodes=num_nodes, dtype=torch.float64)
    found = solve(b, weight, adj, eps=eps, tol=1e-10, grad_terms=None).state

    pull = torch.randn(num_nodes, channels, generator=draw, dtype=torch.float64)
    inputs = (b, weight)
    right = (expected, *torch.autograd.grad(expected, inputs, pull))
    ours = (found, *torch.autograd.grad(found, inputs, pull))
    return max(float(((a - e).norm() / e.norm()).detach()) for a, e in zip(ours, right, strict=True))


def kernel_speed(seconds: float = 0.2) -> float | None:
    """How many times as fast as torch's operations the fused kernel solves; ``None`` when it is not in use."""
    import torch

    from pprgnn import Adjacency, solve
    from pprgnn.core.backend.kernel import library_name

    if library_name() == "torch":
        return None
    draw = torch.Generator().manual_seed(0)
    num_nodes, channels = 5_000, 64
    edges = torch.randint(num_nodes, (2, 25_000), generator=draw)
    adj = Adjacency.from_edge_index(torch.cat([edges, edges.flip(0)], dim=1), num_nodes=num_nodes)
    b = torch.randn(num_nodes, channels, generator=draw)
    weight = torch.randn(channels, channels, generator=draw) / 8
    before = os.environ.get("PPRGNN_KERNEL")
    best = {"": float("inf"), "torch": float("inf")}
    end = time.perf_counter() + seconds
    try:
        with torch.no_grad():
            while time.perf_counter() < end or float("inf") in best.values():
                for choice in best:  # in turns: a busy moment hits both
                    os.environ["PPRGNN_KERNEL"] = choice
                    start = time.perf_counter()
                    solve(b, weight, adj, depth=5)
                    best[choice] = min(best[choice], time.perf_counter() - start)
    finally:
        if before is None:
            del os.environ["PPRGNN_KERNEL"]
        else:
            os.environ["PPRGNN_KERNEL"] = before
    return best["torch"] / best[""]


def disk(folder: Path) -> tuple[bool, int]:
    """Whether files can be written into a folder (or it can be made), and the bytes that are free there."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            writable = True
    except OSError:  # also when it is a file
        writable = False
    return writable, shutil.disk_usage(there).free


def advice(facts: Mapping[str, Any], speed: float | None, load: float | None) -> list[str]:
    """What could be better on this machine, one sentence each.

    ``facts`` and ``speed`` are what ``environment()`` and :func:`kernel_speed` return, ``load`` is how many
    processes want to run now, on average.
    """
    lines = _about_threads(facts["cores"], facts["threads"], load) if facts["threads"] else []
    if facts["kernel"] == "torch" and os.environ.get("PPRGNN_KERNEL") == "torch":
        lines.append("The fused kernel is switched off by PPRGNN_KERNEL=torch: unset it for more speed.")
    elif facts["kernel"] == "torch":
        source = "-e . (in the checkout)" if facts["commit"] else "--force-reinstall --no-deps pprgnn"
        lines.append(
            f"The fused kernel is not built, torch does its work, slower: install a C++ compiler with OpenMP "
            f"(g++), then run pip install {source}."
        )
    elif speed is not None and speed < 0.8:
        slower = f"The fused kernel is slower than torch here ({speed:.1f} times as fast)"
        lines.append(f"{slower}: set PPRGNN_KERNEL=torch.")
    free = facts["memory"]["available"]
    if free is not None and free < LOW_MEMORY:
        short = f"Only {free / GIB:.1f} GiB of memory are available"
        lines.append(f"{short}: close other programs before large graphs.")
    return lines


def _about_threads(cores: Mapping[str, Any], threads: Mapping[str, Any], load: float | None) -> list[str]:
    lines = []
    limits = [cores[name] for name in ("physical", "allowed", "quota") if cores[name]]
    useful, used = max(1, int(min(limits, default=1))), threads["torch"]
    named = threads["OMP_NUM_THREADS"]
    if named is not None and not (named.isdecimal() and int(named) > 0):
        lines.append(f"OMP_NUM_THREADS must be a number from 1 on, but is {named!r}: set it to {useful}.")
    if used > useful:
        lines.append(
            f"torch uses {used} threads, but there are {useful} cores for it, and threads that wait for each "
            f"other are slow: set OMP_NUM_THREADS={useful}."
        )
    if used < useful:
        lines.append(
            f"torch uses {used} of {useful} cores: right for several runs side by side; for one run set "
            f"OMP_NUM_THREADS={useful}."
        )
    if load is not None and load > useful and used > 1:
        lines.append(
            f"{load:.1f} processes share {useful} cores just now: give each of them one thread "
            f"(OMP_NUM_THREADS=1), or all of them become several times slower."
        )
    return lines
