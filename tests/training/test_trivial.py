"""Predictors that look at nothing, against scores computed by hand."""

import math

import pytest
import torch
from sklearn import metrics as sk

from pprgnn.training.evaluation import TRIVIAL, cautions, prior_logits, trivial_levels
from pprgnn.training.metrics import METRICS
from pprgnn.training.train import train
from tests.training.small_data import divided, is_sentence, one_graph, quick

MAIN = ["accuracy", "micro-F1", "macro-F1", "ROC AUC"]


def test_the_majority_of_the_training_part():
    prior = prior_logits(torch.tensor([2, 0, 2, 1, 2, 0]), 4)
    assert prior[2] > prior[0] > prior[1] > prior[3]
    found = trivial_levels(prior, torch.tensor([0, 2, 2, 1]), False, MAIN)
    # class 2: two of four predictions are right, and both that there are found: F1 = 4 / (2 + 4), of 3 classes
    assert found == {"majority": {"accuracy": 0.5, "micro-F1": 0.5, "macro-F1": 4 / 6 / 3, "ROC AUC": 0.5}}


def test_several_labels_by_hand():
    train_labels = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 1, 1]])  # 3, 2 and 1 of 4
    prior = prior_logits(train_labels, 3)
    # micro-F1 there: 6/10 with the first label, 10/14 with two, 12/18 with all
    assert [logit > 0 for logit in prior] == [True, True, False]
    y = torch.tensor([[1.0, 0, 0], [0, 0, 1], [1, 1, 0]])
    found = trivial_levels(prior, y, True, [*MAIN, "oracle micro-F1"])
    assert found["all positive"] == pytest.approx(
        {"accuracy": 0, "micro-F1": 8 / 13, "macro-F1": (4 / 5 + 2 / 4 + 2 / 4) / 3, "ROC AUC": 0.5}
    )
    # the first two labels, always: 3 of 6 predictions are right, 3 of 4 labels found
    # with an oracle: the first; the first; the first two: 3 of 4 right
    assert found["prior"] == pytest.approx(
        {
            "accuracy": 1 / 3,
            "micro-F1": 6 / 10,
            "macro-F1": (4 / 5 + 2 / 4 + 0) / 3,
            "ROC AUC": 0.5,
            "oracle micro-F1": 3 / 4,
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_no_other_choice_of_labels_has_a_better_f1_in_training(seed):
    draw = torch.Generator().manual_seed(seed)
    y = (torch.rand(30, 6, generator=draw) < torch.rand(6, generator=draw) ** 2).int()
    chosen = torch.tensor(prior_logits(y, 6)) > 0

    def f1(marks):
        return sk.f1_score(y, marks.int().expand(30, -1), average="micro", zero_division=0)

    every = [torch.tensor([number >> place & 1 for place in range(6)]) for number in range(64)]
    assert f1(chosen) == pytest.approx(max(map(f1, every)))


def test_what_is_not_known_is_left_out():
    assert trivial_levels((), torch.tensor([0, 1]), False, MAIN) == {}
    assert list(trivial_levels((), torch.ones(2, 2), True, MAIN)) == ["all positive"]
    assert trivial_levels((1.0, 0.0), torch.tensor([]).long(), False, MAIN) == {}
    alike = trivial_levels((1.0, 0.0), torch.tensor([0, 0]), False, ["ROC AUC"])
    assert math.isnan(alike["majority"]["ROC AUC"])
    assert all(logit < 0 for logit in prior_logits(torch.zeros(3, 2), 2)[1:])


@pytest.mark.parametrize("several", [False, True])
def test_every_run_tells_them_of_its_own_test_part(several):
    dataset = one_graph(multi_label=several)
    split = divided(dataset)
    trained = train(quick("epochs=1"), dataset=dataset, split=split)
    y = dataset.labels()
    prior = prior_logits(y[split.train], dataset.num_classes)
    found = trained.summary["trivial"]
    names = [name for name in trained.summary["scores"]["test"] if name in METRICS]
    assert found == trivial_levels(prior, y[split.test], several, names)
    assert set(found) == ({"all positive", "prior"} if several else {"majority"}) <= set(TRIVIAL)
    assert trained.model.prior == prior
    if not several:
        common = int(y[split.train].mode().values)
        assert found["majority"]["accuracy"] == float((y[split.test] == common).float().mean())


def told(accuracy, predicted, majority=0.5, **more):
    scores = {"train": {"accuracy": 1.0}, "test": {"accuracy": accuracy}}
    levels = {"majority": {"accuracy": majority}}
    return {"metric": "accuracy", "scores": scores, "predicted": predicted, "trivial": levels, **more}


def test_a_model_that_always_says_the_same_is_cautioned_against():
    assert cautions(told(0.8, {"a": 3, "b": 2})) == []
    (same,) = cautions(told(0.5, {"a": 5, "b": 0}))
    assert "Everything in the test part is predicted to be 'a'; try class_weights=balanced" in same
    (worse,) = cautions(told(0.3, {"a": 3, "b": 2}))
    assert "The test accuracy (30.0%) is below the 50.0% of looking at nothing (majority)" in worse
    (level,) = cautions(told(0.5, {"a": 3, "b": 2}))
    assert "The test accuracy (50.0%) is not above the 50.0% of looking at nothing (majority)" in level
    assert all(map(is_sentence, (same, worse, level)))
    assert cautions(told(0.6, {"a": 5, "b": 0}, threshold={"told": "0.5"})) == []  # of several labels
    assert cautions(told(0.5, None, math.nan)) == []


def test_every_run_tells_what_it_predicts():
    dataset = one_graph()
    trained = train(quick("epochs=2"), dataset=dataset, split=divided(dataset))
    rows = trained.model.logits(dataset)[divided(dataset).test].argmax(1)
    counts = torch.bincount(rows, minlength=3).tolist()
    assert trained.summary["predicted"] == dict(zip(dataset.facts.class_names, counts, strict=True))
