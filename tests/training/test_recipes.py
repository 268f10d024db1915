"""Recipes that ship: each is valid, names data that exist, and says what the paper says."""

import pytest
import torch

from pprgnn.data import find
from pprgnn.training.build import Shape, build_network
from pprgnn.training.config import Config
from pprgnn.training.recipes import find_recipe, recipe_names

PAPER_GRAPHS = {"MUTAG": True, "PTC": True, "COX2": True, "PROTEINS": True, "NCI1": False}  # with self-loops?


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_valid_and_builds_its_network(name):
    config = Config.from_toml(find_recipe(name))
    card = find(config.data.name)
    learned, labels = (config.data.features == each for each in ("embedding", "labels"))
    classes = card.classes or 3
    width = 0 if learned else classes + 1 if labels else 5
    shape = Shape(card.task, width, classes, 20 if learned else None, "digest" if labels else None)
    with torch.device("meta"):
        network = build_network(config.model, shape)
    assert sum(p.numel() for p in network.parameters()) > 0


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith("paper-")])
def test_recipes_of_the_paper_use_its_protocol_and_its_networks(name):
    config = Config.from_toml(find_recipe(name))
    assert config.data.protocol == "paper"
    assert config.model.architecture in ("ppi", "co-purchase", "paper-graph")
    assert config.model.grad_terms == 5
    assert config.training.schedule == "plateau"


def test_there_is_one_for_every_experiment_of_the_paper():
    for data, self_loops in PAPER_GRAPHS.items():
        config = Config.from_toml(find_recipe(f"paper-{data}"))
        assert config.data.name == data
        assert (config.model.hidden, config.model.eps, config.model.self_loops) == (64, 1.0, self_loops)
        assert (config.training.clip, config.training.weight_decay) == (25.0, 1e-6)
    for data in ("PPI", "PPI-121", "PPI-GO"):
        config = Config.from_toml(find_recipe(f"paper-{data}"))
        assert (config.data.name, config.model.hidden, config.model.eps) == (data, 256, 0.25)
        assert not config.model.self_loops
    for short, data in (("amazon", "com-Amazon"), ("dblp", "com-DBLP")):
        for percent in range(5, 10):
            config = Config.from_toml(find_recipe(f"paper-{short}-0.0{percent}"))
            assert config.data.name == data
            assert config.data.split == {"fraction": percent / 100}
            assert (config.model.hidden, config.model.eps) == (128, 0.06)
            assert config.training.metric == "oracle micro-F1"


def test_names_in_any_case_and_files(tmp_path):
    assert find_recipe("CORA") == find_recipe("cora")
    assert find_recipe("no-such-recipe") is None
    assert find_recipe(str(tmp_path / "mine.toml")) == tmp_path / "mine.toml"


@pytest.mark.parametrize("name", ["paper-mutag", "paper-ppi-go", "cora"])
def test_recipes_run_on_their_data(name, data_root):
    from pprgnn.training.train import train

    smaller = {"training.epochs": 1, "model.hidden": 4}
    summary = train(Config.from_toml(find_recipe(name)).with_values(smaller)).summary
    assert summary["epochs"] == 1
    assert summary["test_chose_the_epoch"] == (name == "paper-mutag")
