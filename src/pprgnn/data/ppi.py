"""PPI: graphs with several labels per node, in PyG's files ``{train,valid,test}_{graph.json,feats.npy,...}``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
import torch
from numpy.typing import NDArray

from pprgnn.data.catalog import Card
from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.raw_files import (
    check_edges,
    check_length,
    check_within_graphs,
    finite_floats,
    graph_of_nodes,
    read_npy,
    undirected,
)
from pprgnn.errors import DataError

PARTS = ("train", "valid", "test")  # `part` is the position in this
CLASS_NAMES = "label_columns.tsv"
_LINKS = pa.list_(pa.struct([("source", pa.int64()), ("target", pa.int64())]))


def read(card: Card, root: Path) -> GraphDataset:
    """The graphs of all three parts in turn; `part` tells that of each graph, `gene` the protein of each node."""
    folder = root / card.name / "raw"
    parts = [_read_part(folder, name) for name in PARTS]
    for key in ("x", "y"):
        widths = [part[key].shape[1] for part in parts]
        if len(set(widths)) > 1:
            raise DataError(
                f"{folder} must have files with as many columns of {key} in each part, but they have "
                f"{', '.join(map(str, widths))} in {', '.join(PARTS)}; fetch the data set again."
            )
    sizes = [np.bincount(part["graph"]) for part in parts]
    first = np.cumsum([0] + [len(part["graph"]) for part in parts])
    links = np.concatenate([part["links"] + start for part, start in zip(parts, first, strict=False)])
    keys = ["x", "y"] + ["gene"] * all("gene" in part for part in parts)
    names = _class_names(root / card.name / CLASS_NAMES, parts[0]["y"].shape[1])
    facts = Facts(
        card.name, card.task, card.multi_label, card.metric, names, note=card.note, qualifier=card.qualifier
    )
    return GraphDataset.from_parts(
        facts,
        torch.from_numpy(np.concatenate(sizes)),
        undirected(links[:, 0], links[:, 1], int(first[-1])),
        per_node={key: torch.from_numpy(np.concatenate([part[key] for part in parts])) for key in keys},
        per_graph={"part": torch.arange(len(PARTS)).repeat_interleave(torch.tensor([len(s) for s in sizes]))},
    )


def _class_names(path: Path, count: int) -> tuple[str, ...]:
    """The second column of a table with a row per class, in their order; without the table, numbers."""
    if not path.is_file():
        return tuple(str(number) for number in range(count))
    rows = [line.split("\t") for line in path.read_text("utf-8", errors="replace").splitlines()[1:]]
    names = tuple(row[1] for row in rows if len(row) > 1)
    if [row[0] for row in rows] != [str(number) for number in range(count)] or len(set(names)) != count:
        raise DataError(
            f"{path} must have a header and a row with number and name for each of the {count} classes, in their "
            f"order, but has not; copy it again."
        )
    return names


def _read_part(folder: Path, part: str) -> dict[str, NDArray[Any]]:
    def path(kind: str) -> Path:
        return folder / f"{part}_{kind}"

    graph = read_npy(path("graph_id.npy"), 1, "iu").astype(np.int64)
    if len(graph) == 0:
        raise DataError(f"{path('graph_id.npy')} must name the graph of every node, but is empty; fetch it again.")
    graph = graph_of_nodes(path("graph_id.npy"), "row", graph, first=int(graph[0]))
    found: dict[str, NDArray[Any]] = {"graph": graph}
    arrays = [("x", "feats.npy", 2, "fiu"), ("y", "labels.npy", 2, "fiub")]
    if path("entrez.npy").is_file():
        arrays.append(("gene", "entrez.npy", 1, "iu"))
    for key, kind, dimensions, kinds in arrays:
        array = read_npy(path(kind), dimensions, kinds)
        check_length(path(kind), len(array), len(graph), "nodes")
        found[key] = array.astype(np.int64) if key == "gene" else finite_floats(str(path(kind)), array)
    _check_labels(path("labels.npy"), found["y"])
    found["links"] = _links(path("graph.json"))
    check_edges(path("graph.json"), "link", found["links"], len(graph))
    check_within_graphs(path("graph.json"), "link", found["links"], graph)
    return found


def _check_labels(path: Path, y: NDArray[Any]) -> None:
    wrong = (y != 0) & (y != 1)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"{path}, row {row + 1}, column {column + 1} must hold 0 or 1, but holds {y[row, column]:g}; "
            f"the file is damaged or belongs to another data set."
        )


def _links(path: Path) -> NDArray[Any]:
    """The links of a graph in networkx's node-link format, as rows of two nodes."""
    if not path.is_file():
        raise DataError(f"{path} is missing; fetch the data set again.")
    parse = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema([("links", _LINKS)]),
        newlines_in_values=True,
        unexpected_field_behavior="ignore",
    )
    # Half the time and a tenth of the memory of the standard library's dictionaries. The whole file is one row.
    whole = pyarrow.json.ReadOptions(block_size=path.stat().st_size + 1, use_threads=False)
    try:
        rows = pyarrow.json.read_json(path, whole, parse)["links"].combine_chunks()
        links = rows.flatten()
        source, target = links.field("source"), links.field("target")
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(
            f"{path} must be JSON with a list `links` of {{source, target}}, but cannot be read "
            f"({str(error).splitlines()[0].rstrip('.')}); fetch it again."
        ) from error
    if rows.null_count or source.null_count or target.null_count:
        what = "a link" if rows.null_count == 0 else "the list `links`"
        raise DataError(f"{path} must have `links` with source and target, but {what} lacks them; fetch it again.")
    return np.stack([source.to_numpy(), target.to_numpy()], axis=1)
