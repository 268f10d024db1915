"""Any convolution of PyTorch Geometric, infinitely deep: GAT, GraphSAGE and GIN.

A class is written in one corner of an 8 × 8 grid, and every node has to name it, up to the opposite corner, 14
hops away. `InfiniteDepth` repeats a convolution, whichever it is, until nothing changes any more. Expect all
three to name the class everywhere (at least 95 % of the nodes of new grids), and two ordinary layers near the
corner only.
"""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch
from torch_geometric.nn import MLP, GATConv, GINConv, SAGEConv

import pprgnn
from pprgnn.nn import InfiniteDepth

WIDTH = 16
grids = pprgnn.data.load("grid", rows=8, columns=8, train=8, val=1, test=20)  # ordinary PyG graphs, two classes
train = Batch.from_data_list([grid for grid in grids if grid.part == 0])
test = Batch.from_data_list([grid for grid in grids if grid.part == 2])

convs = {  # each takes and returns WIDTH channels; the state without a message shall be zero, hence no biases
    "GATConv": lambda: GATConv(WIDTH, WIDTH // 4, heads=4, bias=False),
    "SAGEConv": lambda: SAGEConv(WIDTH, WIDTH, bias=False),
    "GINConv": lambda: GINConv(MLP([WIDTH, WIDTH, WIDTH], norm=None, act="tanh", bias=False)),
}


class Ordinary(torch.nn.Module):
    """Two convolutions with tanh, as usual."""

    def __init__(self, first, second):
        super().__init__()
        self.lin, self.first, self.second = torch.nn.Linear(2, WIDTH, bias=False), first, second

    def forward(self, x, edge_index):
        """States of all nodes."""
        return self.second(self.first(self.lin(x), edge_index).tanh(), edge_index).tanh()


def test_accuracy(layer):
    """Train the layer with a linear map behind it on eight grids, test on twenty others."""
    head = torch.nn.Linear(WIDTH, 2, bias=False)
    parameters = [*layer.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.03)
    for _ in range(12):
        optimizer.zero_grad()
        cross_entropy(head(layer(train.x, train.edge_index)), train.y).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    with torch.no_grad():
        predicted = head(layer(test.x, test.edge_index)).argmax(dim=1)
    return (predicted == test.y).float().mean()


print(f"{'test accuracy':<15}{'2 layers':>10}{'infinite':>10}{'depth':>7}")
for name, make in convs.items():
    torch.manual_seed(0)
    infinite = InfiniteDepth(
        make(), in_channels=2, channels=WIDTH, eps=0.5, activation="tanh", bias=False, tol=1e-3
    )
    ordinary, ours = test_accuracy(Ordinary(make(), make())), test_accuracy(infinite)
    print(f"{name:<15}{ordinary:10.1%}{ours:10.1%}{infinite.last_solution.depth:7d}")
