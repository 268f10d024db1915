"""Thresholds against brute force; what chooses them, and what cannot."""

import json
import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pprgnn.distributed.team import Team
from pprgnn.training.errors import TrainingError
from pprgnn.training.metrics import best_threshold, scores
from pprgnn.training.thresholds import COARSE, Rule, Threshold, best_cut
from tests.distributed.processes import run_team

ALONE = Team.alone()
GLOBAL, PER_CLASS = Rule("validation", "the best"), Rule("per-class", "the best")
FEW_VALUES = st.sampled_from([-4.0, -1.0, -0.25, 0.0, 0.25, 1.0])


def f1(scores, true, cut):
    marks = scores > torch.tensor(cut, dtype=scores.dtype)
    return 2 * int((marks & true).sum()) / max(1, int(marks.sum() + true.sum()))


def brute_force(scores, true):
    """The best F1 of all thresholds that there are."""
    return max(f1(scores, true, cut) for cut in [float(scores.min()) - 1, *scores.unique().tolist()])


def drawn(rows, rate, *, seed=0, digits=None, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    true = torch.rand(rows, generator=draw) < rate
    scores = torch.randn(rows, generator=draw, dtype=dtype) + 1.5 * true - 4
    return scores if digits is None else scores.round(decimals=digits), true


@given(st.lists(st.tuples(FEW_VALUES, st.booleans()), min_size=1, max_size=20))
def test_the_best_of_all_thresholds_with_many_ties(rows):
    scores, true = torch.tensor([score for score, _ in rows]), torch.tensor([mark for _, mark in rows])
    cut = best_cut(scores, true, ALONE)
    if not true.any():
        assert cut is None
    else:
        assert f1(scores, true, cut) == brute_force(scores, true)
        assert cut not in scores  # halfway between two scores, so that rounding decides nothing


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("rate", "digits"), [(0.02, None), (0.5, None), (0.9, 1), (0.3, 3)])
def test_the_best_of_all_thresholds_when_most_are_never_tried(rate, digits, seed):
    rows = 3000 if rate > 0.1 else 20_000
    scores, true = drawn(rows, rate, seed=seed, digits=digits)
    assert digits == 1 or len(scores[true].unique()) > COARSE
    cut = best_cut(scores, true, ALONE)
    ordered, order = scores.sort(descending=True)
    ends = torch.cat([ordered[1:] != ordered[:-1], torch.tensor([True])])
    all_f1 = 2 * true[order].cumsum(0).double() / (torch.arange(1, rows + 1) + true.sum())
    assert f1(scores, true, cut) == float(all_f1[ends].max())


def test_of_equally_good_thresholds_the_highest_and_between_neighbours():
    scores, true = torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([True, False, True, False])
    # 2/3 with one label, 4/5 with three
    assert best_cut(scores, true, ALONE) == 0.5
    even = torch.tensor([True, False, False, True])  # 2/3 with the first, 2/3 with all four
    assert best_cut(scores, even, ALONE) == 2.5
    near = torch.tensor([1.0, 1.0 + 2**-23])  # no number lies between them
    cut = best_cut(near, torch.tensor([False, True]), ALONE)
    assert (near > cut).tolist() == [False, True]
    huge = torch.tensor([-3e38, 3e38])
    assert (huge > best_cut(huge, torch.tensor([False, True]), ALONE)).tolist() == [False, True]


@pytest.mark.parametrize("value", [0.0, -7.5, 1e-30, 3e38, -3e38])
def test_equal_scores_are_all_predicted(value):
    scores = torch.full((5,), value)
    cut = best_cut(scores, torch.tensor([False, False, True, False, False]), ALONE)
    assert math.isfinite(cut)
    assert (scores > cut).all()


def test_one_for_all_classes_or_one_for_each():
    logits = torch.stack([drawn(400, 0.1, seed=seed)[0] + 3 * seed for seed in range(4)], dim=1)
    true = torch.stack([drawn(400, 0.1, seed=seed)[1] for seed in range(4)], dim=1)
    true[:, 3] = False  # a class that no row has
    one, each = (best_threshold(logits, true, rule) for rule in (GLOBAL, PER_CLASS))
    assert f1(logits.flatten(), true.flatten(), one.logits[0]) == brute_force(logits.flatten(), true.flatten())
    for column, cut in enumerate(each.logits[:3]):
        expected = brute_force(logits[:, column], true[:, column])
        assert f1(logits[:, column], true[:, column], cut) == expected
    assert each.logits[3] == one.logits[0]
    names = ["micro-F1", "macro-F1"]
    options = {"multi_label": True, "metrics": names}
    half, together, by_class = (scores(logits, true, **options, threshold=t) for t in (Threshold(), one, each))
    assert half["micro-F1"] < together["micro-F1"]
    assert together["macro-F1"] < by_class["macro-F1"]


def test_without_any_label_it_is_one_half():
    for rule in (GLOBAL, PER_CLASS):
        found = best_threshold(torch.randn(4, 3), torch.zeros(4, 3), rule)
        assert (found.rule, found.logits, found.probabilities) == ("half", (0.0,), [0.5])
        assert "no row of the validation part has a label" in found.describe()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(value):
    logits = torch.randn(4, 3)
    logits[2, 1] = value
    for rule in (GLOBAL, PER_CLASS):
        with pytest.raises(TrainingError, match="1 of 4 rows hold NaN or infinity"):
            best_threshold(logits, torch.ones(4, 3), rule)


def test_a_threshold_survives_json():
    scores, true = drawn(500, 0.1)
    found = best_threshold(scores[:, None], true[:, None], GLOBAL)
    again = Threshold.from_dict(json.loads(json.dumps(asdict(found))))
    assert again == found
    assert torch.equal(again.marks(scores[:, None]), found.marks(scores[:, None]))
    assert json.loads(json.dumps(found.to_dict()))["probability"] == pytest.approx(
        float(torch.tensor(found.logits[0], dtype=torch.float64).sigmoid())
    )


def rows_of(rank: int, size: int):
    """Of the same rows, an uneven share: of three processes, the last has none."""
    logits = torch.stack([drawn(900, 0.3, seed=seed)[0] for seed in range(3)], dim=1)
    true = torch.stack([drawn(900, 0.3, seed=seed)[1] for seed in range(3)], dim=1)
    ends = [0, 300, 900, 900][: size + 1] if size > 1 else [0, 900]
    return logits[ends[rank] : ends[rank + 1]], true[ends[rank] : ends[rank + 1]]


def find_in_team():
    team = Team()
    return [best_threshold(*rows_of(team.rank, team.size), rule, team) for rule in (GLOBAL, PER_CLASS)]


def test_processes_find_the_same_as_one():
    alone = [best_threshold(*rows_of(0, 1), rule) for rule in (GLOBAL, PER_CLASS)]
    assert all(found == alone for found in run_team(find_in_team, 3))
