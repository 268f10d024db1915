"""Splits: what each rule promises, on drawn and on real data; what is refused; what a file keeps."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from pprgnn.data.catalog import NESTED_FOLDS
from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.sampling import Split, make_splits
from pprgnn.errors import DataError

SEEDS = st.integers(0, 10**6)
PARTS = ("train", "val", "test")


# ----------------------------------------------------------------------------------------------- small data sets
def dataset_of(graphs, task, name="drawn", multi_label=False, schema=None):
    facts = Facts(name, task, multi_label, "accuracy", ("a", "b", "c"), schema=schema)
    return GraphDataset.from_graphs(graphs, facts)


def graph(n, **tensors):
    return Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=n, **tensors)


def graph_set(classes, name="drawn"):
    return dataset_of([graph(2, y=torch.tensor([each])) for each in classes], "graph", name)


def node_set(y, own=False, multi_label=False, name="drawn", **tensors):
    one = graph(len(y), y=torch.as_tensor(y), **tensors)
    return dataset_of([one], "node", name, multi_label, {"columns": []} if own else None)


def snap_set(labelled):
    labelled = torch.as_tensor(labelled)
    return node_set(torch.ones(len(labelled), 3) * labelled[:, None], multi_label=True, labelled=labelled)


def protein_set(seed, genes=40, with_gene=True, name="PPI-drawn"):
    """Ten graphs (6/2/2); each holds most of the genes, some of them twice."""
    rng, graphs = np.random.default_rng(seed), []
    for part in (0,) * 6 + (1,) * 2 + (2,) * 2:
        n = int(rng.integers(genes // 2, genes))
        tensors = {"gene": torch.from_numpy(rng.integers(0, genes, n) * 7)} if with_gene else {}
        graphs.append(graph(n, y=torch.ones(n, 3), part=torch.tensor([part]), **tensors))
    return dataset_of(graphs, "node", name, multi_label=True)


def part_of(split):
    """The part of each unit as 0, 1, 2, or -1: shows at once that parts are disjoint and in range."""
    part = np.full(split.size, -1)
    for number, name in enumerate(PARTS):
        indices = getattr(split, name).numpy()
        assert (np.diff(indices) > 0).all()
        assert (part[indices] == -1).all()
        part[indices] = number
    return part


def same(one, other):
    return all(torch.equal(getattr(one, part), getattr(other, part)) for part in PARTS)


def counts(y, indices):
    return np.bincount(np.asarray(y)[np.asarray(indices)], minlength=max(y) + 1)


CLASSES = st.lists(st.integers(0, 3), min_size=12, max_size=90)


# ------------------------------------------------------------------------------------------ graph classification
@given(classes=CLASSES, seed=SEEDS, protocol=st.sampled_from(["paper", "honest"]), folds=st.integers(2, 10))
def test_folds_are_disjoint_covering_and_stratified(classes, seed, protocol, folds):
    splits = make_splits(graph_set(classes), protocol, seed, folds=folds)
    assert [(split.index, split.count) for split in splits] == [(i, folds) for i in range(folds)]
    assert np.array_equal(np.sort(np.concatenate([split.test for split in splits])), np.arange(len(classes)))
    for split in splits:
        assert (part_of(split) >= 0).all()
        assert split.optimistic == (protocol == "paper") == (len(split.val) == 0)
        assert ("optimistic" in split.description) == split.optimistic
    per_class = np.stack([counts(classes, split.test) for split in splits])
    assert (np.ptp(per_class, axis=0) <= 1).all()
    assert np.ptp(per_class.sum(1)) <= 1


@given(classes=CLASSES, seed=SEEDS)
def test_folds_have_the_same_class_counts_as_scikit_learn(classes, seed):
    model_selection = pytest.importorskip("sklearn.model_selection")
    classes = classes + [0, 1, 2, 3] * 3  # scikit-learn warns of classes smaller than the number of folds
    theirs = model_selection.StratifiedKFold(3, shuffle=True, random_state=seed).split(classes, classes)
    ours = [split.test for split in make_splits(graph_set(classes), "paper", seed, folds=3)]
    ours, theirs = (
        np.stack([counts(classes, test) for test in tests]) for tests in (ours, [t for _, t in theirs])
    )
    assert np.array_equal(np.sort(ours, axis=0), np.sort(theirs, axis=0))
    assert sorted(ours.sum(1)) == sorted(theirs.sum(1))


@given(classes=CLASSES, seed=SEEDS, fraction=st.sampled_from([0.1, 0.25, 0.5]))
def test_validation_part_of_a_fold_is_a_stratified_share(classes, seed, fraction):
    for split in make_splits(graph_set(classes), "honest", seed, folds=4, val_fraction=fraction):
        trained = len(split.train) + len(split.val)
        assert len(split.val) == max(1, round(fraction * trained))
        share = len(split.val) / trained * (counts(classes, split.train) + counts(classes, split.val))
        assert (np.abs(counts(classes, split.val) - share) < 1).all()


def test_paper_and_honest_test_on_the_same_seeded_folds():
    dataset = graph_set([0, 1, 1] * 20)
    for paper, honest in zip(make_splits(dataset, "paper", 3), make_splits(dataset, "honest", 3), strict=True):
        assert torch.equal(paper.test, honest.test)


def test_folds_may_do_without_validation():
    dataset = graph_set([0, 1] * 20)
    with_part, without = make_splits(dataset, "honest"), make_splits(dataset, "honest", val_fraction=0)
    for one, other in zip(with_part, without, strict=True):
        assert torch.equal(one.test, other.test)
        assert torch.equal(torch.cat([one.train, one.val]).sort().values, other.train)
        assert not len(other.val)
        assert not other.optimistic
        assert "nothing chooses the epoch" in other.description


def test_unlabelled_graphs_are_in_no_fold():
    dataset = graph_set([0, 1, -1] * 10)
    splits = make_splits(dataset, "honest", folds=5)
    assert np.array_equal(
        np.sort(np.concatenate([split.test for split in splits])), np.arange(30)[np.arange(30) % 3 < 2]
    )
    assert all((part_of(split)[2::3] == -1).all() for split in splits)


@given(seed=SEEDS, protocol=st.sampled_from(["paper", "honest"]))
def test_seed_decides_and_torch_does_not(seed, protocol):
    for dataset, options in (
        (graph_set([0, 1, 2] * 12), {}),
        (snap_set([True, False, True] * 100), {}),
        (protein_set(1), {"genes": "disjoint"}),
        (node_set([0, 1, 2] * 20), {}),
    ):
        torch.manual_seed(1)
        state = torch.random.get_rng_state()
        first = make_splits(dataset, protocol, seed, **options)
        assert torch.equal(state, torch.random.get_rng_state())
        torch.manual_seed(2)
        assert all(map(same, first, make_splits(dataset, protocol, seed, **options)))
        assert not all(map(same, first, make_splits(dataset, protocol, seed + 1, **options)))


# -------------------------------------------------------------------------------------------- published folds
def nested(n, folds=10):
    order = np.random.default_rng(0).permutation(n)
    chunks = [chunk.tolist() for chunk in np.array_split(order, folds)]
    pieces = [[unit for other in chunks if other is not test for unit in other] for test in chunks]
    return [
        {"test": chunks[k], "model_selection": [{"train": rest[3:], "validation": rest[:3]}]}
        for k, rest in enumerate(pieces)
    ]


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Writes a file of nested folds for ENZYMES under a data root of its own."""
    monkeypatch.setenv("PPRGNN_DATA", str(tmp_path))
    path = tmp_path / "splits" / "ENZYMES.json"
    path.parent.mkdir()

    def write(content):
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    write.path = path
    return write


def test_published_folds_are_taken_as_they_are(published):
    folds, dataset = nested(60), graph_set([0, 1] * 30, "ENZYMES")
    published(folds)
    for split, fold in zip(make_splits(dataset, "honest"), folds, strict=True):
        assert split.test.tolist() == sorted(fold["test"])
        assert split.train.tolist() == sorted(fold["model_selection"][0]["train"])
        assert split.val.tolist() == sorted(fold["model_selection"][0]["validation"])
        assert "Errica" in split.description
    # Whoever asks for other folds gets others, and the paper's protocol knows none of these.
    for options in ({"published": False}, {"folds": 5}, {"val_fraction": 0.2}):
        assert "Published" not in make_splits(dataset, "honest", **options)[0].description
    assert make_splits(dataset, "paper")[0].optimistic


def test_a_missing_published_file_names_its_place_and_the_way_out(published):
    with pytest.raises(DataError, match=f"{re.escape(str(published.path))}.*published=False"):
        make_splits(graph_set([0, 1] * 30, "ENZYMES"), "honest")
    assert len(make_splits(graph_set([0, 1] * 30, "ENZYMES"), "honest", published=False)) == 10
    assert len(make_splits(graph_set([0, 1] * 30, "MUTAG"), "honest")) == 10


def spoil(change):
    folds = nested(60)
    change(folds)
    return folds


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (json.dumps(nested(60))[:-20], "JSONDecodeError"),
        (nested(60, 9), "not 10 folds"),
        ({"test": []}, "not 10 folds"),
        (spoil(lambda folds: folds[3].pop("test")), "KeyError"),
        (spoil(lambda folds: folds[3].update(model_selection=[])), "IndexError"),
        (spoil(lambda folds: folds[3]["test"].__setitem__(0, 0.5)), "whole numbers"),
        (spoil(lambda folds: folds[3]["test"].__setitem__(0, 60)), "fold 4 must name each of the 60"),
        (spoil(lambda folds: folds[3]["test"].pop()), "fold 4 must name each of the 60"),
        (spoil(lambda folds: folds.__setitem__(3, folds[4])), "test parts of all folds"),
        (nested(61), "fold 1 must name each of the 60"),
    ],
)
def test_a_damaged_published_file_is_refused(published, content, complaint):
    path = published(content)
    with pytest.raises(DataError, match=complaint) as caught:
        make_splits(graph_set([0, 1] * 30, "ENZYMES"), "honest")
    assert str(path) in str(caught.value)
    assert "published=False" in str(caught.value)


# ------------------------------------------------------------------------------------------------- given parts
def test_graphs_with_a_part_go_where_it_says():
    dataset = protein_set(0, with_gene=False)
    for protocol in ("paper", "honest"):
        (split,) = make_splits(dataset, protocol)
        assert split.unit == "graph"
        assert part_of(split).tolist() == [0] * 6 + [1] * 2 + [2] * 2
        assert not split.optimistic
        assert split.description.startswith("Usual (genes shared): the data set's own graphs")
        assert "genes of the training part may recur" in split.description
        masks, sizes = split.masks(dataset), dataset.graph_sizes
        assert {part: int(mask.sum()) for part, mask in masks.items()} == {
            "train": sum(sizes[:6]),
            "val": sum(sizes[6:8]),
            "test": sum(sizes[8:]),
        }
        assert masks["val"].nonzero()[0] == sum(sizes[:6])
    assert "gene" not in make_splits(protein_set(0, with_gene=False, name="chains"))[0].description


@given(seed=SEEDS, fractions=st.sampled_from([(0.6, 0.2, 0.2), (0.5, 0.1, 0.4), (0.8, 0.1, 0.1)]))
def test_genes_are_disjoint(seed, fractions):
    dataset = protein_set(seed)
    (split,) = make_splits(dataset, "honest", seed, genes="disjoint", gene_fractions=fractions)
    row_part = np.repeat([0] * 6 + [1] * 2 + [2] * 2, dataset.graph_sizes)
    gene, part = dataset._all("gene").numpy(), part_of(split)
    assert split.unit == "node"
    assert (part[part >= 0] == row_part[part >= 0]).all()
    of_part = [set(gene[part == number].tolist()) for number in range(3)]
    assert sum(map(len, of_part)) == len(set.union(*of_part))
    # Nothing is wasted: a row is left out only if its gene belongs to another part.
    for number in range(3):
        left_out = set(gene[(row_part == number) & (part == -1)].tolist())
        assert not left_out & of_part[number]


def test_gene_fractions_hold_for_the_rows():
    dataset = protein_set(5, genes=2000)
    (split,) = make_splits(dataset, "honest", genes="disjoint", gene_fractions=(0.5, 0.2, 0.3))
    sizes = dataset.graph_sizes
    for name, share, rows in (
        ("train", 0.5, sum(sizes[:6])),
        ("val", 0.2, sum(sizes[6:8])),
        ("test", 0.3, sum(sizes[8:])),
    ):
        assert len(getattr(split, name)) == pytest.approx(share * rows, rel=0.1)


def test_genes_are_shared_unless_asked_for():
    dataset = protein_set(0)
    for protocol in ("paper", "honest"):
        (usual,), (shared,), (apart,) = (
            make_splits(dataset, protocol, **options)
            for options in ({}, {"genes": "shared"}, {"genes": "disjoint"})
        )
        assert same(usual, shared)
        assert part_of(usual).tolist() == [0] * 6 + [1] * 2 + [2] * 2
        assert usual.description == shared.description
        assert apart.unit == "node"
        assert apart.description.startswith("Genes apart: divided 60/20/20")
    with pytest.raises(DataError, match="not known"):
        make_splits(protein_set(0, with_gene=False), genes="disjoint")


def test_rows_without_a_gene_or_a_label_are_left_out():
    dataset = protein_set(0)
    assert (part_of(make_splits(dataset, genes="disjoint")[0])[:9] == 0).any()
    for name, missing in (("gene", -1), ("labelled", False)):
        dataset = protein_set(0)
        dataset._data.labelled = torch.ones(dataset.num_nodes, dtype=torch.bool)
        dataset._data[name][:9] = missing
        assert (part_of(make_splits(dataset, genes="disjoint")[0])[:9] == -1).all()


def test_split_column_decides_and_unlabelled_nodes_stay_out():
    part = torch.tensor([0, 1, 2, -1, 0, 2] * 5, dtype=torch.int8)
    y = torch.tensor([0, 1, 0, 1, -1, 1] * 5)
    for protocol in ("paper", "honest"):
        (split,) = make_splits(node_set(y, own=True, part=part), protocol)
        assert part_of(split).tolist() == [0, 1, 2, -1, -1, 2] * 5
        assert split.unit == "node"


def test_split_column_without_validation():
    dataset = node_set([0, 1] * 25, own=True, part=torch.tensor([0] * 40 + [2] * 10))
    (paper,), (honest,) = make_splits(dataset, "paper"), make_splits(dataset, "honest")
    assert paper.optimistic
    assert paper.train.tolist() == list(range(40))
    assert len(honest.val) == 8
    assert counts([0, 1] * 25, honest.val).tolist() == [4, 4]
    assert sorted(honest.train.tolist() + honest.val.tolist()) == list(range(40))
    assert "20 % of the training nodes validate" in honest.description
    assert len(make_splits(dataset, "honest", val_fraction=0.5)[0].val) == 20
    without_test = node_set([0, 1] * 25, own=True, part=torch.tensor([0] * 40 + [1] * 10))
    with pytest.raises(DataError, match=r"test part .* is empty"):
        make_splits(without_test)


def test_published_masks_one_or_several():
    y, draw = torch.tensor([0, 1, 2, -1] * 10), torch.Generator().manual_seed(0)
    part = torch.randint(-1, 3, (40, 10), generator=draw)
    masks = {f"{name}_mask": part == number for number, name in enumerate(PARTS)}
    for protocol in ("paper", "honest"):
        splits = make_splits(node_set(y, **masks), protocol)
        assert len(splits) == 10
        for column, split in zip(part.T, splits, strict=True):
            assert part_of(split).tolist() == torch.where(y >= 0, column, -1).tolist()
        (split,) = make_splits(node_set(y, **{name: mask[:, 4] for name, mask in masks.items()}), protocol)
        assert same(split, splits[4])
    masks["val_mask"] = masks["train_mask"]
    with pytest.raises(DataError, match="overlap"):
        make_splits(node_set(y, **masks))


def test_masks_with_one_test_part_for_all_columns_and_no_validation():
    train = torch.zeros(40, 3, dtype=torch.bool)
    train[:10, 0] = train[10:20, 1] = train[20:30, 2] = True
    dataset = node_set([0, 1] * 20, train_mask=train, test_mask=torch.arange(40) >= 30)
    for number, split in enumerate(make_splits(dataset, "honest")):
        assert split.test.tolist() == list(range(30, 40))
        assert len(split.val) == 2
        assert sorted(split.train.tolist() + split.val.tolist()) == list(range(10 * number, 10 * number + 10))
    assert all(split.optimistic for split in make_splits(dataset, "paper"))


# ------------------------------------------------------------------------------------------ drawn from one graph
@given(
    seed=SEEDS, labelled=st.lists(st.booleans(), min_size=200, max_size=500).filter(lambda each: sum(each) >= 60)
)
def test_label_fractions_are_nested_and_test_nodes_fixed(seed, labelled):
    dataset, n = snap_set(labelled), sum(labelled)
    fractions = (0.05, 0.06, 0.07, 0.08, 0.09, 0.5)
    honest = [make_splits(dataset, "honest", seed, fraction=each)[0] for each in fractions]
    paper = [make_splits(dataset, "paper", seed, fraction=each)[0] for each in fractions]
    for fraction, ours, theirs in zip(fractions, honest, paper, strict=True):
        part_of(ours)
        assert [len(ours.train), len(ours.val), len(ours.test)] == [round(f * n) for f in (fraction, 0.05, 0.1)]
        assert torch.equal(ours.train, theirs.train)
        assert torch.equal(ours.test, theirs.test)
        assert theirs.optimistic
        assert not ours.optimistic
        assert torch.tensor(labelled)[torch.cat([ours.train, ours.val, ours.test])].all()
    for small, large in pairwise(honest):
        assert torch.equal(small.val, large.val)
        assert torch.equal(small.test, large.test)
        assert np.isin(small.train, large.train).all()


@given(classes=st.lists(st.integers(-1, 5), min_size=10, max_size=120), seed=SEEDS)
def test_own_graph_is_divided_evenly_in_each_class(classes, seed):
    classes = [*classes, 0, 0, 0]
    y = np.asarray(classes)
    for protocol in ("paper", "honest"):
        (split,) = make_splits(node_set(classes, own=True), protocol, seed)
        part = part_of(split)
        assert ((part >= 0) == (y >= 0)).all()
        sizes = np.bincount(y[y >= 0], minlength=6)
        for number, share in enumerate((0.6, 0.2, 0.2)):
            in_part = np.bincount(y[part == number], minlength=6)
            small = sizes < 3
            assert (in_part[small] == (sizes[small] if number == 0 else 0)).all()
            # Two draws, the second with a rounded share: within two nodes of the exact share.
            assert (np.abs(in_part - share * sizes)[~small] < 2.2).all()
            assert number != 0 or (in_part[~small] > 0).all()
        assert ("fewer than 3" in split.description) == bool((sizes[sizes > 0] < 3).any())


def test_own_graph_shares_can_be_chosen():
    dataset = node_set([0, 1] * 100, own=True)
    (split,) = make_splits(dataset, train_fraction=0.1, val_fraction=0.3)
    assert [counts([0, 1] * 100, getattr(split, part)).tolist() for part in PARTS] == [
        [10, 10],
        [30, 30],
        [60, 60],
    ]
    with pytest.raises(DataError, match="at least one class must have 3"):
        make_splits(node_set([0, 0, 1, 1, 2, -1, -1, -1], own=True))


def test_own_graph_with_several_labels_per_node():
    dataset = node_set(torch.ones(50, 3), own=True, multi_label=True, labelled=torch.arange(50) < 40)
    (split,) = make_splits(dataset)
    assert [len(getattr(split, part)) for part in PARTS] == [24, 8, 8]
    assert (part_of(split)[40:] == -1).all()


# ------------------------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("dataset", "arguments", "complaint"),
    [
        (graph_set([0, 1] * 9), {"protocol": "fair"}, "'paper' or 'honest', not 'fair'"),
        (graph_set([0, 1] * 9), {"seed": -1}, "seed must be a whole number"),
        (
            graph_set([0, 1] * 9),
            {"fraction": 0.1},
            "options folds, published, val_fraction, but not 'fraction'",
        ),
        (graph_set([0, 1] * 9), {"folds": 1}, "from 2 to 18"),
        (graph_set([0, 1] * 9), {"folds": 19}, "from 2 to 18"),
        (graph_set([0, 1] * 9), {"val_fraction": 0.6}, "val_fraction must be"),
        (graph_set([0, 1] * 9), {"val_fraction": float("nan")}, "val_fraction must be"),
        (graph_set([0, 1] * 9), {"protocol": "paper", "published": True}, "belong to the protocol 'honest'"),
        (snap_set([True] * 50), {"fraction": 0.51}, "fraction must be a number above 0 and at most 0.5, not 0.51"),
        (snap_set([True] * 50), {"fraction": "5 %"}, "fraction must be"),
        (snap_set([True] * 2), {}, "train part .* is empty"),
        (protein_set(0), {"genes": "apart"}, "'shared' or 'disjoint', not 'apart'"),
        (protein_set(0), {"genes": None}, "'shared' or 'disjoint', not None"),
        (protein_set(0), {"gene_fractions": (0.6, 0.2, 0.2)}, "needs genes='disjoint'"),
        (protein_set(0), {"genes": "disjoint", "gene_fractions": (0.6, 0.2)}, "three positive numbers with sum 1"),
        (protein_set(0), {"genes": "disjoint", "gene_fractions": (0.6, 0.2, 0.3)}, "numbers with sum 1"),
        (node_set([0, 1] * 9), {"train_fraction": 0.8, "val_fraction": 0.2}, "must leave a test part"),
        (node_set([0, 1] * 9, part=torch.tensor([0, 3] * 9)), {}, "reaches from 0 to 3"),
        (node_set([0, 1] * 9, part=torch.tensor([0])), {}, "one value per node, but has 1"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(dataset, arguments, complaint):
    with pytest.raises(DataError, match=complaint) as caught:
        make_splits(dataset, **{"protocol": "honest", **arguments})
    assert str(caught.value).endswith(".")


def split_of(dataset, train, val, test, unit="node", **more):
    parts = [torch.tensor(part, dtype=torch.long) for part in (train, val, test)]
    return Split.of(dataset, parts, unit=unit, **more)


@pytest.mark.parametrize(
    ("train", "val", "test", "complaint"),
    [
        ([0, 1], [1, 2], [3], "train and val share node 1"),
        ([0, 1], [2], [3, 1], "train and test share node 1"),
        ([0, 1], [2, 3], [3], "val and test share node 3"),
        ([0, 1], [2], [10], "between 0 and 9, the last node, but reaches from 10"),
        ([-1, 1], [2], [3], "between 0 and 9"),
        ([1, 1], [2], [3], "every node once"),
        ([], [2], [3], "train part .* is empty"),
        ([1], [2], [], "test part .* is empty"),
    ],
)
def test_a_split_that_is_none_cannot_be_made(train, val, test, complaint):
    with pytest.raises(DataError, match=complaint):
        split_of(node_set([0, 1] * 5), train, val, test)


def test_indices_must_be_int64_and_parts_of_nodes_or_graphs():
    split = split_of(node_set([0, 1] * 5), [0], [1], [2])
    with pytest.raises(DataError, match=r"int64, not 1-dimensional torch\.int32"):
        replace(split, val=split.val.int())
    with pytest.raises(DataError, match="int64, not 2-dimensional"):
        replace(split, val=split.val[None])
    with pytest.raises(DataError, match="'node' or 'graph', not by 'edge'"):
        replace(split, unit="edge")
    assert split_of(node_set([0, 1] * 5), [0], [], [2], protocol="paper").optimistic


def test_a_split_knows_its_data_set():
    dataset = node_set([0, 1] * 5)
    split = split_of(dataset, [4, 0], [1], [2])
    split.check(dataset)
    split.check(dataset.rename("other"))
    split.check(node_set([0, 1] * 5, x=torch.ones(10, 2)))
    with pytest.raises(DataError, match="for 10 nodes, but drawn has 12"):
        split.check(node_set([0, 1] * 6))
    with pytest.raises(DataError, match="other labels or graph sizes"):
        split.check(node_set([1, 0] * 5))
    with pytest.raises(DataError, match="other labels or graph sizes"):
        split.masks(node_set([1, 0] * 5))
    with pytest.raises(DataError, match="one label per graph, but this split divides nodes"):
        split.check(graph_set([0, 1] * 5))
    with pytest.raises(DataError, match=r"val part .* holds node 3, which has no label"):
        split_of(y3 := node_set([0, 1, 2, -1]), [0], [3], [2]).check(y3)
    # As many nodes and labels, but cut into other graphs.
    cuts = [[graph(n, y=torch.zeros(n, dtype=torch.long)) for n in sizes] for sizes in ((2, 3), (3, 2))]
    one, other = (dataset_of(graphs, "node") for graphs in cuts)
    with pytest.raises(DataError, match="other labels or graph sizes"):
        split_of(one, [0], [1], [2]).check(other)
    one, other = (node_set(torch.eye(3)[rows], multi_label=True) for rows in ([0, 1, 2, 0], [0, 1, 2, 1]))
    split_of(one, [0], [1], [2]).check(one)
    with pytest.raises(DataError, match="other labels or graph sizes"):
        split_of(one, [0], [1], [2]).check(other)
    # The same rows of labels, but one of them is not a label.
    one, other = (
        node_set(torch.zeros(4, 3), multi_label=True, labelled=torch.tensor([True, True, True, last]))
        for last in (True, False)
    )
    with pytest.raises(DataError, match="other labels or graph sizes"):
        split_of(one, [0], [1], [2]).check(other)


def test_masks_cover_what_gets_a_prediction():
    dataset = graph_set([0, 1] * 20)
    split = make_splits(dataset, "honest", folds=4)[1]
    masks = split.masks(dataset)
    assert all(torch.equal(masks[part].nonzero()[:, 0], getattr(split, part)) for part in PARTS)
    assert all(mask.dtype == torch.bool and len(mask) == 40 for mask in masks.values())
    # Whole graphs of a node task: all their nodes that have a label.
    graphs = [graph(3, y=torch.tensor([0, -1, 1]), part=torch.tensor([part])) for part in (2, 0, 1)]
    dataset = dataset_of(graphs, "node")
    masks = make_splits(dataset)[0].masks(dataset)
    assert {part: mask.nonzero()[:, 0].tolist() for part, mask in masks.items()} == {
        "train": [3, 5],
        "val": [6, 8],
        "test": [0, 2],
    }


# ------------------------------------------------------------------------------------------------------ as a file
@given(classes=CLASSES, seed=SEEDS, protocol=st.sampled_from(["paper", "honest"]))
def test_a_file_keeps_everything(tmp_path_factory, classes, seed, protocol):
    dataset, folder = graph_set(classes), tmp_path_factory.mktemp("split")
    for split in make_splits(dataset, protocol, seed, folds=3):
        path = folder / "deeper" / f"{split.index}.json"
        split.save(path)
        loaded = Split.load(path)
        assert same(loaded, split)
        values = [
            {key: value for key, value in vars(each).items() if key not in PARTS} for each in (loaded, split)
        ]
        assert values[0] == values[1]
        assert loaded.optimistic == split.optimistic
        loaded.check(dataset)
    assert len(list((folder / "deeper").iterdir())) == 3


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path, split = tmp_path / "split.json", split_of(node_set([0, 1] * 5), [0], [1], [2])
    split.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("pprgnn.data.atomic_io.os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        split_of(node_set([0, 1] * 5), [3], [1], [2]).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"val": [0]}, "train and val share node 0"),
        ({"test": [10]}, "between 0 and 9"),
        ({"test": [2, 2]}, "every node once"),
        ({"test": [2.0]}, "whole numbers"),
        ({"test": [True]}, "whole numbers"),
        ({"test": [2**70]}, "whole numbers"),
        ({"test": 2}, "'test' is not of type list"),
        ({"size": "10"}, "'size' is not of type int"),
        ({"dataset": None}, "'dataset' is not of type str"),
        ({"extra": "field"}, "extra"),
        ({"format": "another"}, "format"),
    ],
)
def test_a_spoilt_file_is_refused(tmp_path, change, complaint):
    path = tmp_path / "split.json"
    split_of(node_set([0, 1] * 5), [0], [1], [2]).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=complaint) as caught:
        Split.load(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_split_is_refused(tmp_path):
    path = tmp_path / "split.json"
    split_of(node_set([0, 1] * 5), [0], [1], [2]).save(path)
    whole = path.read_bytes()
    values = json.loads(whole)
    missing = [json.dumps({k: v for k, v in values.items() if k != key}).encode() for key in values]
    for content in (whole[:-10], b"", b"[]", b"null", b"3", b"\xff\xfe", b"[" * 100_000, *missing):
        path.write_bytes(content)
        with pytest.raises(DataError, match=re.escape(str(path))):
            Split.load(path)
    with pytest.raises(DataError, match="cannot be read"):
        Split.load(tmp_path / "nowhere.json")


def test_repr_is_short():
    split = make_splits(graph_set([0, 1] * 20, "MUTAG"), "honest", 7)[2]
    assert repr(split) == "Split(MUTAG honest 3/10: 32 train, 4 val, 4 test graphs, seed 7)"


# ------------------------------------------------------------------------------------------------------- real data
@pytest.fixture(scope="module", params=["PPI-121", "PPI-GO"])
def proteins(data_root, request):
    folder, graphs = data_root / request.param / "raw", []
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    for part, name in enumerate(("train", "valid", "test")):
        gene, y, number = (np.load(folder / f"{name}_{kind}.npy") for kind in ("entrez", "labels", "graph_id"))
        for each in np.unique(number):
            rows = number == each
            tensors = {"y": torch.from_numpy(y[rows]), "gene": torch.from_numpy(gene[rows])}
            graphs.append(graph(int(rows.sum()), part=torch.tensor([part]), **tensors))
    return dataset_of(graphs, "node", request.param, multi_label=True)


def test_genes_of_the_real_proteins(proteins):
    gene = proteins._all("gene").numpy()
    (paper,), (honest,) = make_splits(proteins, "paper"), make_splits(proteins, "honest")
    assert same(paper, honest)
    assert [len(getattr(paper, part)) for part in PARTS] == [20, 2, 2]
    masks = {part: mask.numpy() for part, mask in paper.masks(proteins).items()}
    assert [int(mask.sum()) for mask in masks.values()] == [44_906, 6_514, 5_524]
    assert np.isin(gene[masks["test"]], gene[masks["train"]]).sum() == 5_490  # why genes must be divided
    for seed in range(3):
        (apart,) = make_splits(proteins, "honest", seed, genes="disjoint")
        scored = {part: set(gene[getattr(apart, part)].tolist()) for part in PARTS}
        assert not scored["train"] & (scored["val"] | scored["test"])
        assert not scored["val"] & scored["test"]
        for part, share in zip(PARTS, (0.6, 0.2, 0.2), strict=True):
            assert masks[part][getattr(apart, part)].all()
            assert len(getattr(apart, part)) == pytest.approx(share * masks[part].sum(), rel=0.05)


@pytest.mark.parametrize("name", NESTED_FOLDS)
def test_published_splits_fit_the_real_sets(data_root, name):
    path = data_root / name / "raw" / f"{name}_graph_labels.txt"
    if not (path.exists() and (data_root / "splits").exists()):
        pytest.skip(f"{path} or its splits are not there")
    y = np.loadtxt(path, dtype=np.int64, delimiter=",")
    _, y = np.unique(y, return_inverse=True)
    dataset = graph_set(y.tolist(), name)
    splits = make_splits(dataset, "honest")
    assert all("Errica" in split.description and not split.optimistic for split in splits)
    assert np.array_equal(np.sort(np.concatenate([split.test for split in splits])), np.arange(len(y)))
    for split in splits:
        assert (part_of(split) >= 0).all()
        # Stratified, so these are the right labels for these files.
        expected = np.bincount(y) * len(split.test) / len(y)
        assert (np.abs(counts(y.tolist(), split.test) - expected) <= 2).all()


@pytest.mark.parametrize("name", ["minesweeper", "chameleon_filtered", "squirrel_filtered", "actor", "texas"])
def test_heterophilous_masks(data_root, name):
    path = data_root / "heterophilous" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with np.load(path) as file:
        masks = {f"{part}_mask": torch.from_numpy(file[f"{part}_masks"]).bool().t() for part in PARTS}
        dataset = node_set(torch.from_numpy(file["node_labels"]).long(), name=name, **masks)
    splits = make_splits(dataset)
    assert len(splits) == 10
    for number, split in enumerate(splits):
        split.check(dataset)
        assert all(
            torch.equal(mask, masks[f"{part}_mask"][:, number]) for part, mask in split.masks(dataset).items()
        )
