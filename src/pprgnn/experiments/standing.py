"""Whether ours wins, ties or loses: against the strongest baseline of a column, by a paired test.

Imports neither torch nor PyG.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

from scipy.special import stdtr

from pprgnn.experiments.experiment import OURS, PLAIN
from pprgnn.experiments.summary import Entry, Results
from pprgnn.experiments.tables import points, title
from pprgnn.wording import counted

LEVEL = 0.05  # of significance
TEST_SHARE = 1 / 9  # of a fold: test part to training part
ABOUT = (
    "*wins*, *loses*: against the strongest other system under equal conditions, by a paired test over splits "
    f"(p < {LEVEL:g}; folds share training data, which the test takes into account); *ties*: otherwise."
)
SO_FAR = {"wins": "ahead so far", "ties": "level so far", "loses": "behind so far"}  # while systems are missing
NOT_EQUAL = (PLAIN, "as published")  # variants with settings of their own


@dataclass(frozen=True)
class Standing:
    """Ours beside the strongest baseline of a column."""

    ours: Entry
    baseline: Entry
    name: str  # of the baseline
    difference: float
    p: float
    missing: int = 0  # systems of the column that were not run, or not wholly

    @property
    def word(self) -> str:
        """wins, ties or loses."""
        return "ties" if not self.p < LEVEL else "wins" if self.difference > 0 else "loses"

    @property
    def text(self) -> str:
        """``87.7 / GIN 87.9, p = 0.61``."""
        p = f"p = {self.p:.2f}" if self.p >= 0.01 else "p < 0.01"
        missing = f", {counted(self.missing, 'other system')} not complete" if self.missing else ""
        return f"{self.ours.mean:.1f} / {self.name} {self.baseline.mean:.1f}, {p}{missing}"

    @property
    def short(self) -> str:
        """``−0.2, ties``."""
        return f"{points(self.difference)} to {self.name}, {self.word}{' so far' if self.missing else ''}"


def standing(
    results: Results, data: str, protocol: str = "honest", at: Mapping[str, Any] | None = None, metric: str = ""
) -> Standing | None:
    """Ours against the strongest baseline with every cell run; ``None``: ours or all of these are missing."""
    column = {
        (system, variant): entry
        for system, variant in results.systems
        if variant not in NOT_EQUAL and (entry := results.entry(data, system, variant, protocol, at, metric)).cells
    }
    entries = {each: entry for each, entry in column.items() if entry.is_complete}
    ours = [entry for (system, _), entry in entries.items() if system == OURS]
    baselines = {each: entry for each, entry in entries.items() if each[0] != OURS}
    if not ours or not baselines:
        return None
    best = max(ours, key=lambda entry: entry.mean or 0.0)
    name, baseline = max(baselines.items(), key=lambda pair: pair[1].mean or 0.0)
    differences = paired(best, baseline)
    p = p_value(differences, len(_folds(best)) > 1)
    return Standing(best, baseline, title(*name), fmean(differences), p, len(column) - len(entries))


def paired(one: Entry, other: Entry) -> list[float]:
    """Differences by fold, each the mean over seeds; on a single split, by seed.

    A baseline without chance has one result on a split, whatever the seed.
    """
    ours, theirs = _by_place(one), _by_place(other)
    if len(theirs) == 1 and len(_folds(one)) == 1:
        theirs = dict.fromkeys(ours, *theirs.values())
    return [ours[place] - theirs[place] for place in sorted(ours.keys() & theirs.keys())]


def p_value(differences: Sequence[float], folds: bool) -> float:
    """Two-sided, of a paired t test; of folds, whose training parts overlap, as Nadeau and Bengio correct it.

    Two or fewer differences decide nothing.
    """
    count = len(differences)
    if count < 3:
        return 1.0
    spread = variance(differences) * (1 / count + (TEST_SHARE if folds else 0.0))
    mean = fmean(differences)
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(count - 1, -abs(mean) / math.sqrt(spread)))


def _folds(entry: Entry) -> set[int]:
    return {fold for fold, _ in entry.by_split}


def _by_place(entry: Entry) -> dict[int, float]:
    several = len(_folds(entry)) > 1
    found: dict[int, list[float]] = {}
    for (fold, seed), value in entry.by_split.items():
        found.setdefault(fold if several else seed, []).append(value)
    return {place: fmean(values) for place, values in found.items()}


# ------------------------------------------------------------------------------------------------------- in short
def in_short(all_results: Sequence[Results]) -> str:
    """A line for each table with equal conditions: where ours wins, ties and loses."""
    lines = []
    for results in all_results:
        if not results.experiment.compared:
            continue
        found: dict[str, list[str]] = {word: [] for word in (*SO_FAR, *SO_FAR.values(), "not complete")}
        for name, ours in _columns(results).items():
            word = "not complete" if ours is None else SO_FAR[ours.word] if ours.missing else ours.word
            found[word].append(f"{name} ({ours.text})" if ours else name)
        words = {word: columns for word, columns in found.items() if columns}
        text = "; ".join(f"*{word}*: {', '.join(columns)}" for word, columns in words.items())
        lines.append(f"- **{results.experiment.title}**: {text if results.lines else 'not run'}.")
    return "\n".join(lines)


def _columns(results: Results) -> dict[str, Standing | None]:
    """How ours stands in each column; the data set is named where there are several."""
    honest = [group for group in results.groups if group.protocol == "honest" and group.variant not in NOT_EQUAL]
    found = {}
    compared = [group for group in honest if group.system != OURS]
    columns = dict.fromkeys((group.data, group.place) for group in compared)
    for data, place in sorted(columns, key=lambda column: list(json.loads(column[1]).values())):
        at = json.loads(place)
        if len(results.data) > 1 or not at:
            words = [data, *(f"{name} {value}" for name, value in at.items())]
        else:
            words = [f"{name} {value}" for name, value in at.items()]
        found[", ".join(words)] = standing(results, data, at=at)
    return found
