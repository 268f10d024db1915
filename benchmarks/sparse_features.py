"""Wide features that are mostly zero, sparse against dense: `python -m benchmarks.sparse_features` prints a table.

A random graph as large as Coauthor CS (18,333 nodes, 6,805 words, 0.9 % of them not zero) is kept in a file and
trained on, once in either form. Epochs take turns, and what counts is the time on the processor.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from benchmarks.report import table
from pprgnn.data import GraphDataset, from_scipy, save
from pprgnn.training.config import Config
from pprgnn.training.loop import Training

SYSTEMS = ("gcn", "mlp", "pprgnn")


def both(nodes: int, columns: int, share: float) -> dict[str, GraphDataset]:
    """The same graph twice."""
    rng = np.random.default_rng(0)
    edges = sp.random_array((nodes, nodes), density=4 / nodes, rng=rng)
    edges = ((edges + edges.T) > 0).astype(np.float32)
    x = sp.random_array((nodes, columns), density=share, dtype=np.float32, rng=rng)
    sparse = from_scipy(edges, x, rng.integers(0, 15, nodes), name="wide")
    dense = copy.deepcopy(sparse)
    dense._data.x = dense._data.x.to_dense()
    return {"sparse": sparse, "dense": dense}


def file_size(dataset: GraphDataset) -> int:
    """Bytes of the prepared file."""
    with tempfile.TemporaryDirectory() as folder:
        save(dataset, Path(folder) / "graph.safetensors")
        return (Path(folder) / "graph.safetensors").stat().st_size


def epochs(datasets: dict[str, GraphDataset], system: str, count: int) -> dict[str, float]:
    """Seconds of an epoch, with its validation, in the median without the first one."""
    config = Config().with_settings([f"system={system}", "features=given", f"epochs={count + 1}", "device=cpu"])
    trained = {name: Training(config, each, each.splits()[0]) for name, each in datasets.items()}
    seconds: dict[str, list[float]] = {name: [] for name in trained}
    for _ in range(count + 1):
        for name, training in trained.items():
            started = time.process_time()
            training.progress.epoch += 1
            training._epoch()
            seconds[name].append(time.process_time() - started)
    return {name: statistics.median(each[1:]) for name, each in seconds.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=2, default=(18_333, 6_805), metavar=("NODES", "COLUMNS"))
    parser.add_argument("--share", type=float, default=0.0088, help="of entries that are not zero")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args(sys.argv[1:])
    torch.set_num_threads(1)
    datasets = both(*options.shape, options.share)
    sizes = {name: file_size(each) / 1e6 for name, each in datasets.items()}
    rows = [["file, MB", *(f"{sizes[name]:.1f}" for name in datasets), f"{sizes['dense'] / sizes['sparse']:.1f}"]]
    for system in SYSTEMS:
        found = {name: 1e3 * value for name, value in epochs(datasets, system, options.epochs).items()}
        ratio = f"{found['dense'] / found['sparse']:.1f}"
        rows.append([f"{system}, ms/epoch", *(f"{found[name]:.0f}" for name in datasets), ratio])
    print(table(["", *datasets, "dense / sparse"], rows))


if __name__ == "__main__":
    main()
