"""Metrics against scikit-learn and against slow loops, with ties, empty classes and rows without labels."""

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from pprgnn.data.dataset import Facts
from pprgnn.training.errors import TrainingError
from pprgnn.training.metrics import METRICS, Meter, default_metrics, scores, top_labels

LOGITS = st.sampled_from([-3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 3.0])  # few values: many ties, also at the threshold


@st.composite
def multi_class(draw, most=5):
    rows, classes = draw(st.integers(1, 12)), draw(st.integers(2, most))
    logits = draw(st.lists(st.lists(LOGITS, min_size=classes, max_size=classes), min_size=rows, max_size=rows))
    used = draw(st.integers(1, classes))  # the last classes may have no labels
    y = draw(st.lists(st.integers(0, used - 1), min_size=rows, max_size=rows))
    return torch.tensor(logits), torch.tensor(y)


@st.composite
def multi_label(draw):
    rows, classes = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    line = st.lists(LOGITS, min_size=classes, max_size=classes)
    marks = st.lists(st.integers(0, 1), min_size=classes, max_size=classes) | st.just([0] * classes)
    logits = draw(st.lists(line, min_size=rows, max_size=rows))
    y = draw(st.lists(marks, min_size=rows, max_size=rows))
    return torch.tensor(logits), torch.tensor(y).float()


def score(metric, logits, y, *, multi_label=False):
    return scores(logits, y, multi_label=multi_label, metrics=[metric])[metric]


def slow_top_labels(logits, k):
    marks = torch.zeros_like(logits, dtype=torch.bool)
    for i, row in enumerate(logits.tolist()):
        best_first = sorted(range(len(row)), key=lambda c: (-row[c], c))
        for c in best_first[: int(k[i])]:
            marks[i, c] = True
    return marks


@given(multi_class())
def test_one_class_per_row_as_scikit_learn(case):
    logits, y = case
    got = scores(logits, y, multi_label=False, metrics=["accuracy", "micro-F1", "macro-F1"])
    predicted = logits.numpy().argmax(1)
    assert got["accuracy"] == got["micro-F1"] == pytest.approx(sk.accuracy_score(y, predicted), abs=1e-12)
    assert got["macro-F1"] == pytest.approx(sk.f1_score(y, predicted, average="macro", zero_division=0), abs=1e-12)


@given(multi_label())
def test_several_labels_as_scikit_learn(case):
    logits, y = case
    got = scores(logits, y, multi_label=True, metrics=["accuracy", "micro-F1", "macro-F1"])
    true, predicted = y.int().numpy(), (logits > 0).int().numpy()
    if y.size(1) > 1:  # scikit-learn takes one column for one class per row
        assert got["micro-F1"] == pytest.approx(sk.f1_score(true, predicted, average="micro", zero_division=0))
        assert got["macro-F1"] == pytest.approx(sk.f1_score(true, predicted, average="macro", zero_division=0))
    else:
        assert got["micro-F1"] == pytest.approx(sk.f1_score(true[:, 0], predicted[:, 0], zero_division=0))
    assert got["accuracy"] == pytest.approx(sk.accuracy_score(true, predicted))
    assert got == scores(logits, y.bool(), multi_label=True, metrics=list(got))
    assert got == scores(logits, y.long(), multi_label=True, metrics=list(got))


def test_a_logit_between_zero_and_one_half_is_a_prediction():
    got = scores(torch.tensor([[0.25, -0.25]]), torch.tensor([[1.0, 0.0]]), multi_label=True, metrics=["micro-F1"])
    assert got == {"micro-F1": 1.0}


def test_a_class_without_labels_and_predictions():
    logits, y = torch.tensor([[2.0, 0, 0], [0, 2, 0]]), torch.tensor([0, 1])
    assert score("macro-F1", logits, y) == 1
    assert score("micro-F1", logits, y) == 1
    logits[1, 2] = 3.0  # predicted, but never true
    assert score("macro-F1", logits, y) == pytest.approx(1 / 3)
    assert score("macro-F1", -torch.ones(2, 2), torch.zeros(2, 2), multi_label=True) == 0


@given(multi_label())
def test_the_oracle_as_a_slow_loop(case):
    logits, y = case
    k = y.sum(1).long()
    marks = top_labels(logits, k)
    assert torch.equal(marks, slow_top_labels(logits, k))
    assert torch.equal(marks.sum(1), k)
    got = scores(logits, y, multi_label=True, metrics=["oracle micro-F1", "oracle macro-F1"])
    if y.size(1) > 1:
        for kind in ("micro", "macro"):
            expected = sk.f1_score(y.int().numpy(), marks.int().numpy(), average=kind, zero_division=0)
            assert got[f"oracle {kind}-F1"] == pytest.approx(expected)


def test_the_oracle_on_many_rows():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randint(-4, 5, (700, 20), generator=draw).float()
    y = torch.rand(700, 20, generator=draw) < torch.rand(700, 1, generator=draw)
    y[::7] = False
    assert torch.equal(top_labels(logits, y.sum(1)), slow_top_labels(logits, y.sum(1)))


@given(multi_class(most=2))
def test_area_of_two_classes_as_scikit_learn(case):
    logits, y = case
    area = score("ROC AUC", logits, y)
    if len(y.unique()) < 2:
        assert math.isnan(area)
        return
    difference = logits[:, 1] - logits[:, 0]
    assert area == pytest.approx(sk.roc_auc_score(y, difference), abs=1e-12)
    assert score("ROC AUC", difference.unsqueeze(1), y) == area
    assert score("ROC AUC", difference.unsqueeze(1), y.unsqueeze(1), multi_label=True) == area
    one_column = scores(difference.unsqueeze(1), y, multi_label=False, metrics=["accuracy", "macro-F1"])
    assert one_column == scores(logits, y, multi_label=False, metrics=["accuracy", "macro-F1"])


@given(multi_label())
def test_area_of_several_labels_leaves_out_undefined_ones(case):
    logits, y = case
    areas = [
        sk.roc_auc_score(y[:, c], logits[:, c]) for c in range(y.size(1)) if 0 < float(y[:, c].mean()) < 1
    ]  # of classes with both kinds of rows
    area = score("ROC AUC", logits, y, multi_label=True)
    assert area == pytest.approx(np.mean(areas), abs=1e-12) if areas else math.isnan(area)


def test_area_of_many_classes_is_the_mean_of_each_against_the_rest():
    draw = torch.Generator().manual_seed(3)
    logits, y = torch.randn(300, 4, generator=draw), torch.randint(4, (300,), generator=draw)
    expected = sk.roc_auc_score(y, logits.double().softmax(1), multi_class="ovr", average="macro")
    # one swapped pair of rounded scores: 6e-5
    assert score("ROC AUC", logits, y) == pytest.approx(expected, abs=1e-4)
    wider = torch.cat([logits, torch.full((300, 1), -50.0)], dim=1)  # a class that nobody has
    assert score("ROC AUC", wider, y) == pytest.approx(expected, abs=1e-4)


@given(multi_label(), st.integers(1, 5))
def test_batches_give_what_all_rows_give(case, size):
    logits, y = case
    names = list(METRICS)
    meter = Meter(multi_label=True, metrics=names)
    logits.requires_grad_()
    for rows in torch.arange(len(y)).split(size):
        meter.add(logits[rows], y[rows], loss=logits[rows].mean())
    got = meter.scores()
    assert list(got) == ["loss", *names]
    assert got.pop("loss") == pytest.approx(float(logits.detach().mean()), abs=1e-6)
    whole = scores(logits, y, multi_label=True, metrics=names)
    assert [got[name] for name in names] == pytest.approx([whole[name] for name in names], nan_ok=True)


def test_a_meter_keeps_no_graph():
    meter = Meter(multi_label=False, metrics=["accuracy"])
    weight = torch.ones(2, requires_grad=True)
    meter.add(torch.eye(2) * weight, torch.tensor([0, 1]), loss=weight.sum())
    assert not any(kept.requires_grad for kept in (*meter._logits, *meter._losses))
    assert meter.scores() == {"loss": 2.0, "accuracy": 1.0}
    meter.add(torch.empty(0, 2), torch.empty(0, dtype=torch.long), loss=torch.tensor(math.nan))
    assert meter.scores() == {"loss": 2.0, "accuracy": 1.0}
    without_loss = Meter(multi_label=False, metrics=["accuracy"])
    without_loss.add(torch.eye(2), torch.tensor([1, 1]))
    assert without_loss.scores() == {"accuracy": 0.5}


def test_what_is_shown_by_default():
    facts = Facts("own", "node", False, "accuracy", ("a", "b", "c"))
    assert default_metrics(facts) == ("accuracy", "macro-F1")
    binary = Facts("own", "graph", False, "ROC AUC", ("a", "b"))
    assert default_metrics(binary) == ("ROC AUC", "accuracy", "macro-F1")
    labels = Facts("own", "node", True, "micro-F1", ("a", "b"))
    assert default_metrics(labels) == ("micro-F1", "macro-F1")
    assert default_metrics(labels, oracle=True)[:2] == ("oracle micro-F1", "oracle macro-F1")
    assert set(default_metrics(labels, oracle=True)) <= set(METRICS)
    with pytest.raises(TrainingError, match="every row has one"):
        default_metrics(facts, oracle=True)


ROWS = torch.zeros(3, 2)
CLASSES = torch.tensor([0, 1, 1])


@pytest.mark.parametrize(
    ("logits", "y", "several", "sentence"),
    [
        (ROWS, CLASSES[:2], False, r"y must have shape \(3,\) of classes, but has shape \(2,\)"),
        (ROWS, CLASSES, True, r"y must have shape \(3, 2\) of zeros and ones"),
        (ROWS, ROWS, False, "is multi_label = False right"),
        (ROWS[:0], CLASSES[:0], False, "empty"),
        (ROWS[:, 0], CLASSES, False, "shape"),
        (ROWS * math.nan, CLASSES, False, "3 of 3 rows hold NaN"),
        (torch.tensor([[1.0, 0], [math.inf, -math.inf], [0, 0]]), CLASSES, False, "1 of 3 rows hold NaN or inf"),
        (ROWS, CLASSES - 1, False, "holds -1; select the labelled rows"),
        (ROWS, CLASSES + 1, False, r"classes 0 ... 1, but holds 2"),
        (ROWS, CLASSES.float(), False, "integers"),
        (ROWS, ROWS - 1, True, "zeros and ones, but holds -1"),
        (ROWS, ROWS + 0.5, True, "zeros and ones, but holds 0.5"),
        (ROWS, ROWS * math.nan, True, "zeros and ones, but holds nan"),
    ],
)
def test_bad_input_gets_a_sentence(logits, y, several, sentence):
    with pytest.raises(TrainingError, match=sentence):
        scores(logits, y, multi_label=several, metrics=["accuracy"])


def test_other_errors_get_a_sentence():
    with pytest.raises(TrainingError, match=r"one of accuracy, .*'f1'"):
        scores(ROWS, CLASSES, multi_label=False, metrics=["f1"])
    with pytest.raises(TrainingError, match="at least one batch"):
        Meter(multi_label=False, metrics=["accuracy"]).scores()
    huge = torch.full((4, 2), 3e38)  # their sum overflows, they do not
    assert scores(huge, torch.zeros(4).long(), multi_label=False, metrics=["accuracy"]) == {"accuracy": 1.0}


def test_many_rows_are_counted_quickly_and_exactly():
    draw = torch.Generator().manual_seed(0)
    logits, y = torch.randn(100_000, 121, generator=draw), torch.rand(100_000, 121, generator=draw) < 0.3
    names = ["micro-F1", "macro-F1"]
    start = time.perf_counter()
    got = scores(logits, y.float(), multi_label=True, metrics=names)
    assert time.perf_counter() - start < 2  # 0.1 s alone; other processes may run
    hits, size = ((logits > 0) & y).sum(0).double(), (logits > 0).sum(0) + y.sum(0)
    assert got["micro-F1"] == pytest.approx(float(2 * hits.sum() / size.sum()), abs=1e-12)
    assert got["macro-F1"] == pytest.approx(float((2 * hits / size).mean()), abs=1e-12)
