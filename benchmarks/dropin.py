"""`PPRConv` in the place of `GCNConv`, in scripts of PyG: writes results/dropin.md and .json.

`python -m benchmarks.dropin`: the two-layer GCN for Planetoid (width 16, dropout 0.5 before each layer, ReLU
between, Adam with 0.01, weight decay 5e-4 on the first layer, 200 epochs, the best validation accuracy counts),
and three layers with the sum over nodes for MUTAG. Only the layer changes, and it has its default arguments;
beside it, the layer as published. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MLP, GCNConv, GINConv, global_add_pool

from benchmarks import machine
from benchmarks.report import table
from pprgnn.data import load
from pprgnn.data.sampling import make_splits
from pprgnn.nn import PPRConv
from pprgnn.nn.linear_output import AS_PUBLISHED

Make = Callable[[int, int], torch.nn.Module]


def published(i: int, o: int) -> PPRConv:
    return PPRConv(i, o, **AS_PUBLISHED)


def gin(i: int, o: int) -> GINConv:
    return GINConv(MLP([i, o, o]))


LAYERS: dict[str, Make] = {"GCNConv": GCNConv, "PPRConv": PPRConv, "PPRConv, as published": published}
SETS = {
    "Cora": "Cora",
    "Citeseer": "CiteSeer",
    "Pubmed": "PubMed",
    "Cora 60/20/20": "Cora",
    "Citeseer 60/20/20": "CiteSeer",
    "MUTAG": "MUTAG",
}


class TwoLayers(torch.nn.Module):
    """PyG's example. The first linear map reads the features as sparse rows: the same numbers, in less time."""

    def __init__(self, make: Make, x: Tensor, hidden: int, classes: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = make(x.size(1), hidden), make(hidden, classes)
        self.lin, self.conv1.lin = self.conv1.lin, torch.nn.Identity()
        rows = x.to_sparse_csr()
        self.column, self.start, self.value = rows.col_indices(), rows.crow_indices()[:-1], rows.values()

    def forward(self, edge_index: Tensor) -> Tensor:
        value = F.dropout(self.value, 0.5, self.training)
        weight = self.lin.weight.t().contiguous()
        x = F.embedding_bag(self.column, weight, self.start, mode="sum", per_sample_weights=value)
        x = F.dropout(self.conv1(x, edge_index).relu(), 0.5, self.training)
        return self.conv2(x, edge_index)


def nodes(name: str, make: Make, seed: int, epochs: int) -> float:
    """Test accuracy at the best validation accuracy; 60/20/20 is drawn by the seed."""
    dataset = load(SETS[name])
    data = dataset[0]
    x = data.x / data.x.sum(1, keepdim=True).clamp(min=1)
    parts = [data.train_mask, data.val_mask, data.test_mask]
    if name.endswith("60/20/20"):
        order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed))
        shares = [int(0.6 * len(order)), int(0.8 * len(order))]
        parts = list(torch.tensor_split(order, shares))
    torch.manual_seed(seed)
    net = TwoLayers(make, x, 16, dataset.num_classes)
    decayed = [*net.lin.parameters(), *net.conv1.parameters()]
    groups = [{"params": decayed, "weight_decay": 5e-4}, {"params": net.conv2.parameters()}]
    optimizer = torch.optim.Adam(groups, lr=0.01)
    best = test = 0.0
    for _ in range(epochs):
        net.train()
        optimizer.zero_grad()
        F.cross_entropy(net(data.edge_index)[parts[0]], data.y[parts[0]]).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            right = (net(data.edge_index).argmax(1) == data.y).float()
        if float(right[parts[1]].mean()) > best:
            best, test = float(right[parts[1]].mean()), float(right[parts[2]].mean())
    return test


class ThreeLayers(torch.nn.Module):
    """In the manner of PyG's `mutag_gin.py`."""

    def __init__(self, make: Make, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        widths = (features, hidden, hidden)
        self.convs = torch.nn.ModuleList(make(width, hidden) for width in widths)
        self.head = MLP([hidden, hidden, classes], norm=None, dropout=0.5)

    def forward(self, batch: Batch) -> Tensor:
        x = batch.x
        for conv in self.convs:
            x = conv(x, batch.edge_index).relu()
        return self.head(global_add_pool(x, batch.batch, batch.num_graphs))


def graphs(name: str, make: Make, fold: int, epochs: int) -> float:
    """Test accuracy of a fold at the best validation accuracy."""
    dataset = load(SETS[name])
    split = make_splits(dataset)[fold]
    torch.manual_seed(fold)
    loader = DataLoader(dataset[split.train], 32, shuffle=True)
    val, test = (Batch.from_data_list(list(dataset[part])) for part in (split.val, split.test))
    net = ThreeLayers(make, dataset.num_features, 32, dataset.num_classes)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    best = found = 0.0
    for _ in range(epochs):
        net.train()
        for batch in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(batch), batch.y).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            scores = [float((net(part).argmax(1) == part.y).float().mean()) for part in (val, test)]
        if scores[0] > best:
            best, found = scores
    return found


def markdown(data: dict) -> str:
    """The page."""
    names = [name for name in SETS if name in data["found"]]
    rows = []
    for label in (*LAYERS, "GINConv"):
        row = [f"`{label}`" if "," not in label else label]
        for name in names:
            runs = [100 * value for value in data["found"][name].get(label, {}).values()]
            spread = f" ± {statistics.stdev(runs):.1f}" if len(runs) > 1 else ""
            row.append(f"{statistics.fmean(runs):.1f}{spread} ({len(runs)})" if runs else "-")
        rows.append(row)
    edited = " with changes" if data["edited"] else ""
    later = "".join(f", `{commit[:12]}`" for commit in data.get("later", []))
    return (
        f"# `PPRConv` in the place of `GCNConv`\n\n`{data['command']}` at commit `{data['commit'][:12]}`{edited}"
        f"{later}, from {data['date'][:10]}. Test accuracy in\npercent, mean ± standard deviation (runs); "
        f"validation chooses the epoch. Planetoid: the published split, a seed\neach; 60/20/20: drawn by it; "
        f"MUTAG: of 10 folds.\n\n" + table(["layer", *names], rows) + "\n"
    )


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dropin", description=__doc__)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="which ones (all)")
    parser.add_argument("--layers", nargs="*", help="which ones, by their names in the table (all)")
    parser.add_argument("--seeds", type=int, default=10, help="or folds (%(default)s)")
    parser.add_argument("--epochs", type=int, default=200, help="of Planetoid; MUTAG has half (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/dropin"))
    arguments = parser.parse_args(given)
    torch.set_num_threads(1)
    path = arguments.output.with_suffix(".json")
    facts = {"command": "python -m benchmarks.dropin", **machine.commit(), "date": machine.now()}
    facts["epochs"] = arguments.epochs
    data = json.loads(path.read_text()) if path.is_file() else {**facts, "found": {}}
    if data["epochs"] != arguments.epochs:
        raise SystemExit(
            f"{path} has runs of {data['epochs']} epochs, not {arguments.epochs}; choose another --output."
        )
    for name in arguments.sets or SETS:
        of_graphs = name == "MUTAG"
        run, epochs = (graphs, arguments.epochs // 2) if of_graphs else (nodes, arguments.epochs)
        layers = LAYERS | ({"GINConv": gin} if of_graphs else {})
        for seed in range(arguments.seeds):
            for label, make in layers.items():
                if arguments.layers and label not in arguments.layers:
                    continue
                runs = data["found"].setdefault(name, {}).setdefault(label, {})
                if str(seed) not in runs:
                    runs[str(seed)] = run(name, make, seed, epochs)
                    if facts["commit"] not in (data["commit"], *data.setdefault("later", [])):
                        data["later"].append(facts["commit"])
                    print(f"{name}, {label}, {seed}: {runs[str(seed)]:.3f}", flush=True)
                    path.write_text(json.dumps(data, indent=1) + "\n")
                    arguments.output.with_suffix(".md").write_text(markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()
