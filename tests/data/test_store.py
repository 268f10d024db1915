"""Prepared files: saved and opened again; a write that fails leaves the old file; the cache follows its files."""

import copy
import json
import os
import pickle
import stat
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch_geometric.data import Data
from torch_geometric.transforms import AddSelfLoops

from pprgnn.core.adjacency import Adjacency
from pprgnn.data import DataError, Facts, GraphDataset, atomic_io, open_file, save, store
from pprgnn.data.store import FORMAT, prepared

from .own.drawn import same_tensors

FACTS = Facts("toy", "graph", False, "accuracy", ("a", "b"), guessed=("x",), schema={"columns": {"id": "i"}})


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "prepared"


def graph(nodes, edges, **tensors):
    """A graph without features, of which only `num_nodes` tells the size."""
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous()
    return Data(edge_index=edge_index, num_nodes=nodes, **tensors)


def toy(count=3):
    graphs = [
        graph(i + 1, [(0, i), (i, 0)], y=torch.tensor([i % 2]), w=torch.rand(i + 1, 2)) for i in range(count)
    ]
    return GraphDataset.from_graphs(graphs, FACTS)


def same(one, other):
    assert len(one) == len(other)
    assert one.facts == other.facts
    assert one.node_names == other.node_names
    assert one.graph_sizes == other.graph_sizes
    for data, again in zip(one, other, strict=True):
        same_tensors(data, again)


# -------------------------------------------------------------------------------------------------------- one file
@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_was_saved_is_opened_again(tmp_path, count):
    dataset = toy(count)
    save(dataset, tmp_path / "new" / "folder" / "toy.safetensors")
    again = open_file(tmp_path / "new" / "folder" / "toy.safetensors")
    same(dataset, again)
    assert again.path == tmp_path / "new" / "folder" / "toy.safetensors"
    same(again.copy(), dataset)


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)))),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(
        [torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8, torch.bfloat16]
    ),
)
def test_graphs_of_any_size_and_type(tmp_path_factory, drawn, kind):
    path = tmp_path_factory.mktemp("store") / "drawn.safetensors"
    graphs = [
        graph(n, [(a % n, b % n) for a, b in edges], x=torch.arange(n * 2).reshape(n, 2).to(kind))
        for n, edges in drawn
    ]
    dataset = GraphDataset.from_graphs(graphs, FACTS)
    save(dataset, path)
    same(dataset, open_file(path))


@pytest.mark.parametrize("names", [["ann", "", "日本 \n"], ["", "", ""], []])
def test_node_names(tmp_path, names):
    dataset = GraphDataset.from_graphs([graph(max(len(names), 1), [])], FACTS)
    dataset.node_names = names
    save(dataset, tmp_path / "toy.safetensors")
    assert open_file(tmp_path / "toy.safetensors").node_names == names


@pytest.mark.parametrize("chosen", [[2, 0], [1], slice(1, 3), torch.tensor([True, False, True])])
def test_a_subset_is_saved_as_what_it_shows(tmp_path, chosen):
    dataset = toy()
    subset = dataset[chosen]
    save(subset, tmp_path / "toy.safetensors")
    again = open_file(tmp_path / "toy.safetensors")
    same(subset, again)
    assert again._data.y.numel() == len(subset)
    assert dataset._indices is None


def test_tensors_that_share_memory(tmp_path):
    """safetensors itself refuses them."""
    x = torch.arange(6.0).reshape(3, 2)
    data = graph(3, [(0, 1)], x=x, same=x, part=x[1:], column=x[:, 0], wide=x[:1].expand(3, 2))
    dataset = GraphDataset.from_graphs([data], FACTS)
    save(dataset, tmp_path / "toy.safetensors")
    same(dataset, open_file(tmp_path / "toy.safetensors"))
    several = toy(3)
    several._data.x, several.slices["x"] = several._data.w, several.slices["w"]
    save(several, tmp_path / "toy.safetensors")
    same(several, open_file(tmp_path / "toy.safetensors"))


def test_a_file_is_readable_as_others_of_this_user(tmp_path):
    save(toy(), tmp_path / "toy.safetensors")
    (tmp_path / "plain").write_text("")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("toy.safetensors", "plain")]
    assert modes[0] == modes[1]


# ------------------------------------------------------------------------------------------------ writes that fail
def half_written(error):
    def fail(tensors, path, metadata):
        with open(path, "wb") as file:
            file.write(b"half")
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (OSError(28, "No space left on device"), DataError),
        (SafetensorError("Error while serializing: No space left on device"), DataError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_write_that_fails_midway_leaves_the_old_file(tmp_path, monkeypatch, error, shown):
    save(toy(2), tmp_path / "toy.safetensors")
    before = (tmp_path / "toy.safetensors").read_bytes()
    monkeypatch.setattr("safetensors.torch.save_file", half_written(error))
    with pytest.raises(shown) as caught:
        save(toy(3), tmp_path / "toy.safetensors")
    if shown is DataError:
        assert "toy.safetensors cannot be written" in str(caught.value)
        assert "No space left on device" in str(caught.value)
    assert (tmp_path / "toy.safetensors").read_bytes() == before
    assert os.listdir(tmp_path) == ["toy.safetensors"]


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DataError, match=r"toy.safetensors cannot be written \(.*\); choose another folder or make room"
    ):
        save(toy(), tmp_path / "file" / "toy.safetensors")
    (tmp_path / "toy.safetensors").mkdir()
    with pytest.raises(DataError, match="cannot be written"):
        save(toy(), tmp_path / "toy.safetensors")
    assert sorted(os.listdir(tmp_path)) == ["file", "toy.safetensors"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="cannot be written"):
        save(toy(), tmp_path / "toy.safetensors")
    tmp_path.chmod(0o700)


# --------------------------------------------------------------------------------------------- files that are none
def test_files_that_are_not_prepared_graphs(tmp_path):
    path = tmp_path / "toy.safetensors"
    with pytest.raises(DataError, match=r"toy.safetensors must be a whole safetensors file, but cannot be read"):
        open_file(path)
    save(toy(), path)
    whole = path.read_bytes()
    for content in (b"", b"junk", whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="must be a whole safetensors file, but cannot be read"):
            open_file(path)
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(DataError, match="is not a file of prepared graphs"):
        open_file(path)


@pytest.mark.parametrize(
    ("tensors", "facts"),
    [
        ({}, FACTS.to_json()),
        ({"num_nodes": torch.tensor([2]), "other.x": torch.ones(1)}, FACTS.to_json()),
        ({"num_nodes": torch.tensor([2])}, "{"),
        ({"num_nodes": torch.tensor([2])}, "[]"),
        ({"num_nodes": torch.tensor([2])}, json.dumps({"name": "x"})),
    ],
)
def test_files_with_parts_missing(tmp_path, tensors, facts):
    path = tmp_path / "toy.safetensors"
    save_file(tensors or {"x": torch.ones(1)}, path, {"format": FORMAT, "facts": facts})
    with pytest.raises(DataError, match=r"toy.safetensors is damaged \(.*\); make it again"):
        open_file(path)
    save_file({"x": torch.ones(1)}, path, {"format": FORMAT})
    with pytest.raises(DataError, match="is damaged"):
        open_file(path)


# ------------------------------------------------------------------------------------------------------- the cache
class Builder:
    def __init__(self, dataset):
        self.dataset, self.calls = dataset, 0

    def __call__(self):
        self.calls += 1
        return self.dataset


def test_prepared_once_and_again_when_a_file_changes(tmp_path, cache):
    raw = tmp_path / "raw.txt"
    raw.write_text("1")
    build = Builder(toy())
    same(prepared("toy", [raw], build), build.dataset)
    same(prepared("toy", [raw], build), build.dataset)
    assert build.calls == 1
    (first,) = cache.iterdir()
    derived = store.derived_path(first, "sym-0")
    derived.parent.mkdir()
    derived.write_text("belongs to it")
    other = prepared("toy2", [raw], Builder(toy(2)))
    raw.write_text("22")
    prepared("toy", [raw], build)
    assert build.calls == 2
    assert not first.exists()
    assert not derived.exists()
    assert len(list(cache.iterdir())) == 2  # the other set stays
    assert other.path.exists()
    later = raw.stat().st_mtime_ns + 10**9
    os.utime(raw, ns=(later, later))
    prepared("toy", [raw], build)
    assert build.calls == 3


def test_a_damaged_cache_is_made_again(tmp_path, cache):
    build = Builder(toy())
    path = prepared("toy", [], build).path
    path.write_bytes(b"junk")
    same(prepared("toy", [], build), build.dataset)
    assert build.calls == 2


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "file"))
    build = Builder(toy())
    with pytest.warns(
        UserWarning, match=r"The prepared graphs of toy cannot be kept, so every load reads .*PPRGNN_CACHE"
    ):
        same(prepared("toy", [], build), build.dataset)


def test_a_full_disk_is_done_without(monkeypatch, cache):
    build = Builder(toy())
    monkeypatch.setattr("safetensors.torch.save_file", half_written(SafetensorError("No space left on device")))
    with pytest.warns(UserWarning, match="No space left on device"):
        same(prepared("toy", [], build), build.dataset)
    assert list(cache.iterdir()) == []


# ------------------------------------------------------------------------------------------------ kept adjacencies
@pytest.fixture
def large(tmp_path, monkeypatch):
    """A data set on disk whose second graph counts as large."""
    monkeypatch.setattr(store, "LARGE_GRAPH", 3)
    save(toy(3), tmp_path / "toy.safetensors")
    return open_file(tmp_path / "toy.safetensors")


def never(*_, **__):
    raise AssertionError("built anew")


def test_the_adjacency_of_a_large_graph_is_kept(large, tmp_path, monkeypatch):
    built = large.adjacency(2, add_self_loops=True)
    assert store.derived_path(large.path, "sym-loops-2").is_file()
    small, other = large.adjacency(1), large.adjacency(2)
    assert list(tmp_path.glob("*.adjacency")) == []  # never beside the file, where others may write
    assert len(list(store.derived_folder().iterdir())) == 2
    monkeypatch.setattr(Adjacency, "from_edge_index", never)
    assert large.adjacency(2, add_self_loops=True).to_dense().equal(built.to_dense())
    assert large.adjacency(2).to_dense().equal(other.to_dense())
    with pytest.raises(AssertionError, match="built anew"):
        large.adjacency(1)
    assert small.num_nodes == 2


@pytest.mark.parametrize("harm", ["damaged", "other"])
def test_a_kept_adjacency_that_cannot_be_used_is_built_anew(large, tmp_path, harm):
    built = large.adjacency(2)
    kept = store.derived_path(large.path, "sym-2")
    if harm == "damaged":
        kept.write_bytes(kept.read_bytes()[:-4])
    else:
        save_file({"x": torch.ones(2)}, kept)
    before = kept.stat().st_mtime_ns
    time.sleep(0.01)
    assert large.adjacency(2).to_dense().equal(built.to_dense())
    assert kept.stat().st_mtime_ns != before


def test_adjacencies_where_nothing_can_be_kept(large, tmp_path, monkeypatch):
    monkeypatch.setattr("safetensors.torch.save_file", half_written(OSError("read-only")))
    assert large.adjacency(2).num_nodes == 3
    assert list(tmp_path.rglob("*.adjacency*")) == []
    (tmp_path / "toy.safetensors").unlink()  # while it is mapped
    assert large.adjacency(2).num_nodes == 3


def test_what_is_not_in_the_file_is_built(large, monkeypatch):
    monkeypatch.setattr(store, "LARGE_GRAPH", 1)
    assert [large.adjacency(i).num_nodes for i in range(3)] == [1, 2, 3]  # and kept
    for subset in (large[[2, 0]], large[[2, 0]].copy(), large.copy([2, 0])):
        assert [subset.adjacency(i).num_nodes for i in range(2)] == [3, 1]
    large.transform = AddSelfLoops()
    assert large.adjacency(2).num_edges == 5


def edited(dataset):
    dataset.adjacency(2)  # and kept
    dataset[2].edge_index[:] = torch.tensor([[0, 1], [1, 0]])
    return dataset


@pytest.mark.parametrize(
    "carry", [lambda same: same, copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_a_graph_that_was_edited_in_memory_has_its_own_adjacency(large, tmp_path, carry):
    assert carry(large).path == large.path
    changed = carry(edited(large))
    assert changed.adjacency(2).to_dense()[0].tolist() == [0, 1, 0]
    assert changed.path is None
    again = open_file(tmp_path / "toy.safetensors")  # the file is as it was, and so is what was kept of it
    assert again.path is not None
    assert again.adjacency(2).to_dense()[0].tolist() == [0, 0, 1]


def test_a_kept_adjacency_belongs_to_what_is_open(large, tmp_path):
    """Another graph takes the place of the file, and the old one, still open, keeps its adjacency there."""
    other = GraphDataset.from_graphs([graph(1, []), graph(1, []), graph(3, [(0, 1), (1, 0)])], FACTS)
    save(other, tmp_path / "toy.safetensors")
    assert large.adjacency(2).to_dense()[0].tolist() == [0, 0, 1]
    assert open_file(tmp_path / "toy.safetensors").adjacency(2).to_dense()[0].tolist() == [0, 1, 0]
    assert large.adjacency(2).to_dense()[0].tolist() == [0, 0, 1]


def test_another_graph_as_old_and_as_long_has_its_own_adjacency(large, tmp_path):
    path = tmp_path / "toy.safetensors"
    assert large.adjacency(2).to_dense()[0].tolist() == [0, 0, 1]
    before = path.stat()
    other = toy(3)
    other._data.edge_index = other._data.edge_index.clone()
    other._data.edge_index[:, -2:] = torch.tensor([[0, 1], [1, 0]])
    other._data.w = large._data.w.clone()
    save(other, path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert open_file(path).adjacency(2).to_dense()[0].tolist() == [0, 1, 0]


def test_a_raw_file_as_old_and_as_long_is_read_again(tmp_path):
    raw = tmp_path / "raw.txt"
    raw.write_text("1")
    build, times = Builder(toy()), raw.stat()
    prepared("toy", [raw], build)
    (tmp_path / "new.txt").write_text("2")
    os.utime(tmp_path / "new.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(tmp_path / "new.txt", raw)
    assert raw.stat().st_mtime_ns == times.st_mtime_ns
    prepared("toy", [raw], build)
    assert build.calls == 2


def test_one_flipped_bit_is_seen(tmp_path):
    path, dataset = tmp_path / "toy.safetensors", toy(3)
    save(dataset, path)
    content, unseen = path.read_bytes(), 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            same(open_file(path), dataset)
            unseen += 1
        except DataError:
            continue
    assert unseen <= len("digest")  # the word itself: then nothing else is different


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"data.edge_index": torch.tensor([[0, 10**12], [10**12, 0]])}, "the edges name nodes 0 to 1000000000000"),
        ({"data.edge_index": torch.tensor([[0, -1], [1, 0]])}, "the edges name nodes -1 to 1"),
        ({"data.edge_index": torch.ones(2, 6)}, "the edges are torch.float32"),
        ({"num_nodes": torch.tensor([10**12])}, "the labels have shape"),
        ({"num_nodes": torch.tensor([-3, 4, 5])}, "num_nodes holds no sizes"),
        ({"data.y": torch.tensor([0, 1, 2 * 10**9])}, "there is a label 2000000000 of 2 classes"),
        ({"data.y": torch.tensor([0])}, "the labels have shape"),
        ({"data.y": torch.tensor([0, 1, -2])}, "there is a label -2 of 2 classes"),
        ({"slices.edge_index": torch.tensor([0, 2, 4, 10**12])}, "slices.edge_index does not cover"),
        ({"data.edge_index": torch.tensor([[0, 2, 0, 1, 0, 2], [0, 0, 1, 0, 2, 0]])}, "the edges of a graph name"),
        ({"data.x": torch.ones(7, 2)}, "the features have shape"),
        ({"slices.edge_index": torch.tensor([0, 4, 2, 6])}, "slices.edge_index decreases"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_though_the_digest_does(tmp_path, changed, what):
    path = tmp_path / "toy.safetensors"
    save(toy(3), path)
    tensors, metadata = atomic_io.read_tensors(path)
    del metadata[atomic_io.DIGEST]
    atomic_io.write_tensors(path, {**{key: each.clone() for key, each in tensors.items()}, **changed}, metadata)
    with pytest.raises(DataError, match=rf"toy\.safetensors is damaged \(ValueError: {what}"):
        open_file(path)


def test_files_without_a_digest_are_read(tmp_path):
    path = tmp_path / "toy.safetensors"
    dataset = toy(3)
    save(dataset, path)
    tensors, metadata = atomic_io.read_tensors(path)
    del metadata[atomic_io.DIGEST]
    save_file({key: tensor.clone() for key, tensor in tensors.items()}, path, metadata)
    same(open_file(path), dataset)


def test_facts_survive_json():
    for facts in (FACTS, replace(FACTS, directed=True, note="n", schema=None)):
        assert Facts.from_json(facts.to_json()) == facts
