"""Defaults on one graph with labels per node, many or few: `python -m benchmarks.node_defaults --labels few`.

Every system with its default settings (and `--set`, for those that read it), on the same random splits: 60/20/20
(many labels), or 20 nodes of each class for training and 500 for validation (few). Columns are scaled as those of
a user's tables are: zeros and ones, and zeros of sparse columns, stay. Settings are to be compared by `val`;
`test` is for the end. What is found with defaults alone goes to results/node-defaults.json and .md, beside what is
there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from benchmarks import machine
from benchmarks.report import table
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.own.features import usual_scale
from pprgnn.data.own.objects import from_pyg
from pprgnn.data.registry import load
from pprgnn.data.split import Split

REAL = ("cora", "citeseer", "pubmed", "actor", "minesweeper", "chameleon-filtered", "squirrel-filtered")
MADE = ("photo", "photo-small", "numbers")
FEW_VALIDATE = 500


def drawn_edges(group: np.ndarray, degree: float, homophily: float, rng: np.random.Generator) -> np.ndarray:
    """Edges between nodes of unequal popularity; so large a share joins nodes of one group."""
    popularity = rng.lognormal(0.0, 0.8, len(group))
    one, other = (
        rng.choice(len(group), round(degree * len(group) / 2), p=popularity / popularity.sum()) for _ in "ab"
    )
    same = rng.random(len(one)) < homophily
    for label in np.unique(group):
        nodes, rows = np.flatnonzero(group == label), same & (group[one] == label)
        other[rows] = rng.choice(nodes, rows.sum(), p=popularity[nodes] / popularity[nodes].sum())
    return np.stack([one, other])[:, one != other]


def undirected(edges: np.ndarray) -> torch.Tensor:
    """Both directions, each edge once."""
    return torch.from_numpy(np.unique(np.concatenate([edges, edges[::-1]], 1), axis=1))


def photo_like(nodes: int = 7600, columns: int = 745, classes: int = 8) -> Data:
    """Bags of words and 31 neighbours, 83 % of them alike.

    A class has ten groups with words and edges of their own, and one node in 14 is linked as another class is.
    """
    rng = np.random.default_rng(0)
    y = rng.choice(classes, nodes, p=(weights := rng.uniform(0.5, 2.0, classes)) / weights.sum())
    group = 10 * y + rng.integers(0, 10, nodes)
    usual, size = rng.normal(-1.2, 1.0, columns), 1 / np.sqrt(columns)
    shift = (
        rng.normal(0, 9 * size, (classes, columns))[y] + rng.normal(0, 6 * size, (10 * classes, columns))[group]
    )
    x = rng.random((nodes, columns)) < 1 / (1 + np.exp(-(usual + shift)))
    linked = np.where(rng.random(nodes) < 1 / 14, rng.integers(0, 10 * classes, nodes), group)
    near, far = drawn_edges(linked, 16, 0.95, rng), drawn_edges(linked // 10, 15, 0.95, rng)
    edges = undirected(np.concatenate([near, far], 1))
    return Data(x=torch.from_numpy(x).float(), y=torch.from_numpy(y), edge_index=edges)


def numbers() -> Data:
    """Ten numbers a node, one node in eight positive; own numbers and those of the neighbours decide together."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(6000, 10))
    x[:, 5:] = np.exp(x[:, 5:])  # skewed, as counts and prices are
    group = rng.integers(0, 5, len(x))
    x[:, :5] += 0.5 * np.eye(5)[group]
    edges = undirected(drawn_edges(group, 20, 0.6, rng))
    around = np.zeros_like(x)
    np.add.at(around, edges[1].numpy(), x[edges[0].numpy()])
    around /= np.maximum(np.bincount(edges[1].numpy(), minlength=len(x)), 1)[:, None]
    score = np.abs(x[:, 0]) + 4 * around[:, 1] - 2 * around[:, 5] + x[:, 6] * (around[:, 2] > 0.1)
    score += rng.normal(0.0, 0.8, len(x))
    y = score > np.quantile(score, 0.875)
    return Data(x=torch.from_numpy(x).float(), y=torch.from_numpy(y).long(), edge_index=edges)


@cache
def data_set(name: str, plain: bool = False, columns: int = 0) -> GraphDataset:
    """By name; with columns scaled unless ``plain``, and so many of the fullest ones, or 0: all."""
    if name in MADE:
        small = {"nodes": 2500, "columns": 200}
        data = numbers() if name == "numbers" else photo_like(**small if name == "photo-small" else {})
    else:
        given = load(name)[0]
        data = Data(x=given.x, y=given.y, edge_index=given.edge_index)
    if columns:
        data.x = data.x[:, (data.x != 0).sum(0).argsort(descending=True, stable=True)[:columns]]
    if not plain:
        x = data.x[:, data.x.std(0) > 0].numpy()
        mean, scale = usual_scale(x.astype(np.float64))
        data.x = torch.from_numpy((x - mean) / scale).float()
    return from_pyg(data)


def random_split(dataset: GraphDataset, labels: str, seed: int) -> Split:
    """60/20/20, or so many nodes of each class."""
    if labels == "many":
        return dataset.splits("honest", seed)[0]
    rng, y = np.random.default_rng(seed), dataset.labels().numpy()
    order = rng.permutation(len(y))
    each = int(labels) if labels.isdigit() else 20
    train = np.concatenate([order[y[order] == label][:each] for label in np.unique(y)])
    rest = order[~np.isin(order, train)]
    parts = (train, rest[:FEW_VALIDATE], rest[FEW_VALIDATE:])
    options: dict[str, Any] = {"unit": "node", "protocol": "honest", "seed": seed, "index": 0, "count": 1}
    return Split.of(dataset, [np.sort(part) for part in parts], **options, description=f"{each} of each class")


def measure(system: str, dataset: GraphDataset, labels: str, seeds: int, changes: list[str]) -> dict[str, Any]:
    """Mean and standard deviation of the metric over seeds, each with a split of its own."""
    from pprgnn.training.config import Config
    from pprgnn.training.train import train

    scores, started = [], time.perf_counter()
    metric = "ROC AUC" if dataset.num_classes == 2 else "auto"
    for seed in range(seeds):
        config = Config.for_task("node").with_values({"system": system}).with_settings(changes)
        config = config.with_values({"training.seed": seed, "training.threads": 1, "training.metric": metric})
        summary = train(config, dataset=dataset, split=random_split(dataset, labels, seed)).summary
        scores.append([100 * summary["scores"][part][summary["metric"]] for part in ("val", "test")])
    found = {
        part: (statistics.fmean(values), statistics.stdev(values) if seeds > 1 else 0.0)
        for part, values in zip(("val", "test"), zip(*scores, strict=True), strict=True)
    }
    return {**found, "metric": summary["metric"], "seconds": (time.perf_counter() - started) / seeds}


def main() -> None:
    """Print a line for each system on each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", default="many", help="many, few, or a number of labels for each class")
    parser.add_argument("--systems", default="pprgnn,gcn,appnp")
    parser.add_argument("--sets", default="cora,photo-small", help=", ".join((*REAL, *MADE)))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE")
    parser.add_argument("--plain", action="store_true", help="columns as they are")
    parser.add_argument("--columns", type=int, default=0, help="so many of the fullest columns; 0: all")
    parser.add_argument("--output", type=Path, default=Path("results/node-defaults"))
    options = parser.parse_args()
    usual = not (options.changes or options.plain or options.columns)
    print(f"{options.labels} labels, {options.seeds} seeds, {' '.join(options.changes) or 'defaults'}", flush=True)
    for name in options.sets.split(","):
        for system in options.systems.split(","):
            dataset = data_set(name, options.plain, options.columns)
            found = measure(system, dataset, options.labels, options.seeds, options.changes)
            val, test = (f"{mean:5.1f} ± {std:3.1f}" for mean, std in (found["val"], found["test"]))
            seconds = f"{found['seconds']:.0f} s a run"
            print(f"{name:20} {system:8} val {val}  test {test}  {found['metric']}, {seconds}", flush=True)
            if usual:
                row = {"labels": options.labels, "set": name, "system": system, "seeds": options.seeds, **found}
                keep({**row, **machine.commit(), "date": machine.now()}, options.output)


def keep(row: dict[str, Any], output: Path) -> None:
    """Put a line into the file, in the place of an older one of the same, and write the page."""
    path, same = output.with_suffix(".json"), ("labels", "set", "system")
    rows = json.loads(path.read_text()) if path.is_file() else []
    rows = [each for each in rows if any(each[key] != row[key] for key in same)] + [row]
    path.write_text(json.dumps(rows, indent=1) + "\n")
    output.with_suffix(".md").write_text(markdown(rows))


def markdown(rows: list[dict[str, Any]]) -> str:
    """The page: a row for each set, a column for each system."""
    systems = list(dict.fromkeys(row["system"] for row in rows))
    found = {(row["labels"], row["set"], row["system"]): row for row in rows}
    lines = []
    for labels, name in sorted({key[:2] for key in found}):
        cells = [found.get((labels, name, system)) for system in systems]
        [metric] = {cell["metric"] for cell in cells if cell}
        shown = [f"{c['test'][0]:.1f} ± {c['test'][1]:.1f} ({c['seeds']})" if c else "-" for c in cells]
        lines.append([name, labels, metric, *shown])
    commits = ", ".join(sorted({f"`{row['commit'][:12]}`" for row in rows}))
    return (
        "# Defaults for labels of nodes\n\n`python -m benchmarks.node_defaults --labels few` and `--labels many` "
        f"at commit {commits}.\nPercent of the test part, mean ± standard deviation (seeds, each with a split of "
        "its own), every system\nwith its defaults, columns scaled as those of a user's table are. *few*: 20 "
        "nodes of each class train,\n500 validate. *many*: 60/20/20.\n*photo*, *photo-small* and *numbers* are "
        "generated.\n\n"
        + table(["set", "labels", "metric", *systems], lines)
        + "\n"
    )


if __name__ == "__main__":
    main()
