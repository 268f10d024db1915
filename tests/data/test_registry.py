"""Loading by name: what is there, what is not, what is kept, and that counts are those of the cards."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pprgnn.data
from pprgnn.data import registry, roots
from pprgnn.data.catalog import CATALOG, find
from pprgnn.data.registry import differences, load, state
from pprgnn.data.store import save
from pprgnn.errors import DataError

TOY = {
    "A": "1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n",
    "graph_indicator": "1\n1\n2\n2\n2\n",
    "graph_labels": "0\n1\n",
    "node_labels": "0\n1\n0\n1\n2\n",
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of its own for every test; the user's is never touched."""
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "prepared"


@pytest.fixture
def root(tmp_path):
    """A root with one small TU set."""
    folder = tmp_path / "root" / "Toy" / "raw"
    folder.mkdir(parents=True)
    for kind, text in TOY.items():
        (folder / f"Toy_{kind}.txt").write_text(text)
    return tmp_path / "root"


def prepared_files(cache: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in cache.glob("*.safetensors"))


# ----------------------------------------------------------------------------------------------------------- state
def test_states(tmp_path, monkeypatch):
    monkeypatch.setattr(roots, "find_spec", lambda _: None)
    words = {card.name: state(card, tmp_path).word for card in CATALOG}
    assert words["chains"] == "generated"
    assert words["MUTAG"] == words["PPI"] == words["Cora"] == words["PTC"] == "needs download"
    assert words["PPI-GO"] == "missing"
    assert not state(find("PPI-GO"), tmp_path).ready
    assert state(find("chains"), tmp_path).ready


def test_the_state_names_what_is_missing(root):
    card = find("Toy", root)
    assert state(card, root) == registry.State("ready")
    (root / "Toy" / "raw" / "Toy_graph_labels.txt").unlink()
    assert state(card, root).word == "needs download"
    assert state(card, root).missing == (root / "Toy" / "raw" / "Toy_graph_labels.txt",)


def test_missing_splits_do_not_matter(tmp_path):
    card = find("IMDB-BINARY", tmp_path)
    for path in card.paths(tmp_path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert not (tmp_path / "splits").exists()
    assert state(card, tmp_path).word == "ready"


def test_mutag_comes_with_grakel(tmp_path, cache):
    pytest.importorskip("grakel")
    assert state(find("MUTAG"), tmp_path).word == "ready (inside grakel)"
    dataset = load("mutag", tmp_path)
    assert differences(find("MUTAG"), dataset) == []
    assert prepared_files(cache) == ["MUTAG"]


# ------------------------------------------------------------------------------------------------------------ load
def test_a_set_is_read_once_and_kept(root, cache, monkeypatch):
    first = load("Toy", root)
    assert (len(first), first.num_nodes, first.num_features) == (2, 5, 3)
    assert prepared_files(cache) == ["Toy"]
    monkeypatch.setattr("pprgnn.data.readers.tu", lambda card, root: pytest.fail("was read again"))
    again = load("TU/Toy", root)
    assert torch.equal(again[1].edge_index, first[1].edge_index)


def test_a_changed_file_is_read_again(root):
    load("Toy", root)
    (root / "Toy" / "raw" / "Toy_graph_labels.txt").write_text("1\n1\n")
    assert load("Toy", root).num_classes == 1


def test_a_file_that_was_not_there_before_counts(root):
    (root / "Toy" / "raw" / "Toy_node_labels.txt").rename(root / "labels")
    assert load("Toy", root).num_features == 0
    (root / "labels").rename(root / "Toy" / "raw" / "Toy_node_labels.txt")
    assert load("Toy", root).num_features == 3


def test_without_the_cache_nothing_is_written(root, cache):
    assert len(load("Toy", root, cache=False)) == 2
    assert not cache.exists()


def test_options_are_kept_apart(root, cache):
    (root / "Toy" / "raw" / "Toy_node_attributes.txt").write_text("0.5\n" * 5)
    assert load("Toy", root).num_features == 3
    assert load("Toy", root, node_attributes=True).num_features == 4
    assert load("Toy", root, node_attributes=False).num_features == 3
    assert len(prepared_files(cache)) == 2


def test_preparing_one_set_keeps_the_others(root, cache):
    """One name may be the beginning of another: PPI and PPI-GO."""
    shutil.copytree(root / "Toy", root / "Toy-GO")
    for path in (root / "Toy-GO" / "raw").iterdir():
        path.rename(path.with_name(path.name.replace("Toy", "Toy-GO")))
    load("Toy-GO", root)
    load("Toy", root)
    assert prepared_files(cache) == ["Toy", "Toy_GO"]


def test_the_root_of_the_environment(root, monkeypatch):
    monkeypatch.setenv("PPRGNN_DATA", str(root))
    assert load("Toy").num_nodes == 5


def test_a_prepared_file(root, tmp_path):
    path = tmp_path / "mine.safetensors"
    save(load("Toy", root), path)
    assert load(path).num_nodes == load(str(path)).num_nodes == 5
    with pytest.raises(DataError, match=r"already prepared, so it takes no options; leave out seed"):
        load(path, seed=1)


def test_generated_sets_are_not_kept(cache):
    assert load("chains", length=5, train=2, val=1, test=1).num_nodes == 20
    assert not cache.exists()


# ---------------------------------------------------------------------------------------------------------- errors
def test_missing_files_name_folder_and_command(tmp_path):
    with pytest.raises(DataError) as caught:
        load("COX2", tmp_path)
    message = str(caught.value)
    assert f"COX2_node_attributes.txt in {tmp_path}/COX2/raw: run `pprgnn data fetch COX2`" in message
    assert "PPRGNN_DATA" in message
    assert "\n" not in message


def test_missing_files_of_a_set_without_an_address(tmp_path):
    with pytest.raises(
        DataError, match="copy them there, since they cannot be downloaded; `pprgnn data info PPI-GO`"
    ):
        load("PPI-GO", tmp_path)


def test_missing_files_of_another_set_of_the_collection(tmp_path):
    with pytest.raises(DataError, match="`pprgnn data fetch TU/Mutagenicity`"):
        load("TU/Mutagenicity", tmp_path)


@pytest.mark.parametrize(
    ("name", "option", "hint"),
    [
        ("Toy", "node_atributes", "Toy takes no option 'node_atributes'; did you mean 'node_attributes'?"),
        ("Toy", "seed", "Toy takes no option 'seed'; it takes node_attributes."),
        ("chains", "lenght", "chains takes no option 'lenght'; did you mean 'length'?"),
        ("chains", "root_", "it takes length, classes"),
    ],
)
def test_unknown_options(root, name, option, hint):
    with pytest.raises(DataError, match=re.escape(hint)):
        load(name, root, **{option: 1})


def test_sets_without_options_say_so(data_root):
    with pytest.raises(DataError, match="Cora takes no option 'x'; it takes none"):
        load("Cora", data_root, x=1)


def test_differences_name_every_count_that_is_wrong(root):
    card, dataset = find("Toy", root), load("Toy", root)
    right = replace(card, graphs=2, nodes=5, edges=3, features=3, classes=2)
    assert differences(card, dataset) == differences(right, dataset) == []
    wrong = replace(card, graphs=1_000, nodes=5, edges=4, features=0, classes=3)
    assert differences(wrong, dataset) == [
        "2 graphs instead of 1,000",
        "3 edges instead of 4",
        "3 features instead of 0",
        "2 classes instead of 3",
    ]


# --------------------------------------------------------------------------------------------------- the real sets
@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.name)
def test_counts_of_the_real_sets(card, data_root):
    found = state(card, data_root)
    if not found.ready:
        pytest.skip(f"{card.name} is not in {data_root}: {found.missing[0].name} is missing")
    assert found.word == ("generated" if card.family == "generated" else "ready")
    dataset = load(card.name, data_root)
    assert differences(card, dataset) == []
    assert (dataset.facts.name, dataset.facts.task) == (card.name, card.task)
    assert (dataset.facts.multi_label, dataset.facts.metric) == (card.multi_label, card.metric)
    assert not dataset.facts.directed


# ----------------------------------------------------------------------------------------------------- the package
@pytest.mark.parametrize("name", pprgnn.data.__all__)
def test_every_public_name_is_there(name):
    assert getattr(pprgnn.data, name).__module__.startswith(("pprgnn.data", "pprgnn.errors"))
    assert name in dir(pprgnn.data)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match=r"'pprgnn\.data' has no attribute 'lod'"):
        pprgnn.data.lod  # noqa: B018


def test_the_room_is_reachable_without_torch():
    code = (
        "import pprgnn, sys; pprgnn.data.find('NCI1'); 'data' in dir(pprgnn) or 1/0; print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_published_splits_are_looked_for_beside_the_data(data_root, tmp_path):
    (tmp_path / "ENZYMES").symlink_to(data_root / "ENZYMES")
    enzymes = load("ENZYMES", tmp_path)
    with pytest.raises(DataError, match=re.escape(str(tmp_path / "splits" / "ENZYMES.json"))):
        enzymes.splits("honest")
    (tmp_path / "splits").symlink_to(data_root / "splits")
    assert len(enzymes.splits("honest")) == 10
