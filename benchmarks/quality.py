"""How good the shipped recipes are: `python -m benchmarks.quality` writes results/quality.md and .json.

All in the honest protocol: validation chooses the epoch, the test part chooses nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.report import table

STUDIES = {  # recipe: folds (None: the one split), seeds
    "chains": (None, 3),
    "cora": (None, 5),
    "cora-gcn": (None, 5),
    "mutag": (-1, 5),
}


def run(recipe: str, folds: int | None, seeds: int, workers: int, folder: Path | None = None) -> dict:
    """Train a recipe so often, honestly; ``folds`` is -1 for all, None for the one split.

    With a folder, the study is kept there, and one that was stopped goes on.
    """
    from pprgnn.training.config import Config
    from pprgnn.training.recipes import find_recipe
    from pprgnn.training.run import Run
    from pprgnn.training.study import Study, is_study

    path = find_recipe(recipe)
    assert path is not None
    with tempfile.TemporaryDirectory() as temporary:
        kept = folder or Path(temporary) / "study"
        if is_study(kept):
            study = Study.open(kept)
        else:
            config = Config.from_toml(path)
            study = Study.create(kept, config, folds=folds, seeds=seeds, ensemble=seeds > 1, workers=workers)
        summary = study.run()
        started = Run.open(kept / summary["runs"][0]["run"]).environment if summary["runs"] else {}
    if not summary["finished"]:
        raise SystemExit(f"{recipe} was stopped; the same command goes on with it.")
    metric, commit = summary["metric"], started["commit"] or "unknown"
    by_seed: dict[int, list[float]] = {}
    for each in summary["runs"]:
        by_seed.setdefault(each["seed"], []).append(each["scores"]["test"][metric])
    options = (" --folds all" if folds else "") + (f" --seeds {seeds} --ensemble" if seeds > 1 else "")
    return {
        "command": f"pprgnn train {recipe}{options}",
        "metric": metric,
        "runs": len(summary["runs"]),
        "mean": {part: summary["mean"][part][metric] for part in ("val", "test")},
        "std": {part: summary["std"][part][metric] for part in ("val", "test")},
        "ensemble": summary["ensemble"]["mean"]["test"][metric] if seeds > 1 else None,
        "test_by_seed": {seed: sum(values) / len(values) for seed, values in by_seed.items()},
        "seconds": sum(each["seconds"] for each in summary["runs"]),
        "note": summary["note"],
        "commit": commit.removesuffix("-dirty"),  # what the runs were made with
        "edited": commit.endswith("-dirty"),
        "date": started["started"],
    }


def markdown(data: dict) -> str:
    header = ["command", "runs", "val", "test mean ± std", "test by seed", "ensemble", "seconds", "commit"]
    rows = []
    for row in data.values():
        seeds = " ".join(f"{100 * value:.1f}" for value in row["test_by_seed"].values())
        test = f"{100 * row['mean']['test']:.2f} ± {100 * row['std']['test']:.2f}"
        cells = [f"`{row['command']}`", str(row["runs"]), f"{100 * row['mean']['val']:.2f}", test, seeds]
        cells.append("-" if row["ensemble"] is None else f"{100 * row['ensemble']:.2f}")
        rows.append([*cells, f"{row['seconds']:.0f}", row["commit"][:7] + ("*" if row["edited"] else "")])
    date = next(iter(data.values()))["date"][:10]
    head = f"# Quality of the recipes\n\n`python -m benchmarks.quality`, {date}. Accuracy in percent; validation"
    return f"""{head}
chooses the epoch, the test part chooses nothing. ± is the standard deviation over all runs (splits and seeds);
*ensemble* is the test score of the mean probability over the seeds. Seconds: those of all runs, added up.

{table(header, rows)}

`cora-gcn` is GCN with the settings of its paper, which were not tuned; those of `cora` and `mutag` were chosen on
validation among some dozens, so `cora` against `cora-gcn` is no proof that one model is better.
An asterisk: the working tree had changes.
"""


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("recipes", nargs="*", choices=[*STUDIES, []], help="which ones (all)")
    parser.add_argument("--workers", type=int, default=2, help="runs at once (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/quality"))
    arguments = parser.parse_args(given)
    path = arguments.output.with_suffix(".json")
    data = json.loads(path.read_text()) if path.is_file() else {}
    for recipe in arguments.recipes or STUDIES:
        data[recipe] = run(recipe, *STUDIES[recipe], arguments.workers)
        data = {name: data[name] for name in STUDIES if name in data}
        path.write_text(json.dumps(data, indent=1))
        arguments.output.with_suffix(".md").write_text(markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()
