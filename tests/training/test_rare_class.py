"""Two classes, one of them rare: then accuracy says little, and the area under the ROC curve comes first."""

import pytest
import torch

from pprgnn.training.evaluation import rare_class, settle_metric
from pprgnn.training.loop import Training
from pprgnn.training.terminal import describe
from pprgnn.training.train import train
from tests.training.small_data import divided, one_graph, quick


def imbalanced(every=10):
    """Of 80 nodes, every tenth in each part has the second class."""
    dataset = one_graph(nodes=80, edges=160, classes=2)
    split = divided(dataset)
    y = torch.zeros(80, dtype=torch.long)
    for part in (split.train, split.val, split.test):
        y[part[::every]] = 1
    dataset._data.y = y
    return dataset, divided(dataset)


@pytest.mark.parametrize(("every", "share"), [(10, 0.1), (5, None), (100, 1 / 40)])
def test_what_is_rare(every, share):
    found = rare_class(*imbalanced(every))
    assert found == (None if share is None else ("class 1", pytest.approx(share)))


def test_auto_follows_the_labels_and_a_line_says_why(capsys):
    dataset, split = imbalanced()
    config = settle_metric(quick(), dataset, [split])
    assert config.training.metric == "ROC AUC"
    training = Training(config, dataset, split)
    assert training.metrics == ("ROC AUC", "accuracy", "macro-F1")
    (line,) = [line for line in describe(training) if line.startswith("metric")]
    assert "ROC AUC comes first, because only 10.00% of the training part are 'class 1'" in line
    summary = train(quick("epochs=3"), dataset=dataset, split=split).summary
    assert summary["metric"] == "ROC AUC"
    assert summary["best"] == pytest.approx(summary["scores"]["val"]["ROC AUC"], abs=0.05)


def test_what_auto_leaves_alone():
    dataset, split = imbalanced()
    assert settle_metric(quick("metric=accuracy"), dataset, [split]).training.metric == "accuracy"
    even, three = imbalanced(every=5), one_graph()
    assert settle_metric(quick(), even[0], [even[1]]).training.metric == "auto"
    assert settle_metric(quick(), three, [divided(three)]).training.metric == "auto"
    assert not any(line.startswith("metric") for line in describe(Training(quick(), *even)))


def test_all_splits_of_a_study_have_one_metric():
    dataset, split = imbalanced()
    assert settle_metric(quick(), dataset, [split, split]).training.metric == "ROC AUC"
    other = imbalanced(every=5)[1]
    dataset._data.y[other.val] = 0  # of one class alone: the area is not defined there
    assert settle_metric(quick(), dataset, [divided(dataset)] * 2).training.metric == "accuracy"
