"""What an epoch costs beside its solves: `python -m benchmarks.epochs` writes results/training.md and .json.

- Overhead: the time of an epoch (steps, validation, metrics, logging, checkpoints) over the time of the solves in
  it, on com-DBLP with width 128 and on PPI-GO with h = 256, as the recipes have them.
- Tolerance: the same training on PPI-GO with a loose tolerance, with a tight one, and with the paper's influence
  search in every step: what it costs, and whether the result is the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from benchmarks import machine
from benchmarks.report import table

OVERHEAD = {
    "com-DBLP, width 128": ["paper-dblp-0.05", "epochs=13"],
    "PPI-GO, h = 256": ["paper-ppi-go", "epochs=5"],
}
TOLERANCES = {
    "loose (1e-3), tight at the end": ["depth=measured", "tol=1e-3"],
    "tight (1e-5) in every step": ["depth=measured", "tol=1e-5"],
    "influence search in every step": ["depth=influence", "tol=1e-5"],
}


class Stopwatch:
    """Adds up the time inside solves, forward and backward, depth search included."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        from pprgnn.core.recursion import Recursion
        from pprgnn.nn import ppr_conv

        solve, backward = ppr_conv.solve, Recursion.backward

        def timed(function):
            def call(*arguments, **named):
                started = time.perf_counter()
                try:
                    return function(*arguments, **named)
                finally:
                    self.seconds += time.perf_counter() - started

            return call

        with (
            mock.patch.object(ppr_conv, "solve", timed(solve)),
            mock.patch.object(Recursion, "backward", staticmethod(timed(backward))),
        ):
            yield


class Watcher:
    """Per epoch: its seconds and those of its solves."""

    def __init__(self, stopwatch: Stopwatch, label: str) -> None:
        self.stopwatch, self.label, self.before = stopwatch, label, 0.0
        self.rows: list[dict] = []

    def started(self, training) -> None:
        self.before = self.stopwatch.seconds
        self.last = time.perf_counter()

    def epoch(self, record) -> None:
        self.record = record
        # Until the next epoch ends, so that the line and the checkpoint that follow this one count, too.
        now, solved = time.perf_counter(), self.stopwatch.seconds
        self.rows.append({"seconds": now - self.last, "solves": solved - self.before, "depth": record.depth})
        self.last, self.before = now, solved
        val = next(iter(list(record.val.values())[1:]))
        seconds = self.rows[-1]["seconds"]
        print(f"{self.label}: epoch {record.epoch}, {seconds:.2f} s, validation {val:.4f}", flush=True)

    def warned(self, text: str) -> None:
        print(f"warning: {text}", flush=True)

    def note(self, text: str) -> None:
        print(text, flush=True)

    def finished(self, summary) -> None:
        pass


def train(recipe: str, changes: list[str], label: str) -> tuple[dict, list[dict]]:
    """One run with its epochs' times."""
    from pprgnn.training.config import Config
    from pprgnn.training.recipes import find_recipe
    from pprgnn.training.train import train as run

    path = find_recipe(recipe)
    assert path is not None
    config = Config.from_toml(path).with_settings(changes)
    stopwatch = Stopwatch()
    watcher = Watcher(stopwatch, label)
    with tempfile.TemporaryDirectory() as folder, stopwatch.watching():
        trained = run(config, folder=Path(folder) / "run", listener=watcher)
    return trained.summary, watcher.rows


def bench_overhead(name: str) -> dict:
    """Median over the epochs after the first, which prepares buffers."""
    recipe, *changes = OVERHEAD[name]
    _, rows = train(recipe, changes, name)
    rows = rows[1:]
    return {
        "epochs": len(rows),
        "epoch": statistics.median(row["seconds"] for row in rows),
        "solves": statistics.median(row["solves"] for row in rows),
        "ratio": statistics.median(row["seconds"] / row["solves"] for row in rows),
        "worst": max(row["seconds"] / row["solves"] for row in rows),
        "depth": rows[-1]["depth"],
    }


def bench_tolerance(name: str, hidden: int, epochs: int) -> dict:
    changes = [f"hidden={hidden}", f"epochs={epochs}", "schedule=one-cycle", "patience=0", *TOLERANCES[name]]
    summary, rows = train("paper-ppi-go", changes, name)
    return {
        "test": summary["scores"]["test"]["micro-F1"],
        "val": summary["scores"]["val"]["micro-F1"],
        "best_epoch": summary["best_epoch"],
        "seconds": sum(row["seconds"] for row in rows),
        "solves": sum(row["solves"] for row in rows),
        "epoch": statistics.median(row["seconds"] for row in rows),
        "depth": rows[-1]["depth"],
        "hidden": hidden,
        "epochs": epochs,
    }


def markdown(data: dict) -> str:
    edited = " (edited since)" if data["edited"] else ""
    made = f"`{data['command']}` at commit `{data['commit'][:12]}`{edited}, {data['date']}, seed 0"
    parts = [f"# Training\n\n{made}; load at the start {data['machine']['load_average']:.1f}."]
    if data["overhead"]:
        header = ["run", "epochs", "epoch s", "solves s", "epoch / solves", "worst epoch", "depth per layer"]
        rows = [
            [name, str(row["epochs"]), f"{row['epoch']:.2f}", f"{row['solves']:.2f}", f"{row['ratio']:.3f}",
             f"{row['worst']:.3f}", " ".join(map(str, row["depth"]))]
            for name, row in data["overhead"].items()
        ]  # fmt: skip
        text = (
            "An epoch over the time inside its solves (forward, backward, depth search); medians. Validation,\n"
            "metrics, logging and checkpoints are in the epoch."
        )
        parts += ["## Overhead", table(header, rows), text]
    if data["tolerance"]:
        base = data["tolerance"].get("influence search in every step")
        header = ["solves", "test micro-F1", "val micro-F1", "epoch s", "time / influence", "depth per layer"]
        rows = [
            [name, f"{100 * row['test']:.2f}", f"{100 * row['val']:.2f}", f"{row['epoch']:.2f}",
             f"{row['seconds'] / base['seconds']:.2f}" if base else "not run", " ".join(map(str, row["depth"]))]
            for name, row in data["tolerance"].items()
        ]  # fmt: skip
        first = next(iter(data["tolerance"].values()))
        text = (
            f"PPI-GO (a stand-in: not comparable with published scores), h = {first['hidden']}, {first['epochs']} "
            f"epochs, one-cycle, one seed;\nvalidation chooses the epoch, the final scores are to 1e-5 for all."
        )
        parts += ["## Tolerance", table(header, rows), text]
    return "\n\n".join(parts) + "\n"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.epochs", description=__doc__)
    parser.add_argument("--only", choices=["overhead", "tolerance"], help="one part; the other is kept as it is")
    parser.add_argument("--hidden", type=int, default=128, help="h of the tolerance runs (%(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of the tolerance runs (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/training"))
    arguments = parser.parse_args(given)
    path = arguments.output.with_suffix(".json")
    old = json.loads(path.read_text()) if path.is_file() else {}
    command = "python -m benchmarks.epochs" + "".join(f" {word}" for word in given or [])
    data = {"command": command, **machine.commit(), "date": machine.now(), "machine": machine.describe()}
    for part in ("overhead", "tolerance"):
        data[part] = old.get(part, {}) if arguments.only not in (None, part) else {}

    def keep() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1))
        arguments.output.with_suffix(".md").write_text(markdown(data))

    if arguments.only != "tolerance":
        for name in OVERHEAD:
            data["overhead"][name] = bench_overhead(name)
            keep()
    if arguments.only != "overhead":
        for name in TOLERANCES:
            data["tolerance"][name] = bench_tolerance(name, arguments.hidden, arguments.epochs)
            keep()
    print(markdown(data))


if __name__ == "__main__":
    main()
