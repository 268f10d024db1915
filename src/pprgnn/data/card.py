"""What is known about a data set before it is read: one card each. Imports neither torch nor PyG."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

Task = Literal["node", "graph"]  # what gets a prediction
Metric = Literal["accuracy", "micro-F1", "ROC AUC"]
COUNTS = ("graphs", "nodes", "edges", "features", "classes")  # of a card


def titled(name: str, qualifier: str) -> str:
    """A name, with what must be said beside it."""
    return f"{name} ({qualifier})" if qualifier else name


@dataclass(frozen=True)
class Source:
    """Files of a data set that come from one address: one file as it is, or all that a zip archive holds."""

    url: str | None  # None: not to be had from the network
    folder: str  # where the files belong, relative to the data root
    files: tuple[str, ...]
    zipped: bool = False
    dgcnn_text: bool = False  # a text file in the format of DGCNN, rewritten as the files of a TU set
    optional: bool = False  # the set is complete without them
    extra: tuple[str, ...] = ()  # further members, taken if the archive has them

    def paths(self, root: Path) -> list[Path]:
        """The files under this root, whether they exist or not."""
        return [root / self.folder / name for name in self.files]


@dataclass(frozen=True)
class Card:
    """The facts of a data set as published; `edges` counts each undirected edge once."""

    name: str
    family: Literal["tu", "ppi", "snap", "planetoid", "heterophilous", "generated"]
    task: Task = "node"
    multi_label: bool = False  # any number of classes each, instead of one
    metric: Metric = "accuracy"
    _: KW_ONLY
    classes: int | None  # None: not known before reading, as for a set that is not in the catalogue
    graphs: int | None
    nodes: int | None
    edges: int | None
    features: int | None  # 0: none
    split: str
    source: str
    licence: str = "not stated"
    sources: tuple[Source, ...] = ()
    note: str = ""
    qualifier: str = ""  # what is said whenever users see the name

    @property
    def title(self) -> str:
        """The name as users see it."""
        return titled(self.name, self.qualifier)

    def paths(self, root: Path) -> list[Path]:
        """All files that this set needs under this root."""
        return [path for source in self.sources if not source.optional for path in source.paths(root)]

    def missing(self, root: Path) -> list[Path]:
        """The files that are not there yet."""
        return [path for path in self.paths(root) if not path.is_file()]
