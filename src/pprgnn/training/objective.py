"""What training makes small: cross entropy, or one logistic loss per label; rare classes may count for more."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pprgnn.distributed.team import Team
from pprgnn.training.errors import TrainingError
from pprgnn.training.metrics import check_truth

POS_WEIGHT_RANGE = (1.0, 100.0)  # a label that two rows in a million have must not drown the others


class Objective:
    """The mean loss of a batch.

    One class per row: cross entropy; ``class_weights`` multiply the loss of the rows of each class.
    Several labels: the logistic loss, averaged over rows and labels; ``class_weights`` multiply the loss where a
    label is present (torch's ``pos_weight``).

    The weighted sum is divided by the number of rows, not by the sum of their weights as torch does: batches then
    add up to the loss of all rows, and a batch whose classes all weigh nothing has loss 0 instead of nan.

    Args:
        multi_label: whether a row may have any number of classes.
        class_weights: one number >= 0 per class; see :func:`balanced_weights`.
    """

    def __init__(self, multi_label: bool, class_weights: Tensor | None = None) -> None:
        if class_weights is not None:
            usable = class_weights.dim() == 1 and bool((class_weights.isfinite() & (class_weights >= 0)).all())
            if not usable or not bool((class_weights > 0).any()):
                raise TrainingError(
                    "Class weights must be one finite number >= 0 per class and not all 0, but came as "
                    f"{class_weights.tolist()}."
                )
        self.multi_label, self.class_weights = multi_label, class_weights

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        """Mean loss, a tensor without dimensions.

        Args:
            logits: (rows, classes); one column is the logit of the second of two classes.
            y: (rows,) classes, or with ``multi_label`` (rows, classes) of zeros and ones.
        """
        self._check(logits, y)
        if self.class_weights is not None:
            self.class_weights = self.class_weights.to(logits)  # moved once, then at home
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), pos_weight=self.class_weights)
        if logits.size(1) == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        if self.class_weights is None:
            return F.cross_entropy(logits, y)
        return F.cross_entropy(logits, y, weight=self.class_weights, reduction="sum") / len(y)

    def _check(self, logits: Tensor, y: Tensor) -> None:
        expected = tuple(logits.shape) if self.multi_label else (logits.size(0),)
        if logits.dim() != 2 or tuple(y.shape) != expected:
            shape = "the same" if self.multi_label else "(rows,)"
            raise TrainingError(
                f"Logits must have shape (rows, classes) and y {shape}, but "
                f"they have {tuple(logits.shape)} and {tuple(y.shape)}; is multi_label = {self.multi_label} right?"
            )
        if not logits.numel():
            raise TrainingError("A loss needs at least one row, but the batch has none; leave such batches out.")
        num_classes = logits.size(1) if self.multi_label else max(logits.size(1), 2)
        if self.class_weights is not None and len(self.class_weights) != num_classes:
            raise TrainingError(
                f"There must be one class weight for each of the {num_classes} classes, but there are "
                f"{len(self.class_weights)}."
            )


def pooled_loss(objective: Objective, logits: Tensor, y: Tensor, team: Team) -> tuple[Tensor, Tensor, int]:
    """What the rows here add to the mean loss over the rows of all processes, to learn from; that mean; the rows.

    The sum of the gradients of what each adds is then the gradient of the mean.
    """
    if team.size == 1:
        loss = objective(logits, y)
        return loss, loss.detach(), len(y)
    rows = int(team.all_sum(len(y))[0])
    own = objective(logits, y) * (len(y) / rows) if len(y) else logits.sum() * 0.0
    return own, team.all_reduce(own.detach().clone()), rows


def balanced_weights(y: Tensor, num_classes: int, multi_label: bool) -> Tensor:
    """Weights under which all classes count alike, from the rows one trains on.

    One class per row: n / (C · count), C the number of classes that occur, as scikit-learn's "balanced": their
    mean over the rows is 1. Classes that do not occur get 0.
    Several labels: negatives / positives of each label, clipped to 1 ... 100: frequent labels are not held down,
    rare ones not blown up.
    """
    if not y.numel():
        raise TrainingError("Balanced class weights need labelled rows, but there are none; leave them out.")
    if y.dim() != 1 + multi_label or (multi_label and y.size(1) != num_classes):
        shape = f"(rows, {num_classes})" if multi_label else "(rows,)"
        raise TrainingError(f"y must have shape {shape}, but has {tuple(y.shape)}.")
    check_truth(y, num_classes, multi_label)
    if multi_label:
        positives = y.sum(0, dtype=torch.float32)
        return ((len(y) - positives) / positives).clamp(*POS_WEIGHT_RANGE)
    counts = torch.bincount(y, minlength=num_classes)
    present = counts > 0
    weights = len(y) / (present.sum() * counts.clamp(min=1))
    return torch.where(present, weights, 0.0)
