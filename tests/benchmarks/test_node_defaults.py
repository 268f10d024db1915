"""The measurement behind the defaults for labels of nodes."""

import torch
from benchmarks.node_defaults import keep, measure, photo_like, random_split

from pprgnn.data.own.objects import from_pyg


def test_few_labels_are_so_many_of_each_class_and_all_else_tests():
    dataset = from_pyg(photo_like(nodes=900, columns=12))
    split = random_split(dataset, "few", seed=3)
    assert torch.bincount(dataset.labels()[split.train]).tolist() == [20] * dataset.num_classes
    assert (len(split.val), len(split.test)) == (500, 900 - 500 - 20 * dataset.num_classes)
    assert len(random_split(dataset, "many", seed=3).train) == 540


def test_scores_are_percent_of_validation_and_test():
    dataset = from_pyg(photo_like(nodes=300, columns=12))
    found = measure("mlp", dataset, "many", 2, ["epochs=2"])
    assert found["metric"] == "accuracy"
    for part in ("val", "test"):
        mean, std = found[part]
        assert 0 < mean < 100
        assert std >= 0


def test_a_newer_line_takes_the_place_of_an_older_one(tmp_path):
    line = {"labels": "few", "set": "cora", "seeds": 5, "metric": "accuracy", "commit": "c" * 40}
    for system, score in (("gcn", 70.0), ("appnp", 80.0), ("gcn", 75.0)):
        keep({**line, "system": system, "test": [score, 1.5]}, tmp_path / "found")
    page = (tmp_path / "found.md").read_text()
    assert "75.0 ± 1.5 (5)" in page
    assert "80.0 ± 1.5 (5)" in page
    assert "70.0" not in page
