"""The loop: it learns, it chooses by the validation alone, and what it says about itself is true."""

import gc
import math
import resource

import pytest
import torch
from torch_geometric.data import Data

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.nn.infinite_layer import infinite_layers, set_tolerance
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import choose_device, evaluate
from pprgnn.training.loop import Training
from pprgnn.training.train import choose_split, load_data, train
from tests.training.small_data import (
    Recorder,
    all_for_training,
    divided,
    facts,
    is_sentence,
    one_graph,
    quick,
    several_graphs,
)


def trained(config, dataset, split=None):
    """A training that has come to its end, and what it said."""
    listener = Recorder()
    training = Training(config, dataset, split or divided(dataset), listener=listener)
    training.fit()
    return training, listener


def figures(listener) -> list[dict]:
    """All records without their times."""
    return [{**vars(record), "seconds": None} for record in listener.records]


def same_weights(one, other) -> bool:
    mine, theirs = one.network.state_dict(), other.network.state_dict()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())


# ---------------------------------------------------------------------------------------------------- it learns
@pytest.mark.parametrize(
    ("dataset", "settings"),
    [
        (one_graph(classes=3), []),
        (one_graph(classes=2), ["metric=ROC AUC", "monitor=loss"]),
        (one_graph(classes=4, multi_label=True), []),
        (one_graph(classes=3, channels=0), []),  # a learned row per node
        (several_graphs(12, classes=2), []),
        (several_graphs(12, classes=3), ["batch_size=5"]),
        (several_graphs(12, classes=2, task="node"), ["batch_size=4"]),
        (one_graph(classes=3, edges=0), []),
        (one_graph(classes=3, weighted=True), ["system=gcn"]),
    ],
    ids=["classes", "binary", "multi-label", "embedding", "graphs", "batches", "node batches", "no edges", "gcn"],
)
def test_a_tiny_data_set_is_learned_by_heart(dataset, settings):
    config = quick("epochs=60", "hidden=32", "lr=0.05", *settings)
    _, listener = trained(config, dataset, all_for_training(dataset))
    last = listener.records[-1].train
    assert last["micro-F1" if dataset.facts.multi_label else "accuracy"] == 1.0, last


def test_the_record_of_an_epoch():
    dataset = several_graphs()
    training, listener = trained(quick("epochs=3", "layers=2", "batch_size=5"), dataset)
    assert [record.epoch for record in listener.records] == [1, 2, 3]
    record = listener.records[0]
    assert record.lr == 0.02
    assert record.grad_norm > 0
    assert len(record.depth) == 2
    assert record.val.keys() >= {"loss", "accuracy"}
    assert training.steps_per_epoch == math.ceil(12 / 5)
    summary = listener.summaries[0]
    assert summary["epochs"] == 3
    best = listener.records[summary["best_epoch"] - 1]  # whose weights the network has in the end
    layers = [layer for _, layer in infinite_layers(training.network)]
    assert best.weight_norm == [float(torch.linalg.matrix_norm(each.weight.detach(), ord=2)) for each in layers]
    assert best.eps == [each.eps for each in layers]
    assert summary["finished"] is True
    assert set(summary["scores"]) == {"train", "val", "test"}
    assert [layer["layer"] for layer in summary["layers"]] == ["convs.0", "convs.1"]
    assert summary["parameters"] == sum(p.numel() for p in training.network.parameters())


# ----------------------------------------------------------------------------------------- honest to the test part
@pytest.mark.parametrize("make", [one_graph, several_graphs], ids=["node", "graph"])
@pytest.mark.parametrize("monitor", ["metric", "loss"])
def test_test_labels_choose_nothing(make, monitor):
    config = quick("epochs=25", "patience=6", "dropout=0.2", f"monitor={monitor}", "schedule=plateau")
    honest = make()
    split = divided(honest)
    changed = make()
    changed._data.y[split.test] = (changed._data.y[split.test] + 1) % changed.num_classes
    first, one = trained(config, honest, split)
    second, other = trained(config, changed, divided(changed))
    assert figures(one) == figures(other)
    assert same_weights(first, second)
    assert one.summaries[0]["scores"]["test"] != other.summaries[0]["scores"]["test"]
    assert one.summaries[0]["scores"]["val"] == other.summaries[0]["scores"]["val"]
    assert one.summaries[0]["test_chose_the_epoch"] is False


def test_validation_labels_do_choose():
    config, honest = quick("epochs=25"), one_graph()
    changed = one_graph()
    val = divided(honest).val
    changed._data.y[val] = (changed._data.y[val] + 1) % 3
    _, one = trained(config, honest)
    _, other = trained(config, changed)
    assert [record.loss for record in one.records] == [record.loss for record in other.records]
    assert one.summaries[0]["best_epoch"] != other.summaries[0]["best_epoch"]


def test_a_split_without_validation_is_flagged():
    dataset = one_graph()
    whole = torch.arange(30)
    split = Split.of(dataset, [whole[:20], whole[:0], whole[20:]], unit="node", protocol="paper")
    training, listener = trained(quick("epochs=12"), dataset, split)
    summary = listener.summaries[0]
    assert summary["test_chose_the_epoch"] is True
    assert training.monitored == "test"
    assert "val" not in summary["scores"]
    assert summary["best"] == max(record.val["accuracy"] for record in listener.records)


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_the_last_epoch_may_count(average):
    dataset, whole = one_graph(), torch.arange(30)
    split = Split.of(dataset, [whole[:20], whole[:0], whole[20:]], unit="node")
    with pytest.raises(TrainingError, match=r"no validation part.*training.monitor=last"):
        trained(quick("epochs=3"), dataset, split)
    config = quick("epochs=9", "patience=1", "monitor=last", f"average={average}")
    training, listener = trained(config, dataset, split)
    summary = listener.summaries[0]
    assert summary["epochs"] == summary["best_epoch"] == 9
    assert summary["test_chose_the_epoch"] is False
    assert all(record.val is None for record in listener.records)
    last = training.average.tensors if average else [p.detach() for p in training.network.parameters()]
    final = dict(training.network.named_parameters()).values()
    assert all(torch.equal(kept, found) for kept, found in zip(last, final, strict=True))


# ------------------------------------------------------------------------------------------------ the best weights
EXACT = ["tol=1e-7", "eval_tol=1e-7"]


@pytest.mark.parametrize("make", [one_graph, several_graphs], ids=["shared", "own pass"])
@pytest.mark.parametrize("monitor", ["metric", "loss"])
def test_the_best_weights_are_those_of_the_best_epoch(make, monitor):
    dataset = make()
    training, listener = trained(quick("epochs=25", "lr=0.05", f"monitor={monitor}", *EXACT), dataset)
    best = training.progress.best_epoch
    record = listener.records[best - 1]
    assert record.epoch == best
    figure = (lambda r: -r.val["loss"]) if monitor == "loss" else (lambda r: r.val["accuracy"])
    assert figure(record) == max(map(figure, listener.records)) == training.progress.best
    assert record.best_epoch == best
    found = listener.summaries[0]["scores"]["val"]
    assert found["accuracy"] == record.val["accuracy"]
    assert found["loss"] == pytest.approx(record.val["loss"], rel=1e-4)
    assert best > 1


def test_the_first_of_equals_unless_the_loss_is_smaller():
    training, listener = trained(quick("epochs=30", "lr=0.05", *EXACT), one_graph())
    best_value = max(record.val["accuracy"] for record in listener.records)
    tied = [record for record in listener.records if record.val["accuracy"] == best_value]
    assert training.shared
    assert training.progress.best_epoch == min(tied, key=lambda record: record.val["loss"]).epoch


def test_the_weights_of_the_last_step_have_their_turn_too():
    for settings in (["epochs=1"], ["epochs=1", "input_dropout=0.1"]):
        training, listener = trained(quick("lr=0.01", *settings), one_graph())
        assert training.shared == (len(settings) == 1)
        assert listener.summaries[0]["best_epoch"] == 1


@pytest.mark.parametrize("settings", [[], ["norm=layer", "layers=2"], ["channels=0"]], ids=["1", "2", "embedding"])
def test_shared_validation_is_that_of_a_pass_of_its_own(settings, monkeypatch):
    dataset = one_graph(channels=0) if settings == ["channels=0"] else one_graph()
    settings = [each for each in settings if each != "channels=0"]
    config = quick("epochs=10", "dropout=0.4" if not settings else "dropout=0", *settings, *EXACT)
    shared, listener = trained(config, dataset)
    assert shared.shared
    kind = type(shared.network)
    monkeypatch.setattr(kind, "encode_is_deterministic", property(lambda self: False))
    apart, other = trained(config, dataset)
    assert not apart.shared
    for mine, theirs in zip(listener.records, other.records, strict=True):
        assert mine.val == pytest.approx(theirs.val, rel=1e-5, abs=1e-6)
        assert mine.best_epoch == theirs.best_epoch > 0
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-4, abs=1e-6)


def test_dropout_in_front_of_a_layer_is_not_shared():
    for settings in (
        ["input_dropout=0.1"],
        ["dropout=0.1", "layers=2"],
        ["norm=batch"],
        ["system=gcn", "dropout=0.1"],
    ):
        assert not Training(quick(*settings), one_graph(), divided(one_graph())).shared
    assert not Training(quick(), several_graphs(task="node"), divided(several_graphs(task="node"))).shared
    assert Training(quick("dropout=0.5"), one_graph(), divided(one_graph())).shared


# ------------------------------------------------------------------------------------------------------- stopping
def test_patience():
    training, listener = trained(quick("epochs=400", "patience=7", "lr=0.05"), one_graph())
    assert training.progress.epoch == training.progress.best_epoch + training.shared + 7 < 400
    assert listener.summaries[0]["finished"] is True


@pytest.mark.parametrize(("every", "patience"), [(10, 5), (4, 4), (3, 7)])
def test_patience_is_judged_when_there_was_a_validation(every, patience):
    training, listener = trained(
        quick("epochs=200", f"patience={patience}", f"eval_every={every}", "lr=0.05"), one_graph()
    )
    validated = [record.epoch for record in listener.records if record.val is not None]
    # The pass that scores a shared validation is already the next epoch, whose weights are scored at the end.
    assert validated == [*range(every, training.progress.epoch, every), training.progress.epoch]
    assert training.progress.best_epoch in validated
    assert training.progress.epoch - training.progress.best_epoch >= patience


def test_eval_every_and_the_last_epoch():
    _, listener = trained(quick("epochs=10", "eval_every=4"), one_graph())
    assert [record.epoch for record in listener.records if record.val is not None] == [4, 8, 10]


def test_an_undefined_metric_is_refused():
    dataset = one_graph(classes=2)
    zeros = (dataset._data.y == 0).nonzero().flatten()
    rest = torch.tensor([i for i in range(30) if i not in set(zeros[:4].tolist())])
    split = Split.of(dataset, [rest[:18], zeros[:4], rest[18:]], unit="node")
    with pytest.raises(TrainingError, match="ROC AUC of the val part") as caught:
        trained(quick("metric=ROC AUC"), dataset, split)
    assert is_sentence(str(caught.value))
    trained(quick("metric=ROC AUC", "monitor=loss", "epochs=2"), dataset, split)


# --------------------------------------------------------------------------------------------------- class weights
def test_training_starts_at_the_prior_if_told_so():
    dataset = one_graph(multi_label=True)
    training, _ = trained(quick("epochs=1", "lr=1e-9", "start_at_prior=true"), dataset)
    share = dataset.labels()[training.masks["train"]].float().mean(0)
    torch.testing.assert_close(training.network.head.bias.sigmoid(), share)


def test_class_weights():
    dataset = one_graph(classes=2)
    dataset._data.y = (torch.arange(30) % 10 == 0).long()
    plain, one = trained(quick("epochs=1"), dataset)
    weighted, other = trained(quick("epochs=1", "class_weights=balanced"), dataset)
    assert plain.objective.class_weights is None
    y = dataset._data.y[divided(dataset).train]
    counts = torch.bincount(y, minlength=2)
    assert torch.allclose(weighted.objective.class_weights, len(y) / (2 * counts))
    assert one.records[0].loss != other.records[0].loss
    training, _ = trained(quick("epochs=2", "class_weights=balanced"), one_graph(multi_label=True))
    assert training.objective.class_weights.shape == (3,)


# ------------------------------------------------------------------------------------------------------ randomness
RANDOM = ["dropout=0.3", "input_dropout=0.1", "epochs=6"]


@pytest.mark.parametrize("make", [one_graph, several_graphs], ids=["node", "graph"])
def test_the_seed_decides(make):
    def run(*settings):
        return trained(
            quick(*RANDOM, "batch_size=5" if make is several_graphs else "batch_size=0", *settings), make()
        )

    torch.manual_seed(1)
    first, one = run("seed=7")
    torch.manual_seed(2)
    second, other = run("seed=7")
    assert figures(one) == figures(other)
    assert same_weights(first, second)
    _, another = run("seed=8")
    assert figures(one) != figures(another)


def test_the_largest_seed():
    training, _ = trained(quick("epochs=1", f"seed={2**32 - 1}"), one_graph())
    assert training.progress.epoch == 1


def test_the_random_numbers_of_the_caller_go_on():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    training = Training(quick(*RANDOM), one_graph(), divided(one_graph()))
    assert torch.equal(torch.get_rng_state(), before)
    training.fit()
    assert torch.equal(torch.get_rng_state(), before)


def test_deterministic_mode():
    assert not torch.are_deterministic_algorithms_enabled()

    class Look(Recorder):
        def epoch(self, record):
            super().epoch(record)
            assert torch.are_deterministic_algorithms_enabled()

    for dataset in (one_graph(), several_graphs()):
        listener = Look()
        Training(quick("deterministic=true", "epochs=3"), dataset, divided(dataset), listener=listener).fit()
        assert len(listener.records) == 3
        _, usual = trained(quick("epochs=3"), dataset)
        assert [record.loss for record in listener.records] == pytest.approx([r.loss for r in usual.records])
    assert not torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        trained(quick("epochs=1"), one_graph())
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


# ---------------------------------------------------------------------------------------------------- batch sizes
@pytest.mark.parametrize(
    ("dataset", "settings", "wanted"),
    [
        (several_graphs(12), [], 1),
        (several_graphs(12), ["threads=2"], 2),
        (several_graphs(12), ["hidden=4096"], 3),
        (several_graphs(12, task="node"), [], 3),
        (one_graph(), [], 3),
    ],
    ids=["small graphs", "told", "wide", "nodes", "one graph"],
)
def test_small_graphs_have_one_thread(dataset, settings, wanted):
    training = Training(quick("hidden=8", *settings), dataset, divided(dataset))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with training._own_settings():
            assert torch.get_num_threads() == wanted
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_one_batch_or_many_see_the_same_rows():
    dataset = several_graphs()
    for size, steps in ((1, 12), (5, 3), (12, 1), (1000, 1)):
        training, listener = trained(quick("epochs=1", f"batch_size={size}", "lr=1e-9", *EXACT), dataset)
        assert training.steps_per_epoch == steps
        if size == 1:
            first = listener.records[0]
        assert listener.records[0].loss == pytest.approx(first.loss, rel=1e-4)
        assert listener.records[0].train == first.train
    assert Training(quick(), dataset, divided(dataset)).size == 128
    assert Training(quick(), one_graph(), divided(one_graph())).size == 1


def test_whole_graphs_of_a_node_task():
    dataset = load_data(quick("name=chains", "options={length = 6, train = 4, val = 3, test = 3}"))
    split = choose_split(quick(), dataset)
    training, listener = trained(quick("epochs=60", "eps=0.1", "batch_size=2", "hidden=8"), dataset, split)
    assert training.steps_per_epoch == 2
    assert listener.summaries[0]["scores"]["test"]["accuracy"] == 1.0


# ---------------------------------------------------------------------------------------------------- odd graphs
def test_nodes_without_neighbours_and_graphs_without_edges():
    for dataset in (one_graph(edges=0), one_graph(nodes=12, edges=2), one_graph(nodes=12, edges=2, channels=0)):
        for settings in ([], ["self_loops=false"], ["normalize=row", "depth=3"]):
            _, listener = trained(quick("epochs=3", *settings), dataset)
            assert len(listener.records) == 3


def test_features_of_the_degree():
    _, listener = trained(quick("epochs=2", "features=degree"), several_graphs())
    assert listener.starts[0].model.shape.in_channels == 2


def test_data_without_classes_is_refused():
    data = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.zeros(4, dtype=torch.long))
    dataset = GraphDataset.from_graphs([data], facts("no classes", "node", 0))
    split = Split.of(dataset, [torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3])], unit="node")
    with pytest.raises(TrainingError, match="no classes to learn"):
        Training(quick(), dataset, split)


def test_other_refusals():
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(TrainingError, match=r"training\.device = 'abacus'"):
        choose_device("abacus")
    with pytest.raises(TrainingError, match="no data to learn from"):
        train(quick())
    with pytest.raises(TrainingError, match=r"data\.fold must be below 1"):
        train(quick("name=chains", "options.length=4", "fold=1"))
    dataset = one_graph()
    for setting, match in (
        ("architecture=graph", "does not go with labels per node"),
        ("architecture=co-purchase", "data.features = 'embedding'"),
        ("features=embedding,architecture=ppi", "reads features of nodes"),
        ("metric=oracle micro-F1", "every row has one"),
    ):
        with pytest.raises(TrainingError, match=match) as caught:
            Training(quick(*setting.split(",")), dataset, divided(dataset))
        assert is_sentence(str(caught.value))


# --------------------------------------------------------------------------------------------------------- scores
def test_final_scores_are_to_the_final_tolerance():
    training, listener = trained(quick("epochs=5", "tol=0.1", "eval_tol=1e-6", "eps=0.1"), one_graph())
    assert all(layer.tol == 0.1 for layer in training.network.convs)  # as before
    exact = listener.summaries[0]["layers"][0]
    assert max(exact[name] or 0 for name in ("truncation_bound", "measured_error", "estimated_error")) <= 1e-6
    set_tolerance(training.network, 1e-7)
    training.network.eval()
    scores, _, _ = evaluate(training.model, training.batches, training.masks, training.metrics)
    assert scores["test"]["loss"] == pytest.approx(listener.summaries[0]["scores"]["test"]["loss"], rel=1e-4)


def test_memory_stays_flat():
    dataset = several_graphs(40)
    training = Training(quick("epochs=40", "batch_size=2", "hidden=64", "eval_every=5"), dataset, divided(dataset))
    peaks: list[int] = []

    class Watch(Recorder):
        def epoch(self, record):
            if record.epoch in (10, 40):
                gc.collect()
                peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    training.listener = Watch()
    training.fit()
    assert training.steps_per_epoch * 30 == 300
    assert peaks[1] - peaks[0] < 8 * 1024  # KiB
