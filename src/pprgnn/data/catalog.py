"""The data sets known by name, as data. Imports neither torch nor PyG.

Counts are those of the graphs as they are read: each undirected edge once, no self-loops, no duplicates. The
features of TU sets are the node labels from the smallest to the largest, one-hot as in PyG, without attributes.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal

from pprgnn.data.roots import data_root
from pprgnn.errors import DataError

Family = Literal["tu", "ppi", "snap", "planetoid", "heterophilous", "generated"]
Task = Literal["node", "graph"]  # what gets a prediction
Metric = Literal["accuracy", "micro-F1", "ROC AUC"]
COUNTS = ("graphs", "nodes", "edges", "features", "classes")  # of a card


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
    family: Family
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
        return f"{self.name} ({self.qualifier})" if self.qualifier else self.name

    def paths(self, root: Path) -> list[Path]:
        """All files that this set needs under this root."""
        return [path for source in self.sources if not source.optional for path in source.paths(root)]

    def missing(self, root: Path) -> list[Path]:
        """The files that are not there yet."""
        return [path for path in self.paths(root) if not path.is_file()]


Counts = tuple[int | None, ...]  # in the order of COUNTS

TU_URL = "https://www.chrsmrrs.com/graphkerneldatasets"
SNAP_URL = "https://snap.stanford.edu/data/bigdata/communities"
PLANETOID_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
HETEROPHILOUS_URL = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
SPLITS_URL = "https://raw.githubusercontent.com/diningphil/gnn-comparison/master/data_splits"
PTC_URL = "https://raw.githubusercontent.com/muhanzhang/pytorch_DGCNN/master/data/PTC/PTC.txt"

TU_FILES = ("A", "graph_indicator", "graph_labels")  # the others depend on the set
TU_EXTRA = ("node_labels", "node_attributes", "edge_labels", "edge_attributes", "graph_attributes")
NESTED_FOLDS = {  # sets with published nested folds, and the files of these
    "NCI1": "CHEMICAL/NCI1",
    "PROTEINS": "CHEMICAL/PROTEINS_full",
    "ENZYMES": "CHEMICAL/ENZYMES",
    "DD": "CHEMICAL/DD",
    "IMDB-BINARY": "COLLABORATIVE_1/IMDB-BINARY",  # of nodes without features: the degrees have folds of their own
}
MULTI_LABEL: dict[str, Any] = {"multi_label": True, "metric": "micro-F1"}
UNKNOWN: Counts = (None,) * len(COUNTS)
NOT_DESCRIBED = "Not in the catalogue, so there are no counts to compare with."
HAMILTON = "graphs and features: Zitnik and Leskovec 2017, Hamilton et al. 2017; labels: "
WIKIPEDIA: dict[str, Any] = {"cite": "Rozemberczki et al. 2021; ", "note": "Without duplicate nodes."}
PEI = "Pei et al. 2020; "


# ------------------------------------------------------------------------------------------------- the families
def _card(name: str, family: Family, counts: Counts, **facts: Any) -> Card:
    return Card(name, family, **facts | dict(zip(COUNTS, counts, strict=True)))


def _tu(name: str, counts: Counts, cite: str, *files: str, dgcnn_text: str = "", note: str = "") -> Card:
    """A set of the TU collection; without known counts, one of which only the form is known."""
    members = tuple(f"{name}_{kind}.txt" for kind in (*TU_FILES, *files))
    extra = tuple(f"{name}_{kind}.txt" for kind in TU_EXTRA) if counts == UNKNOWN else ()
    published = Source(f"{TU_URL}/{name}.zip", f"{name}/raw", members, zipped=True, extra=extra)
    home = "TU collection, Morris et al. 2020, https://chrsmrrs.github.io/datasets"
    split = "10 folds, stratified by class"
    folds: tuple[Source, ...] = ()
    if dgcnn_text:
        published = Source(dgcnn_text, f"{name}/raw", members, dgcnn_text=True)
        home = "Zhang et al. 2018 (DGCNN), https://github.com/muhanzhang/pytorch_DGCNN"
    if name in NESTED_FOLDS:
        url = f"{SPLITS_URL}/{NESTED_FOLDS[name]}_splits.json"
        folds = (Source(url, "splits", (f"{name}.json",), optional=True),)
        split = "10 published nested folds (Errica et al. 2020), or 10 folds stratified by class"
    facts: dict[str, Any] = {"task": "graph", "split": split, "source": f"{cite}; {home}", "note": note}
    return _card(name, "tu", counts, **facts, sources=(published, *folds))


def _ppi(name: str, classes: int, cite: str, note: str, *, url: str | None = None, **facts: Any) -> Card:
    """The published set, or with its ``url`` left out one with other labels, in which genes are known."""
    kinds = ("feats.npy", "graph.json", "graph_id.npy", "labels.npy", *["entrez.npy"] * (not url))
    files = tuple(f"{part}_{kind}" for part in ("train", "valid", "test") for kind in kinds)
    recur = "" if url else '; genes recur, unless `split = { genes = "disjoint" }` keeps them apart'
    return _card(
        name,
        "ppi",
        (24, 56_944, 793_632, 50, classes),
        **MULTI_LABEL,
        split=f"by graph: 20 train, 2 validate, 2 test{recur}",
        source=cite,
        licence="not stated" if url else "Gene Ontology: CC BY 4.0; not stated for graphs and features",
        sources=(Source(url, f"{name}/raw", files, zipped=bool(url)), *facts.pop("more_sources", ())),
        note=note,
        **facts,
    )


def _snap(name: str, counts: Counts, note: str) -> Card:
    stem = name.lower()
    files = (f"{stem}.ungraph.txt.gz", f"{stem}.all.cmty.txt.gz")
    return _card(
        name,
        "snap",
        counts,
        **MULTI_LABEL,
        split="5 to 9 % of the labelled nodes train, 10 % test; an honest run sets 5 % apart for validation",
        source="Yang and Leskovec 2012; SNAP, https://snap.stanford.edu/data/#communities",
        sources=tuple(Source(f"{SNAP_URL}/{file}", stem, (file,)) for file in files),
        note=note,
    )


def _planetoid(name: str, counts: Counts) -> Card:
    stem = name.lower()
    files = [f"ind.{stem}.{part}" for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")]
    return _card(
        name,
        "planetoid",
        counts,
        split="published: 20 nodes a class train, 500 validate, 1,000 test",
        source="Yang et al. 2016 (Planetoid), https://github.com/kimiyoung/planetoid",
        licence="MIT (repository); not stated for the data it is made from",
        sources=tuple(Source(f"{PLANETOID_URL}/{file}", f"Planetoid/{stem}/raw", (file,)) for file in files),
        note="The files are pickles.",
    )


def _heterophilous(name: str, counts: Counts, *, cite: str = "", **facts: Any) -> Card:
    file = f"{name.replace('-', '_')}.npz"
    return _card(
        name,
        "heterophilous",
        counts,
        split=f"10 published splits, {'48/32/20' if cite else '50/25/25'} % each",  # as Pei et al. have it
        source=f"{cite}Platonov et al. 2023, https://github.com/yandex-research/heterophilous-graphs",
        licence="MIT (repository)" + ("; not stated for the data it is made from" if cite else ""),
        sources=(Source(f"{HETEROPHILOUS_URL}/{file}", "heterophilous", (file,)),),
        **facts,
    )


def _made(name: str, counts: Counts, note: str) -> Card:
    note = f"{note} The counts are those of the default options."
    source = "made by pprgnn from a seed"
    return _card(name, "generated", counts, split="as generated", source=source, licence="MIT", note=note)


# ------------------------------------------------------------------------------------------------------ the sets
CATALOG: tuple[Card, ...] = (
    # The paper's seven.
    _tu("MUTAG", (188, 3_371, 3_721, 7, 2), "Debnath et al. 1991", "node_labels", "edge_labels"),
    _tu(
        "PTC", (344, 8_792, 8_931, 21, 2), "Helma et al. 2001", "node_labels", dgcnn_text=PTC_URL,
        note="The paper's PTC, in the encoding of DGCNN and GIN: not the graphs of PTC_MR, which are smaller. 19 "
        "of the 21 atom labels occur. `pprgnn data fetch` rewrites the published text as the files of a TU set.",
    ),
    _tu(
        "COX2", (467, 19_252, 20_289, 35, 2), "Sutherland et al. 2003", "node_labels", "node_attributes",
        note="8 of the 35 atom labels occur; also 3 coordinates per node.",
    ),
    _tu(
        "PROTEINS", (1_113, 43_471, 81_044, 3, 2), "Borgwardt et al. 2005", "node_labels", "node_attributes",
        note="Also 1 attribute per node.",
    ),
    _tu("NCI1", (4_110, 122_747, 132_753, 37, 2), "Wale et al. 2008", "node_labels"),
    _ppi(
        "PPI", 121,
        "Zitnik and Leskovec 2017; Hamilton et al. 2017 (GraphSAGE), https://snap.stanford.edu/graphsage",
        "The published edge counts differ by self-loops and by counting directions; here each edge counts once.",
        url="https://data.dgl.ai/dataset/ppi.zip",
    ),
    _snap(
        "com-Amazon", (1, 334_863, 925_872, 0, 58),
        "Classes are the 58 communities of at least 5,000 products; 282,848 nodes have 746,398 labels.",
    ),
    # One of them with its labels made again, and stand-ins for two.
    _ppi(
        "PPI-121", 121,
        f"{HAMILTON}annotations of gene2go 2016-09 and the Gene Ontology of 2016, by the recipe of "
        "https://github.com/agitter/GraphSagePPIAnalysis",
        "PPI (reconstructed labels): its graphs and features, and its 121 labels reconstructed from annotations "
        "of 2016; about 99.9 % of them agree with PPI's, so published PPI scores are nearly, not exactly, "
        "comparable. Nearly all test genes (5,490 of 5,524 rows) also occur in training graphs: looking up a "
        "gene's labels there, without any graph, has a micro-F1 of 99.7 %. `*_entrez.npy` names the gene of each "
        "row, `label_columns.tsv` the term of each label.",
        more_sources=(Source(None, "PPI-121", ("label_columns.tsv",)),),
        qualifier="reconstructed labels",
    ),
    _ppi(
        "PPI-GO", 112,
        f"{HAMILTON}Gene Ontology annotation (GOA) 2019-01, http://geneontology.org",
        "Stand-in for PPI: its graphs and features, but with 112 Gene-Ontology terms in place of its 121 labels, "
        "so scores are NOT comparable with published PPI numbers. Nearly all test genes (5,490 of 5,524 rows) "
        "also occur in training graphs; `*_entrez.npy` names the gene of each row.",
    ),
    _snap(
        "com-DBLP", (1, 317_080, 1_049_866, 0, 50),
        "Stand-in for com-Amazon: same file format and processing, so scores are NOT comparable with published "
        "Amazon numbers. Classes are the 50 communities of at least 2,000 authors; 100,700 nodes have 161,979 "
        "labels.",
    ),
    # More graph classification.
    _tu(
        "PTC_MR", (344, 4_915, 5_054, 18, 2), "Helma et al. 2001", "node_labels", "edge_labels",
        note="TU's PTC (male rats), without hydrogen: not the graphs of the paper's PTC.",
    ),
    _tu(
        "ENZYMES", (600, 19_580, 37_282, 3, 6), "Borgwardt et al. 2005", "node_labels", "node_attributes",
        note="Also 18 attributes per node.",
    ),
    _tu(
        "DD", (1_178, 334_925, 843_046, 89, 2), "Dobson and Doig 2003", "node_labels",
        note="82 of the 89 node labels occur.",
    ),
    _tu(
        "IMDB-BINARY", (1_000, 19_773, 96_531, 0, 2), "Yanardag and Vishwanathan 2015",
        note="The file lists every edge twice; duplicates are dropped.",
    ),
    # Node classification in one graph.
    _planetoid("Cora", (1, 2_708, 5_278, 1_433, 7)),
    _planetoid("CiteSeer", (1, 3_327, 4_552, 3_703, 6)),
    _planetoid("PubMed", (1, 19_717, 44_324, 500, 3)),
    _heterophilous("roman-empire", (1, 22_662, 32_927, 300, 18)),
    _heterophilous("amazon-ratings", (1, 24_492, 93_050, 300, 5)),
    _heterophilous("minesweeper", (1, 10_000, 39_402, 7, 2), metric="ROC AUC"),
    _heterophilous("tolokers", (1, 11_758, 519_000, 10, 2), metric="ROC AUC"),
    _heterophilous("questions", (1, 48_921, 153_540, 301, 2), metric="ROC AUC"),
    _heterophilous("chameleon-filtered", (1, 890, 8_854, 2_325, 5), **WIKIPEDIA),
    _heterophilous("squirrel-filtered", (1, 2_223, 46_998, 2_089, 5), **WIKIPEDIA),
    _heterophilous("actor", (1, 7_600, 26_659, 932, 5), cite=PEI),
    _heterophilous("texas", (1, 183, 279, 1_703, 5), cite=PEI),
    _heterophilous("wisconsin", (1, 251, 450, 1_703, 5), cite=PEI),
    _heterophilous("cornell", (1, 183, 277, 1_703, 5), cite=PEI),
    # Made on the spot.
    _made("chains", (140, 14_000, 13_860, 2, 2), "The class is written on a chain's first node; all name it."),
    _made("grid", (140, 35_840, 67_200, 2, 2), "The class is written in one corner of a grid; all nodes name it."),
    _made("ring", (250, 2_500, 2_500, 5, 5), "The class is written on one node of a ring; its opposite names it."),
    _made("sbm", (1, 10_000, None, 4, 4), "A stochastic block model: every node names its block."),
)  # fmt: skip
ALIASES = {"amazon": "com-Amazon", "dblp": "com-DBLP"}


# ------------------------------------------------------------------------------------------------------- look-up
def names() -> list[str]:
    """The names of all sets in the catalogue."""
    return [card.name for card in CATALOG]


def find(name: str, root: Path | None = None) -> Card:
    """The card of this name; case, ``-`` and ``_`` do not matter.

    ``TU/NAME`` and ``SNAP/com-NAME`` name any other set of these collections, as does the ``NAME`` of a TU set
    whose files lie under the data root.
    """
    collection, member = name.lower().split("/", 1) if "/" in name else ("", name)
    wanted = _plain(ALIASES.get(_plain(member), member))
    for card in CATALOG:
        if _plain(card.name) == wanted and collection in ("", card.family):
            return card
    member = name[len(collection) :].removeprefix("/")  # as it was written: it names files
    if re.fullmatch(r"\w[\w.+-]*", member):
        has_files = ((root or data_root()) / member / "raw" / f"{member}_A.txt").is_file()
        if collection == "tu" or (not collection and has_files):
            return _tu(member, UNKNOWN, "see the collection", note=NOT_DESCRIBED)
        if collection == "snap":
            return _snap(member, (1, None, None, 0, None), NOT_DESCRIBED)
    known = {_plain(card.name): card.name for card in CATALOG}
    wanted = _plain(name)
    close = [each for each in known if wanted and each.startswith(wanted)]
    close = close or difflib.get_close_matches(wanted, known)
    perhaps = f"did you mean {' or '.join(known[each] for each in close)}? " if close else ""
    raise DataError(f"There is no data set called {name!r}; {perhaps}`pprgnn data list` shows all.")


def handle(card: Card) -> str:
    """A name by which :func:`find` gives this card, wherever its files are."""
    return card.name if card in CATALOG else f"{card.family.upper()}/{card.name}"


def _plain(name: str) -> str:
    return re.sub("[-_]", "", name).lower()
