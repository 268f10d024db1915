"""`make chaos`: kill -9 commands at random moments, go on with them, and compare with an undisturbed run.

python -m tests.chaos [SCENARIO ...] [--kills 100] [--seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from safetensors import safe_open

TIMES = ("seconds", "total_seconds", "cpu_seconds", "peak_bytes", "date", "started", "command", "throughput")
SMALL = ("-s", "hidden=8", "-s", "epochs=30", "-s", "threads=1", "-s", "checkpoint_seconds=0.2")


class Scenario(NamedTuple):
    """A command, how to go on with it in its folder, and what it has made there."""

    start: tuple[str, ...]
    again: tuple[str, ...]
    begun: str  # the file whose presence says that `again` goes on
    outcome: Callable[[Path], Any]


def weights(*names: str) -> Callable[[Path], Any]:
    """The tensors of model files, by content."""

    def outcome(folder: Path) -> Any:
        found = {}
        for name in names:
            with safe_open(folder / name, framework="np") as file:
                bits = b"".join(file.get_tensor(key).tobytes() for key in sorted(file.keys()))
            found[name] = hashlib.sha256(bits).hexdigest()
        return found

    return outcome


def digest(name: str) -> Callable[[Path], Any]:
    """Of a file of tensors, as its metadata have it: the order of these metadata is by chance."""

    def outcome(folder: Path) -> Any:
        with safe_open(folder / name, framework="np") as file:
            return file.metadata()["digest"]

    return outcome


def content(name: str) -> Callable[[Path], Any]:
    """A file, byte by byte."""
    return lambda folder: hashlib.sha256((folder / name).read_bytes()).hexdigest()


def lines(name: str) -> Callable[[Path], Any]:
    """Lines of JSON without what differs from run to run, in any order."""

    def outcome(folder: Path) -> Any:
        found = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        return sorted(json.dumps(_without_times(line), sort_keys=True) for line in found)

    return outcome


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in TIMES}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


RUN, TABLES = ("-o", "run", "--no-report"), ("--edges", "edges.csv", "--nodes", "nodes.csv", "--target", "topic")
RESUME = ("train", "--resume", "run", "--no-report")
PREDICT, IMPORT = ("predict", "trained", "-o", "out.csv"), ("data", "import", *TABLES, "-o", "graph.safetensors")
GRID = ("reproduce", "chains", "--smoke", "--models", "gcn,mlp", "--jobs", "1")
SCENARIOS = {
    "train": Scenario(
        ("train", *TABLES, *SMALL, *RUN), RESUME, "run/config.toml", weights("run/model.safetensors")
    ),
    "processes": Scenario(
        ("train", *TABLES, "--nproc", "2", *SMALL, *RUN),
        RESUME,
        "run/config.toml",
        weights("run/model.safetensors"),
    ),
    "seeds": Scenario(
        ("train", *TABLES, "--seeds", "2", "--jobs", "1", *SMALL, *RUN),
        ("train", "--resume", "run", "--no-report"),
        "run/config.toml",
        lambda folder: {
            path.parent.name: weights(path.relative_to(folder).as_posix())(folder)
            for path in sorted(folder.glob("run/*/model.safetensors"))
        },
    ),
    "tune": Scenario(
        ("tune", *TABLES, "--trials", "4", "--jobs", "1", "-s", "epochs=3", "-s", "threads=1", "-o", "tuning"),
        ("tune", "--resume", "tuning"),
        "tuning/tuning.json",
        lambda folder: (folder / "tuning" / "best.toml").read_text().splitlines()[1:],
    ),
    "import": Scenario(IMPORT, IMPORT, "", digest("graph.safetensors")),
    "predict": Scenario(PREDICT, PREDICT, "", content("out.csv")),
    "reproduce": Scenario(GRID, GRID, "", lines("runs/smoke/chains.jsonl")),
    "report": Scenario(
        ("report", "trained"),
        ("report", "trained"),
        "",
        lambda folder: re.findall("<h[1-3][^>]*>.*?</h[1-3]>", (folder / "trained" / "report.html").read_text()),
    ),
}


def main() -> None:
    """Kill each scenario so many times; exit 1 if one came out otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; none: all")
    parser.add_argument("--kills", type=int, default=100, help="in all (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    options = parser.parse_args()
    names = options.scenarios or list(SCENARIOS)
    if unknown := [name for name in names if name not in SCENARIOS]:
        parser.error(f"there is no scenario {unknown[0]}; there are {', '.join(SCENARIOS)}")
    failed = 0
    for number, name in enumerate(names):
        kills = options.kills // len(names) + (number < options.kills % len(names))
        failed += not disturb(name, kills, Random(f"{name} {options.seed}"))
    print(f"{len(names) - failed} passed, {failed} failed")
    sys.exit(bool(failed))


def disturb(name: str, kills: int, draw: Random) -> bool:
    """Whether the scenario has the same outcome however often it is killed."""
    scenario, done, runs, wrong = SCENARIOS[name], 0, 0, 0
    with TemporaryDirectory() as place:
        folder = Path(place)
        began = time.monotonic()
        with _prepared(folder / "undisturbed") as whole:
            started = time.monotonic()
            _finish(scenario.start, whole)
            lasts, expected = time.monotonic() - started, scenario.outcome(whole)
        while done < kills:
            runs += 1
            with _prepared(folder / str(runs)) as here:
                for _ in range(min(draw.randint(1, 4), kills - done)):
                    done += _killed(_command(scenario, here), here, draw.uniform(0, 1.1 * lasts))
                _finish(_command(scenario, here), here)
                if scenario.outcome(here) != expected:
                    wrong += 1
                    print(f"{name}: run {runs} came out otherwise", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(f"{name}: {done} kills in {runs} runs, {wrong} came out otherwise ({minutes:.1f} min)", flush=True)
    return not wrong


def _command(scenario: Scenario, folder: Path) -> tuple[str, ...]:
    return scenario.again if scenario.begun and (folder / scenario.begun).exists() else scenario.start


def _process(command: tuple[str, ...], folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / "log.txt", "ab") as log:
        code = "from pprgnn.cli.main import run; run()"
        return subprocess.Popen(
            [sys.executable, "-c", code, *command], cwd=folder, stdout=log, stderr=log, start_new_session=True
        )


def _finish(command: tuple[str, ...], folder: Path) -> None:
    failed = _process(command, folder).wait(timeout=900)
    said = (folder / "log.txt").read_text()[-2000:]
    if failed and "finished" not in said:  # a kill may have come after the end
        raise SystemExit(f"{' '.join(command)} failed:\n{said}")


def _killed(command: tuple[str, ...], folder: Path, after: float) -> bool:
    """Kill it and all of its processes after so many seconds; whether it was still running."""
    process = _process(command, folder)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=after)
    running = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return running


@contextlib.contextmanager
def _prepared(folder: Path) -> Iterator[Path]:
    """Tables and a trained model, the same for all runs."""
    folder.mkdir()
    people = [f"p{number}" for number in range(60)]
    rows = [f"{name},{number % 7},{'ab'[number % 2]}" for number, name in enumerate(people)]
    (folder / "nodes.csv").write_text("\n".join(["id,age,topic", *rows]) + "\n")
    ends = [f"{name},{people[(number + step) % 60]}" for number, name in enumerate(people) for step in (1, 2)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *ends]) + "\n")
    first = folder.parent / "trained"
    if not first.exists():
        _finish(("train", *TABLES, *SMALL, "-o", str(first), "--no-report"), folder)
    (folder / "trained").mkdir()
    for path in first.iterdir():
        if path.is_file():
            (folder / "trained" / path.name).write_bytes(path.read_bytes())
    yield folder


if __name__ == "__main__":
    main()
