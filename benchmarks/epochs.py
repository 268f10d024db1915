"""What an epoch costs beside its solves: `python -m benchmarks.epochs` writes results/training.md and .json.

- Overhead: the time of an epoch (steps, validation, metrics, logging, checkpoints) over the time of the solves in
  it, on com-DBLP with width 128 and on PPI-GO with h = 256, as the recipes have them.
- Tolerance: the same training on PPI-GO with a loose tolerance, with a tight one, and with the paper's influence
  search in every step: what it costs, and whether the result is the same.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from benchmarks import machine
from benchmarks.report import table

OVERHEAD = {
    "com-DBLP, width 128": ["paper-dblp-0.05", "epochs=13"],
    "PPI-GO, h = 256": ["paper-ppi-go", "epochs=6", "lr=0.001"],
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
        from pprgnn.core.adjoint import Differentiable
        from pprgnn.nn import infinite_layer

        solve, backward = infinite_layer.solve, Differentiable.backward

        def timed(function):
            def call(*arguments, **named):
                started = time.perf_counter()
                try:
                    return function(*arguments, **named)
                finally:
                    self.seconds += time.perf_counter() - started

            return call

        with (
            mock.patch.object(infinite_layer, "solve", timed(solve)),
            mock.patch.object(Differentiable, "backward", staticmethod(timed(backward))),
        ):
            yield


class Turns:
    """Lets several trainings take turns, an epoch each: a busy moment of the machine then hits them alike."""

    def __init__(self, count: int) -> None:
        self.changed, self.waiting = threading.Condition(), list(range(count))

    def wait(self, number: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.waiting[0] == number)

    def pass_on(self, leave: bool = False) -> None:
        with self.changed:
            number = self.waiting.pop(0)
            if not leave:
                self.waiting.append(number)
            self.changed.notify_all()


class Watcher:
    """Per epoch: its seconds and those of its solves."""

    def __init__(self, stopwatch: Stopwatch, label: str, turns: Turns | None = None, number: int = 0) -> None:
        self.stopwatch, self.label, self.turns, self.number = stopwatch, label, turns, number
        self.rows: list[dict] = []

    def started(self, training) -> None:
        self.last, self.before = time.perf_counter(), self.stopwatch.seconds

    def epoch(self, record) -> None:
        # The line and the checkpoint that follow an epoch count with the next one.
        now, solved = time.perf_counter(), self.stopwatch.seconds
        self.rows.append({"seconds": now - self.last, "solves": solved - self.before, "depth": record.depth})
        if self.turns is not None:
            self.turns.pass_on()
            self.turns.wait(self.number)
        self.started(None)
        val = next(iter(list(record.val.values())[1:]))
        seconds = self.rows[-1]["seconds"]
        print(f"{self.label}: epoch {record.epoch}, {seconds:.2f} s, validation {val:.4f}", flush=True)

    def warned(self, text: str) -> None:
        print(f"warning: {text}", flush=True)

    def note(self, text: str) -> None:
        print(text, flush=True)

    def finished(self, summary) -> None:
        pass


def train(recipe: str, changes: list[str], watcher: Watcher) -> dict:
    """One run; returns its summary."""
    from pprgnn.training.config import Config
    from pprgnn.training.recipes import find_recipe
    from pprgnn.training.train import train as run

    path = find_recipe(recipe)
    assert path is not None
    config = Config.from_toml(path).with_settings(changes)
    with tempfile.TemporaryDirectory() as folder:
        return run(config, folder=Path(folder) / "run", listener=watcher).summary


def bench_overhead(name: str) -> dict:
    """Median over the epochs after the first, which prepares buffers."""
    recipe, *changes = OVERHEAD[name]
    watcher = Watcher(Stopwatch(), name)
    with watcher.stopwatch.watching():
        train(recipe, changes, watcher)
    rows = watcher.rows[1:]
    return {
        "epochs": len(rows),
        "epoch": statistics.median(row["seconds"] for row in rows),
        "solves": statistics.median(row["solves"] for row in rows),
        "ratio": statistics.median(row["seconds"] / row["solves"] for row in rows),
        "worst": max(row["seconds"] / row["solves"] for row in rows),
        "depth": rows[-1]["depth"],
    }


def bench_tolerances(hidden: int, epochs: int, seeds: int = 1) -> dict[str, dict]:
    """The three trainings with each seed, taking turns."""
    rows: dict[str, dict] = {}
    for seed in range(seeds):
        for name, row in _one_seed(hidden, epochs, seed).items():
            whole = rows.setdefault(name, {"test": [], "val": [], "seconds": [], "solves": []})
            for key in ("test", "val", "seconds", "solves"):
                whole[key] += row[key] if isinstance(row[key], list) else [row[key]]
            rows[name] = whole | {"depth": row["depth"], "hidden": hidden, "epochs": epochs}
    return rows


def _one_seed(hidden: int, epochs: int, seed: int) -> dict[str, dict]:
    common = [f"hidden={hidden}", f"epochs={epochs}", f"seed={seed}", "schedule=one-cycle", "patience=0"]
    turns, stopwatch = Turns(len(TOLERANCES)), Stopwatch()
    results: dict[str, dict] = {}

    def one(number: int, name: str) -> None:
        turns.wait(number)
        watcher = Watcher(stopwatch, name, turns, number)
        try:
            scores = train("paper-ppi-go", [*common, *TOLERANCES[name]], watcher)["scores"]
            results[name] = {
                "test": scores["test"]["micro-F1"],
                "val": scores["val"]["micro-F1"],
                "seconds": [row["seconds"] for row in watcher.rows],
                "solves": [row["solves"] for row in watcher.rows],
                "depth": watcher.rows[-1]["depth"],
            }
        finally:
            turns.pass_on(leave=True)

    with stopwatch.watching():
        threads = [threading.Thread(target=one, args=each) for each in enumerate(TOLERANCES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {name: results[name] for name in TOLERANCES}


def markdown(data: dict) -> str:
    edited = " (edited since)" if data["edited"] else ""
    made = f"`{data['command']}` at commit `{data['commit'][:12]}`{edited}, {data['date']}, seed 0"
    parts = [f"# Training\n\n{made}; load at the start {data['machine']['load_average']:.1f}."]
    if "remark" in data:
        parts.append(data["remark"])
    if data["overhead"]:
        header = ["run", "epochs", "epoch s", "solves s", "epoch / solves", "worst epoch", "depth per layer"]
        rows = [
            [name, str(row["epochs"]), f"{row['epoch']:.2f}", f"{row['solves']:.2f}", f"{row['ratio']:.3f}",
             f"{row['worst']:.3f}", " ".join(map(str, row["depth"]))]
            for name, row in data["overhead"].items()
        ]  # fmt: skip
        text = (
            "An epoch over the time inside its solves (forward, backward, depth search); medians. Validation,\n"
            "metrics, logging and checkpoints are in the epoch. The recipes of the paper; PPI-GO with lr 0.001."
        )
        parts += ["## Overhead", table(header, rows), text]
    if data["tolerance"]:
        base = data["tolerance"]["influence search in every step"]
        header = [
            "solves", "test micro-F1", "val micro-F1", "epoch s", "time / influence", "solves / influence",
            "depth per layer",
        ]  # fmt: skip
        rows = []
        for name, row in data["tolerance"].items():
            cells = [" ".join(f"{100 * score:.2f}" for score in row[part]) for part in ("test", "val")]
            cells += [f"{statistics.median(row['seconds']):.2f}"]
            cells += [f"{sum(row[what]) / sum(base[what]):.2f}" for what in ("seconds", "solves")]
            rows.append([name, *cells, " ".join(map(str, row["depth"]))])
        first = next(iter(data["tolerance"].values()))
        text = (
            f"PPI-GO (a stand-in: not comparable with published scores), h = {first['hidden']}, {first['epochs']} "
            f"epochs, one-cycle; a score per\nseed; taking turns epoch by epoch; validation chooses the epoch, "
            f"the final scores are to 1e-5 for all."
        )
        parts += ["## Tolerance", table(header, rows), text]
    return "\n\n".join(parts) + "\n"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.epochs", description=__doc__)
    parser.add_argument("--only", choices=["overhead", "tolerance"], help="one part; the other is kept as it is")
    parser.add_argument("--hidden", type=int, default=128, help="h of the tolerance runs (%(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of the tolerance runs (%(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the tolerance runs (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/training"))
    arguments = parser.parse_args(given)
    path = arguments.output.with_suffix(".json")
    old = json.loads(path.read_text()) if path.is_file() else {}
    command = shlex.join(["python", "-m", "benchmarks.epochs", *(sys.argv[1:] if given is None else given)])
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
        data["tolerance"] = bench_tolerances(arguments.hidden, arguments.epochs, arguments.seeds)
        keep()
    print(markdown(data))


if __name__ == "__main__":
    main()
