"""PyG's own tools take our layers for native ones: containers, loaders, summaries, explanations."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.metric import fidelity
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, Linear, SAGEConv, Sequential, global_add_pool, summary
from torch_geometric.nn.models.basic_gnn import BasicGNN

import pprgnn
from pprgnn.nn import PPRGNN, InfiniteDepth, PPRConv

LAYERS = {
    "PPRConv": lambda i, o: PPRConv(i, o, eps=0.5),
    "InfiniteDepth(GAT)": lambda i, o: InfiniteDepth(GATConv(o, o // 2, heads=2), i, eps=0.5),
    "InfiniteDepth(SAGE)": lambda i, o: InfiniteDepth(SAGEConv(o, o), i, eps=0.5),
}
EVERY = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
NODE_MODEL = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def ring(size, seed=0):
    torch.manual_seed(seed)
    nodes = torch.arange(size)
    edge_index = torch.cat([torch.stack([nodes, nodes.roll(1)]), torch.stack([nodes.roll(1), nodes])], dim=1)
    return Data(x=torch.randn(size, 4), edge_index=edge_index, y=torch.tensor([size % 2]))


@EVERY
def test_sequential(make):
    data = ring(6)
    model = Sequential(
        "x, edge_index, batch",
        [
            (torch.nn.Dropout(0.5), "x -> x"),
            (make(4, 8), "x, edge_index -> h"),
            (make(8, 8), "h, edge_index -> h2"),
            (lambda a, b: torch.cat([a, b], dim=1), "h, h2 -> x"),
            (global_add_pool, "x, batch -> x"),
            Linear(16, 2),
        ],
    )
    batch = torch.tensor([0, 0, 0, 1, 1, 1])
    assert model(data.x, data.edge_index, batch).shape == (2, 2)


class Wrapped(BasicGNN):
    """PyG's frame for stacks, around any convolution."""

    supports_edge_weight = False
    supports_edge_attr = False

    def init_conv(self, in_channels, out_channels, **_):
        return InfiniteDepth(SAGEConv(out_channels, out_channels), in_channels, channels=out_channels)


@pytest.mark.parametrize(
    "options", [{}, {"norm": "batch"}, {"jk": "cat"}, {"jk": "lstm"}, {"act": "elu", "dropout": 0.5}], ids=str
)
def test_basic_gnn_options(options):
    data = ring(6)
    for model in (Wrapped(4, 8, 2, 3, **options), PPRGNN(4, 8, 2, 3, **options)):
        out = model(data.x, data.edge_index)
        assert out.shape == (6, 3)
        out.sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        model.reset_parameters()
        assert "2" in repr(model)


@EVERY
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tracing_is_refused_not_wrong(make):
    data = ring(6)
    with pytest.raises(ValueError, match=r"torch.jit.trace .* cannot follow .*; use torch.export"):
        torch.jit.trace(make(4, 8), (data.x, data.edge_index))


@EVERY
def test_summary_lists_the_layer_and_its_parameters(make):
    data, layer = ring(6), make(4, 8)
    text = summary(layer, data.x, data.edge_index)
    assert type(layer).__name__ in text
    assert "[6, 8]" in text
    count = sum(p.numel() for p in layer.parameters())
    assert f"{count:,}" in text or str(count) in text


@EVERY
def test_batches_of_a_loader_equal_the_graphs_one_by_one(make):
    graphs = [ring(size, seed=size) for size in (3, 4, 5, 6, 7)]
    layer = make(4, 8).eval()
    layer.tol = 1e-7
    for batch in DataLoader(graphs, batch_size=2):
        together = global_add_pool(layer(batch.x, batch.edge_index), batch.batch)
        apart = torch.stack([layer(each.x, each.edge_index).sum(0) for each in batch.to_data_list()])
        torch.testing.assert_close(together, apart, atol=1e-4, rtol=1e-4)


def explainer_for(model, epochs=80):
    return Explainer(
        model,
        GNNExplainer(epochs=epochs, lr=0.05),
        explanation_type="model",
        edge_mask_type="object",
        model_config=NODE_MODEL,
    )


class Headed(torch.nn.Module):
    def __init__(self, layer, channels):
        super().__init__()
        self.layer, self.head = layer, torch.nn.Linear(channels, 2)

    def forward(self, x, edge_index):
        return self.head(self.layer(x, edge_index))


@EVERY
def test_explanations_and_their_fidelity(make):
    """A path 0-1-2-3 whose far end holds the answer of node 0, and a ring that has nothing to do with it."""
    edges = torch.tensor([[0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 4]])
    edge_index = torch.cat([edges, edges.flip(0)], dim=1)
    torch.manual_seed(0)
    y = torch.tensor([0, 1] * 8)
    x = torch.zeros(16, 7, 2)
    x[torch.arange(16), 3, y] = 1.0
    x[:, 4:] = torch.rand(16, 3, 2)
    many = next(iter(DataLoader([Data(x=each, edge_index=edge_index) for each in x], batch_size=16)))
    model = Headed(make(2, 16), 16)
    model.layer.grad_terms, model.layer.tol = None, 1e-3  # the weights become too large for more in float32
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        logits = model(many.x, many.edge_index)[::7]
        torch.nn.functional.cross_entropy(logits, y).backward()
        optimizer.step()
    usual = int(model.eval()(torch.zeros(7, 2), edge_index)[0].argmax())  # its answer when it sees nothing
    explainer, found = explainer_for(model), x[1 - usual]
    assert int(model(found, edge_index)[0].argmax()) == 1 - usual, "it has learned the task"
    explanation = explainer(found, edge_index, index=0)
    path = explanation.edge_mask[[6, 7, 8]]  # 1 -> 0, 2 -> 1, 3 -> 2
    elsewhere = explanation.edge_mask[[3, 4, 5, 9, 10, 11]]
    assert float(path.min()) > float(elsewhere.max())
    # Fidelity of the truth itself: the path, all of it and nothing else.
    explanation.edge_mask = torch.tensor([1.0, 1, 1, 0, 0, 0] * 2)
    positive, negative = fidelity(explainer, explanation)
    assert positive == 1.0, "without the path, the answer changes"
    assert negative == 0.0, "the path gives the same answer by itself"


@pytest.mark.parametrize("settings", [{}, {"system": "infinite", "conv": "sage"}], ids=["pprgnn", "infinite"])
def test_explainer_on_a_saved_model(settings, tmp_path):
    chains = pprgnn.data.load("chains", length=5, train=4, val=4, test=4)
    model = pprgnn.NodeClassifier(hidden=8, dropout=0.0, epochs=10, lr=0.05, **settings).fit(chains)
    model.save(tmp_path / "model.safetensors")
    network = pprgnn.NodeClassifier.load(tmp_path / "model.safetensors").model_.network
    chain = chains[0]
    explanation = explainer_for(network.eval(), epochs=30)(chain.x, chain.edge_index, index=4)
    assert explanation.edge_mask.shape == (chain.num_edges,)
    assert explanation.validate()
    torch.testing.assert_close(network(chain.x, chain.edge_index), explanation.prediction, atol=1e-4, rtol=1e-4)
