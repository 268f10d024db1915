"""Which labels are predicted where a row may have several: those whose logit is above a threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pprgnn.data.split import Split
from pprgnn.distributed.team import Team

COARSE = 256  # thresholds that are tried first; most of the others cannot be better
BLOCK = 1 << 22  # scores that are counted at once


@dataclass(frozen=True)
class Rule:
    """How the threshold is found, and why so, as a phrase.

    ``half``: probability one half; ``validation``: the best micro-F1 on the validation part; ``per-class``: the
    best F1 of each class there.
    """

    name: str
    reason: str

    @classmethod
    def of(cls, wanted: str, split: Split, multi_label: bool) -> Rule:
        """What a setting means with this split."""
        if not multi_label:
            return cls("half", "every row has one class")
        if wanted == "half":
            return cls("half", "as training.threshold says")
        if wanted == "auto" and split.protocol == "paper":
            return cls("half", "the rule of the paper's protocol")
        if not len(split.val):
            return cls("half", "there is no validation part to choose it on")
        if wanted == "per-class":
            return cls("per-class", "the best F1 of each class on the validation part")
        return cls("validation", "the best micro-F1 on the validation part")


@dataclass(frozen=True)
class Threshold:
    """Labels whose logit is above it are predicted.

    Attributes:
        rule: How it was found, as in :class:`Rule`.
        logits: One number for all classes, or one for each.
        reason: Why it is so, as a phrase.
    """

    rule: str = "half"
    logits: tuple[float, ...] = (0.0,)  # PAPER: its code takes logit > 0.5; the sigmoid passes one half at 0.
    reason: str = ""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Threshold:
        """The inverse of ``dataclasses.asdict``, also after JSON."""
        rule, logits, reason = str(values["rule"]), values["logits"], str(values["reason"])
        return cls(rule, tuple(map(float, logits)), reason)

    @property
    def probabilities(self) -> list[float]:
        found: list[float] = torch.tensor(self.logits, dtype=torch.float64).sigmoid().tolist()
        return found

    def marks(self, logits: Tensor) -> Tensor:
        return logits > logits.new_tensor(self.logits)

    def describe(self) -> str:
        """The probability and where it comes from, for people."""
        low, high = min(self.probabilities), max(self.probabilities)
        value = f"{low:.3g}" if len(self.logits) == 1 else f"{low:.3g} to {high:.3g}, by class"
        return f"{value}: {self.reason}" if self.reason else value

    def to_dict(self) -> dict[str, Any]:
        """For a summary; one number where there is one for all classes."""
        values = {"probability": self.probabilities, "logit": list(self.logits)}
        shown = {name: each[0] if len(each) == 1 else each for name, each in values.items()}
        return {"rule": self.rule, **shown, "told": self.describe()}


def best_cut(scores: Tensor, true: Tensor, team: Team) -> float | None:
    """Where ``scores > cut`` has the best F1: halfway between two scores; ``None``: nothing is true.

    Of several with the same F1, the highest. The search is exact: the best F1 is right below the score of a label
    that is there, since going on over labels that are not only adds wrong predictions. So the scores of labels
    that are there are sorted, and all others only counted between them.
    """
    whole = team.gather_rows(scores[true])
    [(_, whole)] = team.broadcast_tensors({} if whole is None else {"scores": whole})
    cuts, times = torch.unique(whole.to(scores.device), return_counts=True)
    if not len(cuts):
        return None
    found = times.flip(0).cumsum(0).flip(0)  # how many labels are there at each cut and above
    total, start, end, beyond = found[0], 0, len(cuts), 0
    if len(cuts) > COARSE:
        some = torch.arange(0, len(cuts), math.ceil(len(cuts) / COARSE), device=cuts.device)
        hits, predicted = found[some], _count(scores, cuts[some], team)
        above, further = (torch.cat([each[1:], each.new_zeros(1)]) for each in (hits, predicted))
        # Between two of them F1 is largest if what is true there comes before all else.
        possible = 2 * hits.double() / (further + (hits - above) + total)
        reached = (2 * hits.double() / (predicted + total)).max()
        left = (possible >= reached * (1 - 1e-12)).nonzero().flatten()  # rounding must not lose the best
        start, last = int(some[left[0]]), int(left[-1]) + 1
        if last < len(some):
            end, beyond = int(some[last]), int(predicted[last])
            scores = scores[scores < cuts[end]]
    predicted = _count(scores[scores >= cuts[start]], cuts[start:end], team) + beyond
    f1 = 2 * found[start:end].double() / (predicted + total)
    cut = cuts[end - 1 - int(f1.flip(0).argmax())]
    lower = scores[scores < cut]
    below = cut.new_tensor(team.all_max(float(lower.max()) if len(lower) else -math.inf))
    # In the precision of the scores, where halfway may be one of the two.
    highest = torch.nextafter(cut, cut.new_tensor(-math.inf))
    halfway = below + (cut - below) / 2
    return float(torch.minimum(halfway, highest) if torch.isfinite(halfway) else highest)


def _count(scores: Tensor, cuts: Tensor, team: Team) -> Tensor:
    """How many scores of all processes are at least as high as each of the rising cuts."""
    counts = torch.zeros(len(cuts) + 1, dtype=torch.int64, device=cuts.device)
    for block in torch.split(scores, BLOCK):
        places = torch.bucketize(block.contiguous(), cuts, right=True, out_int32=True)
        counts += torch.bincount(places, minlength=len(counts))
    return team.all_reduce(counts[1:].flip(0).cumsum(0).flip(0).contiguous())
