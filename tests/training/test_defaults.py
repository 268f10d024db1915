"""Settings that follow from the number of labels, unless somebody has chosen them."""

import pytest
import torch
from torch_geometric.data import Data

from pprgnn import NodeClassifier
from pprgnn.data.own.objects import from_pyg
from pprgnn.training import defaults
from pprgnn.training.config import Config
from pprgnn.training.defaults import FEW_LABELS, MANY_LABELS, describe_settled, settle
from pprgnn.training.errors import TrainingError
from pprgnn.training.loop import Training
from pprgnn.training.study import Study
from pprgnn.training.terminal import describe
from pprgnn.training.train import choose_split, train


def graph(nodes=60, features=3, classes=2, several=False):
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(nodes) % classes
    x = torch.randn(nodes, features, generator=draw) if features else None
    data = Data(x=x, edge_index=torch.randint(nodes, (2, 4 * nodes), generator=draw), num_nodes=nodes)
    data.y = torch.nn.functional.one_hot(y, classes).float() if several else y
    return from_pyg(data)


def settled(dataset, **changes):
    config = Config.for_task("node").with_values(changes)
    return settle(config, dataset, [choose_split(config, dataset)])


FEW, MANY = graph(60, features=120), graph(600)


@pytest.mark.parametrize("system", sorted(FEW_LABELS))
def test_few_labels_choose(system):
    found = settled(FEW, system=system)
    assert {key: found.value(key) for key in FEW_LABELS[system]} == FEW_LABELS[system]
    assert found.given is None  # nothing is left open


@pytest.mark.parametrize("system", sorted(MANY_LABELS))
def test_many_labels_choose(system):
    found = settled(MANY, system=system)
    assert {key: found.value(key) for key in MANY_LABELS[system]} == MANY_LABELS[system]


def test_what_somebody_set_stays_also_if_it_is_the_default():
    usual = Config()
    found = settled(FEW, eps=usual.model.eps, dropout=usual.model.dropout)
    assert (found.model.eps, found.model.dropout) == (usual.model.eps, usual.model.dropout)
    assert found.model.weight_init == "identity"
    assert settled(FEW, system="gcn", layers=3).model.layers == 3


def test_a_recipe_and_a_whole_config_stay():
    split = choose_split(Config(), FEW)
    for config in (Config(), Config.for_system("gcn"), Config.from_dict({"training": {"lr": 0.5}})):
        assert settle(config, FEW, [split]) == config


def test_another_system_forgets_the_settings_of_the_first_one():
    config = Config.for_task("node").with_values({"layers": 3, "features": "given"}).with_values({"system": "gcn"})
    assert config.given == {"data.features", "model.system"}


@pytest.mark.parametrize(
    ("dataset", "changes"),
    [
        (graph(60, features=0), {}),
        (graph(60, features=5), {}),  # few labels can tell which of so few columns matter
        (graph(600, features=120), {}),
        (graph(600, features=120), {"system": "gcn"}),
        (FEW, {"features": "labels", "architecture": "labels"}),
        (FEW, {"features": "degree"}),
        (FEW, {"features": "embedding", "architecture": "co-purchase"}),
    ],
)
def test_in_between_and_without_features_nothing_is_chosen(dataset, changes):
    assert settled(dataset, **changes) == Config.for_task("node").with_values(changes)


def test_own_settings_are_told_apart():
    for config in (
        Config.for_task("node").with_values({"system": "gat", "heads": 2}),
        Config.for_task("node").with_settings(["system=gat", "heads=2"]),
    ):
        assert "model.own.heads" in config.given
        assert "model.own" not in config.given


def test_the_log_says_what_was_chosen():
    config = settled(FEW)
    split = choose_split(config, FEW)
    lines = describe(Training(config, FEW, split))
    chosen = " ".join(" ".join(lines).split())
    assert "settings for few labels (18 nodes a class): " in chosen
    assert "weight_init = identity" in chosen
    assert describe_settled(Config(), MANY, choose_split(config, MANY)) == ""
    some = settled(FEW, eps=0.1, smooth_input=True)  # chosen by somebody, whatever the number of labels says
    assert "model.eps" not in some.settled
    assert "model.weight_init" in some.settled
    recipe = Config().with_values(FEW_LABELS["pprgnn"])
    assert describe_settled(recipe, FEW, split) == ""


def test_a_run_that_goes_on_still_tells_what_was_chosen(tmp_path):
    trained = train(Config.for_task("node").with_values({"epochs": 1}), dataset=FEW, folder=tmp_path / "run")
    assert trained.run.config.settled == tuple(FEW_LABELS["pprgnn"])
    study = Study.create(tmp_path / "study", Config.for_task("node").with_values({"epochs": 1}), FEW, seeds=2)
    assert Study.open(tmp_path / "study").config.settled == study.config.settled == tuple(FEW_LABELS["pprgnn"])


def test_every_way_to_train_takes_them(tmp_path):
    model = NodeClassifier(epochs=1, hidden=4).fit(FEW)
    assert model.model_.config.model.weight_init == "identity"
    assert model.model_.config.model.hidden == 4
    study = Study.create(tmp_path / "study", Config.for_task("node").with_values({"epochs": 1}), FEW, seeds=2)
    assert study.config.model.weight_init == "identity"
    assert train(Config().with_values({"epochs": 1}), dataset=FEW).model.config.model.weight_init == "glorot"


def test_labels_are_counted_by_class():
    config = Config()
    assert defaults.labels_per_class(FEW, choose_split(config, FEW)) == 18
    several = graph(600, classes=6, several=True)
    assert defaults.labels_per_class(several, choose_split(config, several)) == 60


def test_rows_with_negative_entries_are_not_normalised():
    config = settled(FEW, features="normalized", epochs=1)
    with pytest.raises(TrainingError, match="has negative features, as standardised columns have; use 'given'"):
        train(config, dataset=FEW)
