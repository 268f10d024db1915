"""Graphs are recognised by a number, also in another process."""


import torch

from pprgnn import Adjacency
from tests import warm
from tests.problems import ZOO


def karate(**options) -> Adjacency:
    return ZOO["karate"].adjacency(**options)


def test_equal_graphs_have_equal_fingerprints():
    one, other = karate(), karate()
    assert one is not other
    assert one.fingerprint == other.fingerprint
    tensors, facts = one.state()
    assert Adjacency.from_state(tensors, facts).fingerprint == one.fingerprint


def test_the_fingerprint_is_the_same_in_another_process():
    code = "from tests.problems import ZOO; print(ZOO['karate'].adjacency().fingerprint)"
    out = warm.run(code).stdout
    assert int(out) == karate().fingerprint


def test_different_graphs_of_one_size_have_different_fingerprints():
    here = torch.arange(12)
    seen = set()
    for shift in range(1, 6):  # circulant graphs, alike in every sum
        edges = torch.stack([here, (here + shift) % 12])
        seen.add(Adjacency.from_edge_index(torch.cat([edges, edges.flip(0)], 1), num_nodes=12).fingerprint)
    swapped = torch.tensor([[0, 1, 2], [1, 2, 0]])
    for edges in (swapped, swapped.flip(0)):
        for weight in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0000002]):
            seen.add(Adjacency.from_edge_index(edges, torch.tensor(weight), 3, normalize=None).fingerprint)
    seen |= {karate().fingerprint, karate(add_self_loops=True).fingerprint, karate(normalize="row").fingerprint}
    seen |= {karate(dtype=torch.float32).fingerprint}
    assert len(seen) == 5 + 6 + 4


def test_the_fingerprint_is_computed_once(monkeypatch):
    adj = karate()
    first = adj.fingerprint
    monkeypatch.setattr("pprgnn.core.adjacency.fingerprint", None)
    assert adj.fingerprint == first
