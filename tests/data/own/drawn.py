"""Random graphs as plain rows, and what must come of them: slow, and obviously right."""

import csv
import gzip
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass

import networkx as nx
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st

# Ids and texts that programs like to mistake for something else.
TRICKY = (
    *("007", "7", "07", "-1", "+1", "1.0", "1e5", "0x10", "9223372036854775808", "-9223372036854775809"),
    *("NA", "null", "nan", "None", "true", "inf", "2020-01-01", "10:00", "#x", "x=1", "ü", "日本", "\\", "c\\n"),
    *("a,b", "a;b", "a|b", 'say "hi"', '"', "''", "a\tb", "in side", "two\nlines", "a" * 300),
    "00000000-0000-0000-0000-000000000001",
)
WEIGHTS = st.integers(0, 12).map(lambda quarters: quarters / 4)  # sums are exact
TEXT = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=6)


@dataclass
class Drawn:
    """A graph: ids of any type, edges (source, destination, weight), columns of the node table."""

    ids: list
    edges: list
    columns: dict
    directed: bool

    def edge_columns(self):
        names = ("source", "destination", "weight")
        return {name: [edge[i] for edge in self.edges] for i, name in enumerate(names)}

    def node_columns(self):
        return {"id": self.ids, **self.columns}


def ids(least=1):
    integers = st.integers(-5, 30) | st.integers(-(2**63), 2**63 - 1)
    texts = st.sampled_from(TRICKY) | TEXT
    return st.lists(integers, min_size=least, max_size=8, unique=True) | st.lists(
        texts | integers.map(str), min_size=least, max_size=8, unique=True
    )


@st.composite
def graphs(draw, with_nodes=True):
    nodes = draw(ids())
    node = st.sampled_from(nodes)
    edges = draw(st.lists(st.tuples(node, node, WEIGHTS), min_size=0 if with_nodes else 1, max_size=14))
    columns = {}
    if with_nodes:
        rows = {"min_size": len(nodes), "max_size": len(nodes)}
        numbers = st.none() | st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
        columns["size"] = draw(st.lists(numbers, **rows))
        columns["count"] = draw(st.lists(st.none() | st.integers(-3, 3), **rows))
        columns["colour"] = draw(
            st.lists(st.sampled_from([None, "red", "blue, dark", 'sea "green"', "ü"]), **rows)
        )
        columns["label"] = draw(st.lists(st.sampled_from([None, "10", "2", "b c"]), **rows))
        if not any(columns["label"]):
            columns["label"][0] = "2"
        columns["split"] = draw(st.lists(st.sampled_from([None, "train", "val", "test"]), **rows))
    return Drawn(nodes, edges, columns, draw(st.booleans()))


# -------------------------------------------------------------------------------------------------- what must come
def merged(edges, ids, directed, weighted):
    """Every edge once as {(i, j): weight}, as the words of `merge_edges` have it."""
    number = {str(node): i for i, node in enumerate(ids)}
    total = defaultdict(float)
    for source, destination, weight in edges:
        total[number[str(source)], number[str(destination)]] += weight
    if not weighted:
        pairs = set(total) if directed else set(total) | {(j, i) for i, j in total}
        return dict.fromkeys(pairs, 1.0)
    if directed:
        return dict(total)
    twice = {(i, j) for i, j in total if i != j and (j, i) in total}
    agree = all(total[i, j] == total[j, i] for i, j in twice)
    result = {}
    for (i, j), weight in total.items():
        result[i, j] = result[j, i] = weight if agree or (i, j) not in twice else weight + total[j, i]
    return result


def encoded(columns):
    """The features, column by column, as lists of numbers."""
    outputs = []
    for values in columns.values():
        known = [value for value in values if value is not None]
        gaps = [float(value is None) for value in values]
        if not known or (len(set(known)) == 1 and not any(gaps)):
            continue
        if isinstance(known[0], str):
            if len(set(known)) == len(values) > 2:  # names
                continue
            outputs += [[float(value == kind) for value in values] for kind in sorted(set(known))]
        else:
            mean, spread = statistics.fmean(known), statistics.pstdev(known)
            scale = spread if spread > 1e-12 * abs(mean) else 1.0
            others = [value for value in known if value != 0]
            if {*known} <= {0, 1}:
                mean, scale = 0.0, 1.0
            elif len(others) <= 0.1 * len(known):
                mean, scale = 0.0, math.sqrt(statistics.fmean(float(value) ** 2 for value in others))
            outputs.append([0.0 if value is None else (value - mean) / scale for value in values])
        if any(gaps):
            outputs.append(gaps)
    return [list(row) for row in zip(*outputs, strict=True)]


# ------------------------------------------------------------------------------------------------------- what came
def edges_of(dataset):
    data = dataset._data
    weight = data.edge_weight if "edge_weight" in data else [1.0] * data.num_edges
    pairs = [tuple(pair) for pair in data.edge_index.t().tolist()]
    assert pairs == sorted(set(pairs))  # in order, each once
    return dict(zip(pairs, map(float, weight), strict=True))


def ids_of(dataset):
    return list(dataset.node_names) if dataset.node_names is not None else dataset._data.node_id.tolist()


def classes_of(dataset):
    names = dataset.facts.class_names
    return [None if number < 0 else names[number] for number in dataset.labels().tolist()]


def same_tensors(one, other):
    """The same attributes, bit for bit."""
    first, second = one.to_dict(), other.to_dict()
    assert first.keys() == second.keys()
    for key, value in first.items():
        if hasattr(value, "dtype"):
            assert value.dtype == second[key].dtype, key
            assert value.equal(second[key]), key
        else:
            assert value == second[key], key


# --------------------------------------------------------------------------------------------------------- writing
def write_text(path, columns, delimiter=",", end="\n"):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def write_parquet(path, columns):
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


def write(path, columns):
    """In the format that the name asks for."""
    if path.suffix == ".parquet":
        return write_parquet(path, columns)
    return write_text(path, columns, "\t" if ".tsv" in path.name else ",", "\r\n" if ".tsv" in path.name else "\n")


def as_networkx(drawn, weighted):
    graph = nx.MultiDiGraph() if drawn.directed else nx.MultiGraph()
    for row, node in enumerate(drawn.ids):
        values = {name: column[row] for name, column in drawn.columns.items()}
        graph.add_node(node, **{name: value for name, value in values.items() if value is not None})
    for source, destination, weight in drawn.edges:
        graph.add_edge(source, destination, **({"weight": weight} if weighted else {}))
    return graph


def close(one, other):
    return len(one) == len(other) and all(
        math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-5)
        for row, again in zip(one, other, strict=True)
        for a, b in zip(row, again, strict=True)
    )
