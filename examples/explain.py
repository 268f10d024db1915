"""Why does the model say so? GNNExplainer finds the path along which the answer has travelled.

The root of each tree shows a class, and a node six hops away has to name it. One path joins the two, so the
truth is known: a good explanation names the edges of this path, which are a tenth of all edges. Expect a
precision of at least 90 %. Fidelity says whether the model itself agrees: it should keep its answers when it
sees the named edges only (fidelity- near 0) and change about half of them, as a guess would, without these edges
(fidelity+ near 0.5).
"""

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.metric import fidelity

from pprgnn.nn import PPRGNN

NODES, HOPS, CLASSES = 30, 6, 2
torch.manual_seed(0)


def draw_tree():
    """The path 0, 1, ... 6 with 23 more nodes hanging on at random; the class is written on node 0."""
    parent = [max(0, node - 1) if node <= HOPS else int(torch.randint(node, ())) for node in range(NODES)]
    down = torch.tensor([parent[1:], list(range(1, NODES))])
    x, label = torch.zeros(NODES, CLASSES), int(torch.randint(CLASSES, ()))
    x[0, label] = 1
    return Data(
        x=x,
        edge_index=torch.cat([down, down.flip(0)], dim=1),
        y=torch.full((NODES,), label),
        on_path=torch.arange(2 * NODES - 2) < HOPS,  # the edges from the root down to node 6 come first
        asked=torch.arange(NODES) == HOPS,
    )


train, test = (Batch.from_data_list([draw_tree() for _ in range(count)]) for count in (50, 20))
published = {"output_activation": True, "output_scale": 1.0, "weight_scale": 1.0}
options = {"eps": 0.25, "activation": "tanh", "bias": False, "tol": 1e-3, **published}
model = PPRGNN(CLASSES, 16, num_layers=1, out_channels=CLASSES, **options)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for _ in range(50):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(train.x, train.edge_index), train.y).backward()
    optimizer.step()
model.eval()
right = (model(test.x, test.edge_index).argmax(dim=1) == test.y)[test.asked]
print(f"test accuracy {HOPS} hops from the root: {right.float().mean():.0%}")
print(f"depth of the model: {model.convs[0].last_solution.depth} hops")

explainer = Explainer(
    model,
    GNNExplainer(epochs=40, lr=0.2, edge_size=0.01),  # edge_size: the price of naming an edge
    explanation_type="model",
    edge_mask_type="object",
    model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    threshold_config=("topk_hard", HOPS * test.num_graphs),  # names as many edges as the paths have
)
asked = test.asked.nonzero().flatten()
explanation = explainer(test.x, test.edge_index, index=asked)  # all trees at once: they do not touch
named = explanation.edge_mask > 0
precision, chance = test.on_path[named].float().mean(), test.on_path.float().mean()
print(f"precision of the {int(named.sum())} edges named: {precision:.0%} (by chance: {chance:.0%})")
without, alone = fidelity(explainer, explanation)
print(f"fidelity+ (answers that change without these edges): {without:.2f}")
print(f"fidelity- (answers that change with these edges alone): {alone:.2f}")
