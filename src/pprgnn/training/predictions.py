"""Predictions as a table: one row per node or graph, its class, how sure the model is, and every probability."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from pprgnn.data.atomic_io import replacing
from pprgnn.data.dataset import GraphDataset, find_node
from pprgnn.training.errors import TrainingError
from pprgnn.training.model import Model

SUFFIXES = (".csv", ".tsv", ".parquet", ".xlsx")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how text begins that spreadsheets take for a formula


def predict_table(
    model: Model, dataset: GraphDataset, rows: Tensor | None = None, logits: Tensor | None = None
) -> pa.Table:
    """Columns: `graph` (if several), `id`, `label` (if known), `prediction`, `probability`, `p(class)`...

    With several labels per node, `prediction` joins those above the model's threshold by `|`, and there is no
    `probability`.
    ``rows`` chooses rows, by default all; ``logits`` are those of the rows, if they are known already.
    """
    names = list(model.facts.class_names)
    if logits is None:
        everywhere = model.logits(dataset)
        rows = torch.arange(len(everywhere)) if rows is None else rows
        logits = everywhere[rows]
    rows = torch.arange(len(logits)) if rows is None else rows
    probabilities = model.probabilities(logits).cpu()
    columns: dict[str, Any] = _ids(dataset, rows)
    labels = _labels(dataset, rows, names)
    if labels is not None:
        columns["label"] = labels
    if model.facts.multi_label:
        chosen = model.decide(logits).tolist()
        columns["prediction"] = ["|".join(_picked(names, each)) for each in chosen]
    else:
        best = probabilities.max(dim=1)
        columns["prediction"] = [names[i] for i in best.indices.tolist()]
        columns["probability"] = best.values.numpy()
    for number, name in enumerate(names):
        columns[f"p({name})"] = probabilities[:, number].numpy()
    return pa.table(columns)


def rounded(table: pa.Table, digits: int) -> pa.Table:
    """The same with so many significant digits of each probability: for people to read."""
    return _changed(table, pa.types.is_floating, lambda value: float(f"{value:.{digits}g}"), pa.float64())


def without_formulas(table: pa.Table) -> pa.Table:
    """The same with an apostrophe before text that a spreadsheet would run as a formula; numbers stay."""
    return _changed(table, pa.types.is_string, lambda text: f"'{text}" if _is_formula(text) else text, pa.string())


def _changed(
    table: pa.Table, wanted: Callable[[Any], bool], change: Callable[[Any], Any], kind: pa.DataType
) -> pa.Table:
    """The same with each value of the columns of such a type changed."""
    for place, field in enumerate(table.schema):
        if wanted(field.type):
            values = [None if value is None else change(value) for value in table.column(place).to_pylist()]
            table = table.set_column(place, field.name, pa.array(values, kind))
    return table


def _is_formula(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.startswith(FORMULA)
    return False


def unlabelled_rows(dataset: GraphDataset) -> Tensor:
    """Rows whose label is not known; refuses when there are none."""
    if "y" not in dataset._data:
        return torch.arange(dataset.num_nodes if dataset.facts.task == "node" else len(dataset))
    rows = (~dataset.labelled()).nonzero().flatten()
    if not len(rows):
        raise TrainingError(f"All of {dataset.facts.name} is labelled already; leave out --unlabelled.")
    return rows


def named_rows(dataset: GraphDataset, ids: Sequence[str]) -> Tensor:
    """The rows of these nodes, as the source names them; in several graphs, as GRAPH:NODE."""
    if dataset.facts.task == "graph":
        raise TrainingError(
            f"{dataset.facts.name} has labels per graph, so no nodes can be chosen; leave them out."
        )
    if len(dataset) > 1:
        starts, rows = [0, *itertools.accumulate(dataset.graph_sizes)], []
        for each in ids:
            graph, _, node = each.partition(":")
            if not node or not graph.isdecimal():
                raise TrainingError(
                    f"{dataset.facts.name} has {len(dataset):,} graphs, so nodes are named GRAPH:NODE, such as "
                    f"0:5, but {each!r} came."
                )
            rows.append(find_node(dataset, node, int(graph)) + starts[int(graph)])
        return torch.tensor(rows)
    known = {} if dataset.node_names is None else {name: row for row, name in enumerate(dataset.node_names)}
    return torch.tensor([known[each] if each in known else find_node(dataset, each) for each in ids])


def write_table(table: pa.Table, path: Path) -> None:
    """Write CSV, TSV, Parquet or Excel, by the ending; an existing file is replaced, or kept when this fails."""
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise TrainingError(f"The output must end in .csv, .tsv, .parquet or .xlsx, but is {path}.")
    try:
        with replacing(path) as partial:
            if kind == ".parquet":
                from pyarrow import parquet

                parquet.write_table(table, partial)
            elif kind == ".xlsx":
                from pprgnn.data.own.table import write_excel

                write_excel(table, partial)
            else:
                from pyarrow import csv

                csv.write_csv(table, partial, csv.WriteOptions(delimiter="\t" if kind == ".tsv" else ","))
    except OSError as error:
        raise TrainingError(f"{path} cannot be written ({error.strerror or error}); try another place.") from error


def _ids(dataset: GraphDataset, rows: Tensor) -> dict[str, Any]:
    """The ids as the source writes them; with several graphs also the number of the graph."""
    if dataset.facts.task == "graph":
        return {"graph": rows.numpy()}
    if len(dataset) > 1:
        sizes = torch.tensor(dataset.graph_sizes)
        graph = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        within = torch.arange(int(sizes.sum())) - (sizes.cumsum(0) - sizes)[graph]
        return {"graph": graph[rows].numpy(), "id": within[rows].numpy()}
    if dataset.node_names is not None:
        return {"id": [dataset.node_names[i] for i in rows.tolist()]}
    if "node_id" in dataset._data:
        return {"id": dataset._all("node_id")[rows].numpy()}
    return {"id": rows.numpy()}


def _labels(dataset: GraphDataset, rows: Tensor, names: Sequence[str]) -> list[str | None] | None:
    """The true classes where they are known; None: nowhere."""
    if "y" not in dataset._data:
        return None
    known, y = dataset.labelled()[rows].tolist(), dataset.labels()[rows].tolist()
    if not any(known):
        return None
    several = dataset.facts.multi_label
    texts = ("|".join(_picked(names, each)) if several else names[int(each)] for each in y)
    return [text if there else None for text, there in zip(texts, known, strict=True)]


def _picked(names: Sequence[str], marks: Sequence[float | bool]) -> list[str]:
    return [name for name, mark in zip(names, marks, strict=True) if mark]
