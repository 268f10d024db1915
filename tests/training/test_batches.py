"""Batches against PyG's own, graph by graph and number by number."""

import pytest
import torch
from torch_geometric.data import Batch as PyGBatch
from torch_geometric.data import Data

from pprgnn.core.adjacency import Adjacency
from pprgnn.data.dataset import GraphDataset
from pprgnn.training.batches import Batches
from pprgnn.training.config import Config
from pprgnn.training.train import train
from tests.training.small_data import facts, one_graph, several_graphs

CPU = torch.device("cpu")
OPTIONS = {"normalize": "sym", "add_self_loops": True}
PICKS = [[0], [3], [0, 1, 2], [7, 2, 2, 21], [6, 0, 14], list(range(23, -1, -1))]


def made(dataset: GraphDataset, options=OPTIONS) -> Batches:
    return Batches(dataset, dataset._all("x").float(), options, CPU)


def expected_adjacency(batch, **options) -> torch.Tensor:
    return Adjacency.from_edge_index(batch.edge_index, batch.edge_weight, batch.num_nodes, **options).to_dense()


@pytest.mark.parametrize("ids", PICKS)
@pytest.mark.parametrize("normalize", ["sym", "row"])
def test_graph_task_as_pyg_batches_it(ids, normalize):
    dataset = several_graphs()
    options = OPTIONS | {"normalize": normalize}
    found = made(dataset, options).batch(torch.tensor(ids))
    wanted = PyGBatch.from_data_list([dataset[i] for i in ids])
    assert torch.allclose(found.edges.to_dense(), expected_adjacency(wanted, **options), atol=1e-7)
    assert torch.equal(found.x, wanted.x)
    assert torch.equal(found.y, wanted.y)
    assert torch.equal(found.graph, wanted.batch)
    assert found.num_graphs == len(ids)
    assert found.rows is None
    assert found.edge_weight is None  # it is in the adjacency


@pytest.mark.parametrize("ids", PICKS)
@pytest.mark.parametrize("task", ["graph", "node"])
def test_plain_edge_index_as_pyg_batches_it(ids, task):
    dataset = several_graphs(task=task)
    found = made(dataset, None).batch(torch.tensor(ids))
    wanted = PyGBatch.from_data_list([dataset[i] for i in ids])
    assert torch.equal(found.edges, wanted.edge_index)
    assert torch.equal(found.edge_weight, wanted.edge_weight)
    assert torch.equal(found.x, wanted.x)
    assert torch.equal(found.y, wanted.y)
    assert (found.graph is None) == (task == "node")


@pytest.mark.parametrize("options", [OPTIONS, OPTIONS | {"normalize": "row"}, None])
@pytest.mark.parametrize("size", [1, 2, 5, 24, 30])
def test_graphs_cut_into_batches_are_the_batches_one_by_one(size, options):
    batches = made(several_graphs(), options)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
    cut = list(batches.cut(batches.all_graphs(), size, generator=torch.Generator().manual_seed(1)))
    alone = [batches.batch(ids) for ids in torch.split(order, size)]
    for found, wanted in zip(cut, alone, strict=True):
        assert torch.equal(found.x, wanted.x)
        assert torch.equal(found.y, wanted.y)
        assert torch.equal(found.graph, wanted.graph)
        assert found.num_graphs == wanted.num_graphs
        if options is None:
            assert torch.equal(found.edges, wanted.edges)
            assert torch.equal(found.edge_weight, wanted.edge_weight)
        else:
            assert torch.equal(found.edges.to_dense(), wanted.edges.to_dense())
            assert torch.equal(found.edges.matrix_t.to_dense(), wanted.edges.matrix_t.to_dense())
            assert found.edge_weight is None


def test_batches_are_told_apart_by_their_graphs():
    batches = made(several_graphs())
    twice = [[each.edges.identity for each in batches.cut(batches.all_graphs(), 3)] for _ in range(2)]
    assert twice[0] == twice[1]
    assert len(set(twice[0])) == 8


@pytest.mark.parametrize("ids", PICKS)
def test_node_task_with_a_mask(ids):
    dataset = several_graphs(task="node")
    batches = made(dataset)
    mask = torch.rand(dataset.num_nodes, generator=torch.Generator().manual_seed(0)) < 0.5
    wanted = PyGBatch.from_data_list([dataset[i] for i in ids])
    sizes = torch.tensor(dataset.graph_sizes)
    parts = mask.split(sizes.tolist())
    chosen = torch.cat([parts[i] for i in ids])
    for _ in range(2):  # the second time from what was kept
        found = batches.batch(torch.tensor(ids), mask)
        assert torch.equal(found.x, wanted.x)
        assert torch.equal(found.y, wanted.y[chosen])
        assert torch.equal(found.scored(found.x), wanted.x[chosen])
        assert torch.allclose(found.edges.to_dense(), expected_adjacency(wanted, **OPTIONS), atol=1e-7)
        assert found.graph is None
    everything = batches.batch(torch.tensor(ids))
    assert torch.equal(everything.y, wanted.y)
    assert torch.equal(everything.scored(everything.x), wanted.x)


def test_multi_label_rows():
    dataset = one_graph(multi_label=True)
    mask = torch.arange(30) % 3 == 0
    found = made(dataset).batch(torch.tensor([0]), mask)
    assert torch.equal(found.y, dataset[0].y[mask])
    assert found.x.shape == (30, 8)


@pytest.mark.parametrize("task", ["graph", "node"])
@pytest.mark.parametrize("size", [1, 5, 24, 100])
def test_cutting_takes_every_graph_once(task, size):
    dataset = several_graphs(task=task)
    batches = made(dataset)
    cut = list(batches.cut(batches.all_graphs(), size))
    assert [batch.num_graphs for batch in cut] == [min(size, 24 - start) for start in range(0, 24, size)]
    assert torch.equal(torch.cat([batch.x for batch in cut]), dataset._all("x"))
    assert torch.equal(torch.cat([batch.y for batch in cut]), dataset.labels())


def test_shuffling_can_be_repeated():
    dataset = several_graphs()
    batches = made(dataset)
    graphs = torch.tensor([1, 4, 9, 12, 13, 20])

    def order(seed: int) -> list[float]:
        draw = torch.Generator().manual_seed(seed)
        return torch.cat([batch.x[:, 0] for batch in batches.cut(graphs, 4, generator=draw)]).tolist()

    before = torch.get_rng_state()
    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert graphs.tolist() == [1, 4, 9, 12, 13, 20]


def test_graphs_of_a_part():
    of_graphs, of_nodes = several_graphs(), several_graphs(task="node")
    mask = torch.zeros(24, dtype=torch.bool)
    mask[[2, 5]] = True
    assert made(of_graphs).parts(mask).tolist() == [2, 5]
    nodes = torch.zeros(of_nodes.num_nodes, dtype=torch.bool)
    starts = torch.tensor([0, *of_nodes.graph_sizes]).cumsum(0)
    nodes[[int(starts[3]) + 1, int(starts[3]) + 2, int(starts[9])]] = True
    assert made(of_nodes).parts(nodes).tolist() == [3, 9]
    assert made(of_nodes).parts(torch.zeros_like(nodes)).tolist() == []


@pytest.mark.parametrize("task", ["graph", "node"])
@pytest.mark.parametrize("options", [OPTIONS, None])
@pytest.mark.parametrize("chosen", [[3, 1, 20], [5], list(range(23, 3, -1))])
def test_a_subset_is_a_data_set(task, options, chosen):
    whole = several_graphs(task=task)
    batches = made(whole[chosen], options)
    ids = torch.arange(len(chosen)).flip(0)
    found = batches.batch(ids)
    wanted = PyGBatch.from_data_list([whole[chosen[int(i)]] for i in ids])
    assert torch.equal(found.x, wanted.x)
    assert torch.equal(found.y, wanted.y)
    if options is None:
        assert torch.equal(found.edges, wanted.edge_index)
        assert torch.equal(found.edge_weight, wanted.edge_weight)
    else:
        assert torch.allclose(found.edges.to_dense(), expected_adjacency(wanted, **OPTIONS), atol=1e-7)


@pytest.mark.parametrize("options", [OPTIONS, None])
def test_one_graph_with_weights(options):
    dataset = one_graph(weighted=True)
    found = made(dataset, options).batch(torch.tensor([0]))
    data = dataset[0]
    if options is None:
        assert torch.equal(found.edges, data.edge_index)
        assert torch.equal(found.edge_weight, data.edge_weight)
    else:
        assert torch.allclose(found.edges.to_dense(), expected_adjacency(data, **OPTIONS), atol=1e-7)
        assert not torch.allclose(found.edges.to_dense(), made(one_graph()).adj.to_dense())


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", [torch.float64, torch.int64])
def test_weights_of_any_type_fit_the_features(count, kind):
    """A table's weights come as doubles or whole numbers; features and network are single."""
    graphs = [
        Data(
            x=torch.ones(2, 1),
            edge_index=torch.tensor([[0, 1], [1, 0]]),
            edge_weight=torch.tensor([2, 2], dtype=kind),
            y=torch.tensor([0, 1]),
        )
        for _ in range(count)
    ]
    dataset = GraphDataset.from_graphs(graphs, facts("weights", "node", 2))
    assert made(dataset).batch(torch.tensor([0])).edges.dtype == torch.float32


def test_no_labels_and_no_edges():
    data = Data(x=torch.ones(3, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
    dataset = GraphDataset.from_graphs([data, data.clone()], facts("bare", "node", 2))
    batch = made(dataset).batch(torch.tensor([1, 0]))
    assert batch.y.numel() == 0
    assert torch.equal(batch.edges.to_dense(), torch.eye(6))
    assert made(dataset, None).batch(torch.tensor([1, 0])).edges.shape == (2, 0)


@pytest.mark.parametrize(("norm", "at_once"), [("layer", 7), ("graph", 1)])
def test_small_graphs_of_nodes_are_evaluated_together_unless_they_would_mix(norm, at_once):
    data = several_graphs(7, task="node")
    model = train(Config().with_settings([f"norm={norm}", "hidden=4", "epochs=1"]), dataset=data).model
    assert model.batches(data).at_once == at_once
    torch.testing.assert_close(model.logits(data[[2]]), model.logits(data)[3:6], rtol=1e-4, atol=1e-4)
