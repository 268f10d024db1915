"""A user's own graph from other libraries and their files: networkx, GraphML, SciPy, PyG, npz."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.utils import coalesce, is_undirected

from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.own.edges import merge_edges
from pprgnn.data.own.table import Table
from pprgnn.data.own.tables import from_tables
from pprgnn.data.raw_files import plain_arrays
from pprgnn.data.sparse_features import compact, is_sparse, not_finite
from pprgnn.data.sparse_features import from_scipy as sparse_features
from pprgnn.errors import DataError

if TYPE_CHECKING:
    import networkx as nx

ID = "node id"  # the column of the nodes of a networkx graph
WEIGHT = "weight"  # of its edges
FEW_NODES, NODES_PER_EDGE = 10**6, 100  # more, without a row for each, are taken for a wrong number
FEW_CLASSES = 10_000
# The names under which npz files keep the parts of a graph.
NPZ_EDGES = ("edges", "edge_index", "edge_list")
NPZ_FEATURES = ("node_features", "features", "x", "attr_matrix")
NPZ_LABELS = ("node_labels", "labels", "y")


# ------------------------------------------------------------------------------------------ networkx, GraphML
def from_networkx(
    graph: nx.Graph[Any], *, name: str | None = None, weight: str | None = WEIGHT, **named: Any
) -> GraphDataset:
    """A networkx graph: node attributes are the columns of its node table; ``named`` as in :func:`from_tables`.

    Edges without the attribute ``weight`` weigh 1; ``weight=None`` leaves all weights out.
    """
    if graph.number_of_nodes() == 0:
        raise DataError("The networkx graph has no nodes; expected at least one.")
    whole = all(isinstance(node, Integral) and not isinstance(node, bool) for node in graph)
    write = int if whole and all(-(2**63) <= int(node) < 2**63 for node in graph) else str
    rows = list(graph.nodes.values())
    keys = dict.fromkeys(key for row in rows for key in row)
    nodes: dict[str, Any] = {str(key): [row.get(key) for row in rows] for key in keys}
    if ID in nodes:
        raise DataError(f"A node attribute cannot be called {ID!r}, which is the node itself; rename it.")
    nodes[ID] = [write(node) for node in graph]
    ends: list[Any] = list(graph.edges(data=weight or ""))
    edges: dict[str, Any] = {
        "source": [write(source) for source, _, _ in ends],
        "destination": [write(destination) for _, destination, _ in ends],
    }
    weighted = bool(weight) and any(value is not None for _, _, value in ends)
    if weight not in ("", None, WEIGHT) and not weighted:
        raise DataError(
            f"No edge of the networkx graph has the attribute {weight!r}; name another weight or none."
        )
    learned = named.get("schema") is not None
    if weighted or learned:
        edges[WEIGHT] = [1.0 if value is None else value for _, _, value in ends]
    if not learned:
        known = {"id": ID, "source": "source", "destination": "destination", "weight": WEIGHT if weighted else ""}
        named = {**known, "directed": graph.is_directed(), **named}
    return from_tables(
        _table(edges, "the edges of the networkx graph"),
        _table(nodes, "the nodes of the networkx graph"),
        name=name or graph.name or "graph",
        **{"empty_edges": "allow", **named},
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
    except (ParseError, nx.NetworkXError, ValueError, LookupError, StopIteration, OSError) as error:
        raise DataError(f"{path} is not a whole GraphML file ({error}); write or copy it again.") from error
    return from_networkx(graph, name=name or path.stem, **named)


def _table(columns: Mapping[str, Any], origin: str) -> Table:
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:  # noqa: PERF203
            raise DataError(
                f"Attribute {name!r} of {origin} must have values of one type, but {error}; make them all numbers "
                f"or all texts."
            ) from error
    return Table(pa.table(arrays), origin)


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
    csr = sp.csr_array(matrix, copy=True)
    if csr.shape[0] != csr.shape[1]:
        raise DataError(f"A SciPy adjacency matrix must be square, but has shape {csr.shape}.")
    if csr.dtype.kind not in "biuf":
        raise DataError(f"A SciPy adjacency matrix must hold real numbers, but holds {csr.dtype}; convert it.")
    csr.sum_duplicates()
    csr.eliminate_zeros()  # a stored zero is no edge
    data = _edges_of(csr, name)
    if x is not None:
        data.x = _features(x, f"{name}: x")
    if y is not None:
        data.y = _tensor(y, f"{name}: y")
    return from_pyg(data, name=name, class_names=class_names)


def _edges_of(matrix: Any, what: str) -> Data:
    """The entries of a SciPy matrix, with their values unless all are 1."""
    coo = matrix.tocoo()
    data = Data(edge_index=torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64)), num_nodes=coo.shape[0])
    if (coo.data != 1).any():
        data.edge_weight = _tensor(coo.data, what).float()
    return data


def _tensor(values: Any, what: str) -> Tensor:
    """An array of any library as a tensor of float32 or int64."""
    if isinstance(values, Tensor):
        return values
    array = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} must hold numbers, but holds {array.dtype}; convert them.")
    return torch.from_numpy(array.astype(np.float32 if array.dtype.kind == "f" else np.int64))


def _features(values: Any, what: str) -> Tensor:
    """The same, without filling a SciPy matrix with zeros where it need not be."""
    sparse = hasattr(values, "tocsr") and values.dtype.kind in "biuf"
    return sparse_features(values) if sparse else _tensor(values, what)


def from_pyg(
    graphs: Data | Sequence[Data], *, name: str = "graph", class_names: Sequence[str] | None = None
) -> GraphDataset:
    """PyG graphs, checked: one or many, with labels per node or per graph, one class or several."""
    graphs = [graphs] if isinstance(graphs, BaseData) else list(graphs)
    for data in graphs:
        if not isinstance(data, Data):
            raise DataError(
                f"{name} must hold graphs of type Data, but holds {type(data).__name__}; "
                f"HeteroData becomes one by its method to_homogeneous()."
            )
    if not graphs:
        raise DataError(f"{name} must have at least one graph, but has none.")
    checked = [checked_graph(data, f"{name}[{i}]" if len(graphs) > 1 else name) for i, data in enumerate(graphs)]
    _check_alike(checked, name)
    labels = [data.y for data in checked if data.y is not None]
    per_node = all(data.y is None or len(data.y) == data.num_nodes for data in checked)
    if not per_node and not (len(graphs) > 1 and all(len(y) == 1 for y in labels)):
        raise DataError(
            f"{name}: y must have one row per node ({checked[0].num_nodes}) or, with many graphs, one per graph, "
            f"but has shape {tuple(labels[0].shape)}."
        )
    multi_label = bool(labels) and labels[0].dim() == 2 and labels[0].size(1) > 1
    classes = max((y.size(1) if multi_label else int(y.max()) + 1 for y in labels if y.numel()), default=0)
    unused = sorted(set(graphs[0].keys()) - set(checked[0].keys()))
    facts = Facts(
        name=name,
        task="node" if per_node else "graph",
        multi_label=multi_label,
        metric="micro-F1" if multi_label else "accuracy",
        class_names=tuple(class_names) if class_names is not None else tuple(str(i) for i in range(classes)),
        directed=not all(
            is_undirected(data.edge_index, data.get("edge_weight"), num_nodes=data.num_nodes) for data in checked
        ),
        guessed=(f"what the graphs hold but is not used: {', '.join(unused)}",) if unused else (),
    )
    if len(facts.class_names) < classes:
        raise DataError(f"{name} has {classes} classes, but class_names has {len(facts.class_names)} names.")
    return GraphDataset.from_graphs(checked, facts)


def _check_alike(graphs: Sequence[Data], name: str) -> None:
    """PyG collates only graphs that have the same attributes, equally wide."""
    per_graph = ("edge_index", "num_nodes")
    widths = [
        {key: list(value.shape[1:]) for key, value in data.to_dict().items() if key not in per_graph}
        for data in graphs
    ]
    for i, found in enumerate(widths):
        if found != widths[0]:
            raise DataError(
                f"All graphs of {name} must have the same attributes, equally wide, but graph 0 has {widths[0]} "
                f"and graph {i} has {found}; make them alike."
            )


def checked_graph(data: Data, name: str) -> Data:
    """A copy with the types and shapes that everything else relies on."""
    edge_index = data.edge_index
    if edge_index is None or edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.is_floating_point():
        shape = None if edge_index is None else (tuple(edge_index.shape), edge_index.dtype)
        raise DataError(f"{name}: edge_index must hold integers in shape (2, edges), but is {shape}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG warns when it has nothing but the edges to infer from
        num_nodes = data.num_nodes
    if not num_nodes:
        raise DataError(f"{name} has no nodes; expected at least one.")
    _check_size(data, num_nodes, name)
    edge_index = edge_index.long()
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes):
        raise DataError(
            f"{name}: edge_index must name nodes 0 ... {num_nodes - 1}, but names {int(edge_index.min())} to "
            f"{int(edge_index.max())}; renumber the nodes or set num_nodes."
        )
    result, weight = Data(num_nodes=num_nodes), data.get("edge_weight")
    if weight is not None:
        weight = weight.float().reshape(-1)
        if weight.numel() != edge_index.size(1) or not bool((torch.isfinite(weight) & (weight >= 0)).all()):
            raise DataError(
                f"{name}: edge_weight must hold {edge_index.size(1)} finite numbers >= 0, one per edge; correct "
                f"them."
            )
        result.edge_index, result.edge_weight = coalesce(edge_index, weight, num_nodes)
    else:
        result.edge_index = coalesce(edge_index, num_nodes=num_nodes)
    if data.x is not None:
        result.x = _checked_features(data.x, num_nodes, name)
    if data.y is not None:
        result.y = _checked_labels(data.y, name)
    for key in ("train_mask", "val_mask", "test_mask", "labelled"):
        if key in data:
            if data[key].shape[:1] != (num_nodes,):
                raise DataError(
                    f"{name}: {key} must have {num_nodes} rows, but has shape {tuple(data[key].shape)}."
                )
            result[key] = data[key].bool()
    return result


def _check_size(data: Data, num_nodes: int, name: str) -> None:
    """Raise if so many nodes can only be a wrong number in the edges: memory is taken for each of them."""
    edges = data.edge_index.size(1)
    rows = [len(data[key]) for key in ("x", "y") if isinstance(data.get(key), Tensor) and data[key].dim()]
    if num_nodes > max(FEW_NODES, NODES_PER_EDGE * edges, *rows, 0):
        raise DataError(
            f"{name} would have {num_nodes:,} nodes, but has {edges:,} edges and no features or labels for so "
            f"many; number the nodes 0, 1, 2, ... ."
        )


def _checked_features(x: Tensor, num_nodes: int, name: str) -> Tensor:
    if x.dim() != 2 or x.size(0) != num_nodes:
        raise DataError(f"{name}: x must have shape ({num_nodes}, features), but has shape {tuple(x.shape)}.")
    x = compact(x.float()) if is_sparse(x) else x.float()
    if (wrong := not_finite(x)) is not None:
        row, column, value = wrong
        raise DataError(f"{name}: features must be finite, but x[{row}, {column}] is {value}; fill or drop it.")
    return x


def _checked_labels(y: Tensor, name: str) -> Tensor:
    if y.dim() == 0:
        y = y.reshape(1)
    if y.dim() == 2 and y.size(1) == 1:
        y = y.squeeze(1)
    if y.dim() > 2:
        raise DataError(f"{name}: y must have one or two dimensions, but has shape {tuple(y.shape)}; reshape it.")
    if y.dim() == 2:
        if not bool(((y == 0) | (y == 1)).all()):
            raise DataError(f"{name}: y of several classes must hold zeros and ones only.")
        return y.float()
    if y.is_floating_point() and not bool((y == y.round()).all()):
        raise DataError(f"{name}: y must hold class numbers, but holds {y.dtype}; pprgnn classifies.")
    if y.numel() and int(y.min()) < -1:
        raise DataError(f"{name}: y must hold classes 0, 1, ... or -1 for none, but holds {int(y.min())}.")
    if y.numel() and (largest := int(y.max())) >= max(FEW_CLASSES, y.numel()):
        raise DataError(
            f"{name}: y must hold classes 0, 1, 2, ..., but holds {largest:,} among {y.numel():,} labels; number "
            f"the classes so."
        )
    return y.long()


# ------------------------------------------------------------------------------------------------------ npz files
def from_npz(path: Path | str, *, name: str | None = None, directed: bool = False) -> GraphDataset:
    """An npz file: edges, node features, labels and masks under their usual names, or a SciPy sparse matrix.

    The names that Shchur et al. (2018) use (``adj_data``, ``attr_data``, ...) are known, too. Edges are undirected
    unless ``directed=True``; a SciPy matrix is what it is. Nothing is ever unpickled.
    """
    path = Path(path)
    name = name or path.stem
    if not path.is_file():
        raise DataError(f"{path} does not exist; name an npz file.")
    with plain_arrays(path, "npz file", "save it again") as file:
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise DataError(f"{path} must be an npz file of several arrays, but is a single one; use numpy.savez.")
        if {"format", "shape"} <= set(file.files):
            matrix: Any = sp.load_npz(path)  # never unpickles
            return from_scipy(matrix, name=name)
        data, class_names = _npz_graph(file, path)
    checked = checked_graph(data, path.name)
    if not directed:
        source, destination = checked.edge_index.numpy()
        weight = checked.edge_weight.numpy() if "edge_weight" in checked else None
        checked.edge_index, weight = merge_edges(source, destination, weight, checked.num_nodes, False, [])
        if weight is not None:
            checked.edge_weight = weight
    return from_pyg(checked, name=name, class_names=class_names)


def _npz_graph(file: Any, path: Path) -> tuple[Data, tuple[str, ...] | None]:
    x: Any = _matrix(file, "attr_") if "attr_indptr" in file.files else _array(file, NPZ_FEATURES)
    y, class_names = _array(file, NPZ_LABELS), None
    if y is not None and y.dtype.kind == "U":
        names, y = np.unique(y, return_inverse=True)
        class_names = tuple(names.tolist())
    if "adj_indptr" in file.files:
        data = _edges_of(_matrix(file, "adj_"), f"{path}: adj_data")
    else:
        pairs = _npz_pairs(file, path)
        named = int(pairs.max()) + 1 if pairs.size else 0
        num_nodes = next((each.shape[0] for each in (x, y) if each is not None and each.ndim), named)
        data = Data(edge_index=torch.from_numpy(pairs.astype(np.int64)), num_nodes=num_nodes)
    if x is not None:
        data.x = _features(x, f"{path}: x")
    if y is not None:
        data.y = _tensor(y, f"{path}: y")
    for part in ("train", "val", "test"):
        mask = _array(file, (f"{part}_mask", f"{part}_masks"))
        if mask is not None:  # one row per split, or one column
            mask = mask.T if mask.ndim == 2 and len(mask) != data.num_nodes else mask
            data[f"{part}_mask"] = _tensor(mask, f"{path}: {part}_mask")
    return data, class_names


def _npz_pairs(file: Any, path: Path) -> NDArray[Any]:
    edges = _array(file, NPZ_EDGES)
    if edges is None:
        raise DataError(
            f"{path} has no edges: expected one of {', '.join(NPZ_EDGES)} or a SciPy matrix, but it holds "
            f"{', '.join(file.files) or 'nothing'}."
        )
    if edges.ndim != 2 or 2 not in edges.shape or edges.dtype.kind not in "iu":
        raise DataError(
            f"{path}: edges must be whole numbers in shape (edges, 2) or (2, edges), but are {edges.dtype} in "
            f"shape {edges.shape}; save them so."
        )
    square = edges.shape == (2, 2) and "edge_index" in file.files
    return edges.T if edges.shape[1] == 2 and not square else edges


def _array(file: Any, names: Sequence[str]) -> NDArray[Any] | None:
    """The first of these arrays that is there."""
    return next((file[name] for name in names if name in file.files), None)


def _matrix(file: Any, prefix: str) -> Any:
    """A SciPy matrix as Shchur et al. write it."""
    parts = (file[f"{prefix}data"], file[f"{prefix}indices"], file[f"{prefix}indptr"])
    matrix = sp.csr_array(parts, shape=tuple(file[f"{prefix}shape"].tolist()))
    matrix.check_format()
    return matrix
