"""How good the usual settings are for graphs without a recipe: writes results/defaults.md and .json.

`python -m benchmarks.defaults`: `pprgnn train SET` for every set at hand, beside GIN, GCN and the WL kernel with
their own usual settings, and the majority class. `--search` compares a handful of candidates for the usual
settings; each set is judged by the candidate that the other sets choose by their validation parts. Of large sets a
part is drawn. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks import machine
from benchmarks.report import table
from pprgnn.data import load
from pprgnn.data.dataset import GraphDataset
from pprgnn.errors import DataError
from pprgnn.training.config import Config
from pprgnn.training.train import train

SETS = ("MUTAG", "PTC_MR", "COX2", "PROTEINS", "NCI1", "ENZYMES", "DD", "IMDB-BINARY")
SYSTEMS = {"ours": "pprgnn", "GIN": "gin", "GCN": "gcn", "WL": "wl"}
NODES = 4_000  # of the graphs of a search, about: large graphs are fewer
CANDIDATES: Mapping[str, Mapping[str, Any]] = {  # what differs from the usual settings
    "usual": {},
    "dropout 0.5, width 32": {"model.dropout": 0.5, "model.hidden": 32},
    "symmetric, self-loops": {"model.normalize": "sym", "model.self_loops": True},
    "mean pooling": {"model.pooling": "mean"},
    "one cycle, 0.01": {"training.schedule": "one-cycle", "training.lr": 0.01},
    "loss chooses": {"training.monitor": "loss"},
}


def drawn(dataset: GraphDataset, graphs: int, nodes: int | None) -> GraphDataset:
    """So many graphs, fewer where they are large, drawn once and for all."""
    if nodes is not None:
        graphs = min(graphs, max(60, nodes * len(dataset) // dataset.num_nodes))
    if graphs >= len(dataset):
        return dataset
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))
    part = dataset.copy(order[:graphs].sort().values)
    return part.rename(f"{part.facts.name}, {graphs} graphs")  # published folds are of all


def measure(dataset: GraphDataset, config: Config, fold: int, folds: int) -> dict[str, float]:
    """Scores of a fold, the majority class beside them, and CPU seconds."""
    start = time.process_time()
    split = {} if folds == 10 else {"folds": folds, "val_fraction": 0.25}
    values = {"data.fold": fold, "data.split": split, "training.threads": 1}
    summary = train(config.with_values(values), dataset=dataset).summary
    scores = {part: summary["scores"][part]["accuracy"] for part in ("val", "test") if part in summary["scores"]}
    majority = summary["trivial"]["majority"]["accuracy"]
    return {**scores, "majority": majority, "seconds": time.process_time() - start}


def config_of(system: str, changes: Mapping[str, Any]) -> Config:
    """What `pprgnn train SET --model SYSTEM` takes, with changes."""
    return Config.for_task("graph").with_values({"model.system": system, **changes})


def mean(runs: Mapping[str, Mapping[str, float]], part: str) -> float:
    return statistics.fmean(run[part] for run in runs.values())


def chosen(found: Mapping[str, Any], sets: list[str]) -> str:
    """The candidate with the best mean validation accuracy over these sets."""
    return max(CANDIDATES, key=lambda name: statistics.fmean(mean(found[each][name], "val") for each in sets))


def _cells(runs: Mapping[str, Mapping[str, float]] | None, part: str = "test") -> str:
    if not runs:
        return "-"
    values = [100 * run[part] for run in runs.values()]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"


def _origin(part: Mapping[str, Any]) -> str:
    edited = " with changes" if part["edited"] else ""
    return f"`{part['command']}` at commit `{part['commit'][:12]}`{edited}, {part['date'][:10]}."


def markdown(data: dict[str, Any]) -> str:
    """The page."""
    compared, search, lines = data["compared"], data["search"], []
    lines += [
        "# The usual settings for graphs without a recipe",
        "Accuracy in percent, mean ± standard deviation over the folds that were run; validation chooses the "
        "epoch.\nA value without ± is one fold, which says little: of 40 graphs that test, each is 2.5 percent.",
    ]
    if compared:
        rows = []
        for name, found in compared["found"].items():
            ours = found.get("ours")
            rows.append([name, str(found["graphs"]), *(_cells(found.get(each)) for each in SYSTEMS)])
            rows[-1].append(_cells(ours, "majority") if ours else "-")
        lines += [f"## Beside others\n\n{_origin(compared)}"]
        lines += [table(["set", "graphs", *SYSTEMS, "majority"], rows)]
    if search:
        found = {name: each["runs"] for name, each in search["found"].items()}
        complete = [name for name in found if all(found[name].get(each) for each in CANDIDATES)]
        sizes = {name: each["graphs"] for name, each in search["found"].items()}
        rows = [
            [name, str(sizes[name]), *(_cells(found[name].get(each), "val") for each in CANDIDATES)]
            for name in found
        ]
        lines += [f"## The search\n\n{_origin(search)}"]
        lines += [
            "Validation accuracy; a quarter of the graphs outside of the test fold validates:",
            table(["set", "graphs", *CANDIDATES], rows),
        ]
        if len(complete) > 2:
            best = {name: chosen(found, [each for each in complete if each != name]) for name in complete}
            rows = [
                [name, best[name], *(_cells(found[name][each]) for each in (best[name], "usual"))]
                for name in complete
            ]
            means = [
                100 * statistics.fmean(mean(found[name][which], "test") for name, which in picked.items())
                for picked in (best, dict.fromkeys(complete, "usual"))
            ]
            rows.append(["mean", "", *(f"{each:.1f}" for each in means)])
            lines += ["Test accuracy of what the other sets chose:"]
            lines += [table(["set", "chosen by the others", "its test", "test of the usual"], rows)]
            lines += [f"All sets together choose: {chosen(found, complete)}."]
    return "\n\n".join(lines) + "\n"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="which ones (all that are here)")
    parser.add_argument("--search", action="store_true", help="compare candidates for the usual settings")
    parser.add_argument("--folds", type=int, default=10, help="into which a set is divided (%(default)s)")
    parser.add_argument("--runs", type=int, help="how many of them to run (all)")
    parser.add_argument("--graphs", type=int, default=10**9, help="at most, of each set (all)")
    parser.add_argument("--epochs", type=int, help="of all networks (their own)")
    parser.add_argument("--output", type=Path, default=Path("results/defaults"))
    arguments = parser.parse_args(given)
    torch.set_num_threads(1)
    path, runs = arguments.output.with_suffix(".json"), arguments.runs or arguments.folds
    data = json.loads(path.read_text()) if path.is_file() else {"compared": {}, "search": {}}
    options = f"--folds {arguments.folds} --runs {runs}"
    options += f" --graphs {arguments.graphs}" if arguments.graphs < 10**9 else ""
    options += f" --epochs {arguments.epochs}" if arguments.epochs else ""
    kind = "search" if arguments.search else "compared"
    command = f"python -m benchmarks.defaults {'--search ' if arguments.search else ''}{options}"
    begun = {**machine.commit(), "date": machine.now()}
    part = data[kind] or {"command": command, **begun, "found": {}}
    if part["command"] != command:
        raise SystemExit(f"{path} holds `{part['command']}`; go on with that, or choose another --output.")
    data[kind] = part
    changes = {"training.epochs": arguments.epochs} if arguments.epochs else {}
    for fold in range(runs):  # all sets first, so that a part of the runs is worth something
        for name in arguments.sets or SETS:
            try:
                dataset = drawn(load(name), arguments.graphs, NODES if arguments.search else None)
            except DataError as missing:
                print(missing)
                continue
            entry = part["found"].setdefault(name, {"graphs": len(dataset)})
            place = entry.setdefault("runs", {}) if arguments.search else entry
            for label in CANDIDATES if arguments.search else SYSTEMS:
                done = place.setdefault(label, {})
                if str(fold) in done:
                    continue
                system = "pprgnn" if arguments.search else SYSTEMS[label]
                own = {**changes, **CANDIDATES[label]} if arguments.search else changes if system != "wl" else {}
                done[str(fold)] = measure(dataset, config_of(system, own), fold, arguments.folds)
                print(f"{name}, {label}, fold {fold}: {done[str(fold)]}", flush=True)
                path.write_text(json.dumps(data, indent=1) + "\n")
                arguments.output.with_suffix(".md").write_text(markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()
