"""What is taken where nobody said anything: for labels of nodes, and of whole graphs."""

import pytest
import torch
from torch_geometric.data import Data

from pprgnn import GraphClassifier, NodeClassifier
from pprgnn.cli.train import config_for
from pprgnn.data import from_pyg
from pprgnn.training.config import OF_GRAPHS, Config
from pprgnn.training.evaluation import cautions
from pprgnn.training.train import train
from tests.training.small_data import several_graphs


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


def test_graphs_that_cannot_be_told_apart_are_warned_about():
    """The graphs are one and the same: nothing can be above the majority of the test part."""
    graph = several_graphs(1)[0]
    y = torch.tensor([0, 0, 1] * 8)
    alike = from_pyg([Data(x=graph.x, edge_index=graph.edge_index, y=label.view(1)) for label in y])
    summary = train(Config.for_task("graph").with_settings(["epochs=2"]), dataset=alike).summary
    assert summary["scores"]["test"]["accuracy"] <= summary["trivial"]["majority"]["accuracy"]
    assert cautions(summary)
