"""A model is one file: here and elsewhere it says the same, and a wrong use of it is a sentence."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pprgnn.data.store import save
from pprgnn.errors import DataError
from pprgnn.training.errors import TrainingError
from pprgnn.training.loop import Training
from pprgnn.training.model import FORMAT, Model
from pprgnn.training.train import train
from tests import warm
from tests.training.small_data import (
    Recorder,
    divided,
    is_sentence,
    one_graph,
    quick,
    several_graphs,
    without_signs,
)


def trained(dataset, *settings) -> Model:
    training = Training(quick("epochs=4", *settings), dataset, divided(dataset), listener=Recorder())
    training.fit()
    return training.model


KINDS = {
    "one graph": (lambda seed: one_graph(seed=seed, nodes=30 + seed), []),
    "weighted": (lambda seed: one_graph(seed=seed, nodes=30 + seed, weighted=True), ["normalize=row"]),
    "multi-label": (lambda seed: one_graph(seed=seed, multi_label=True), ["layers=2", "jk=cat", "norm=layer"]),
    "learned eps": (lambda seed: one_graph(seed=seed), ["eps=[1.0, 0.2]", "learn_eps=channel", "residual=true"]),
    "graphs": (lambda seed: several_graphs(20 + seed, seed=seed), ["norm=batch", "pooling=mean"]),
    "degree": (lambda seed: several_graphs(20 + seed, seed=seed), ["features=degree"]),
    "given and degree": (lambda seed: several_graphs(20 + seed, seed=seed), ["features=given+degree"]),
    "gcn": (lambda seed: one_graph(seed=seed), ["system=gcn"]),
    "ppi": (lambda seed: one_graph(seed=seed, multi_label=True), ["architecture=ppi"]),
    "normalized": (
        lambda seed: without_signs(one_graph(seed=seed)),
        ["features=normalized", "depth=3", "dropout=0.5"],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(tmp_path, kind):
    make, settings = KINDS[kind]
    model = trained(make(0), *settings)
    path = tmp_path / "model.safetensors"
    model.save(path)
    before = torch.get_rng_state()
    loaded = Model.load(path)
    assert torch.equal(torch.get_rng_state(), before)
    assert loaded.config == model.config
    assert loaded.facts == model.facts
    assert loaded.shape == model.shape
    assert loaded.feature_kind == model.feature_kind
    assert not loaded.network.training
    for name, tensor in model.network.state_dict().items():
        assert torch.equal(loaded.network.state_dict()[name], tensor)
    for dataset in (make(0), make(1)):
        assert torch.equal(loaded.logits(dataset), model.logits(dataset))


def test_a_model_in_another_process_says_the_same(tmp_path):
    """Train on some graphs, predict others: bit for bit."""
    cases = [("node", one_graph(), one_graph(nodes=50, edges=120, seed=1))]
    cases.append(("graph", several_graphs(), several_graphs(17, seed=2)))
    asked = []
    for name, known, new in cases:
        done = train(
            quick("epochs=6", "dropout=0.3", "eps=0.2"),
            dataset=known,
            split=divided(known),
            folder=tmp_path / name,
            listener=Recorder(),
        )
        save(new, tmp_path / f"{name}.safetensors")
        wanted = done.model.probabilities(done.model.logits(new))
        assert torch.allclose(wanted.sum(1), torch.ones(len(wanted)))
        asked.append(wanted)
    code = f"""
import torch
torch.set_num_threads(1)
from safetensors.torch import save_file
from pprgnn.data import load
from pprgnn.training.model import Model
found = {{}}
for name in ("node", "graph"):
    model = Model.load({str(tmp_path)!r} + "/" + name)
    found[name] = model.probabilities(model.logits(load({str(tmp_path)!r} + "/" + name + ".safetensors")))
save_file(found, {str(tmp_path / "found.safetensors")!r})
"""
    warm.run(code).check_returncode()
    with safe_open(tmp_path / "found.safetensors", "pt") as found:
        for (name, *_), wanted in zip(cases, asked, strict=True):
            assert torch.equal(found.get_tensor(name), wanted)


def test_what_it_says_depends_on_weights_and_graph_alone():
    """Not on what was solved before, nor on the tolerance of training."""
    dataset, other = one_graph(), one_graph(nodes=50, edges=150, seed=4)
    model = trained(dataset, "tol=0.1", "eps=0.1")
    first = model.logits(dataset)
    model.logits(other)
    model.network.train()
    assert torch.equal(model.logits(dataset), first)
    assert model.network.training  # as it was
    assert model.network.convs[0].tol == 0.1


def test_probabilities():
    model = trained(one_graph())
    logits = torch.tensor([[0.0, 0.0, 0.0], [100.0, 0.0, 0.0]])
    assert torch.allclose(model.probabilities(logits), torch.tensor([[1 / 3] * 3, [1.0, 0.0, 0.0]]))
    several = trained(one_graph(multi_label=True))
    assert torch.allclose(several.probabilities(logits)[0], torch.full((3,), 0.5))


def test_logits_have_one_row_per_node_or_graph():
    graphs, nodes = several_graphs(), several_graphs(task="node")
    assert trained(graphs).logits(graphs).shape == (24, 2)
    model = trained(nodes)
    assert model.logits(nodes).shape == (nodes.num_nodes, 2)
    chosen = model.logits(nodes[[4, 2]])
    assert chosen.shape == (5 + 3, 2)
    sizes = torch.tensor(nodes.graph_sizes)
    parts = model.logits(nodes).split(sizes.tolist())
    assert torch.allclose(chosen, torch.cat([parts[4], parts[2]]), atol=1e-4)


# ------------------------------------------------------------------------------------------------------ refusals
def refused(call) -> str:
    with pytest.raises(DataError) as caught:
        call()
    assert is_sentence(str(caught.value)), str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def model():
    return trained(one_graph())


def test_another_number_of_features(model):
    text = refused(lambda: model.logits(one_graph(channels=5)))
    assert "reads 8 features per node, but hand has 5" in text
    assert "has none" in refused(lambda: model.logits(one_graph(channels=0)))


def test_another_task(model):
    assert "labels per node" in refused(lambda: model.logits(several_graphs()))


def test_learned_rows_belong_to_their_graph():
    model = trained(one_graph(channels=0))
    assert model.logits(one_graph(channels=0)).shape == (30, 3)
    assert "other edges" in refused(lambda: model.logits(one_graph(channels=0, seed=5)))
    text = refused(lambda: model.logits(one_graph(nodes=31, channels=0)))
    assert "each of the 30 nodes" in text
    assert "31" in text


def test_features_that_are_not_finite(model):
    dataset = one_graph()
    dataset._data.x[3, 1] = float("nan")
    assert "feature 1 of node 3" in refused(lambda: model.logits(dataset))


def test_half_a_file(model, tmp_path):
    path = tmp_path / "model.safetensors"
    model.save(path)
    content = path.read_bytes()
    for length in (0, 5, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert "model.safetensors" in refused(lambda: Model.load(path))


def test_foreign_files(model, tmp_path):
    path = tmp_path / "a.safetensors"
    save(one_graph(), path)
    assert "is not a model" in refused(lambda: Model.load(path))
    save_file({"a": torch.ones(1)}, path)
    assert "is not a model" in refused(lambda: Model.load(path))
    path.write_text("hello")
    refused(lambda: Model.load(path))
    refused(lambda: Model.load(tmp_path / "absent.safetensors"))
    refused(lambda: Model.load(tmp_path))


def changed(model, path, tensors=None, **metadata):
    model.save(path)
    with safe_open(path, "pt") as file:
        old = file.metadata()
        kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(kept if tensors is None else tensors(kept), path, {**old, **metadata})


@pytest.mark.parametrize(
    "metadata",
    [
        {"config": "[]"},
        {"config": "{"},
        {"config": json.dumps({"model": {"hiden": 3}})},
        {"config": json.dumps({"model": {"hidden": 17}})},
        {"facts": "{}"},
        {"shape": "{}"},
        {"shape": "3"},
        {"format": FORMAT[:-1] + "2"},
    ],
)
def test_damaged_metadata(model, tmp_path, metadata):
    path = tmp_path / "model.safetensors"
    changed(model, path, **metadata)
    assert "model.safetensors" in refused(lambda: Model.load(path))


def test_damaged_tensors(model, tmp_path):
    path = tmp_path / "model.safetensors"
    changed(model, path, lambda kept: {k: v for k, v in kept.items() if "head" not in k})
    assert "damaged" in refused(lambda: Model.load(path))
    changed(model, path, lambda kept: {**kept, "more": torch.ones(1)})
    assert "damaged" in refused(lambda: Model.load(path))


def test_a_place_where_nothing_can_be_written(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="cannot be written"):
        model.save(tmp_path / "file" / "model.safetensors")


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(model, tmp_path, number):
    weights = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    name = next(iter(weights))
    weights[name].view(-1)[0] = number
    model.save(tmp_path / "model.safetensors", weights)
    with pytest.raises(DataError, match=rf"holds numbers that are not finite \({name}\); train the model again"):
        Model.load(tmp_path / "model.safetensors")
