"""Try the candidates of a system on validation alone, and keep all that came out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from pprgnn.data.atomic_io import write_text
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sampling import by_stratum, strata_of
from pprgnn.data.split import Split
from pprgnn.experiments.cell import Cell
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError

KEPT = "trials.json"
Tried = dict[str, Any]


def run_trials(cell: Cell, config: Config, folder: Path) -> dict[str, Any] | None:
    """Train every candidate on every inner part; ``None``: it was stopped, and the same call goes on.

    What came out of each is kept in the folder, so that a kill loses one training.
    """
    from pprgnn.training.train import choose_split, load_data, train

    dataset = load_data(config)
    splits = list(inner_splits(dataset, choose_split(config, dataset), cell.inner))
    kept: list[list[Tried]] = _read(folder / KEPT)
    for number, settings in enumerate(cell.candidates):
        if number == len(kept):
            kept.append([])
        for split in splits[len(kept[number]) :]:
            try:
                summary = train(config.with_values(settings), dataset=dataset, split=split).summary
            except TrainingError as error:
                if isinstance(error.__cause__, OSError):
                    raise
                tried: Tried = {"error": str(error)}
            else:
                if not summary["finished"]:
                    return None
                scores = summary["scores"]["val"]  # nothing of the test part is kept
                tried = {"val": scores[summary["metric"]], "loss": scores["loss"], "seconds": summary["seconds"]}
            kept[number].append(tried)
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / KEPT, json.dumps(kept))
    trials = [_mean(settings, tried) for settings, tried in zip(cell.candidates, kept, strict=True)]
    best = min(range(len(trials)), key=lambda number: (-trials[number]["val"], trials[number]["loss"], number))
    if trials[best]["val"] == -math.inf:
        raise TrainingError(f"All candidates failed, the first one so: {kept[0][0]['error']}")
    for each in trials:
        if each["val"] == -math.inf:  # JSON has no infinite numbers
            each["val"] = each["loss"] = None
    return {
        "trials": trials,
        "chosen": dict(cell.candidates[best]),
        "val": trials[best]["val"],
        "trainings": sum(map(len, kept)),
        "seconds": sum(each.get("seconds", 0.0) for tried in kept for each in tried),
        "inner": cell.inner,
    }


def inner_splits(dataset: GraphDataset, split: Split, parts: int) -> Iterator[Split]:
    """The training part in so many parts, each validating once; 0: the split itself."""
    if not parts:
        yield split
        return
    units = split.train.numpy()
    place = np.empty(len(units), dtype=np.int64)
    rng = np.random.default_rng(split.index)
    place[by_stratum(strata_of(dataset)[units], rng)] = np.arange(len(units)) % parts
    for part in range(parts):
        train, val = units[place != part], units[place == part]
        yield Split.of(dataset, (train, val, split.test), unit=split.unit, description=f"Inner part {part + 1}.")


def _mean(settings: Any, tried: Sequence[Tried]) -> Tried:
    failed = next((each["error"] for each in tried if "error" in each), None)
    if failed is not None:  # on one part: then the settings are no good
        return {"settings": dict(settings), "val": -math.inf, "loss": math.inf, "error": failed}
    means = {name: fmean(each[name] for each in tried) for name in ("val", "loss")}
    return {"settings": dict(settings), **means, "each": [each["val"] for each in tried]}


def _read(path: Path) -> list[list[Tried]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []
