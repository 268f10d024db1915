"""Training of graph kernels: what chooses C, what is kept, and that the test part has no say."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC
from torch_geometric.data import Data
from typer.testing import CliRunner

from pprgnn import GraphClassifier
from pprgnn.baselines.kernels import WeisfeilerLehmanNet
from pprgnn.cli.main import app
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.data.store import save
from pprgnn.errors import DataError
from pprgnn.training import kernel_fit
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.kernel_fit import C_VALUES, KernelTraining
from pprgnn.training.model import Model
from pprgnn.training.run import Run
from pprgnn.training.study import Study
from pprgnn.training.train import resume, train
from tests import warm
from tests.training.small_data import Recorder, divided, facts, is_sentence, one_graph, quick, several_graphs

SYSTEMS = ("gk", "rw", "wl")
COUNT = 40


@pytest.fixture(autouse=True)
def nothing_is_kept_between_tests():
    kernel_fit._kept.clear()


def rings_and_trees(classes=2, noise=0, seed=0):
    """Rings are of class 0, random trees of class 1, stars of class 2; nodes are of three kinds."""
    draw = np.random.default_rng(seed)
    graphs = []
    for number in range(COUNT):
        y, nodes = int(draw.integers(classes)), int(draw.integers(4, 9))
        parents = [(child, int(draw.integers(child))) for child in range(1, nodes)]
        pairs = [[(i, (i + 1) % nodes) for i in range(nodes)], parents, [(i, 0) for i in range(1, nodes)]][y]
        edges = torch.tensor(pairs).t()
        x = torch.eye(3)[torch.from_numpy(draw.integers(3, size=nodes))]
        label = int(draw.integers(classes)) if number < noise else y
        edges = torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)
        graphs.append(Data(x=x, edge_index=edges, y=torch.tensor([label]), num_nodes=nodes))
    return GraphDataset.from_graphs(graphs, facts("rings", "graph", classes))


def config_of(system, *settings):
    few = {"gk": [], "rw": ["decay=0.02"], "wl": ["iterations=[1, 2]"]}[system]
    return Config.for_system(system).with_settings(["device=cpu", *few, *settings])


def kernel_of(training, choice):
    return training.network.matrix(training.graphs, choice, lambda share: None)


# -------------------------------------------------------------------------------------------------- what is chosen
@pytest.mark.parametrize("metric", ["accuracy", "macro-F1"])
def test_scores_are_those_of_scikit_learn(metric):
    """The chosen C is the best of a grid search; val is cross-validated, test is of a machine on all the rest."""
    dataset, wanted = rings_and_trees(noise=12), metric.replace("macro-F1", "f1_macro")
    split = divided(dataset)
    training = KernelTraining(config_of("wl", "iterations=2", "seed=3", f"metric={metric}"), dataset, split)
    summary = training.fit()
    kernel, y = kernel_of(training, 2), dataset.labels().numpy()
    known = np.sort(np.concatenate([split.train.numpy(), split.val.numpy()]))
    inside, folds = kernel[np.ix_(known, known)], StratifiedKFold(5, shuffle=True, random_state=3)
    guesses = {c: cross_val_predict(SVC(C=c, kernel="precomputed"), inside, y[known], cv=folds) for c in C_VALUES}
    scorer = {"accuracy": lambda a, b: (a == b).mean(), "f1_macro": macro_f1}[wanted]
    figures = {c: scorer(y[known], guess) for c, guess in guesses.items()}
    best = max(figures, key=figures.get)
    assert summary["chosen"] == {"iterations": 2, "C": best}
    assert summary["scores"]["val"][metric] == pytest.approx(figures[best])
    machine = SVC(C=best, kernel="precomputed").fit(inside, y[known])
    for part, rows in (("train", split.train.numpy()), ("test", split.test.numpy())):
        guess = machine.predict(kernel[np.ix_(rows, known)])
        assert summary["scores"][part][metric] == pytest.approx(scorer(y[rows], guess))
    values = machine.decision_function(kernel[:, known])
    logits = training.model.logits(dataset)
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], values, rtol=1e-4, atol=1e-5)


def macro_f1(truth, guess):
    return f1_score(truth, guess, average="macro")


def test_the_kernels_setting_is_chosen_by_the_same_cross_validation():
    dataset = rings_and_trees(noise=10)
    split = divided(dataset)
    training = KernelTraining(config_of("wl", "iterations=[1, 2]"), dataset, split)
    summary = training.fit()
    y, known = dataset.labels().numpy(), training.fitted
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    found = []
    for iterations in (1, 2):
        inside = kernel_of(training, iterations)[np.ix_(known, known)]
        search = GridSearchCV(SVC(kernel="precomputed"), {"C": C_VALUES}, cv=folds, scoring="accuracy")
        search.fit(inside, y[known])
        weights = [len(test) for _, test in folds.split(inside, y[known])]  # graphs count, not folds
        each = [search.cv_results_[f"split{i}_test_score"] for i in range(5)]
        means = np.average(each, axis=0, weights=weights)
        for mean, c in zip(means, C_VALUES, strict=True):
            found.append((mean, -iterations, -c, {"iterations": iterations, "C": c}))
    best = max(found, key=lambda each: each[:3])
    assert summary["chosen"] == best[3]
    assert summary["best"] == pytest.approx(best[0])
    assert summary["epochs"] == 2 * len(C_VALUES)


@pytest.mark.parametrize("system", SYSTEMS)
def test_labels_of_the_test_part_change_nothing(system):
    dataset = rings_and_trees(noise=10)
    split = divided(dataset)
    other = dataset.copy()
    other._data.y = dataset.labels().clone()
    other._data.y[split.test] = 1 - other._data.y[split.test]
    first, second = (train(config_of(system), dataset=each, split=divided(each)) for each in (dataset, other))
    assert torch.equal(first.model.logits(dataset), second.model.logits(dataset))
    assert first.summary["chosen"] == second.summary["chosen"]
    assert first.summary["scores"]["val"] == second.summary["scores"]["val"]
    assert first.summary["scores"]["test"]["accuracy"] == pytest.approx(
        1 - second.summary["scores"]["test"]["accuracy"]
    )


def test_the_validation_score_is_not_that_of_graphs_learned_by_heart(monkeypatch):
    monkeypatch.setattr(kernel_fit, "C_VALUES", (1e6,))
    dataset = rings_and_trees(noise=COUNT)
    split = divided(dataset)
    trained = train(config_of("wl", "iterations=4"), dataset=dataset, split=split)
    right = trained.model.logits(dataset).argmax(1) == dataset.labels()
    assert bool(right[split.val].all())  # the machine has seen them
    assert trained.summary["scores"]["val"]["accuracy"] < 0.8
    assert trained.summary["scores"]["val"]["accuracy"] == trained.summary["best"]


def test_without_a_validation_part_the_test_part_still_has_no_say():
    dataset = rings_and_trees()
    whole = torch.arange(COUNT)
    split = Split.of(dataset, [whole[:36], whole[:0], whole[36:]], unit="graph", protocol="paper")
    summary = train(config_of("wl"), dataset=dataset, split=split).summary
    assert split.optimistic
    assert summary["test_chose_the_epoch"] is False
    assert list(summary["scores"]) == ["train", "val", "test"]


def test_the_smallest_loss_may_choose():
    dataset = rings_and_trees(noise=10)
    training = KernelTraining(config_of("gk", "monitor=loss"), dataset, divided(dataset), listener=Recorder())
    tried = list(training._try_all())
    summary = training.fit()
    assert summary["best"] == -min(each.scores["loss"] for each in tried)


# ------------------------------------------------------------------------------------------------- several classes
def test_three_classes_one_against_the_rest():
    dataset = rings_and_trees(classes=3)
    training = KernelTraining(config_of("wl", "iterations=1", "class_weights=balanced"), dataset, divided(dataset))
    summary = training.fit()
    kernel, y, known = kernel_of(training, 1), dataset.labels().numpy(), training.fitted
    machine = SVC(C=summary["chosen"]["C"], kernel="precomputed", class_weight="balanced")
    several = OneVsRestClassifier(machine).fit(kernel[np.ix_(known, known)], y[known])
    logits = training.model.logits(dataset)
    np.testing.assert_allclose(logits, several.decision_function(kernel[:, known]), rtol=1e-4, atol=1e-5)
    assert summary["scores"]["test"]["accuracy"] >= 0.8


def test_a_class_of_a_single_graph():
    dataset = rings_and_trees()
    dataset._data.y = dataset.labels().clone()
    dataset._data.y[0] = 2
    dataset.facts = facts("rings", "graph", 4)  # of the fourth class there is none
    trained = train(config_of("wl", "iterations=1"), dataset=dataset, split=divided(dataset))
    logits = trained.model.logits(dataset)
    assert bool((logits[:, 3] == -1).all())
    assert logits.shape == (COUNT, 4)


# ---------------------------------------------------------------------------------------------------- what is kept
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_folder_is_complete(system, tmp_path):
    dataset, listener = rings_and_trees(), Recorder()
    trained = train(
        config_of(system), dataset=dataset, split=divided(dataset), folder=tmp_path / "run", listener=listener
    )
    names = {path.name for path in (tmp_path / "run").iterdir()}
    files = {"config.toml", "environment.json", "split.json", "data.safetensors", "metrics.jsonl"}
    assert names == files | {"model.safetensors", "summary.json"}
    run, summary = Run.open(tmp_path / "run"), trained.summary
    records = run.records()
    choices = {"gk": 1, "rw": 1, "wl": 2}[system]
    assert len(records) == len(C_VALUES) * choices == summary["epochs"]
    assert [each["epoch"] for each in records] == list(range(1, len(records) + 1))
    assert [each["C"] for each in records] == [*C_VALUES] * choices
    chosen = records[summary["best_epoch"] - 1]
    assert chosen["val"] == summary["scores"]["val"]
    assert {name: chosen[name] for name in summary["chosen"]} == summary["chosen"]
    assert run.summary["scores"] == summary["scores"]
    usual = train(quick("epochs=1"), dataset=several_graphs(), split=divided(several_graphs())).summary
    assert set(summary) == set(usual) | {"chosen"}
    assert listener.summaries == [summary]
    assert all(map(str.strip, listener.notes))


def test_predictions_in_another_process_are_the_same_to_the_last_bit(tmp_path):
    dataset = rings_and_trees(noise=10)
    save(dataset, tmp_path / "rings.safetensors")
    for system in SYSTEMS:
        trained = train(config_of(system), dataset=dataset, split=divided(dataset), folder=tmp_path / system)
        np.save(tmp_path / f"{system}.npy", trained.model.logits(dataset).numpy())
    code = (
        "import sys, numpy, pathlib, pprgnn\n"
        "from pprgnn.training.model import Model\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "dataset = pprgnn.data.load(folder / 'rings.safetensors')\n"
        f"for system in {SYSTEMS}:\n"
        "    logits = Model.load(folder / system).logits(dataset).numpy()\n"
        "    assert (logits == numpy.load(folder / f'{system}.npy')).all(), system\n"
        "    one = Model.load(folder / system).logits(dataset[5:6]).numpy()\n"
        "    assert (one == logits[5]).all(), system\n"
        "print('same')\n"
    )
    done = warm.run(code, tmp_path)
    assert done.stdout == "same\n", done.stderr


def test_a_damaged_model_is_refused_in_a_sentence(tmp_path):
    dataset = rings_and_trees()
    trained = train(config_of("gk"), dataset=dataset, split=divided(dataset))
    path = tmp_path / "model.safetensors"
    trained.model.save(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    save_file({name: each for name, each in load_file(path).items() if name != "dual"}, path, metadata)
    with pytest.raises(DataError, match="damaged"):
        Model.load(path)


def test_the_classifier_takes_them():
    dataset = rings_and_trees()
    model = GraphClassifier(system="wl", iterations=2).fit(dataset, split=divided(dataset))
    assert model.score() >= 0.8
    assert model.predict_proba([dataset[0]]).sum() == pytest.approx(1)
    assert (model.predict() == dataset.labels()).float().mean() > 0.9
    assert model.score(dataset) > 0.9


# --------------------------------------------------------------------------------------------------------- a study
def test_a_study_computes_each_kernel_once(tmp_path, monkeypatch):
    asked = []
    usual = WeisfeilerLehmanNet.matrix
    monkeypatch.setattr(
        WeisfeilerLehmanNet,
        "matrix",
        lambda self, graphs, choice, done: asked.append(choice) or usual(self, graphs, choice, done),
    )
    dataset = rings_and_trees()
    config = config_of("wl", "iterations=[1, 2]", "split.folds=3")
    summary = Study.create(tmp_path / "study", config, dataset, folds=2, seeds=2).run()
    assert asked == [1, 2]
    assert summary["finished"]
    assert len(summary["runs"]) == 4
    assert summary["mean"]["test"]["accuracy"] > 0.8
    train(config, dataset=rings_and_trees(seed=1))  # other graphs: nothing of before is used, nor kept
    assert asked == [1, 2, 1, 2]
    assert len(kernel_fit._kept) == 2


# --------------------------------------------------------------------------------------------------- stopped early
class Impatient(Recorder):
    """Presses Ctrl-C when the first kernel is done."""

    def note(self, text):
        super().note(text)
        if "best so far" in text:
            raise KeyboardInterrupt


def test_stopped_and_resumed_it_ends_as_if_it_had_not_been(tmp_path):
    dataset = rings_and_trees(noise=10)
    options = {"dataset": dataset, "split": divided(dataset)}
    with pytest.raises(KeyboardInterrupt):
        train(config_of("wl"), **options, folder=tmp_path / "stopped", listener=Impatient())
    assert len(Run.open(tmp_path / "stopped").records()) == len(C_VALUES)
    assert not Run.open(tmp_path / "stopped").finished
    summary = resume(tmp_path / "stopped").summary
    wanted = train(config_of("wl"), **options, folder=tmp_path / "whole").summary
    assert summary | {"seconds": 0} == wanted | {"seconds": 0}
    mine, theirs = Run.open(tmp_path / "stopped").records(), Run.open(tmp_path / "whole").records()
    assert [each | {"seconds": 0} for each in mine] == [each | {"seconds": 0} for each in theirs]
    with pytest.raises(TrainingError, match="finished"):
        resume(tmp_path / "stopped")


def test_ctrl_c_on_the_command_line(tmp_path, monkeypatch):
    save(rings_and_trees(), tmp_path / "rings.safetensors")
    command = ["train", str(tmp_path / "rings.safetensors"), "--model", "wl", "-o", str(tmp_path / "run")]

    def pressed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WeisfeilerLehmanNet, "matrix", pressed)
        done = CliRunner().invoke(app, command)
    assert done.exit_code == 130
    assert f"--resume {tmp_path / 'run'}" in "".join(done.output.split("\n"))
    done = CliRunner().invoke(app, ["train", "--resume", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["finished"]
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), "-o", str(tmp_path / "out.csv")])
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "out.csv").read_text().splitlines()) == COUNT + 1
    assert CliRunner().invoke(app, ["evaluate", str(tmp_path / "run")]).exit_code == 0


# ------------------------------------------------------------------------------------------------- what is refused
def refused(what, config, dataset, split=None, folder=None):
    with pytest.raises(TrainingError, match=what) as caught:
        train(config, dataset=dataset, split=split or divided(dataset), folder=folder)
    assert is_sentence(str(caught.value))


def test_what_is_refused_before_there_is_a_folder(tmp_path, monkeypatch):
    dataset, folder = rings_and_trees(), tmp_path / "run"
    refused("labels are per node", config_of("wl"), one_graph(), folder=folder)
    several = rings_and_trees()
    several._data.y = torch.ones(COUNT, 2)
    several.facts = facts("rings", "graph", 2, multi_label=True)
    refused("may have several", config_of("wl"), several, folder=folder)
    zeros = (dataset.labels() == 0).nonzero().flatten()
    zeros = Split.of(dataset, [zeros[2:], zeros[:1], zeros[1:2]], unit="graph")
    refused("graphs of two classes", config_of("wl"), dataset, zeros, folder)
    refused("must be below 0.", config_of("rw", "decay=0.4"), dataset, folder=folder)
    refused("whole numbers", config_of("wl", "iterations=[1.5]"), dataset, folder=folder)
    monkeypatch.setattr(kernel_fit, "available_memory", lambda: 1000)
    refused("memory to compare 40 graphs.*name one value of iterations", config_of("wl"), dataset, folder=folder)
    assert not folder.exists()


def test_a_kernel_that_takes_too_long_is_refused(monkeypatch):
    dataset, listener = rings_and_trees(), Recorder()
    monkeypatch.setattr(kernel_fit, "ENOUGH", 0.0)
    refused("hours to compare all pairs.*--set max_hours=1", config_of("rw", "max_hours=1e-7"), dataset)
    train(config_of("rw", "decay=0.01"), dataset=dataset, split=divided(dataset), listener=listener)
    assert any("min to compare" in note for note in listener.notes)


def test_a_missing_package_is_named_with_the_remedy(tmp_path, monkeypatch):
    save(rings_and_trees(), tmp_path / "rings.safetensors")
    monkeypatch.setitem(sys.modules, "grakel", None)
    command = ["train", str(tmp_path / "rings.safetensors"), "--model", "wl", "-o", str(tmp_path / "run")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "pip install 'pprgnn[kernels]'" in " ".join(done.output.split())
    assert not (tmp_path / "run").exists()


def test_settings_without_a_use_are_named():
    dataset, listener = rings_and_trees(), Recorder()
    config = config_of("gk", "epochs=7", "lr=0.5", "seed=2")
    train(config, dataset=dataset, split=divided(dataset), listener=listener)
    said = " ".join(listener.notes)
    assert "no use for these settings of [training]: epochs, lr." in said
    assert "labels of nodes play no part" in said


def test_what_plays_the_part_of_labels_is_said():
    dataset = rings_and_trees()
    dataset._data.x = torch.cat([dataset._data.x, torch.rand(dataset.num_nodes, 2)], dim=1)
    for features, words in (
        ("given", "3 columns of zeros and ones; 2 other"),
        ("degree", "their degrees; 2 other"),
    ):
        listener = Recorder()
        config = config_of("wl", f"features={features}", "iterations=1")
        train(config, dataset=dataset, split=divided(dataset), listener=listener)
        assert words in listener.notes[0]


def test_on_real_molecules(data_root):
    summary = train(config_of("wl", "iterations=2").with_values({"data.name": "MUTAG"})).summary
    assert summary["scores"]["val"]["accuracy"] > 0.8
    assert summary["scores"]["test"]["accuracy"] > 0.7
