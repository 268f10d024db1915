"""The text format of DGCNN and GIN, rewritten as the files of a TU set."""

from __future__ import annotations

from pathlib import Path

from pprgnn.data.errors import DataError


def rewrite(text: Path, name: str, folder: Path) -> None:
    """Write ``NAME_A.txt`` and its companions.

    The text holds the number of graphs; then for each graph a line `nodes label`, and for each of its nodes a line
    `tag degree neighbour neighbour ...`, with neighbours counted from 0 within the graph.
    """
    edges: list[str] = []
    graph_of: list[str] = []
    classes: list[str] = []
    tags: list[str] = []
    try:
        lines = iter(text.read_text(encoding="utf-8").splitlines())
        for graph in range(1, int(next(lines)) + 1):
            size, label = (int(word) for word in next(lines).split())
            first = len(tags) + 1  # TU files count the nodes of all graphs together, from 1
            classes.append(str(label))
            for node in range(first, first + size):
                tag, degree, *neighbours = (int(word) for word in next(lines).split())
                if degree != len(neighbours) or not all(0 <= neighbour < size for neighbour in neighbours):
                    raise ValueError(f"line of node {node - first} of graph {graph}")
                tags.append(str(tag))
                graph_of.append(str(graph))
                edges += [f"{node}, {first + neighbour}" for neighbour in sorted(neighbours)]
    except (ValueError, StopIteration) as error:
        raise DataError(f"{text} is not a whole file in the format of DGCNN ({error}); fetch it again.") from error
    columns = {"A": edges, "graph_indicator": graph_of, "graph_labels": classes, "node_labels": tags}
    for kind, column in columns.items():
        (folder / f"{name}_{kind}.txt").write_text("".join(f"{row}\n" for row in column), encoding="utf-8")
