"""Training in the manner of scikit-learn."""

import pytest
import torch
from torch_geometric.data import Data

import pprgnn
from pprgnn.data import DataError, load
from pprgnn.training.errors import TrainingError
from tests import warm

QUICK = {"hidden": 8, "dropout": 0.0, "epochs": 30, "lr": 0.05}


@pytest.fixture(scope="module")
def chains():
    return load("chains", length=6)


@pytest.fixture(scope="module")
def fitted(chains):
    return pprgnn.NodeClassifier(**QUICK).fit(chains)


def two_groups(seed=0, count=30):
    """A graph whose classes differ in features and hardly mix."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 2
    x = torch.randn(count, 3, generator=generator) + 2.0 * y[:, None]
    pairs = torch.randint(0, count, (2, 4 * count), generator=generator)
    pairs = pairs[:, y[pairs[0]] == y[pairs[1]]]
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], 1).unique(dim=1), y=y)


def test_fits_predicts_and_scores(fitted, chains):
    assert fitted.score() == 1.0
    assert fitted.score(part="val") == 1.0
    probabilities = fitted.predict_proba()
    assert probabilities.shape == (chains.num_nodes, 2)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(chains.num_nodes))
    assert torch.equal(fitted.predict(), probabilities.argmax(1))
    assert fitted.classes_ == chains.facts.class_names


def test_a_pyg_graph_and_another_one():
    classifier = pprgnn.NodeClassifier(**QUICK).fit(two_groups(0))
    new = two_groups(1, 50)
    assert classifier.score(new) > 0.9
    assert classifier.predict(new).shape == (50,)
    del new.y  # nothing is known
    assert classifier.predict_proba(new).shape == (50, 2)
    new.y = torch.full((50,), -1)
    with pytest.raises(TrainingError, match="labelled"):
        classifier.score(new)


def test_masks_of_a_pyg_graph_divide_it():
    data = two_groups()
    data.train_mask = torch.arange(30) < 10
    data.val_mask = (torch.arange(30) >= 10) & (torch.arange(30) < 20)
    data.test_mask = torch.arange(30) >= 20
    classifier = pprgnn.NodeClassifier(**QUICK).fit(data)
    assert classifier.split_.train.tolist() == list(range(10))
    assert classifier.split_.test.tolist() == list(range(20, 30))


def test_graphs():
    graphs = []
    for number in range(40):  # triangles and paths
        ring = [[0, 1, 2], [1, 2, 0]] if number % 2 else [[0, 1], [1, 2]]
        edges = torch.tensor(ring)
        edges = torch.cat([edges, edges.flip(0)], 1)
        graphs.append(Data(x=torch.ones(3, 1), edge_index=edges, y=torch.tensor([number % 2])))
    classifier = pprgnn.GraphClassifier(hidden=16, dropout=0.0, epochs=60, lr=0.05, self_loops=False).fit(graphs)
    assert classifier.score() == 1.0
    assert classifier.predict(graphs[:3]).tolist() == [0, 1, 0]
    assert classifier.predict_proba(graphs[0]).shape == (1, 2)


def test_several_labels():
    data = two_groups()
    data.y = torch.stack([data.y, 1 - data.y, torch.ones(30, dtype=torch.long)], 1).float()
    classifier = pprgnn.NodeClassifier(**QUICK).fit(data)
    prediction = classifier.predict()
    assert prediction.shape == (30, 3)
    assert set(prediction.unique().tolist()) <= {0, 1}
    assert classifier.score() > 0.9


def test_saved_and_loaded_in_another_process(fitted, chains, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    code = (
        "import sys, torch, pprgnn\n"
        "from safetensors.torch import save_file\n"
        f"model = pprgnn.NodeClassifier.load({str(tmp_path / 'model.safetensors')!r})\n"
        "new = pprgnn.data.load('chains', length=9)\n"
        f"save_file({{'p': model.predict_proba(new)}}, {str(tmp_path / 'p.safetensors')!r})\n"
    )
    warm.run(code).check_returncode()
    from safetensors.torch import load_file

    there = load_file(tmp_path / "p.safetensors")["p"]
    threads = torch.get_num_threads()
    assert torch.equal(there, fitted.predict_proba(load("chains", length=9))), threads


def test_recipes_and_parameters():
    classifier = pprgnn.NodeClassifier.from_recipe("cora", hidden=16)
    assert classifier.get_params()["hidden"] == 16
    assert classifier.get_params()["input_dropout"] == 0.8
    assert classifier.set_params(lr=0.5).config.training.lr == 0.5
    assert "hidden=16" in repr(classifier)
    with pytest.raises(TrainingError, match="no recipe 'coral'"):
        pprgnn.NodeClassifier.from_recipe("coral")


def test_another_system(chains):
    classifier = pprgnn.NodeClassifier(system="gat", heads=4, epochs=3)
    assert repr(classifier) == "NodeClassifier(system='gat', heads=4, epochs=3)"
    assert (classifier.get_params()["heads"], classifier.get_params()["lr"]) == (4, 0.005)
    assert not {"own", "eps"} & set(classifier.get_params())  # what it does not read
    assert pprgnn.NodeClassifier(**classifier.get_params()).config == classifier.config
    assert repr(classifier.set_params(heads=2)) == "NodeClassifier(system='gat', heads=2, epochs=3)"
    assert classifier.fit(chains).predict().shape == (chains.num_nodes,)
    assert len(classifier.model_.network.convs[0].att_src[0]) == 2
    assert repr(classifier.set_params(system="gcn")) == "NodeClassifier(system='gcn')"
    assert repr(pprgnn.NodeClassifier.from_recipe("cora", system="gcn")) == (
        "NodeClassifier(system='gcn', name='Cora', features='normalized')"
    )
    with pytest.raises(TrainingError, match="not one that GAT reads"):
        pprgnn.NodeClassifier(system="gat", eps=0.5)
    with pytest.raises(TrainingError, match="it is one of gat"):
        pprgnn.NodeClassifier(attention_dropout=0.5)
    with pytest.raises(TrainingError, match="did you mean 'gat'"):
        pprgnn.NodeClassifier(system="gatt")


def test_clear_errors(fitted, chains, tmp_path):
    with pytest.raises(TrainingError, match="did you mean 'hidden'"):
        pprgnn.NodeClassifier(hiden=3)
    with pytest.raises(TrainingError, match="not trained yet; call fit first"):
        pprgnn.NodeClassifier().predict()
    with pytest.raises(TrainingError, match="needs labels per graph"):
        pprgnn.GraphClassifier().fit(chains)
    with pytest.raises(TrainingError, match="part must be one of train, val, test"):
        fitted.score(part="tset")
    with pytest.raises(TrainingError, match="reads 2 features per node, but the graphs has 3"):
        fitted.predict(two_groups())
    fitted.save(tmp_path / "m.safetensors")
    with pytest.raises(TrainingError, match=r"use NodeClassifier.load"):
        pprgnn.GraphClassifier.load(tmp_path / "m.safetensors")
    with pytest.raises(TrainingError, match="pass the graphs to predict"):
        pprgnn.NodeClassifier.load(tmp_path / "m.safetensors").predict()
    with pytest.raises(DataError, match="cannot be read"):
        pprgnn.NodeClassifier.load(tmp_path / "nothing.safetensors")
    data = two_groups()
    data.x[3, 1] = float("nan")
    with pytest.raises(DataError, match=r"nan|NaN"):
        pprgnn.NodeClassifier(**QUICK).fit(data)


def test_verbose_tells_and_a_folder_keeps(chains, tmp_path, capsys):
    pprgnn.NodeClassifier(hidden=4, epochs=2).fit(chains, folder=tmp_path / "run", verbose=True)
    assert "epoch 2/2" in capsys.readouterr().out
    again = pprgnn.NodeClassifier.load(tmp_path / "run")
    assert again.predict(chains).shape == (chains.num_nodes,)
