"""Training labels as input: no node ever sees its own, and no label of another part is seen at all."""

import pytest
import torch
from torch_geometric.data import Data

from pprgnn.core.solution import ConvergenceWarning
from pprgnn.data.dataset import GraphDataset
from pprgnn.training import label_input
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import explain_node
from pprgnn.training.few_nodes import FewNodes
from pprgnn.training.label_input import VisibleLabels
from pprgnn.training.loop import Training
from pprgnn.training.model import Model, head
from pprgnn.training.systems import SYSTEMS
from tests.training.small_data import (
    Recorder,
    divided,
    facts,
    is_sentence,
    one_graph,
    quick,
    several_graphs,
)

LABELS = ("features=labels", "epochs=3")
OURS = {"node": (), "labels": ("architecture=labels", "weight_init=1.5")}
NETWORKS = [each.name for each in SYSTEMS if each.kind in ("infinite", "network") and "node" in each.tasks]


def trainer(dataset, *settings, split=None, listener=None):
    config = quick(*LABELS, *settings)
    return Training(config, dataset, split or divided(dataset), listener=listener)


def with_labels(dataset, y):
    data = dataset[0].clone()
    data.y = y
    return GraphDataset.from_graphs([data], dataset.facts)


def first_epoch(training):
    """Scored rows and logits of each step, as long as no weight has moved; a network may keep what it has seen."""
    steps = []
    for batch in training._training_batches(torch.Generator().manual_seed(1)):
        torch.manual_seed(2)
        training.network.train()
        logits = head(training.network, batch, training.network.encode(batch.x, batch.edges, batch.edge_weight))
        steps.append((batch.rows.tolist(), logits.detach()))
    return steps


# ------------------------------------------------------------------------------------------------------- no leaks
@pytest.mark.parametrize(("system", "multi_label"), [("pprgnn", True), *((name, False) for name in NETWORKS)])
def test_a_label_has_no_influence_where_it_is_scored(system, multi_label):
    dataset = one_graph(40, multi_label=multi_label)
    chosen = divided(dataset).train.tolist()[7]
    y = dataset.labels().clone()
    y[chosen] = 1 - y[chosen] if multi_label else (y[chosen] + 1) % 3
    other, settings = with_labels(dataset, y), (f"system={system}", "hidden=8", "features=given+labels")
    before, after = (first_epoch(trainer(each, *settings)) for each in (dataset, other))
    assert [rows for rows, _ in before] == [rows for rows, _ in after]
    assert sorted(row for rows, _ in before for row in rows) == divided(dataset).train.tolist()
    seen = 0
    for (rows, logits), (_, others) in zip(before, after, strict=True):
        if chosen in rows:
            assert torch.equal(logits, others)
        else:
            seen += not torch.equal(logits, others)
    assert seen or system == "mlp"  # it does reach others, where there are messages


@pytest.mark.parametrize("name", OURS)
def test_labels_of_other_parts_change_nothing_but_their_own_score(name):
    dataset = one_graph(60, channels=0)
    split, y = divided(dataset), dataset.labels().clone()
    for part in (split.val, split.test):
        y[part] = (y[part] + 1) % 3
    found = []
    for each in (dataset, with_labels(dataset, y)):
        listener = Recorder()
        training = trainer(each, *OURS[name], "monitor=last", split=divided(each), listener=listener)
        summary = training.fit()
        curve = [(record.loss, record.train, record.grad_norm) for record in listener.records]
        found.append((curve, summary["scores"], training.model.logits(each)))
    (curve, scores, logits), (other_curve, other_scores, other_logits) = found
    assert curve == other_curve
    assert torch.equal(logits, other_logits)
    assert scores["train"] == other_scores["train"]
    assert scores["test"] != other_scores["test"]


def test_scores_of_the_training_part_are_of_hidden_labels():
    """Nodes without edges know nothing but their own label: asked, they may tell it; scored, they may not."""
    data = Data(edge_index=torch.empty(2, 0).long(), y=torch.arange(40) % 4, num_nodes=40)
    dataset = GraphDataset.from_graphs([data], facts("alone", "node", 4))
    split = divided(dataset, (3, 1, 1))
    training = trainer(dataset, *OURS["labels"], split=split)
    summary, model, batches = training.fit(), training.model, training.batches
    assert summary["scores"]["train"]["accuracy"] < 0.5
    assert torch.equal(model.logits(dataset).argmax(1)[split.train], dataset.labels()[split.train])
    unseen = model.evaluate_unseen(batches)[0]
    assert len(unseen.unique(dim=0)) == 1
    assert torch.equal(unseen[split.test], model.logits(dataset)[split.test])


def test_every_training_node_is_scored_once_per_epoch_in_folds_of_the_seed():
    dataset = one_graph(60)
    visible = trainer(dataset).model.visible
    folds = [list(visible.folds(60, torch.Generator().manual_seed(seed))) for seed in (0, 0, 1)]
    assert torch.equal(torch.stack(folds[0]).sum(0), divided(dataset).masks(dataset)["train"].long())
    assert torch.equal(torch.stack(folds[0]), torch.stack(folds[1]))
    assert not torch.equal(torch.stack(folds[0]), torch.stack(folds[2]))
    assert len(folds[0]) == trainer(dataset).steps_per_epoch == 5


# ---------------------------------------------------------------------------------------------- hops that are kept
KEPT = (*OURS["labels"], "learn_eps=yes", "depth=certificate", "tol=1e-6")


def steps_of(training):
    """Logits of all that trains and validates, as the weights are now."""
    batches = [*training._training_batches(torch.Generator().manual_seed(1)), *training.fixed]
    encode = training.network.encode
    return [head(training.network, each, encode(each.x, each.edges, each.edge_weight)) for each in batches]


def test_hops_that_are_kept_are_the_recursion_at_any_eps_and_w(monkeypatch):
    dataset = one_graph(60, channels=0)
    kept = trainer(dataset, *KEPT)
    monkeypatch.setattr(label_input, "MOST_BYTES", 0)
    run = trainer(dataset, *KEPT)
    for log_eps, log_w in ((-3.0, 0.4), (-1.0, 0.9), (-4.0, 0.7)):
        for training in (run, kept):
            training.network.conv.log_eps.data.fill_(log_eps)
            training.network.conv.weight.data.fill_(log_w)
        monkeypatch.setattr(label_input, "MOST_BYTES", 0)
        expected = steps_of(run)
        monkeypatch.undo()
        for ours, theirs in zip(steps_of(kept), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert kept.folds._kept
    assert not run.folds._kept
    [gradient] = torch.autograd.grad(sum(each.square().sum() for each in steps_of(kept)), kept.network.conv.weight)
    assert gradient != 0


def test_a_label_is_in_no_hop_where_it_is_scored():
    dataset = one_graph(40, channels=0)
    chosen = divided(dataset).train.tolist()[7]
    y = dataset.labels().clone()
    y[chosen] = (y[chosen] + 1) % 3
    trainings = trainer(dataset, *KEPT), trainer(with_labels(dataset, y), *KEPT)
    before, after = ([batch.x for batch in each._training_batches(torch.Generator())] for each in trainings)
    folds = trainings[0].model.visible.folds(40, torch.Generator().manual_seed(0))
    [own] = [number for number, fold in enumerate(folds) if fold[chosen]]
    differs = [not torch.equal(x, other) for x, other in zip(before, after, strict=True)]
    assert not differs[own]
    assert any(differs)


def test_where_more_hops_are_needed_than_max_depth_the_recursion_runs_and_warns():
    training = trainer(one_graph(40, channels=0), *KEPT, "max_depth=40")
    assert all(batch.edges is None for batch in training.folds)
    training.network.conv.log_eps.data.fill_(-6.0)  # now the certificate asks for hundreds
    batches = list(training.folds)
    assert all(batch.edges is not None for batch in batches)
    with pytest.warns(ConvergenceWarning, match="max_depth"):
        training.network.encode(batches[0].x, batches[0].edges)


def test_a_weak_recursion_needs_no_hop():
    training = trainer(one_graph(40, channels=0), *KEPT)
    training.network.conv.weight.data.fill_(-30.0)
    assert training.network.hops_needed(training.batches.adj) == 0


@pytest.mark.parametrize("settings", [("activation=tanh",), ("eps=0.2",)])
def test_hops_are_kept_only_where_the_state_is_a_sum_of_them(settings):
    training = trainer(one_graph(40, channels=0), *OURS["labels"], *settings)
    assert (training.folds is None) == (settings == ("activation=tanh",))


# ------------------------------------------------------------------------------------------------------ the input
@pytest.mark.parametrize("multi_label", [False, True])
def test_what_is_read(multi_label):
    dataset = one_graph(multi_label=multi_label)
    train = divided(dataset).masks(dataset)["train"]
    training = trainer(dataset, "features=given+labels")
    x, y = training.model.features(dataset), dataset.labels()
    rows = y if multi_label else torch.nn.functional.one_hot(y, 3).float()
    assert torch.equal(x[:, :8], dataset[0].x)
    assert torch.equal(x[train][:, 8:-1], rows[train])
    assert torch.equal(x[:, -1], train.float())
    assert not x[~train][:, 8:].any()
    assert torch.equal(trainer(dataset).model.features(dataset), x[:, 8:])


@pytest.mark.parametrize(
    ("dataset", "kind", "words"),
    [
        (several_graphs(), "labels", "24 graphs and labels per graph"),
        (several_graphs(task="node"), "given+labels", "24 graphs and labels per node"),
        (one_graph(channels=0), "given+labels", "has no features"),
    ],
)
def test_where_labels_cannot_be_input(dataset, kind, words):
    with pytest.raises(TrainingError, match=words):
        trainer(dataset, f"features={kind}")


def test_the_network_of_labels_reads_nothing_else():
    for settings in (["features=given"], ["features=given+labels"]):
        with pytest.raises(TrainingError, match=r"set data\.features = 'labels'"):
            trainer(one_graph(classes=3, channels=4), "architecture=labels", *settings)


# ------------------------------------------------------------------------------------------------- the model's own
@pytest.fixture(scope="module", params=[("node", False), ("labels", False), ("labels", True)])
def done(request):
    name, multi_label = request.param
    dataset = one_graph(60, channels=0, multi_label=multi_label)
    training = trainer(dataset, *OURS[name])
    training.fit()
    return dataset, training.model


def test_a_file_holds_the_labels(done, tmp_path):
    dataset, model = done
    model.save(tmp_path / "model.safetensors")
    again = Model.load(tmp_path / "model.safetensors")
    assert torch.equal(again.logits(dataset), model.logits(dataset))
    unlabelled = dataset[0].clone()
    del unlabelled.y
    there = GraphDataset.from_graphs([unlabelled], dataset.facts)
    assert torch.equal(again.logits(there), model.logits(dataset))


def test_few_nodes_as_a_full_pass(done):
    dataset, model = done
    asked = torch.tensor([3, 17, 3, 59])
    found = FewNodes(model, dataset).logits(asked)[0]
    torch.testing.assert_close(found, model.logits(dataset)[asked], rtol=1e-3, atol=1e-3)


def test_an_explanation_names_nodes_with_labels(done):
    dataset, model = done
    found = explain_node(model, dataset, 2, top=100)
    assert {each.node for each in found.influential + found.far} <= set(model.visible.nodes.tolist())


def test_other_data_are_refused(done):
    dataset, model = done
    data, first = dataset[0], int(model.visible.nodes[0])
    relabelled, rewired, cut = data.clone(), data.clone(), data.clone()
    relabelled.y = data.y.clone()
    relabelled.y[first] = 1 - data.y[first] if dataset.facts.multi_label else (data.y[first] + 1) % 3
    rewired.edge_index = data.edge_index[:, 1:]
    cut.num_nodes, cut.y, cut.edge_index = 4, data.y[:4], data.edge_index[:, :0]
    for changed, words in ((relabelled, "is another one"), (rewired, "other edges"), (cut, "has 4 nodes")):
        with pytest.raises(TrainingError, match=words) as refusal:
            model.logits(GraphDataset.from_graphs([changed], dataset.facts))
        assert is_sentence(str(refusal.value))


def test_a_label_outside_of_training_may_change(done):
    dataset, model = done
    y = dataset.labels().clone()
    y[divided(dataset).test] = 0
    assert torch.equal(model.logits(with_labels(dataset, y)), model.logits(dataset))


def test_nothing_is_visible_of_other_kinds():
    dataset = one_graph()
    assert VisibleLabels.of(dataset, torch.ones(30, dtype=torch.bool), "given") is None
