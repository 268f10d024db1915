"""CPU time of ten folds of graph classification: writes results/folds.md and .json.

`python -m benchmarks.folds --against CHECKOUT` compares with another checkout of this repository (its ``src`` is
put before ours; copy the compiled libraries into it), each with the recipes it ships. Each takes its turn, in a
process of its own with one thread that trains all folds; CPU time counts, since other work may run beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import machine
from benchmarks.report import table

NAMES = ("MUTAG", "PTC", "COX2", "PROTEINS", "NCI1")
FOLDS = 10
RESULT = "folds: "  # what the line of a child begins with


def cpu_seconds() -> float:
    """Of this process so far, and of those it started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def train(name: str, epochs: int, folds: int) -> dict:
    """All folds by the runner of experiments, with the shipped recipe; ``epochs`` other than 0 cut it short."""
    from pprgnn.experiments.cell import Cell
    from pprgnn.experiments.experiment import of_fold, recipe
    from pprgnn.experiments.runner import run_missing
    from pprgnn.experiments.store import Store
    from pprgnn.training import train as _  # noqa: F401  (importing is counted apart)

    imports = cpu_seconds()
    changes = {"training.threads": 1} | ({"training.epochs": epochs} if epochs else {})
    config = recipe(name.lower(), {"name": name, "protocol": "honest"}, changes)
    cells = [Cell("folds", of_fold(config, fold, 0)) for fold in range(folds)]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        complete = run_missing(cells, store, folder=Path(folder) / "runs")
        lines = store.answers(cells)
    if not complete or any("error" in line for line in lines.values()):
        raise SystemExit(f"Some fold of {name} has no result; run it with PPRGNN_DEBUG=1.")
    scores = [lines[number]["test"] for number in range(folds)]
    return {
        "imports": imports,
        "folds": cpu_seconds() - imports,
        "scores": scores,
        "epochs": config.training.epochs,
    }


def in_turn(name: str, epochs: int, folds: int, source: Path) -> dict:
    """The same in a new process, with the package of this folder."""
    command = [sys.executable, "-m", "benchmarks.folds", "--train", name, str(epochs), str(folds)]
    paths = [str(source), str(machine.ROOT)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True
    )
    found = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if not found:
        raise SystemExit(f"{source} could not train {name}:\n{done.stderr}")
    return json.loads(found[-1].removeprefix(RESULT))


def measure(name: str, epochs: int, folds: int, repeats: int, sources: dict[str, Path]) -> dict:
    """Every checkout ``repeats`` times, in turns."""
    runs: dict[str, list[dict]] = {which: [] for which in sources}
    for _ in range(repeats):
        for which, source in sources.items():
            runs[which].append(in_turn(name, epochs, folds, source))
            last = runs[which][-1]
            print(
                f"{name}, {which}: {last['folds']:.1f} s, mean {statistics.fmean(last['scores']):.4f}", flush=True
            )
    return {"data": name, "folds": folds, "runs": runs}


def rows(found: dict) -> list[list[str]]:
    """A line for each checkout; the least CPU time counts: other work can only add to it."""
    lines, least = [], {}
    for which, runs in found["runs"].items():
        least[which] = min(run["folds"] for run in runs)
        scores = runs[0]["scores"]
        ratio = least["old"] / least[which] if "old" in least else 1.0
        mean, deviation = 100 * statistics.fmean(scores), 100 * statistics.pstdev(scores)
        imports = min(run["imports"] for run in runs)
        times = (f"{imports:.1f}", f"{least[which]:.1f}", f"{ratio:.2f}")
        lines.append([found["data"], str(runs[0]["epochs"]), which, *times, f"{mean:.1f} ± {deviation:.1f}"])
    return lines


def report(data: dict) -> str:
    """The page."""
    header = ["data", "epochs", "code", "imports, CPU s", "folds, CPU s", "old / this", "test accuracy"]
    facts = data["machine"]
    against = f"old: commit `{data['against'][:12]}`. " if data["against"] else ""
    remark = f"Remark: {data['remark']}\n\n" if data["remark"] else ""
    return (
        f"# Ten folds of graph classification\n\n`python -m benchmarks.folds` at commit `{data['commit'][:12]}`, "
        f"{data['date']}, {facts['cpu']}, one thread, load at the start {facts['load_average']:.1f}.\n{against}"
        f"Each with the recipe it ships{', cut short' if data['cut'] else ''}, honest protocol,\n"
        f"{data['folds']} folds in one process, in turns; the least CPU time of {data['repeats']}.\n"
        f"*imports*: until the first fold begins, once a process.\n"
        f"*test accuracy*: mean and standard deviation of the folds, one seed.\n\n"
        + remark
        + table(header, [line for found in data["found"] for line in rows(found)])
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--data", nargs="+", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--epochs", type=int, default=0, help="of every data set, instead of its recipe's")
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/folds"))
    parser.add_argument("--remark", default="", help="a sentence for the page")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        name, epochs, folds = args.train
        print(RESULT + json.dumps(train(name, int(epochs), int(folds))))
        return
    sources = {"this": machine.ROOT / "src"}
    against = ""
    if args.against is not None:
        sources = {"old": args.against.resolve() / "src"} | sources
        head = ["git", "-C", str(args.against), "rev-parse", "HEAD"]
        against = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    data = {"machine": machine.describe(), **machine.commit(), "date": machine.now(), "against": against}
    data |= {"folds": args.folds, "repeats": args.repeats, "remark": args.remark}
    data |= {"cut": bool(args.epochs), "found": []}
    for name in args.data:
        found = measure(name, args.epochs, args.folds, args.repeats, sources)
        data["found"].append(found)
        args.out.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(report(data))
    print(report(data))


if __name__ == "__main__":
    main()
