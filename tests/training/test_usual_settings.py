"""What is taken where nobody said anything: for labels of nodes, and of whole graphs."""

import pytest
import torch
from torch_geometric.data import Data

from pprgnn import GraphClassifier, NodeClassifier
from pprgnn.cli.train import config_for
from pprgnn.data import from_pyg
from pprgnn.training.config import OF_GRAPHS, Config
from pprgnn.training.evaluation import cautions
from pprgnn.training.loop import Training
from pprgnn.training.model import Model
from pprgnn.training.scaling import Scaling
from pprgnn.training.terminal import describe
from pprgnn.training.train import choose_split, train
from tests.training.small_data import one_graph, quick, several_graphs


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


def graphs_with_numbers(count=30):
    """The class follows from a column of small numbers beside one of large ones and one of zeros and ones."""
    draw, graphs = torch.Generator().manual_seed(0), []
    for number in range(count):
        x = torch.stack([1e-4 * torch.randn(6, generator=draw), 1e4 + 300 * torch.randn(6, generator=draw)], dim=1)
        x[:, 0] += 2e-4 * (number % 2)
        mark = torch.randint(2, (6, 1), generator=draw).float()
        ring = torch.arange(6)
        edges = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
        graphs.append(Data(x=torch.cat([x, mark], dim=1), edge_index=edges, y=torch.tensor([number % 2])))
    return from_pyg(graphs)


def test_columns_of_numbers_are_standardised_by_the_training_part(tmp_path):
    dataset = graphs_with_numbers()
    trained = train(Config.for_task("graph").with_settings(["epochs=3"]), dataset=dataset)
    split = choose_split(trained.model.config, dataset)
    mask = split.masks(dataset)["train"].repeat_interleave(6)
    given, x = dataset._all("x"), trained.model.features(dataset)
    torch.testing.assert_close(x[mask][:, :2].mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(x[mask][:, :2].std(0, unbiased=False), torch.ones(2))
    assert not torch.allclose(x[~mask][:, :2].mean(0), torch.zeros(2), atol=1e-4)
    assert torch.equal(x[:, 2], given[:, 2])  # of zeros and ones
    trained.model.save(tmp_path / "model.safetensors")
    again = Model.load(tmp_path / "model.safetensors")
    assert torch.equal(again.features(dataset), x)
    assert torch.equal(again.logits(dataset), trained.model.logits(dataset))
    told = describe(Training(trained.model.config, dataset, split))
    (line,) = [each for each in told if each.startswith("features ")]
    assert "2 columns of numbers, standardised by the training part" in line


def test_nothing_is_standardised_where_there_are_no_numbers_or_a_recipe_does_not_say_so():
    assert not Config().data.standardize
    ones = several_graphs()
    ones._data.x = (ones._data.x > 0).float()
    masks = choose_split(Config(), ones).masks(ones)
    assert Scaling.of(ones, "given+degree", masks["train"]) is None
    assert Scaling.of(graphs_with_numbers(), "degree", masks["train"]) is None


def test_a_few_nodes_have_the_answers_of_all_also_with_standardised_columns():
    dataset = one_graph()
    dataset._data.x = 100 + 7 * dataset._data.x
    trained = train(quick("standardize=true", "epochs=3"), dataset=dataset)
    assert trained.model.scaling is not None
    few, every = trained.model.logits(dataset, [3, 5]), trained.model.logits(dataset)
    torch.testing.assert_close(few, every[[3, 5]], atol=1e-4, rtol=1e-4)


def test_graphs_that_cannot_be_told_apart_are_warned_about():
    """The graphs are one and the same: nothing can be above the majority of the test part."""
    graph = several_graphs(1)[0]
    y = torch.tensor([0, 0, 1] * 8)
    alike = from_pyg([Data(x=graph.x, edge_index=graph.edge_index, y=label.view(1)) for label in y])
    summary = train(Config.for_task("graph").with_settings(["epochs=2"]), dataset=alike).summary
    assert summary["scores"]["test"]["accuracy"] <= summary["trivial"]["majority"]["accuracy"]
    assert cautions(summary)
