"""The catalogue: names, aliases, addresses, and what a card says before anything is read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_geometric.datasets import PPI, HeterophilousGraphDataset, Planetoid, TUDataset

from pprgnn.data import catalog, download
from pprgnn.data.catalog import CATALOG, find, handle
from pprgnn.errors import DataError

PAPER = ("MUTAG", "PTC", "COX2", "PROTEINS", "NCI1", "PPI", "com-Amazon")
NOT_HERE = Path("/no/such/root")


def urls(name):
    return [source.url for source in find(name, NOT_HERE).sources if not source.optional]


def test_the_papers_sets_come_first():
    assert tuple(card.name for card in CATALOG[:7]) == PAPER


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.name)
def test_every_card_is_complete(card):
    assert card.source
    assert card.licence
    assert card.split
    assert find(card.name, NOT_HERE) is card
    assert handle(card) == card.name
    assert None not in (card.graphs, card.nodes, card.classes, card.features)
    for source in card.sources:
        # One address gives one file, unless it is a package of several.
        assert len(source.files) == 1 or source.zipped or source.dgcnn_text or source.url is None
        assert source.url is None or source.url.startswith("https://")
        assert not (source.optional and source.zipped)


def test_no_two_sets_share_a_name_or_a_file():
    plain = [re.sub("[-_]", "", card.name).lower() for card in CATALOG]
    assert len(set(plain)) == len(plain)
    files = [path for card in CATALOG for path in card.paths(NOT_HERE)]
    assert len(set(files)) == len(files)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("mutag", "MUTAG"),
        ("ptc-mr", "PTC_MR"),
        ("PPI_GO", "PPI-GO"),
        ("ppigo", "PPI-GO"),
        ("ppi_121", "PPI-121"),
        ("Amazon", "com-Amazon"),
        ("DBLP", "com-DBLP"),
        ("com_dblp", "com-DBLP"),
        ("Chameleon_Filtered", "chameleon-filtered"),
        ("imdb_binary", "IMDB-BINARY"),
        ("TU/nci1", "NCI1"),
        ("snap/amazon", "com-Amazon"),
    ],
)
def test_case_and_dashes_do_not_matter(written, name):
    assert find(written, NOT_HERE).name == name


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("ENZIMES", "did you mean ENZYMES?"),
        ("chameleon", "did you mean chameleon-filtered?"),
        ("nothing like it", "no data set called 'nothing like it'; `pprgnn data list` shows all"),
        ("", "called ''; `pprgnn"),
        ("TU/../../etc", "called 'TU/../../etc'"),
        ("TU/", "called 'TU/'"),
        ("SNAP/NCI1/x", "called 'SNAP/NCI1/x'"),
        ("planetoid/reddit", "called 'planetoid/reddit'"),
        ("../MUTAG", "called '../MUTAG'"),
    ],
)
def test_unknown_names_are_refused_with_a_hint(written, hint):
    with pytest.raises(DataError, match=re.escape(hint)):
        find(written, NOT_HERE)


def test_stand_ins_say_so():
    for name in ("PPI-GO", "com-DBLP"):
        assert find(name, NOT_HERE).note.startswith("Stand-in for ")
        assert "NOT comparable" in find(name, NOT_HERE).note


def test_reconstructed_labels_are_called_so():
    card = find("PPI-121", NOT_HERE)
    assert card.title == "PPI-121 (reconstructed labels)"
    assert card.note.startswith("PPI (reconstructed labels): ")
    assert "nearly, not exactly, comparable" in card.note
    assert find("PPI-GO", NOT_HERE).title == "PPI-GO"


def test_other_sets_of_the_tu_collection():
    card = find("TU/Mutagenicity", NOT_HERE)
    (source,) = card.sources
    assert (card.name, card.family, card.task) == ("Mutagenicity", "tu", "graph")
    assert card.graphs is card.classes is None
    assert source.url == f"{TUDataset.url}/Mutagenicity.zip"
    assert source.folder == "Mutagenicity/raw"
    assert "Mutagenicity_A.txt" in source.files
    assert "Mutagenicity_node_labels.txt" in source.extra
    assert find(handle(card), NOT_HERE) == card


def test_a_tu_set_on_disk_is_found_by_its_bare_name(tmp_path):
    with pytest.raises(DataError, match="Mutagenicity"):
        find("Mutagenicity", tmp_path)
    (tmp_path / "Mutagenicity" / "raw").mkdir(parents=True)
    (tmp_path / "Mutagenicity" / "raw" / "Mutagenicity_A.txt").touch()
    assert find("Mutagenicity", tmp_path).family == "tu"


def test_the_root_of_the_environment_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PPRGNN_DATA", str(tmp_path))
    (tmp_path / "Own" / "raw").mkdir(parents=True)
    (tmp_path / "Own" / "raw" / "Own_A.txt").touch()
    assert find("Own").name == "Own"


def test_other_sets_of_snap():
    card = find("SNAP/com-youtube", NOT_HERE)
    assert (card.family, card.multi_label, card.metric) == ("snap", True, "micro-F1")
    assert [path.relative_to(NOT_HERE).as_posix() for path in card.paths(NOT_HERE)] == [
        "com-youtube/com-youtube.ungraph.txt.gz",
        "com-youtube/com-youtube.all.cmty.txt.gz",
    ]
    assert find(handle(card), NOT_HERE) == card


def test_addresses_are_those_of_pyg():
    for card in CATALOG:
        if card.family == "tu" and card.name != "PTC":
            assert urls(card.name) == [f"{TUDataset.url}/{card.name}.zip"]
    assert urls("PPI") == [PPI.url]
    for name in ("Cora", "CiteSeer", "PubMed"):
        stem = name.lower()
        parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
        assert set(urls(name)) == {f"{Planetoid.url}/ind.{stem}.{part}" for part in parts}
    for name in ("roman-empire", "amazon-ratings", "minesweeper", "tolokers", "questions"):
        assert urls(name) == [f"{HeterophilousGraphDataset.url}/{name.replace('-', '_')}.npz"]


def test_optional_files_are_not_needed():
    card = find("NCI1", NOT_HERE)
    (splits,) = (source for source in card.sources if source.optional)
    assert splits.paths(NOT_HERE) == [NOT_HERE / "splits" / "NCI1.json"]
    assert NOT_HERE / "splits" / "NCI1.json" not in card.missing(NOT_HERE)


def test_the_folds_of_imdb_are_those_without_degrees():
    """There are two files of this name; the one whose SHA-256 is listed belongs to nodes without features."""
    assert find("IMDB-BINARY", NOT_HERE).sources[1].url.endswith("/COLLABORATIVE_1/IMDB-BINARY_splits.json")


def test_checksums_belong_to_files_of_the_catalogue():
    root = Path("/")
    described = {path for card in CATALOG for source in card.sources for path in source.paths(root)}
    listed = {root / name for name in download.known_checksums()}
    assert listed <= described
    assert len(listed) == 108
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in download.known_checksums().values())


def test_checksums_cover_the_disk(data_root):
    """Every file there is listed, except the re-assembled communities of com-DBLP."""
    files = {path.relative_to(data_root).as_posix() for path in data_root.rglob("*") if path.is_file()}
    described = {
        path.relative_to(data_root).as_posix()
        for card in CATALOG
        for source in card.sources
        for path in source.paths(data_root)
    }
    assert (files & described) - set(download.known_checksums()) <= {"com-dblp/com-dblp.all.cmty.txt.gz"}


def test_the_catalogue_needs_no_torch():
    code = "import pprgnn.data.catalog, pprgnn.data.download, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_names():
    assert catalog.names()[0] == "MUTAG"
    assert len(catalog.names()) == len(CATALOG)
