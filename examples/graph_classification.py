"""Labels for whole graphs, in batches: is the red node of a graph connected with the blue one.

Each graph is a pair of equal trees; the two coloured nodes are in the same tree (class 1) or not (class 0). No
neighbourhood tells which: the message of one coloured node has to travel until it meets the other's. A GCN of
three layers sees it only when they are near. Expect at least 95 % of the test graphs right, and some 70 % with
the GCN.
"""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN, global_mean_pool

from pprgnn.nn import GraphNet

SIZE = 15  # nodes of a tree
torch.manual_seed(0)


def draw_graph():
    """Two copies of a random tree that is rather long than wide, a red node and a blue one."""
    parent = [max(0, node - int(torch.randint(1, 4, ()))) for node in range(1, SIZE)]
    tree = torch.tensor([parent, list(range(1, SIZE))])
    edges = torch.cat([tree, tree + SIZE], dim=1)
    connected = int(torch.randint(2, ()))
    red, blue = torch.randperm(SIZE)[:2]
    x = torch.zeros(2 * SIZE, 2)
    x[red, 0] = 1
    x[blue if connected else blue + SIZE, 1] = 1
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=connected)


class PooledGCN(torch.nn.Module):
    """Three layers and the mean over all nodes."""

    def __init__(self):
        super().__init__()
        self.gcn = GCN(2, 32, num_layers=3, out_channels=2)

    def forward(self, x, edge_index, edge_weight, batch, num_graphs):
        """One row of logits per graph."""
        return global_mean_pool(self.gcn(x, edge_index, edge_weight), batch, num_graphs)


graphs = [draw_graph() for _ in range(600)]
train = DataLoader(graphs[:300], batch_size=50, shuffle=True)
test = DataLoader(graphs[300:], batch_size=150)
models = {
    "GCN, 3 layers": PooledGCN(),
    "PPRGNN, 2 infinite layers": GraphNet(
        2, 2, hidden=16, layers=2, eps=0.25, activation="tanh", bias=False, pooling="mean", dropout=0.0, tol=1e-3
    ),
}
for name, model in models.items():
    epochs, optimizer = 15, torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=epochs * len(train))
    for _ in range(epochs):
        for batch in train:
            optimizer.zero_grad()
            logits = model(batch.x, batch.edge_index, None, batch.batch, batch.num_graphs)
            torch.nn.functional.cross_entropy(logits, batch.y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        found = [model(b.x, b.edge_index, None, b.batch, b.num_graphs).argmax(dim=1) == b.y for b in test]
    print(f"{name:<26} test accuracy: {torch.cat(found).float().mean():.1%}")
print("hops of the two infinite layers:", *(conv.last_solution.depth for conv in model.convs))
