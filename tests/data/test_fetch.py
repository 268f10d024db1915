"""Fetching a data set: archives, checksums, and what a machine without a network is told."""

import hashlib
import io
import json
import re
import zipfile
from dataclasses import replace

import pytest

from pprgnn.data import download as download_module
from pprgnn.data.catalog import CATALOG, Source, find
from pprgnn.data.download import by_hand, fetch, verify
from pprgnn.errors import DataError

from .server import Server

FILES = {f"Toy_{kind}.txt": f"{kind}\n".encode() for kind in ("A", "graph_indicator", "graph_labels")}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download_module, "PAUSE", 0.0)
    server = Server()
    yield server
    server.close()


@pytest.fixture
def listed(monkeypatch):
    """The list of checksums, to be filled by the test."""
    known: dict[str, str] = {}
    monkeypatch.setattr(download_module, "known_checksums", lambda: known)
    return known


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def toy(server, *sources, **options):
    """A card of its own, whose archive is on the server."""
    source = Source(server.url("Toy.zip"), "Toy/raw", tuple(FILES), zipped=True, **options)
    return replace(find("TU/Toy"), name="Toy", sources=(source, *sources))


def folder_content(root, folder="Toy/raw"):
    return {path.name: path.read_bytes() for path in (root / folder).iterdir()}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -------------------------------------------------------------------------------------------------------- archives
def test_members_are_flattened_and_nothing_else_is_taken(server, tmp_path):
    members = {f"Toy/{name}": content for name, content in FILES.items()}
    more = {"Toy/README.txt": b"read me", "Toy/Toy_node_labels.txt": b"1\n", "__MACOSX/Toy/._Toy_A.txt": b"?"}
    server.files["Toy.zip"] = zipped(members | more)
    new = fetch(toy(server, extra=("Toy_node_labels.txt", "Toy_edge_labels.txt")), tmp_path)
    assert folder_content(tmp_path) == FILES | {"Toy_node_labels.txt": b"1\n"}
    assert sorted(path.name for path in new) == sorted([*FILES, "Toy_node_labels.txt"])


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    server.files["Toy.zip"] = zipped(FILES)
    assert len(fetch(toy(server), tmp_path)) == 3
    assert fetch(toy(server), tmp_path) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("evil", ["../../evil.txt", "/evil.txt", "a/../../Toy_A.txt", "..\\evil.txt"])
def test_unsafe_paths_spoil_the_archive(server, tmp_path, evil):
    root = tmp_path / "deep" / "root"
    server.files["Toy.zip"] = zipped(FILES | {evil: b"evil"})
    with pytest.raises(DataError, match="holds the unsafe path"):
        fetch(toy(server), root)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("damage", ["truncated", "not a zip", "flipped byte", "empty"])
def test_damaged_archives_are_one_sentence(server, tmp_path, damage):
    content = zipped({name: content * 1000 for name, content in FILES.items()})
    middle = content.index(b"Toy_A.txt") + 15
    server.files["Toy.zip"] = {
        "truncated": content[: len(content) // 2],
        "not a zip": b"<html>moved</html>",
        "flipped byte": content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :],
        "empty": b"",
    }[damage]
    with pytest.raises(DataError, match=r"Toy\.zip is not a whole zip archive .*; get it again") as caught:
        fetch(toy(server), tmp_path)
    assert "\n" not in str(caught.value)
    assert folder_content(tmp_path) == {}


def test_an_archive_of_something_else(server, tmp_path):
    server.files["Toy.zip"] = zipped({"Toy/Toy_A.txt": b"1"})
    with pytest.raises(DataError, match=r"must hold Toy_graph_indicator\.txt, but does not"):
        fetch(toy(server), tmp_path)
    assert folder_content(tmp_path) == {}


def test_an_archive_brought_by_hand_is_unpacked_and_kept(tmp_path, server):
    (tmp_path / "Toy" / "raw").mkdir(parents=True)
    (tmp_path / "Toy" / "raw" / "Toy.zip").write_bytes(zipped(FILES))
    assert len(fetch(toy(server), tmp_path)) == 3
    assert set(folder_content(tmp_path)) == {*FILES, "Toy.zip"}
    assert server.requests == []


# ------------------------------------------------------------------------------------------------------- checksums
def test_a_wrong_member_replaces_nothing(server, tmp_path, listed):
    listed["Toy/raw/Toy_A.txt"] = sha(b"right")
    server.files["Toy.zip"] = zipped(FILES)
    (tmp_path / "Toy" / "raw").mkdir(parents=True)
    (tmp_path / "Toy" / "raw" / "Toy_graph_labels.txt").write_bytes(b"old")
    with pytest.raises(DataError, match=r"Toy_A\.txt in .* does not have the expected SHA-256.*--unchecked"):
        fetch(toy(server), tmp_path)
    assert folder_content(tmp_path) == {"Toy_graph_labels.txt": b"old"}
    assert len(fetch(toy(server), tmp_path, checked=False)) == 3
    assert folder_content(tmp_path) == FILES


def test_a_damaged_file_is_fetched_again(server, tmp_path, listed):
    listed |= {f"Toy/raw/{name}": sha(content) for name, content in FILES.items()}
    server.files["Toy.zip"] = zipped(FILES)
    fetch(toy(server), tmp_path)
    (tmp_path / "Toy" / "raw" / "Toy_A.txt").write_bytes(b"damaged")
    assert dict(verify(toy(server), tmp_path))[tmp_path / "Toy" / "raw" / "Toy_A.txt"] == "bad"
    assert fetch(toy(server), tmp_path, checked=False) == []
    fetch(toy(server), tmp_path)
    assert folder_content(tmp_path) == FILES


def test_a_plain_file_is_checked_as_it_arrives(server, tmp_path, listed):
    card = replace(toy(server), sources=(Source(server.url("one.npz"), "one", ("one.npz",)),))
    server.files["one.npz"] = b"other"
    listed["one/one.npz"] = sha(b"right")
    with pytest.raises(DataError, match="expected SHA-256"):
        fetch(card, tmp_path)
    assert folder_content(tmp_path, "one") == {}
    server.files["one.npz"] = b"right"
    assert fetch(card, tmp_path) == [tmp_path / "one" / "one.npz"]


def test_verdicts(server, tmp_path, listed):
    splits = Source(server.url("splits.json"), "splits", ("Toy.json",), optional=True)
    folder = tmp_path / "Toy" / "raw"
    folder.mkdir(parents=True)
    (folder / "Toy_A.txt").write_bytes(b"right")
    (folder / "Toy_graph_indicator.txt").write_bytes(b"whatever")
    listed["Toy/raw/Toy_A.txt"] = sha(b"right")
    assert [verdict for _, verdict in verify(toy(server, splits), tmp_path)] == ["ok", "unknown", "missing"]


# ---------------------------------------------------------------------------------------------- optional, by hand
def test_optional_files_are_fetched_last_and_their_loss_is_not_that_of_the_set(server, tmp_path):
    splits = Source(server.url("splits.json"), "splits", ("Toy.json",), optional=True)
    card = replace(toy(server), sources=(splits, *toy(server).sources))
    server.files["Toy.zip"] = zipped(FILES)
    with pytest.raises(DataError, match=r"404 Not Found\. Toy itself is complete; this is an addition to it"):
        fetch(card, tmp_path)
    assert card.missing(tmp_path) == []
    assert folder_content(tmp_path) == FILES
    server.files["splits.json"] = b"[]"
    assert fetch(card, tmp_path) == [tmp_path / "splits" / "Toy.json"]


def test_without_a_network_it_says_what_goes_where(server, tmp_path):
    splits = Source("http://127.0.0.1:1/s.json", "splits", ("Toy.json",), optional=True)
    card = toy(server, splits)
    server.close()
    with pytest.raises(DataError, match=r"^There is no connection to 127\.0\.0\.1") as caught:
        fetch(card, tmp_path)
    assert str(caught.value).splitlines()[1:] == [
        "Put these files there by hand:",
        f"  {tmp_path}/Toy/raw/",
        "    Toy_A.txt",
        "    Toy_graph_indicator.txt",
        "    Toy_graph_labels.txt",
        "    or Toy.zip alone, and `pprgnn data fetch TU/Toy` unpacks it",
        f"    from {card.sources[0].url}",
        f"  {tmp_path}/splits/  (optional)",
        "    Toy.json  from http://127.0.0.1:1/s.json",
    ]


def test_by_hand_names_only_what_is_lacking(tmp_path):
    (tmp_path / "com-amazon").mkdir()
    (tmp_path / "com-amazon" / "com-amazon.ungraph.txt.gz").touch()
    text = by_hand(find("com-Amazon"), tmp_path)
    assert "all.cmty.txt.gz  from https://snap.stanford.edu/" in text
    assert "ungraph" not in text


def test_a_set_that_nobody_offers(tmp_path):
    with pytest.raises(DataError, match="PPI-GO cannot be downloaded") as caught:
        fetch(find("PPI-GO"), tmp_path)
    assert f"{tmp_path}/PPI-GO/raw/" in str(caught.value)
    assert "train_entrez.npy" in str(caught.value)


# ------------------------------------------------------------------------------------------------------ DGCNN text
def test_dgcnn_text_becomes_a_tu_set(server, tmp_path):
    server.files["Toy.txt"] = b"2\n3 7\n5 1 1\n6 2 2 0\n5 1 1\n1 4\n9 0\n"
    names = tuple(f"Toy_{kind}.txt" for kind in ("A", "graph_indicator", "graph_labels", "node_labels"))
    card = replace(toy(server), sources=(Source(server.url("Toy.txt"), "Toy/raw", names, dgcnn_text=True),))
    fetch(card, tmp_path)
    assert folder_content(tmp_path) == {
        "Toy_A.txt": b"1, 2\n2, 1\n2, 3\n3, 2\n",
        "Toy_graph_indicator.txt": b"1\n1\n1\n2\n",
        "Toy_graph_labels.txt": b"7\n4\n",
        "Toy_node_labels.txt": b"5\n6\n5\n9\n",
    }


@pytest.mark.parametrize(
    "text",
    ["", "x", "1", "1\n2 0\n1 1 1", "1\n1 0\n1 2 0", "1\n1 0\n1 1 1", "1\n1 0\n1 1 -1", "1\n1\n1 0", "404: Not"],
)
def test_other_text_is_refused(tmp_path, text):
    (tmp_path / "Toy.txt").write_text(text)
    with pytest.raises(DataError, match="not a whole file in the format of DGCNN"):
        download_module.rewrite_dgcnn(tmp_path / "Toy.txt", "Toy", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["Toy.txt"]


def test_ptc_is_rewritten_byte_by_byte(data_root, tmp_path, server):
    """Its published text, made from the files here, becomes these files again."""
    columns = {}
    for kind in ("A", "graph_indicator", "graph_labels", "node_labels"):
        lines = (data_root / "PTC" / "raw" / f"PTC_{kind}.txt").read_text().splitlines()
        columns[kind] = [tuple(map(int, line.split(","))) for line in lines]
    neighbours = [[] for _ in columns["node_labels"]]
    for one, other in columns["A"]:
        neighbours[one - 1].append(other - 1)
    text, first = [str(len(columns["graph_labels"]))], 0
    for graph, (label,) in enumerate(columns["graph_labels"], start=1):
        size = columns["graph_indicator"].count((graph,))
        text.append(f"{size} {label}")
        for node in range(first, first + size):
            (tag,) = columns["node_labels"][node]
            text.append(" ".join(map(str, [tag, len(neighbours[node]), *(n - first for n in neighbours[node])])))
        first += size
    server.files["PTC.txt"] = "\n".join(text).encode()
    (source,) = find("PTC").sources
    fetch(replace(find("PTC"), sources=(replace(source, url=server.url("PTC.txt")),)), tmp_path)
    assert {verdict for _, verdict in verify(find("PTC"), tmp_path)} == {"ok"}


# -------------------------------------------------------------------------------------------------------- on disk
@pytest.mark.parametrize("card", [card for card in CATALOG if card.sources], ids=lambda card: card.name)
def test_checksums_of_the_sets_on_disk(card, data_root):
    if card.missing(data_root):
        pytest.skip(f"{card.name} is not in {data_root}")
    verdicts = {path.name: verdict for path, verdict in verify(card, data_root)}
    assert verdicts.pop("com-dblp.all.cmty.txt.gz", "unknown") == "unknown"  # re-assembled: its counts are checked
    assert set(verdicts.values()) == {"ok"}


def test_published_folds_have_as_many_graphs_as_the_set(data_root):
    for card in CATALOG:
        for source in card.sources:
            path = data_root / source.folder / source.files[0]
            if source.optional and path.is_file():
                folds = json.loads(path.read_text())
                assert sum(len(fold["test"]) for fold in folds) == card.graphs
                assert re.search(r"(DD|ENZYMES|NCI1|PROTEINS_full|IMDB-BINARY)_splits\.json$", source.url)
