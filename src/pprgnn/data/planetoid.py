"""Cora, CiteSeer and PubMed with the public split. The files are pickles: only known ones are opened."""

from __future__ import annotations

import warnings
from pathlib import Path

from torch_geometric.io import read_planetoid_data

from pprgnn.data.catalog import Card
from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.download import check_file
from pprgnn.errors import DataError

# In the order of their numbers, which the sizes of the classes tell; the files themselves name none.
CLASSES = {
    "Cora": (
        "Theory",
        "Reinforcement Learning",
        "Genetic Algorithms",
        "Neural Networks",
        "Probabilistic Methods",
        "Case Based",
        "Rule Learning",
    ),
    "CiteSeer": ("AI", "ML", "IR", "DB", "Agents", "HCI"),
}
FILES = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def read(card: Card, root: Path) -> GraphDataset:
    """The graph as PyG's `Planetoid` reads it, with its `train_mask`, `val_mask` and `test_mask`."""
    name = card.name.lower()
    folder = Path("Planetoid", name, "raw")
    for kind in FILES:
        _check((folder / f"ind.{name}.{kind}").as_posix(), root)
    with warnings.catch_warnings():  # PyG adds a filter for the old pickles and would leave it in place
        data = read_planetoid_data(str(root / folder), name)
    names = CLASSES.get(card.name) or tuple(str(number) for number in range(int(data.y.max()) + 1))
    facts = Facts(card.name, card.task, card.multi_label, card.metric, names)
    return GraphDataset.from_graphs([data], facts)


def _check(name: str, root: Path) -> None:
    """Refuse a file that is not the published one, byte by byte."""
    verdict = check_file(root / name, name)
    if verdict == "missing":
        raise DataError(f"{root / name} is missing; fetch the data set again.")
    if verdict != "ok":
        raise DataError(
            f"{root / name} must be the published file, but its SHA-256 is another; a pickle can run code, so it "
            f"is not opened: fetch it again."
        )
