"""Whether the rivals reach their publicly known levels: `python -m benchmarks.levels` writes results/levels.*.

A rival that is worse here than elsewhere would make ours look good for nothing. All honest: validation (for
kernels, cross-validation inside the training part) chooses, the test part chooses nothing. The studies are kept in
runs/levels, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks import quality
from benchmarks.report import table


@dataclass(frozen=True)
class Level:
    """A recipe, how often it is run, and what is known of it."""

    folds: int | None  # -1: all; None: the one published split
    seeds: int
    known: float  # percent
    below: float  # how much less is still the same level: means of few runs differ
    source: str


LEVELS = {
    "cora-gcn": Level(None, 10, 81.5, 0.7, "Kipf and Welling 2017"),
    "cora-gat": Level(None, 5, 83.0, 0.7, "Veličković et al. 2018"),
    "cora-appnp": Level(None, 5, 83.0, 0.0, "Klicpera et al. 2019: 83.3 on this split; at least 83"),
    "cora-gcnii": Level(None, 5, 84.5, 0.0, "Chen et al. 2020: 85.5 with 64 layers; at least 84.5"),
    "nci1-wl": Level(-1, 1, 84.0, 1.5, "Shervashidze et al. 2011 and later: 82 to 86"),
    "nci1-gin": Level(-1, 1, 80.0, 1.4, "Errica et al. 2020, the same nested splits: 80.0 ± 1.4"),
}


def verdict(name: str, mean: float) -> str:
    """Whether the level is reached, in words."""
    level = LEVELS[name]
    return "reached" if 100 * mean >= level.known - level.below else f"missed by {level.known - 100 * mean:.1f}"


def markdown(data: dict) -> str:
    header = [
        "command",
        "runs",
        "test mean ± std",
        "known",
        "verdict",
        "val",
        "seconds",
        "commit",
        "date",
        "known from",
    ]
    rows = []
    for name, row in data.items():
        level = LEVELS[name]
        test = f"{100 * row['mean']['test']:.2f} ± {100 * row['std']['test']:.2f}"
        known = f"{level.known} - {level.below}" if level.below else f"≥ {level.known}"
        cells = [f"`{row['command']}`", str(row["runs"]), test, known, verdict(name, row["mean"]["test"])]
        cells += [f"{100 * row['mean']['val']:.2f}", f"{row['seconds']:.0f}"]
        rows.append([*cells, row["commit"][:7] + ("*" if row["edited"] else ""), row["date"][:10], level.source])
    return f"""# Known levels of the rivals

`python -m benchmarks.levels`. Accuracy in percent. Cora: the published split, ± over seeds; NCI1: ten folds (the
published nested splits), ± over folds. Validation chooses the epoch, for WL cross-validation inside the training
part chooses C and the number of iterations; the test part chooses nothing. *known*: the published figure, less
what few runs may miss. Seconds: those of all runs, added up.

{table(header, rows)}

An asterisk: the working tree had changes.
"""


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.levels", description=__doc__)
    parser.add_argument("recipes", nargs="*", choices=[*LEVELS, []], help="which ones (all)")
    parser.add_argument("--workers", type=int, default=2, help="runs at once (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/levels"), help="of the studies (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/levels"))
    arguments = parser.parse_args(given)
    path = arguments.output.with_suffix(".json")
    data = json.loads(path.read_text()) if path.is_file() else {}
    for name in arguments.recipes or LEVELS:
        level, folder = LEVELS[name], arguments.folder / name
        data[name] = quality.run(name, level.folds, level.seeds, arguments.workers, folder)
        data = {each: data[each] for each in LEVELS if each in data}
        path.write_text(json.dumps(data, indent=1))
        arguments.output.with_suffix(".md").write_text(markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()
