"""Cards for sets that are not in the catalogue, and what every refusal must look like."""

from contextlib import contextmanager

import pytest

from pprgnn.data.catalog import Card, Source
from pprgnn.errors import DataError


def make_card(name, family, *, folder="", files=(), task="node", multi_label=False, metric="accuracy", note=""):
    """A card that knows nothing but the form of its set."""
    unknown = dict.fromkeys(("classes", "graphs", "nodes", "edges", "features"))
    about = dict.fromkeys(("split", "source", "licence"), "")
    sources = (Source(None, folder, tuple(files)),) if files else ()
    return Card(name, family, task, multi_label, metric, **unknown, **about, sources=sources, note=note)


@contextmanager
def refused(*parts):
    """A `DataError` in one sentence that contains these parts."""
    with pytest.raises(DataError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    for part in parts:
        assert str(part) in message, message


def facts_of(dataset):
    """Graphs, nodes, undirected edges, features and classes, counted in what was read."""
    edges = dataset._data.edge_index
    assert not (edges[0] == edges[1]).any()
    return len(dataset), dataset.num_nodes, edges.size(1) / 2, dataset.num_features, dataset.num_classes
