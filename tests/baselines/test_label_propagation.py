"""Label propagation: dense formulas, what validation chooses, and that no label of another part is seen."""

import pytest
import torch

from pprgnn import NodeClassifier
from pprgnn.baselines.label_propagation import LabelPropagationNet
from pprgnn.data.dataset import GraphDataset
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.run import Run
from pprgnn.training.search import search_space
from pprgnn.training.train import train
from tests.baselines.dense import CLASSES, N, graph
from tests.training.small_data import Recorder, divided, is_sentence, one_graph, several_graphs


def propagated(dataset=None, **settings):
    dataset = one_graph(edges=90) if dataset is None else dataset
    config = Config.for_system("lp").with_values({"device": "cpu", **settings})
    return train(config, dataset=dataset, split=divided(dataset), listener=Recorder())


@pytest.mark.parametrize("spread", ["sym", "row"])
@pytest.mark.parametrize("several", [False, True])
def test_the_dense_formula(spread, several):
    edge_index, weight, _ = graph()
    y = torch.rand(N, CLASSES, dtype=torch.float64).round()
    known = (torch.arange(N) % 3 == 0).double()[:, None]
    x = torch.cat([y * known, known], 1)
    network = LabelPropagationNet(
        CLASSES + 1, CLASSES, damping=0.7, prior_weight=0.2, spread=spread, steps=6
    ).double()
    network.several.fill_(several)
    a = torch.zeros(N, N, dtype=torch.float64).index_put((edge_index[1], edge_index[0]), weight, accumulate=True)
    degree = a.sum(1, keepdim=True)
    inverse = torch.where(degree > 0, 1 / degree, 0)
    a = inverse * a if spread == "row" else inverse.sqrt() * a * inverse.sqrt().t()
    state = 0.3 * x
    for _ in range(6):
        state = 0.7 * a @ state + 0.3 * x
    torch.testing.assert_close(network.encode(x, edge_index, weight), state, rtol=1e-6, atol=1e-6)
    share = ((state[:, :-1] + 0.2 / CLASSES) / (state[:, -1:] + 0.2)).clamp(1e-6, 1 - 1e-6)
    wanted = (share / (1 - share)).log() if several else share.log()
    torch.testing.assert_close(network(x, edge_index, weight), wanted, rtol=1e-5, atol=1e-5)
    powers = sum(w * torch.linalg.matrix_power(a, step) @ x for step, w in enumerate(network.weights(0.7)))
    torch.testing.assert_close(powers, state)


def test_where_nothing_arrives_the_frequencies_decide():
    network = LabelPropagationNet(CLASSES + 1, CLASSES)
    network.prior.copy_(torch.tensor([0.2, 0.5, 0.3]))
    logits = network.decode(torch.zeros(1, CLASSES + 1))
    torch.testing.assert_close(logits.exp(), torch.tensor([[0.2, 0.5, 0.3]]))


@pytest.mark.parametrize("several", [False, True])
def test_the_best_on_validation_is_chosen_and_kept(tmp_path, several):
    dataset = one_graph(edges=90, multi_label=several)
    config = Config.for_system("lp").with_values({"device": "cpu", "threshold": "validation"})
    done = train(config, dataset=dataset, split=divided(dataset), folder=tmp_path / "run", listener=Recorder())
    records, summary = Run.open(tmp_path / "run").records(), done.summary
    assert len(records) == summary["epochs"] == 2 * 5 * 4
    metric = summary["metric"]
    assert summary["best"] == max(record["val"][metric] for record in records)
    best = records[summary["best_epoch"] - 1]
    assert {name: best[name] for name in summary["chosen"]} == summary["chosen"]
    # The grid shares its products and looks at few rows; the model itself must come to the same.
    if not several:  # where a threshold is chosen, rounding decides between equals
        assert summary["scores"]["val"][metric] == pytest.approx(best["val"][metric])
    assert summary["scores"]["val"]["loss"] == pytest.approx(best["val"]["loss"], rel=1e-4)
    assert (summary["threshold"] is not None) == several


def test_labels_of_other_parts_change_nothing():
    dataset = one_graph(edges=90)
    first = propagated(dataset=dataset, damping=0.9, prior_weight=0.1, spread="sym")
    data = dataset[0].clone()
    others = ~divided(dataset).masks(dataset)["train"]
    data.y[others] = (data.y[others] + 1) % 3
    changed = GraphDataset.from_graphs([data], dataset.facts)
    second = propagated(dataset=changed, damping=0.9, prior_weight=0.1, spread="sym")
    assert torch.equal(first.model.logits(dataset), second.model.logits(changed))
    assert first.summary["scores"]["val"] != second.summary["scores"]["val"]
    assert first.summary["scores"]["train"] == second.summary["scores"]["train"]


def test_neighbours_alike_are_found_from_few_labels():
    """Two rings with a bridge: one label each is enough, and features play no part."""
    size = 20
    ring = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
    edges = torch.cat([ring, ring + size, torch.tensor([[0], [size]])], 1)
    data = one_graph(nodes=2 * size, classes=2)[0].clone()
    data.edge_index = torch.cat([edges, edges.flip(0)], 1)
    data.y = (torch.arange(2 * size) >= size).long()
    dataset = GraphDataset.from_graphs([data], one_graph(classes=2).facts)
    classifier = NodeClassifier(system="lp", damping=0.99, steps=100).fit(
        dataset, split=divided(dataset, (1, 1, 8))
    )
    assert classifier.score() == 1.0


def test_what_it_cannot_do_is_said():
    for dataset, message in (
        (
            several_graphs(task="node"),
            "takes labels from nodes to others of the same graph, but several has 24 graphs",
        ),
        (several_graphs(), "Label propagation labels nodes, but here labels are per graph"),
    ):
        with pytest.raises(TrainingError, match=message) as caught:
            propagated(dataset=dataset)
        assert is_sentence(str(caught.value))
    with pytest.raises(TrainingError, match="chooses its settings by itself, on the validation part"):
        search_space({"damping": "0.1..0.9"}, Config.for_system("lp"))
    with pytest.raises(ValueError, match="damping must be between 0 and 1"):
        LabelPropagationNet(4, 3, damping=1.0)


def test_without_a_validation_part_nothing_is_chosen():
    done = propagated(monitor="last", damping=(0.8, 0.9))
    assert done.summary["best"] is None
    assert done.summary["chosen"]["damping"] == 0.8
