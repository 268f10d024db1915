"""SNAP's graphs with communities: against sets and dictionaries, the published counts, and what is refused."""

import gzip
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pprgnn.data import store
from pprgnn.data.readers import snap, snap_communities, snap_graph
from tests.data.cards import facts_of, make_card, refused

EDGES = "# Undirected graph\n# FromNodeId\tToNodeId\n2\t9\n9\t4\n4\t2\n9\t2\n4\t4\n70\t4\n"
COMMUNITIES = "9\t2\t4\n70\t5\t6\t8\n4\t70\t4\n2\t9\n"  # 5, 6 and 8 are not in the graph; 4 is named twice


@pytest.fixture
def file(tmp_path):
    def write(content, name):
        path = tmp_path / name
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def card(name, stem, folder=None):
    files = (f"{stem}.ungraph.txt.gz", f"{stem}.all.cmty.txt.gz")
    return make_card(name, "snap", folder=folder or stem, files=files, multi_label=True, metric="micro-F1")


# ------------------------------------------------------------------------------------------------------ real data
@pytest.fixture(scope="module")
def dblp(data_root):
    return snap(card("com-DBLP", "com-dblp"), data_root)


def test_counts(dblp):
    assert facts_of(dblp) == (1, 317_080, 1_049_866, 0, 50)
    assert int(dblp.labelled().sum()) == 100_700
    assert int(dblp.labels().sum()) == 161_979
    assert dblp.labels().dtype == torch.float32
    assert dblp.facts.class_names[0] == "community 0 (2,051 members)"


def test_real_graph_line_by_line(dblp, data_root):
    text = gzip.decompress((data_root / "com-dblp" / "com-dblp.ungraph.txt.gz").read_bytes()).decode()
    pairs = np.array(text.split("ToNodeId\n")[1].split(), dtype=np.int64).reshape(-1, 2)
    data = dblp[0]
    expected = np.sort(np.concatenate([pairs, pairs[:, ::-1]]) @ [10**6, 1])
    np.testing.assert_array_equal(np.sort(data.node_id[data.edge_index].T.numpy() @ [10**6, 1]), expected)
    assert (data.node_id.diff() > 0).all()


def test_real_communities_against_sets(dblp, data_root):
    text = gzip.decompress((data_root / "com-dblp" / "com-dblp.all.cmty.txt.gz").read_bytes()).decode()
    known = set(dblp[0].node_id.tolist())
    expected = [known.intersection(map(int, line.split())) for line in text.splitlines()]
    expected = [members for members in expected if len(members) >= 2000]
    found = [set(dblp[0].node_id[column > 0].tolist()) for column in dblp.labels().T]
    assert found == expected


def test_other_size_of_communities(data_root):
    dataset = snap(card("com-DBLP", "com-dblp"), data_root, min_members=5000)
    assert 1 <= dataset.num_classes < 50
    assert (dataset.labels().sum(dim=0) >= 5000).all()


# -------------------------------------------------------------------------------------------------- small graphs
@pytest.mark.parametrize("name", ["g.txt", "g.txt.gz"])
@pytest.mark.parametrize("head", ["", "# a\n" * 7])
def test_graph_by_hand(file, name, head):
    edge_index, node_id = snap_graph(file(head + EDGES.split("ToNodeId\n")[1], name))
    assert node_id.tolist() == [2, 4, 9, 70]
    assert sorted(edge_index.t().tolist()) == [[0, 1], [0, 2], [1, 0], [1, 2], [1, 3], [2, 0], [2, 1], [3, 1]]
    assert edge_index.dtype == node_id.dtype == torch.int64


def test_ids_far_apart(file):
    edge_index, node_id = snap_graph(file("4000000000000\t7\n7\t0\n", "g.txt"))
    assert node_id.tolist() == [0, 7, 4_000_000_000_000]
    assert sorted(edge_index.t().tolist()) == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_communities_by_hand(file):
    _, node_id = snap_graph(file(EDGES, "g.txt"))
    y, sizes = snap_communities(file("# comment\n" + COMMUNITIES, "c.txt.gz"), node_id, 2)
    assert sizes.tolist() == [3, 2, 2]
    assert y.tolist() == [[1, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_files_by_hand(file, tmp_path):
    file(EDGES, "mine.ungraph.txt.gz")
    file(COMMUNITIES, "mine.all.cmty.txt.gz")
    dataset = snap(card("mine", "mine", folder="."), tmp_path, min_members=3)
    assert dataset.facts.name == "mine"
    assert dataset.facts.class_names == ("community 0 (3 members)",)
    assert dataset.labelled().tolist() == [True, True, True, False]
    store.save(dataset, tmp_path / "mine.safetensors")
    again = store.open_file(tmp_path / "mine.safetensors")
    assert torch.equal(again[0].edge_index, dataset[0].edge_index)
    assert again.num_nodes == 4


def test_amazon_with_its_own_threshold(tmp_path):
    """The same form as com-Amazon, with one community of 5,000 members and one of 4,999."""
    folder = tmp_path / "com-amazon"
    folder.mkdir()
    ids = np.arange(1, 6_001) * 3
    edges = "".join(f"{a}\t{b}\n" for a, b in pairwise(ids))
    (folder / "com-amazon.ungraph.txt.gz").write_bytes(gzip.compress(b"# Amazon\n" + edges.encode()))
    lines = ["\t".join(map(str, ids[:count])) for count in (4_999, 5_000)]
    (folder / "com-amazon.all.cmty.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    dataset = snap(card("com-Amazon", "com-amazon"), tmp_path)
    assert facts_of(dataset) == (1, 6_000, 5_999, 0, 1)
    assert dataset.facts.class_names == ("community 0 (5,000 members)",)
    assert snap(card("com-Amazon", "com-amazon"), tmp_path, min_members=4_999).num_classes == 2


IDS = st.integers(0, 12)


@given(
    pairs=st.lists(st.tuples(IDS, IDS), min_size=1),
    groups=st.lists(st.lists(IDS, min_size=1, max_size=6), min_size=1, max_size=5),
    least=st.integers(1, 3),
)
def test_against_sets(tmp_path_factory, pairs, groups, least):
    folder = tmp_path_factory.mktemp("snap")
    (folder / "g.txt").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    (folder / "c.txt").write_text("\n".join("\t".join(map(str, group)) for group in groups))
    edge_index, node_id = snap_graph(folder / "g.txt")
    known = sorted(set(chain.from_iterable(pairs)))
    assert node_id.tolist() == known
    both = {pair for a, b in pairs if a != b for pair in ((a, b), (b, a))}
    assert sorted(node_id[edge_index].t().tolist()) == [list(pair) for pair in sorted(both)]
    expected = [members for group in groups if len(members := set(group) & set(known)) >= least]
    if not expected:
        with refused(f"at least {least} members"):
            snap_communities(folder / "c.txt", node_id, least)
        return
    y, sizes = snap_communities(folder / "c.txt", node_id, least)
    assert [set(node_id[column > 0].tolist()) for column in y.T] == expected
    assert sizes.tolist() == [len(members) for members in expected]


# ------------------------------------------------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["empty"]),
        ("# only\n# comments\n", ["empty"]),
        ("# head\n1\t2\n3\n", ["line 3 ", "2 columns", "has 1"]),
        ("# head\n1\t2\n3\tx\n", ["line 3, column 2 ", "'x'"]),
        ("# head\n1 2\n", ["line 2, column 1 ", "'1 2'"]),
        ("# head\n1\t2\n3\t-4\n", ["line 3 ", "from 0 on", "-4"]),
        ("1\t2\n# late\n", ["line 2 "]),
    ],
)
@pytest.mark.parametrize("name", ["g.txt", "g.txt.gz"])
def test_bad_graph(file, text, parts, name):
    path = file(text, name)
    with refused(path, *parts):
        snap_graph(path)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["empty"]),
        ("# head\n\n", ["empty"]),
        ("2\t9\n4\tx\n", ["line 2 ", "'x'"]),
        ("2\t9\n\n4\t\t9\n", ["line 3 ", "''"]),
        ("2 9\n", ["line 1 ", "tabs", "'2 9'"]),
        ("2\t9\n4\t-9\n", ["line 2 ", "from 0 on", "-9"]),
        ("2\t99999999999999999999\n", ["line 1 ", "'99999999999999999999'"]),
        (b"2\t9\n\xff\xfe\n", ["line 2 "]),
        ("2\n9\n", ["at least 2 members"]),
        ("100\t200\n", ["at least 2 members"]),
    ],
)
def test_bad_communities(file, text, parts):
    _, node_id = snap_graph(file(EDGES, "g.txt"))
    path = file(text, "c.txt.gz")
    with refused(path, *parts):
        snap_communities(path, node_id, 2)


@pytest.mark.parametrize("share", [0.0005, 0.5, 0.999])
@pytest.mark.parametrize("kind", ["graph", "communities"])
def test_truncated(tmp_path, kind, share):
    numbers = np.random.default_rng(0).integers(0, 10**6, 50_000).reshape(-1, 2)
    whole = gzip.compress("".join(f"{a}\t{b}\n" for a, b in numbers).encode())
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(whole[: int(share * len(whole))])
    with refused(path, "fetch it again"):
        snap_graph(path) if kind == "graph" else snap_communities(path, torch.arange(10), 2)


def test_not_gzip(tmp_path):
    path = tmp_path / "g.txt.gz"
    path.write_text(EDGES)
    with refused(path, "fetch it again"):
        snap_graph(path)


def test_missing(tmp_path):
    for read in (snap_graph, lambda path: snap_communities(path, torch.arange(3), 1)):
        with refused(tmp_path / "no.txt", "missing"):
            read(tmp_path / "no.txt")


def test_bad_options(file, tmp_path):
    with refused("min_members must be at least 1, not 0"):
        snap_communities(file(COMMUNITIES, "c.txt"), torch.arange(3), 0)
    with refused("com-Other needs min_members"):
        snap(card("com-Other", "com-other"), tmp_path)
