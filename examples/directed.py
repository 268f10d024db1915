"""One-way edges: whom may an infected person have infected, and who may be the origin.

An edge a → b says that a could have passed it on to b; one person of each group is known to be infected. Whoever
can be reached from there is in danger, and whoever reaches it may be the origin. Messages along the edges
(`direction="in"`) answer the first question, messages against them (`"out"`) the second. Only `"both"` answers
both: it has weights for each direction, while a graph made undirected cannot tell them apart. Expect at least 95
% where a question can be answered, and no more than by always saying no where it cannot.
"""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.data import Batch, Data
from torch_geometric.nn import SAGEConv
from torch_geometric.transforms import ToUndirected

from pprgnn.nn import InfiniteDepth

PEOPLE, WIDTH = 25, 16


def draw_group():
    """Everybody may have got it from one or two of the four people before; one is known to be infected."""
    sources = [torch.randint(max(0, person - 4), person, (1 + (person % 3 == 0),)) for person in range(1, PEOPLE)]
    targets = [torch.full_like(source, person) for person, source in enumerate(sources, start=1)]
    edge_index = torch.stack([torch.cat(sources), torch.cat(targets)])
    one_step = torch.eye(PEOPLE)
    one_step[edge_index[0], edge_index[1]] = 1
    reaches = torch.linalg.matrix_power(one_step, PEOPLE) > 0
    known = int(torch.randint(PEOPLE // 3, 2 * PEOPLE // 3, ()))
    others = torch.arange(PEOPLE) != known
    return Data(
        x=(~others).float().unsqueeze(1),
        edge_index=edge_index,
        y=torch.stack([reaches[known], reaches[:, known]], dim=1).float(),  # in danger, may be the origin
        others=others,
    )


class Network(torch.nn.Module):
    """One infinite-depth layer, and a linear map to the two answers."""

    def __init__(self, direction):
        super().__init__()
        conv = SAGEConv(WIDTH, WIDTH, root_weight=False, bias=False)
        self.layer = InfiniteDepth(
            conv, in_channels=1, eps=0.25, activation="tanh", bias=False, tol=1e-3, direction=direction
        )
        self.head = torch.nn.Linear(WIDTH, 2)

    def forward(self, data):
        """Logits of the two questions, for everybody but the infected person."""
        return self.head(self.layer(data.x, data.edge_index))[data.others]


torch.manual_seed(0)
train, test = (Batch.from_data_list([draw_group() for _ in range(40)]) for _ in range(2))
truth = test.y[test.others].bool()
for name in ("in", "out", "both", "undirected"):
    torch.manual_seed(0)
    if name == "undirected":
        train, test = ToUndirected()(train), ToUndirected()(test)
    model = Network("in" if name == "undirected" else name)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(model(train), train.y[train.others]).backward()
        optimizer.step()
    with torch.no_grad():
        danger, origin = ((model(test) > 0) == truth).float().mean(dim=0)
    depth = model.layer.last_solution.depth
    print(f"{name:<11} accuracy: in danger {danger:6.1%}, origin {origin:6.1%} (depth {depth})")
danger, origin = (~truth).float().mean(dim=0)
print(f"{'always no':<11} accuracy: in danger {danger:6.1%}, origin {origin:6.1%}")
