"""How good predictions are: accuracy, F1, F1 with an oracle's number of labels, area under the ROC curve.

All rows are pooled, whichever graph or batch they come from. Torch counts where the logits are; only the counts
leave the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pprgnn.distributed.team import Team
from pprgnn.training.errors import TrainingError
from pprgnn.training.thresholds import Rule, Threshold, best_cut

if TYPE_CHECKING:
    from pprgnn.data.dataset import Facts

ACCURACY, MICRO_F1, MACRO_F1, ROC_AUC = "accuracy", "micro-F1", "macro-F1", "ROC AUC"
ORACLE_MICRO_F1, ORACLE_MACRO_F1 = "oracle micro-F1", "oracle macro-F1"
BLOCK = 255  # so many marks can be added in a byte
HALF = Threshold()


def default_metrics(facts: Facts, *, oracle: bool = False) -> tuple[str, ...]:
    """What people expect to see for these data, the main metric first.

    With ``oracle`` (the protocol of the Amazon experiment) the main metric is the oracle micro-F1.
    """
    if oracle and not facts.multi_label:
        raise TrainingError(
            f"An oracle tells how many labels a row has, but in {facts.name} every row has one; leave it out."
        )
    if facts.multi_label:
        usual: tuple[str, ...] = (facts.metric, MICRO_F1, MACRO_F1)
        usual = (ORACLE_MICRO_F1, ORACLE_MACRO_F1, *usual) if oracle else usual
    else:
        usual = (facts.metric, ACCURACY, MACRO_F1)
        usual = (*usual, ROC_AUC) if len(facts.class_names) == 2 else usual
    return tuple(dict.fromkeys(usual))


def scores(
    logits: Tensor,
    y: Tensor,
    *,
    multi_label: bool,
    metrics: Sequence[str],
    team: Team | None = None,
    threshold: Threshold = HALF,
) -> dict[str, float]:
    """The named metrics, in this order; what they share is computed once.

    Args:
        logits: (rows, classes); one column is the logit of the second of two classes.
        y: (rows,) classes from 0 on, or with ``multi_label`` (rows, classes) of zeros and ones.
        multi_label: whether a row may have any number of classes.
        metrics: names out of ``METRICS``.
        team: processes whose rows count as well.
        threshold: with ``multi_label``, above which logit a label is predicted.
    """
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise TrainingError(f"A metric must be one of {', '.join(METRICS)}, but came as {unknown[0]!r}.")
    predictions = _Predictions(logits, y, multi_label, team, threshold)
    return {name: METRICS[name](predictions) for name in metrics}


def predicted_classes(
    logits: Tensor, y: Tensor, facts: Facts, team: Team | None = None, threshold: Threshold = HALF
) -> dict[str, int]:
    """For each class, how many rows are predicted to have it."""
    counts = _Predictions(logits, y, facts.multi_label, team, threshold).counts(oracle=False)
    return {name: predicted for name, (_, _, predicted) in zip(facts.class_names, counts, strict=True)}


def best_threshold(logits: Tensor, y: Tensor, rule: Rule, team: Team | None = None) -> Threshold:
    """What a rule chooses on these rows of all processes, each row with several labels; the same in each process.

    A class that no row has gets the threshold of all classes together; without any label, it is one half.
    """
    if rule.name == "half":
        return Threshold(reason=rule.reason)
    rows = _Predictions(logits, y, True, team)
    together = best_cut(rows.logits.flatten(), rows.true.flatten(), rows.team)
    if together is None:
        return Threshold(reason="no row of the validation part has a label")
    if rule.name == "validation":
        return Threshold(rule.name, (together,), rule.reason)
    columns = zip(rows.logits.unbind(1), rows.true.unbind(1), strict=True)
    cuts = [best_cut(score, marks, rows.team) for score, marks in columns]
    return Threshold(rule.name, tuple(together if cut is None else cut for cut in cuts), rule.reason)


class Meter:
    """Collects predictions over batches and scores them at the end, all rows pooled.

    Nothing is computed or moved before :meth:`scores`, so that adding a batch never waits for a device.
    """

    def __init__(self, *, multi_label: bool, metrics: Sequence[str], team: Team | None = None) -> None:
        self.multi_label, self.metrics, self.team = multi_label, tuple(metrics), team
        self._logits: list[Tensor] = []
        self._y: list[Tensor] = []
        self._losses: list[Tensor] = []
        self._loss_rows: list[int] = []

    def add(self, logits: Tensor, y: Tensor, loss: Tensor | None = None, rows: int | None = None) -> None:
        """Keep a batch (not copied: do not write into it); ``loss`` is its mean over the rows.

        Of a batch of several processes, each gives its own rows, the loss of all, and the number of all rows.
        """
        self._logits.append(logits.detach())
        self._y.append(y.detach())
        if loss is not None:
            self._losses.append(loss.detach())
            self._loss_rows.append(logits.size(0) if rows is None else rows)

    def best_threshold(self, rule: Rule) -> Threshold:
        """What a rule chooses on these batches."""
        return best_threshold(*self._pooled(), rule, self.team)

    def scores(self, threshold: Threshold = HALF) -> dict[str, float]:
        """``loss``, if batches came with one (their mean, weighted by rows), then the metrics."""
        logits, y = self._pooled()
        options: dict[str, Any] = {"multi_label": self.multi_label, "metrics": self.metrics, "team": self.team}
        found = scores(logits, y, threshold=threshold, **options)
        if not sum(self._loss_rows):
            return found
        weighted = zip(torch.stack(self._losses).tolist(), self._loss_rows, strict=True)
        # A batch without rows has no mean loss (nan), and no say.
        total = math.fsum(loss * rows for loss, rows in weighted if rows)
        return {"loss": total / sum(self._loss_rows), **found}

    def _pooled(self) -> tuple[Tensor, Tensor]:
        if not self._logits:
            raise TrainingError("There are no predictions to score; add at least one batch.")
        if len(self._logits) > 1:
            self._logits, self._y = [torch.cat(self._logits)], [torch.cat(self._y)]
        return self._logits[0], self._y[0]


class _Predictions:
    """Logits and truth, checked once, and what several metrics need."""

    def __init__(
        self, logits: Tensor, y: Tensor, multi_label: bool, team: Team | None, threshold: Threshold = HALF
    ) -> None:
        self.team, self.threshold = team or Team.alone(), threshold
        if self.team.size == 1 or len(logits):  # of several processes, one may have no rows
            _check(logits, y, multi_label)
        logits = logits.detach()
        if not multi_label and logits.size(1) == 1:  # the logit of the second class against 0
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        self.logits, self.multi_label = logits, multi_label
        self.true = y if not multi_label or y.dtype == torch.bool else y > 0
        self._counted: dict[bool, list[tuple[int, int, int]]] = {}

    def predict(self, oracle: bool) -> Tensor:
        """Classes (rows,), or with several labels marks (rows, classes)."""
        if not self.multi_label:  # one label each: an oracle tells nothing new
            return self.logits.argmax(1)
        return top_labels(self.logits, self.true.sum(1)) if oracle else self.threshold.marks(self.logits)

    def counts(self, oracle: bool) -> list[tuple[int, int, int]]:
        """Per class: rows with the label that are predicted, rows with the label, rows predicted."""
        if oracle not in self._counted:
            predicted = self.predict(oracle)
            if self.multi_label:
                counts = [_column_counts(marks) for marks in (predicted & self.true, self.true, predicted)]
            else:
                size = self.logits.size(1)
                hits = self.true[predicted == self.true]
                counts = [torch.bincount(classes, minlength=size) for classes in (hits, self.true, predicted)]
            self._counted[oracle] = list(zip(*self.team.all_reduce(torch.stack(counts)).tolist(), strict=True))
        return self._counted[oracle]


def _accuracy(rows: _Predictions) -> float:
    """Share of rows that are right; with several labels a row is right when all of its labels are."""
    right = rows.predict(oracle=False) == rows.true
    number, count = rows.team.all_sum(float((right.all(1) if rows.multi_label else right).sum()), len(right))
    return number / count


def _micro_f1(rows: _Predictions, oracle: bool = False) -> float:
    """F1 of all labels of all classes together; the accuracy when every row has one class."""
    hits, true, predicted = (sum(counts) for counts in zip(*rows.counts(oracle), strict=True))
    return _f1(hits, true, predicted)


def _macro_f1(rows: _Predictions, oracle: bool = False) -> float:
    """Mean over the classes of their F1, as scikit-learn's ``f1_score(average="macro", zero_division=0)`` has it.

    A class that is neither labelled nor predicted in these rows is left out when every row has one class; with
    several labels a row it counts as 0.
    """
    counts = rows.counts(oracle)
    if not rows.multi_label:
        counts = [of_class for of_class in counts if any(of_class)]
    return math.fsum(_f1(*of_class) for of_class in counts) / len(counts)


def _f1(hits: int, true: int, predicted: int) -> float:
    """2·precision·recall / (precision + recall), 0 where it is 0/0."""
    return 2 * hits / (true + predicted) if true + predicted else 0.0


def _roc_auc(rows: _Predictions) -> float:
    """Area under the ROC curve: how often a row with the label scores above a row without; ties count one half.

    Two classes: the score is the second logit minus the first. More classes: the mean of each class against the
    rest, by softmax. Several labels: the mean over labels. Classes that all rows or no rows have are left out, and
    if none is left the area is undefined: nan.
    """
    logits, marks = rows.team.gather_rows(rows.logits), rows.team.gather_rows(rows.true)  # it is about pairs
    if logits is None or marks is None:
        return rows.team.broadcast_number(math.nan)
    if rows.multi_label:
        columns = zip(logits.unbind(1), marks.unbind(1), strict=True)
        areas = [_area(score, true) for score, true in columns]
    elif logits.size(1) == 2:
        first, second = logits.unbind(1)
        areas = [_area(second - first, marks == 1)]
    else:
        areas = [_area(score, marks == c) for c, score in enumerate(logits.log_softmax(1).unbind(1))]
    defined = [area for area in areas if not math.isnan(area)]
    return rows.team.broadcast_number(math.fsum(defined) / len(defined) if defined else math.nan)


def _area(score: Tensor, true: Tensor) -> float:
    """Share of pairs (row with the label, row without) in the right order, in whole numbers: ties are exact."""
    with_label, without = score[true], score[~true].sort().values
    if not len(with_label) or not len(without):
        return math.nan
    below = torch.searchsorted(without, with_label).sum()
    not_above = torch.searchsorted(without, with_label, right=True).sum()
    return int(below + not_above) / (2 * len(with_label) * len(without))


METRICS: dict[str, Callable[[_Predictions], float]] = {
    ACCURACY: _accuracy,
    MICRO_F1: _micro_f1,
    MACRO_F1: _macro_f1,
    ORACLE_MICRO_F1: partial(_micro_f1, oracle=True),
    ORACLE_MACRO_F1: partial(_macro_f1, oracle=True),
    ROC_AUC: _roc_auc,
}


def top_labels(logits: Tensor, k: Tensor) -> Tensor:
    """Mark the ``k[i]`` highest logits of row i (none for 0); of equal logits, those of the first classes."""
    most = max(int(k.max()), 1) if len(k) else 1
    kth = logits.topk(most, dim=1).values.gather(1, (k - 1).clamp(min=0).unsqueeze(1))  # (rows, 1)
    marks = logits >= kth
    crowded = (marks.sum(1) > k).nonzero().squeeze(1)  # ties at the k-th logit, or k = 0
    if len(crowded):
        few, kth, k = logits[crowded], kth[crowded], k[crowded]
        above, tied = few > kth, few == kth
        room = (k - above.sum(1)).unsqueeze(1)  # 0 when k = 0: then kth is the highest logit
        marks[crowded] = above | (tied & (tied.cumsum(1) <= room))
    return marks


def _column_counts(marks: Tensor) -> Tensor:
    """Marks per column. Adding bytes in blocks is four times as fast as ``marks.sum(0)``, which widens each."""
    rows, columns = marks.shape
    even = rows - rows % BLOCK
    blocks = marks[:even].view(torch.uint8).reshape(-1, BLOCK, columns).sum(1, dtype=torch.uint8)
    return blocks.sum(0) + marks[even:].sum(0)


def check_shapes(logits: Tensor, y: Tensor, multi_label: bool) -> None:
    """Raise unless there are rows, with a label each, or with ``multi_label`` one for each class."""
    if logits.dim() != 2 or not logits.numel():
        raise TrainingError(
            f"Logits must have shape (rows, classes) with at least one row and class, but have shape "
            f"{tuple(logits.shape)}; is the part of the split that is scored empty?"
        )
    expected = tuple(logits.shape) if multi_label else (logits.size(0),)
    if tuple(y.shape) != expected:
        kind = "of zeros and ones" if multi_label else "of classes"
        raise TrainingError(
            f"For logits of shape {tuple(logits.shape)}, y must have shape {expected} {kind}, but has shape "
            f"{tuple(y.shape)}; is multi_label = {multi_label} right?"
        )


def _check(logits: Tensor, y: Tensor, multi_label: bool) -> None:
    check_shapes(logits, y, multi_label)
    # The sum tells in one pass, unless it overflows itself.
    if not math.isfinite(float(logits.detach().sum())):
        bad = int((~torch.isfinite(logits)).any(1).sum())
        if bad:
            raise TrainingError(
                f"Logits must be finite, but {bad:,} of {len(logits):,} rows hold NaN or infinity: training has "
                f"diverged; use a lower learning rate or clip gradients, and look for NaN in the features."
            )
    check_truth(y, max(logits.size(1), 2), multi_label)


def check_truth(y: Tensor, num_classes: int, multi_label: bool) -> None:
    """Raise unless ``y`` holds classes below ``num_classes``, or with ``multi_label`` zeros and ones."""
    if multi_label:
        wrong = None if y.dtype == torch.bool else ~(y == 0).logical_or_(y == 1)
        if wrong is not None and bool(wrong.any()):
            value = float(y[wrong][0])
            raise TrainingError(f"y must hold zeros and ones, but holds {value:g}; score the labelled rows only.")
        return
    if y.is_floating_point() or y.dtype == torch.bool:
        raise TrainingError(f"y must hold classes as integers, but has dtype {y.dtype}; use y.long().")
    low, high = (int(end) for end in y.aminmax())
    if low < 0 or high >= num_classes:
        value, remedy = (low, "select the labelled rows") if low < 0 else (high, "give the model more outputs")
        raise TrainingError(f"y must hold classes 0 ... {num_classes - 1}, but holds {value}; {remedy}.")
