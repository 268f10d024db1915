"""An adjacency goes into a file and comes back from it, unread."""

import numpy as np
import pytest
import torch

from pprgnn import Adjacency, solve
from tests.problems import ZOO, draw_b, draw_weight

NAMES = ["karate", "directed_weighted", "self_loops", "isolated_nodes", "no_edges", "one_node"]
REORDER = pytest.mark.parametrize("reorder", [False, True])


@REORDER
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normalize", ["sym", "row", None])
def test_round_trip(name, normalize, reorder):
    adj = ZOO[name].adjacency(normalize=normalize, reorder=reorder)
    tensors, facts = adj.state()
    back = Adjacency.from_state(dict(tensors), dict(facts))

    assert (back._matrix_t is back.matrix) == adj.is_symmetric  # known, not computed
    assert repr(back) == repr(adj)
    assert (back.num_nodes, back.normalize, back.dtype) == (adj.num_nodes, adj.normalize, adj.dtype)
    assert back.norm_bound == adj.norm_bound
    for one, other in zip((back.row, back.col, back.value), (adj.row, adj.col, adj.value), strict=True):
        assert torch.equal(one, other)
    for one, other in zip((back.order, back.rank), (adj.order, adj.rank), strict=True):
        assert (one is None and other is None) or torch.equal(one, other)
    assert torch.equal(back.matrix_t.to_dense(), adj.matrix_t.to_dense())
    b, weight = draw_b(adj.num_nodes, 3), draw_weight(3, 1.0)
    assert torch.equal(solve(b, weight, back).state, solve(b, weight, adj).state)


@REORDER
def test_nothing_is_copied(reorder):
    adj = ZOO["karate"].adjacency(reorder=reorder)
    tensors, facts = adj.state()
    assert tensors["value"].data_ptr() == adj.value.data_ptr()
    assert tensors["col"].data_ptr() == adj.matrix.col_indices().data_ptr()
    back = Adjacency.from_state(tensors, facts)
    inside = {
        "crow": back.matrix.crow_indices(),
        "col": back.matrix.col_indices(),
        "value": back.value,
        "order": back.order,
        "rank": back.rank,
    }
    assert all(inside[name].data_ptr() == tensor.data_ptr() for name, tensor in tensors.items())
    assert back.matrix.values().data_ptr() == back.value.data_ptr()


def test_a_known_norm_bound_is_stored_and_an_unknown_one_is_not():
    adj = ZOO["directed_weighted"].adjacency(normalize="row")
    assert "norm_bound" not in adj.state()[1]
    bound = adj.norm_bound
    assert Adjacency.from_state(*adj.state())._norm_bound == bound
    assert Adjacency.from_state(*ZOO["karate"].adjacency().state())._norm_bound == 1 + 1e-6  # takes no time


@REORDER
def test_gradients_for_stored_edges(reorder):
    adj = ZOO["directed_weighted"].adjacency(normalize=None, reorder=reorder)
    tensors, facts = adj.state()
    tensors["value"] = tensors["value"].clone().requires_grad_()
    (Adjacency.from_state(tensors, facts) @ draw_b(6, 2)).square().sum().backward()
    leaf = adj.value.clone().requires_grad_()
    fresh = Adjacency(tensors["crow"], tensors["col"], leaf, order=adj.order, rank=adj.rank)
    (fresh @ draw_b(6, 2)).square().sum().backward()
    assert float(leaf.grad.abs().min()) > 0
    assert torch.equal(tensors["value"].grad, leaf.grad)


def test_mapped_files_are_enough(tmp_path):
    adj = ZOO["karate"].adjacency(reorder=True)
    tensors, facts = adj.state()
    mapped = {}
    for name, tensor in tensors.items():
        np.save(tmp_path / f"{name}.npy", tensor.numpy())
        mapped[name] = torch.from_numpy(np.load(tmp_path / f"{name}.npy", mmap_mode="r+"))
    back = Adjacency.from_state(mapped, facts)
    assert torch.equal(back @ draw_b(34, 3), adj @ draw_b(34, 3))


TENSORS, FACTS = ZOO["path"].adjacency(reorder=True).state()


@pytest.mark.parametrize(
    ("tensors", "facts", "message"),
    [
        ({}, FACTS, "its tensors are missing"),
        ({"crow": TENSORS["crow"]}, FACTS, "its tensors are crow;"),
        (TENSORS | {"more": TENSORS["col"]}, FACTS, "its tensors are col, crow, more, order, rank, value"),
        ({k: v for k, v in TENSORS.items() if k != "rank"}, FACTS, "its tensors are col, crow, order, value"),
        (TENSORS, {}, "its facts are {}"),
        (TENSORS, FACTS | {"num_nodes": "seven"}, "its facts are {'num_nodes': 'seven'"),
        (TENSORS, FACTS | {"num_nodes": "8"}, r"crow has shape \(8,\) instead of \(9,\)"),
        (TENSORS, FACTS | {"normalize": "both"}, "its facts are .*'normalize': 'both'"),
        (TENSORS, FACTS | {"symmetric": "maybe"}, "its facts are .*'symmetric': 'maybe'"),
        (TENSORS, FACTS | {"norm_bound": "nan"}, "norm_bound is nan"),
        (TENSORS | {"value": TENSORS["value"][1:]}, FACTS, r"value has shape \(11,\) instead of \(12,\)"),
        (TENSORS | {"value": TENSORS["value"].long()}, FACTS, "value has dtype torch.int64"),
        (TENSORS | {"col": TENSORS["col"].float()}, FACTS, "col has dtype torch.float32"),
        (TENSORS | {"col": TENSORS["col"].long()}, FACTS, "col has dtype torch.int64"),
        (TENSORS | {"crow": TENSORS["crow"].long()}, FACTS, "crow has dtype torch.int64"),
        (TENSORS | {"rank": TENSORS["rank"].int()}, FACTS, "rank has dtype torch.int32"),
        (TENSORS | {"order": TENSORS["order"][:, None]}, FACTS, r"order has shape \(7, 1\) instead of \(7,\)"),
        (TENSORS | {"col": TENSORS["col"] + 1}, FACTS, "col has 7, which is no node of 7"),
        (TENSORS | {"col": TENSORS["col"] - 1}, FACTS, "col has -1, which is no node of 7"),
        (TENSORS | {"order": TENSORS["order"] * 2_000_000_000}, FACTS, "order has 12000000000, which is no node"),
        (TENSORS | {"order": TENSORS["order"].flip(0)}, FACTS, "rank does not undo order"),
        (TENSORS | {"crow": TENSORS["crow"][[0, 2, 1, 3, 4, 5, 6, 7]]}, FACTS, "crow decreases"),
        (TENSORS | {"crow": TENSORS["crow"] + 1}, FACTS, "crow runs from 1 to 13 instead of 0 to 12"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(tensors, facts, message):
    with pytest.raises(ValueError, match=f"This is not the state of an Adjacency, because {message}") as caught:
        Adjacency.from_state(tensors, facts)
    assert str(caught.value).endswith("; store it again from the edges.")


def test_not_contiguous_is_refused():
    strided = torch.stack([TENSORS["value"]] * 2, dim=1)[:, 0]
    with pytest.raises(ValueError, match="value is not contiguous"):
        Adjacency.from_state(TENSORS | {"value": strided}, FACTS)
