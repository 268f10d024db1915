"""Which of four groups is each member of the karate club in? Four labels are given; no download needed."""

import torch
from torch_geometric.datasets import KarateClub

from pprgnn.nn import PPRGNN

torch.manual_seed(0)
data = KarateClub()[0]
model = PPRGNN(data.num_features, 16, num_layers=1, out_channels=4, dropout=0.5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

for epoch in range(1, 101):
    model.train()
    optimizer.zero_grad()
    logits = model(data.x, data.edge_index)
    loss = torch.nn.functional.cross_entropy(logits[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        print(f"epoch {epoch:3d}: loss {loss.item():.3f}")

model.eval()
with torch.no_grad():
    predicted = model(data.x, data.edge_index).argmax(dim=1)
unlabelled = ~data.train_mask
accuracy = (predicted == data.y)[unlabelled].float().mean().item()
print(f"accuracy on the {int(unlabelled.sum())} members without a label: {accuracy:.0%}")
print(model.convs[0].last_solution)
