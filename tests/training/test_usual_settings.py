"""What is taken where nobody said anything: for labels of nodes, and of whole graphs."""

import pytest

from pprgnn import GraphClassifier, NodeClassifier
from pprgnn.cli.train import config_for
from pprgnn.training.config import OF_GRAPHS, Config


def test_classifiers_start_from_the_settings_of_their_task():
    assert NodeClassifier().config == Config()
    assert GraphClassifier().config == Config.for_task("graph")
    assert GraphClassifier(layers=1, lr=0.1).config.model.layers == 1


@pytest.mark.parametrize(("what", "usual"), [("ENZYMES", True), ("TU/AIDS", True), ("minesweeper", False)])
def test_a_data_set_without_a_recipe_has_the_settings_of_its_task(what, usual):
    config = config_for(what, [])
    same = {key: config.value(key) == value for key, value in OF_GRAPHS.items()}
    assert all(same.values()) is usual


def test_another_system_has_its_own_settings_but_the_same_features():
    ours, gin = config_for("ENZYMES", []), config_for("ENZYMES", [], "gin")
    assert gin.data == ours.data
    assert gin.training == Config.for_system("gin").training
