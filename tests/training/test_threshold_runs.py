"""Runs with several rare labels: the validation part chooses the threshold, and all that predicts uses it."""

import os
import signal
from dataclasses import asdict, replace
from functools import cache

import pytest
import torch
from torch_geometric.data import Data

import pprgnn
from pprgnn.data.atomic_io import read_tensors, write_tensors
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.training.checkpoint import Progress
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import ensemble_scores, evaluate
from pprgnn.training.explain import explain_node
from pprgnn.training.loop import Training
from pprgnn.training.metrics import scores
from pprgnn.training.model import Model
from pprgnn.training.predictions import predict_table
from pprgnn.training.run import Run
from pprgnn.training.thresholds import Threshold
from pprgnn.training.train import Trained, resume, train
from tests.training.small_data import Recorder, divided, facts, quick, random_edges

ROWS, CLASSES = 240, 4


def micro_f1(logits, y):
    return scores(logits, y, multi_label=True, metrics=["micro-F1"])["micro-F1"]


@cache
def rare(shuffled: str = "") -> GraphDataset:
    """Labels that one row in twelve has, and that the features only hint at; those of a part may be shuffled."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, CLASSES, generator=draw)
    y = (x + torch.randn(ROWS, CLASSES, generator=draw) > 2).float()
    data = Data(x=x, y=y, edge_index=random_edges(ROWS, 60, draw), num_nodes=ROWS)
    dataset = GraphDataset.from_graphs([data], facts("rare", "node", CLASSES, multi_label=True, metric="micro-F1"))
    if shuffled:
        rows = getattr(divided(dataset), shuffled)
        data.y = y.clone()
        data.y[rows] = y[rows[torch.randperm(len(rows), generator=draw)]]
        dataset = GraphDataset.from_graphs([data], dataset.facts)
    return dataset


@cache
def run_of(*settings: str, shuffled: str = "") -> Trained:
    dataset = rare(shuffled)
    return train(quick("epochs=15", *settings), dataset=dataset, split=divided(dataset))


def test_the_chosen_threshold_is_far_from_one_half_and_better():
    # By the metric, an early epoch may be best, in which all probabilities are still close to one half.
    trained, dataset = run_of("monitor=loss", "epochs=40"), rare()
    threshold, masks = trained.summary["threshold"], divided(dataset).masks(dataset)
    assert threshold["rule"] == "validation"
    assert threshold["probability"] < 0.3
    assert "best micro-F1 on the validation part" in threshold["told"]
    logits, y = trained.model.logits(dataset), dataset.labels()
    halves = {part: micro_f1(logits[mask], y[mask]) for part, mask in masks.items()}
    for part, half in halves.items():
        assert trained.summary["scores"][part]["micro-F1"] > half + 0.1
    cuts = logits[masks["val"]].flatten()
    others = [micro_f1(logits[masks["val"]] - cut, y[masks["val"]]) for cut in cuts]
    assert trained.summary["scores"]["val"]["micro-F1"] >= max(others)


def test_every_epoch_is_judged_at_its_own_best_threshold():
    listener, dataset = Recorder(), rare()
    training = Training(quick("epochs=6"), dataset, divided(dataset), listener=listener)
    seen = []
    keep = training._keep_best
    training._keep_best = lambda found, epoch: (seen.append(training.progress.threshold), keep(found, epoch))
    training.fit()
    assert len(set(seen)) > 1
    assert all(record.val["micro-F1"] > 0 for record in listener.records)  # at one half nothing is predicted
    assert training.progress.best_threshold in seen
    # What chose the epoch is what is told in the end, but for the tolerance of the solves.
    assert training.progress.best == pytest.approx(listener.summaries[0]["scores"]["val"]["micro-F1"], abs=0.02)


@pytest.mark.parametrize("settings", [(), ("threshold=per-class",)])
def test_labels_of_the_test_part_change_nothing_but_its_own_score(settings):
    usual, other = run_of(*settings), run_of(*settings, shuffled="test")
    assert usual.model.threshold == other.model.threshold
    assert usual.summary["best_epoch"] == other.summary["best_epoch"]
    for part in ("train", "val"):
        assert usual.summary["scores"][part] == other.summary["scores"][part]
    assert usual.summary["scores"]["test"] != other.summary["scores"]["test"]
    assert run_of(*settings, shuffled="val").model.threshold != usual.model.threshold


@pytest.mark.parametrize("rule", ["validation", "per-class"])
def test_a_model_that_was_saved_predicts_the_same_labels(rule, tmp_path):
    dataset, split = rare(), divided(rare())
    config = quick("epochs=15", f"threshold={rule}")
    classifier = pprgnn.NodeClassifier().set_params(**{"threshold": rule})
    classifier.config = config
    classifier.fit(dataset, split=split)
    model = classifier.model_
    assert model.threshold == run_of(f"threshold={rule}").model.threshold
    assert len(model.threshold.logits) == (1 if rule == "validation" else CLASSES)
    classifier.save(tmp_path / "model.safetensors")
    again = pprgnn.NodeClassifier.load(tmp_path / "model.safetensors")
    assert again.model_.threshold == model.threshold
    labels = classifier.predict()
    assert torch.equal(labels, again.predict(dataset))
    assert torch.equal(
        labels.bool(), model.probabilities(model.logits(dataset)) > torch.tensor(model.threshold.probabilities)
    )
    assert not torch.equal(labels, (model.logits(dataset) > 0).long())
    table = predict_table(again.model_, dataset)
    names = dataset.facts.class_names
    expected = ["|".join(name for name, mark in zip(names, row, strict=True) if mark) for row in labels.tolist()]
    assert table["prediction"].to_pylist() == expected
    node = int(labels.sum(1).argmax())
    assert explain_node(model, dataset, node).decision.predicted == expected[node].split("|")
    masks = split.masks(dataset)
    found, _, _ = evaluate(again.model_, again.model_.batches(dataset), masks, ["micro-F1"])
    assert found["test"]["micro-F1"] == classifier.score()


def test_a_model_from_before_there_were_thresholds_predicts_at_one_half(tmp_path):
    trained, path = run_of(), tmp_path / "model.safetensors"
    trained.model.save(path)
    tensors, metadata = read_tensors(path)
    del metadata["threshold"], metadata["prior"]
    write_tensors(path, tensors, metadata)
    model = Model.load(path)
    assert model.threshold == Threshold()
    assert torch.equal(model.decide(model.logits(rare())), trained.model.logits(rare()) > 0)
    write_tensors(path, tensors, metadata | {"threshold": '{"rule": "half"}'})
    with pytest.raises(pprgnn.data.DataError, match="damaged"):
        Model.load(path)


def test_without_a_choice_it_is_one_half_and_the_summary_says_why():
    dataset, usual = rare(), divided(rare())
    paper = replace(usual, protocol="paper")
    optimistic = Split.of(dataset, [usual.train, usual.val[:0], usual.test], unit="node", protocol="paper")
    for split, setting, why in [
        (usual, "half", "as training.threshold says"),
        (paper, "auto", "the rule of the paper's protocol"),
        (optimistic, "validation", "there is no validation part"),
    ]:
        trained = train(quick("epochs=2", f"threshold={setting}"), dataset=dataset, split=split)
        threshold = trained.summary["threshold"]
        assert (threshold["rule"], threshold["probability"]) == ("half", 0.5)
        assert why in threshold["told"]
    chosen = train(quick("epochs=2", "threshold=validation"), dataset=dataset, split=paper).summary["threshold"]
    assert chosen["rule"] == "validation"
    with pytest.raises(TrainingError, match="threshold"):
        quick("threshold=best")


def test_the_oracle_is_an_extra_figure():
    trained, dataset = run_of(), rare()
    mask = divided(dataset).masks(dataset)["test"]
    found = trained.summary["scores"]["test"]
    assert list(found) == ["loss", "micro-F1", "macro-F1", "oracle micro-F1"]
    logits, y = trained.model.logits(dataset)[mask], dataset.labels()[mask]
    name = "oracle micro-F1"
    assert found[name] == scores(logits, y, multi_label=True, metrics=[name])[name]


def test_several_models_together_have_a_threshold_of_their_own():
    models, dataset = [run_of().model, run_of("seed=1").model], rare()
    masks = divided(dataset).masks(dataset)
    found = ensemble_scores(models, dataset, masks)
    mean = torch.stack([model.logits(dataset).sigmoid() for model in models]).mean(0)
    logits, y = torch.logit(mean)[masks["val"]], dataset.labels()[masks["val"]]
    best = max(micro_f1(logits - cut, y) for cut in [*logits.flatten().tolist(), -99.0])
    assert found["val"]["micro-F1"] == pytest.approx(best)


class StopAt(Recorder):
    def epoch(self, record):
        super().epoch(record)
        if record.epoch == 4:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_was_stopped_ends_alike(tmp_path):
    dataset = rare()
    train(quick("epochs=15"), dataset=dataset, split=divided(dataset), folder=tmp_path / "run", listener=StopAt())
    _, state = Run.open(tmp_path / "run").load_checkpoint()
    assert state["progress"]["threshold"]["rule"] == "validation"
    resumed = resume(tmp_path / "run")
    assert resumed.model.threshold == run_of().model.threshold
    assert resumed.summary["scores"] == run_of().summary["scores"]
    assert Model.load(tmp_path / "run").threshold == resumed.model.threshold


def test_what_is_rescued_of_a_run_has_the_threshold_of_its_weights(tmp_path, monkeypatch):
    dataset, broken = rare(), Training._backward

    def breaks(self, loss):
        if self.progress.epoch == 4:
            raise TrainingError("It broke.")
        return broken(self, loss)

    monkeypatch.setattr(Training, "_backward", breaks)
    with pytest.raises(TrainingError, match="The best weights so far"):
        train(quick("epochs=15"), dataset=dataset, split=divided(dataset), folder=tmp_path / "run")
    model = Model.load(tmp_path / "run")
    masks = divided(dataset).masks(dataset)
    logits, y = model.logits(dataset)[masks["val"]], dataset.labels()[masks["val"]]
    assert model.threshold.rule == "validation"
    found = scores(logits, y, multi_label=True, metrics=["micro-F1"], threshold=model.threshold)["micro-F1"]
    kept = max(record["val"]["micro-F1"] for record in Run.open(tmp_path / "run").records())
    assert found >= kept - 0.02  # but for the tolerance of the solves


def test_checkpoints_from_before_there_were_thresholds():
    state = asdict(Progress(epoch=3))
    assert Progress(**state) == Progress(epoch=3)
    del state["threshold"], state["best_threshold"]
    assert Progress(**state) == Progress(epoch=3)
