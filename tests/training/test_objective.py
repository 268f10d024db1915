"""The loss and the class weights, in numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from pprgnn.training.errors import TrainingError
from pprgnn.training.optimization import Objective, balanced_weights

LOG3 = math.log(3.0)
# Softmax of (log 3, 0) is (3/4, 1/4): losses log 4/3 and log 4.
LOGITS = torch.tensor([[LOG3, 0.0], [LOG3, 0.0], [0.0, LOG3]])
CLASSES = torch.tensor([0, 1, 1])


def test_cross_entropy():
    loss = Objective(multi_label=False)(LOGITS, CLASSES)
    assert loss.dim() == 0
    assert float(loss) == pytest.approx((2 * math.log(4 / 3) + math.log(4)) / 3)


def test_weighted_cross_entropy_is_divided_by_rows():
    loss = Objective(False, torch.tensor([2.0, 0.5]))(LOGITS, CLASSES)
    assert float(loss) == pytest.approx((2 * math.log(4 / 3) + 0.5 * math.log(4) + 0.5 * math.log(4 / 3)) / 3)


def test_weightless_rows_have_no_loss():
    assert float(Objective(False, torch.tensor([0.0, 1.0]))(LOGITS[:1], CLASSES[:1])) == 0


def test_batches_add_up_to_all_rows():
    objective = Objective(False, torch.tensor([2.0, 0.5]))
    parts = sum(objective(LOGITS[rows], CLASSES[rows]) * len(rows) for rows in torch.arange(3).split(2))
    assert float(parts / 3) == pytest.approx(float(objective(LOGITS, CLASSES)))


def test_one_column_is_the_second_of_two_classes():
    column = (LOGITS[:, 1] - LOGITS[:, 0]).unsqueeze(1).requires_grad_()
    weights = torch.tensor([2.0, 0.5])
    loss = Objective(False, weights)(column, CLASSES)
    assert float(loss.detach()) == pytest.approx(float(Objective(False, weights)(LOGITS, CLASSES)))
    loss.backward()
    assert column.grad.abs().min() > 0


def test_logistic_loss():
    # Sigmoid of log 3 is 3/4: the loss is log 4/3 when the label is there and log 4 when not.
    logits, y = torch.tensor([[LOG3, LOG3], [0.0, -LOG3]]), torch.tensor([[1, 0], [1, 1]])
    plain = (math.log(4 / 3) + math.log(4) + math.log(2) + math.log(4)) / 4
    assert float(Objective(True)(logits, y.float())) == pytest.approx(plain)
    assert float(Objective(True)(logits, y.bool())) == pytest.approx(plain)
    weighted = (10 * math.log(4 / 3) + math.log(4) + 10 * math.log(2) + 3 * math.log(4)) / 4
    assert float(Objective(True, torch.tensor([10.0, 3.0]))(logits, y)) == pytest.approx(weighted)


def test_weights_follow_the_logits():
    objective = Objective(False, torch.tensor([2, 1]))
    assert objective(LOGITS.double(), CLASSES).dtype == torch.float64


def test_balanced_weights_of_classes():
    weights = balanced_weights(torch.tensor([0, 0, 0, 2]), 4, multi_label=False)
    assert weights.tolist() == pytest.approx([4 / 6, 0, 2, 0])
    y = torch.tensor([0, 1, 1, 2, 2, 2, 2, 2])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=y.numpy())
    assert balanced_weights(y, 3, multi_label=False).tolist() == pytest.approx(expected.tolist())
    assert float(balanced_weights(y, 3, False)[y].mean()) == pytest.approx(1)


def test_balanced_weights_of_labels_are_clipped():
    y = torch.zeros(300, 5)
    y[:100, 0] = 1  # 200 / 100
    y[:200, 1] = 1  # one half: not below 1
    y[:1, 2] = 1  # 299: not above 100
    y[:, 3] = 1  # 0; and label 4 never occurs
    assert balanced_weights(y, 5, multi_label=True).tolist() == [2, 1, 100, 1, 100]
    assert balanced_weights(y.bool(), 5, multi_label=True).tolist() == [2, 1, 100, 1, 100]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Objective(False)(LOGITS, LOGITS), "is multi_label = False right"),
        (lambda: Objective(True)(LOGITS, CLASSES), "is multi_label = True right"),
        (lambda: Objective(False)(LOGITS[:0], CLASSES[:0]), "at least one row"),
        (lambda: Objective(False, torch.ones(3))(LOGITS, CLASSES), "each of the 2 classes, but there are 3"),
        (lambda: Objective(False, torch.tensor([1.0, -1.0])), "finite number >= 0"),
        (lambda: Objective(False, torch.tensor([1.0, math.nan])), "finite number >= 0"),
        (lambda: Objective(False, torch.zeros(2)), "not all 0"),
        (lambda: balanced_weights(CLASSES[:0], 2, False), "labelled rows"),
        (lambda: balanced_weights(CLASSES - 1, 2, False), "holds -1"),
        (lambda: balanced_weights(CLASSES, 1, False), "holds 1"),
        (lambda: balanced_weights(CLASSES, 2, True), r"shape \(rows, 2\)"),
        (lambda: balanced_weights(LOGITS, 2, True), "zeros and ones"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(TrainingError, match=sentence):
        call()
