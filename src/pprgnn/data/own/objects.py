"""A user's own graph from objects and files of other libraries: networkx, GraphML, SciPy, PyG, npz."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, is_undirected

from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.errors import DataError
from pprgnn.data.own.edges import merge_edges
from pprgnn.data.own.table import Table
from pprgnn.data.own.tables import from_tables

if TYPE_CHECKING:
    import networkx as nx
    import scipy.sparse as sp

# The names under which npz files keep the parts of a graph.
NPZ_EDGES = ("edges", "edge_index", "edge_list")
NPZ_FEATURES = ("node_features", "features", "x", "attr_matrix")
NPZ_LABELS = ("node_labels", "labels", "y")


# ------------------------------------------------------------------------------------------ networkx, GraphML
def from_networkx(
    graph: nx.Graph[Any], *, name: str | None = None, weight: str = "weight", **named: Any
) -> GraphDataset:
    """A networkx graph: node attributes are the columns of its node table; ``named`` as in :func:`from_tables`."""
    if graph.number_of_nodes() == 0:
        raise DataError("The networkx graph has no nodes; expected at least one.")
    ids = list(graph.nodes)
    whole = all(isinstance(node, int) and not isinstance(node, bool) for node in ids)
    write = int if whole else str
    rows = list(graph.nodes.values())
    nodes: dict[str, Any] = {"node id": [write(node) for node in ids]}
    nodes |= {key: [row.get(key) for row in rows] for key in _keys(rows)}
    ends = list(graph.edges())
    edges: dict[str, Any] = {
        "source": [write(source) for source, _ in ends],
        "destination": [write(destination) for _, destination in ends],
    }
    weights = [data.get(weight) for _, _, data in graph.edges(data=True)]
    weighted = any(value is not None for value in weights)
    if weighted:
        edges["weight"] = [1.0 if value is None else value for value in weights]
    named = {"id": "node id", "source": "source", "destination": "destination", **named}
    named.setdefault("directed", graph.is_directed())
    if weighted:
        named.setdefault("weight", "weight")
    origin = "the networkx graph"
    return from_tables(
        Table(_arrow(edges, f"the edges of {origin}"), f"the edges of {origin}"),
        Table(_arrow(nodes, f"the nodes of {origin}"), f"the nodes of {origin}"),
        name=name or graph.name or "graph",
        **named,
    )


def from_graphml(path: Path | str, *, name: str | None = None, **named: Any) -> GraphDataset:
    """A GraphML file, read by networkx; ``named`` as in :func:`from_tables`."""
    path = Path(path)
    try:
        import networkx as nx
    except ImportError as error:
        raise DataError("Reading GraphML needs networkx: pip install 'pprgnn[networkx]'.") from error
    if not path.is_file():
        raise DataError(f"{path} does not exist; name a GraphML file.")
    try:
        graph = nx.read_graphml(path)
    except (ParseError, nx.NetworkXError, ValueError, KeyError, StopIteration, OSError) as error:
        raise DataError(f"{path} is not a whole GraphML file ({error}); write or copy it again.") from error
    return from_networkx(graph, name=name or path.stem, **named)


def _keys(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(key) for row in rows for key in row))


def _arrow(columns: Mapping[str, Any], origin: str) -> pa.Table:
    return pa.table({name: _arrow_column(name, values, origin) for name, values in columns.items()})


def _arrow_column(name: str, values: Any, origin: str) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(
            f"Attribute {name!r} of {origin} must have values of one type, but {error}; make them all numbers "
            f"or all texts."
        ) from error


# ----------------------------------------------------------------------------------------- matrices and tensors
def from_scipy(
    matrix: sp.csr_array | sp.csr_matrix | sp.coo_array | sp.csc_array,
    x: NDArray[Any] | Tensor | None = None,
    y: NDArray[Any] | Tensor | None = None,
    *,
    name: str = "graph",
    class_names: Sequence[str] | None = None,
) -> GraphDataset:
    """A SciPy matrix: entry (i, j) is the edge ``i -> j`` and its value the weight; directed if not symmetric."""
    coo = matrix.tocoo()
    if coo.shape[0] != coo.shape[1]:
        raise DataError(f"A SciPy adjacency matrix must be square, but has shape {coo.shape}.")
    weight = coo.data.astype(np.float32)
    index, summed = merge_edges(
        coo.row.astype(np.int64), coo.col.astype(np.int64), weight, coo.shape[0], directed=True, notes=[]
    )
    data = Data(edge_index=index, num_nodes=coo.shape[0])
    if summed is not None and bool((summed != 1).any()):
        data.edge_weight = summed
    if x is not None:
        data.x = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x)
    if y is not None:
        data.y = torch.as_tensor(np.asarray(y) if not isinstance(y, Tensor) else y)
    return from_pyg(data, name=name, class_names=class_names)


def from_pyg(
    graphs: Data | Sequence[Data], *, name: str = "graph", class_names: Sequence[str] | None = None
) -> GraphDataset:
    """PyG graphs, checked: one or many, with labels per node or per graph, one class or several."""
    graphs = [graphs] if isinstance(graphs, Data) else list(graphs)
    checked = [_checked(data, f"{name}[{i}]" if len(graphs) > 1 else name) for i, data in enumerate(graphs)]
    if not checked:
        raise DataError(f"{name} must have at least one graph, but has none.")
    node_task, multi_label = _task(checked, name)
    if multi_label:
        classes = checked[0].y.size(-1)
    else:
        labels = [data.y for data in checked if data.y is not None and data.y.numel()]
        classes = max((int(y.max()) + 1 for y in labels), default=0)
    facts = Facts(
        name=name,
        task="node" if node_task else "graph",
        multi_label=multi_label,
        metric="micro-F1" if multi_label else "accuracy",
        class_names=tuple(class_names) if class_names is not None else tuple(str(i) for i in range(classes)),
        directed=not all(is_undirected(data.edge_index, num_nodes=data.num_nodes) for data in checked),
    )
    if len(facts.class_names) < classes:
        raise DataError(f"{name} has {classes} classes, but class_names has {len(facts.class_names)} names.")
    return GraphDataset.from_graphs(checked, facts)


def _task(graphs: Sequence[Data], name: str) -> tuple[bool, bool]:
    """Whether labels belong to nodes, and whether there are several each."""
    y = graphs[0].y
    if y is None:
        return True, False
    multi_label = y.dim() == 2 and y.size(1) > 1
    node_task = all(data.y is not None and data.y.size(0) == data.num_nodes for data in graphs)
    graph_task = all(data.y is not None and data.y.size(0) == 1 for data in graphs)
    if not node_task and not (graph_task and len(graphs) > 1):
        raise DataError(
            f"{name}: y must have one row per node ({graphs[0].num_nodes}) or, with many graphs, one per graph, "
            f"but has shape {tuple(y.shape)}."
        )
    return node_task, multi_label


def _checked(data: Data, name: str) -> Data:
    """A copy with the types and shapes that everything else relies on."""
    edge_index, num_nodes = data.edge_index, data.num_nodes
    if edge_index is None or edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.is_floating_point():
        shape = None if edge_index is None else (tuple(edge_index.shape), edge_index.dtype)
        raise DataError(f"{name}: edge_index must hold integers in shape (2, edges), but is {shape}.")
    if not num_nodes:
        raise DataError(f"{name} has no nodes; expected at least one.")
    edge_index = edge_index.long()
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes):
        raise DataError(
            f"{name}: edge_index must name nodes 0 ... {num_nodes - 1}, but names {int(edge_index.min())} to "
            f"{int(edge_index.max())}; renumber the nodes or set num_nodes."
        )
    result = Data(num_nodes=num_nodes)
    weight = data.get("edge_weight")
    if weight is not None:
        weight = weight.float().reshape(-1)
        if weight.numel() != edge_index.size(1) or not bool(torch.isfinite(weight).all()):
            raise DataError(f"{name}: edge_weight must hold {edge_index.size(1)} finite numbers, one per edge.")
        result.edge_index, result.edge_weight = coalesce(edge_index, weight, num_nodes)
    else:
        result.edge_index = coalesce(edge_index, num_nodes=num_nodes)
    if data.x is not None:
        result.x = _checked_features(data.x, num_nodes, name)
    if data.y is not None:
        result.y = _checked_labels(data.y, name)
    for key in ("train_mask", "val_mask", "test_mask", "labelled"):
        if key in data:
            if data[key].size(0) != num_nodes:
                raise DataError(f"{name}: {key} must have {num_nodes} rows, but has {data[key].size(0)}.")
            result[key] = data[key].bool()
    return result


def _checked_features(x: Tensor, num_nodes: int, name: str) -> Tensor:
    if x.layout != torch.strided:
        x = x.to_dense()
    if x.dim() != 2 or x.size(0) != num_nodes:
        raise DataError(f"{name}: x must have shape ({num_nodes}, features), but has shape {tuple(x.shape)}.")
    finite = torch.isfinite(x.float())
    if not bool(finite.all()):
        row, column = (~finite).nonzero()[0].tolist()
        raise DataError(
            f"{name}: features must be finite, but x[{row}, {column}] is {float(x[row, column])}; fill or drop it."
        )
    return x.float()


def _checked_labels(y: Tensor, name: str) -> Tensor:
    if y.dim() == 0:
        y = y.reshape(1)
    if y.dim() == 2 and y.size(1) == 1:
        y = y.squeeze(1)
    if y.dim() == 2:
        if not bool(((y == 0) | (y == 1)).all()):
            raise DataError(f"{name}: y of several classes must hold zeros and ones only.")
        return y.float()
    if y.is_floating_point() and not bool((y == y.round()).all()):
        raise DataError(f"{name}: y must hold class numbers, but holds {y.dtype}; pprgnn classifies.")
    if y.numel() and int(y.min()) < -1:
        raise DataError(f"{name}: y must hold classes 0, 1, ... or -1 for none, but holds {int(y.min())}.")
    return y.long()


# ------------------------------------------------------------------------------------------------------- npz
def from_npz(path: Path | str, *, name: str | None = None, directed: bool | None = None) -> GraphDataset:
    """An npz file: edges, node features, labels and masks under their usual names, or a SciPy sparse matrix.

    An edge list is undirected unless ``directed=True``.
    """
    path = Path(path)
    arrays = _load_npz(path)
    name = name or path.stem
    if {"format", "shape"} <= arrays.keys():
        import scipy.sparse as sp

        matrix: Any = sp.load_npz(path)  # never unpickles
        return from_scipy(matrix, name=name)
    edges = _first(arrays, NPZ_EDGES)
    if edges is None:
        raise DataError(
            f"{path} has no edges: expected one of {', '.join(NPZ_EDGES)} or a SciPy matrix, but it holds "
            f"{', '.join(arrays)}."
        )
    if edges.ndim != 2 or 2 not in edges.shape:
        raise DataError(f"{path}: edges must have shape (edges, 2) or (2, edges), but have {edges.shape}.")
    pairs = edges.T if edges.shape[1] == 2 and not (edges.shape == (2, 2) and "edge_index" in arrays) else edges
    x, y = _first(arrays, NPZ_FEATURES), _first(arrays, NPZ_LABELS)
    num_nodes = len(x) if x is not None else len(y) if y is not None else int(pairs.max(initial=-1)) + 1
    data = Data(edge_index=torch.from_numpy(pairs.astype(np.int64)), num_nodes=num_nodes)
    if x is not None:
        data.x = torch.from_numpy(x)
    if y is not None:
        data.y = torch.from_numpy(y)
    for part in ("train", "val", "test"):
        mask = _first(arrays, (f"{part}_mask", f"{part}_masks"))
        if mask is not None:
            data[f"{part}_mask"] = torch.from_numpy(mask.T if mask.ndim == 2 and len(mask) != num_nodes else mask)
    checked = _checked(data, path.name)
    if not directed:
        source, destination = checked.edge_index.numpy()
        checked.edge_index, _ = merge_edges(source, destination, None, num_nodes, directed=False, notes=[])
    return from_pyg(checked, name=name)


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise DataError(f"{path} does not exist; name an npz file.")
    try:
        with np.load(path, allow_pickle=False) as file:  # a plain npy file has no `files`
            return {key: file[key] for key in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError, AttributeError) as error:
        reason = "it holds pickled objects, which can run code" if "pickle" in str(error) else str(error)
        raise DataError(
            f"{path} must be an npz file of plain arrays, but cannot be used: {reason}; save it again."
        ) from error


def _first(arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> NDArray[Any] | None:
    return next((arrays[name] for name in names if name in arrays), None)
