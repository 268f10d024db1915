"""The simulator: its model by hand, real parts behind the computing times, and the measured loopback."""

import sys
from dataclasses import replace

import networkx as nx
import pytest
import torch

from pprgnn import Adjacency
from pprgnn.distributed.partitions import describe, partition
from pprgnn.distributed.simulate import NETWORKS, TIMED, Network, find_network, simulate
from pprgnn.errors import DataError
from tests.problems import random_graph

module = sys.modules[simulate.__module__]
INSTANT = Network("instant", 0.0, 1e30)
SPANS = (1.0, 10.0, 5.0)  # packing, interior, boundary


def circulant(size: int) -> Adjacency:
    """Each node reads the eight before it and the eight after it."""
    node = torch.arange(size)
    after = torch.cat([torch.stack([node, node.roll(-step)]) for step in range(1, 9)], 1)
    return Adjacency.from_edge_index(torch.cat([after, after.flip(0)], 1))


@pytest.fixture
def adj():
    return Adjacency.from_networkx(nx.ring_of_cliques(16, 12))


@pytest.fixture
def fake_times(monkeypatch):
    """Computing times that are known; remembers the parts that were to be timed."""
    seen = []

    def given(spans):
        def time(part, width, adjoint):
            seen.append((part, width, adjoint))
            return list(spans)

        monkeypatch.setattr(module, "_time", time)
        return seen

    return given


# ------------------------------------------------------------------------------------------------------ the model
@pytest.mark.parametrize(
    ("network", "step"),
    [
        (INSTANT, 1 + 10 + 5),
        (Network("hidden", 3.0, 1e30), 1 + 10 + 5),  # two peers: 6 s, within the 10 of the interior
        (Network("latency", 8.0, 1e30), 1 + 16 + 5),
        (Network("bandwidth", 0.0, 2 * 4 * 8 / 40), 1 + 40 + 5),  # two rows of 8 channels
        (Network("both", 8.0, 2 * 4 * 8 / 40), 1 + 56 + 5),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_slower_of_interior_and_network_counts(adj, fake_times, network, step):
    owner = torch.arange(192) // 48  # intervals of the ring: each part has two neighbours and reads a row of each
    facts = describe(adj, owner, 4)
    assert facts.halo_rows.tolist() == facts.neighbours.tolist() == [2, 2, 2, 2]
    fake_times(SPANS)
    predicted = simulate(adj, owner, 4, network, width=8)
    assert predicted.per_part.tolist() == pytest.approx([step] * 4)
    assert predicted.seconds == pytest.approx(step)
    assert predicted.computing == pytest.approx(16)
    assert predicted.bytes.tolist() == [2 * 4 * 8] * 4


def test_the_busier_direction_counts(fake_times):
    """A hub that many others read sends, they receive; both lines are full duplex."""
    star = Adjacency.from_edge_index(torch.tensor([[0, 0, 0], [1, 2, 3]]), normalize="row")
    fake_times((0.0, 0.0, 0.0))
    predicted = simulate(star, torch.arange(4), 4, Network("slow", 0.0, 4.0), width=1)
    assert predicted.communication.tolist() == [3.0, 1.0, 1.0, 1.0]
    back = simulate(star, torch.arange(4), 4, Network("slow", 0.0, 4.0), width=1, adjoint=True)
    assert back.communication.tolist() == [3.0, 1.0, 1.0, 1.0]
    assert (predicted.bytes.tolist(), back.bytes.tolist()) == ([12, 0, 0, 0], [0, 4, 4, 4])


def test_only_the_heaviest_parts_are_timed_and_the_others_scaled_by_work(adj, fake_times):
    owner = (torch.arange(192) // 12).clamp(max=8)  # eight parts of one clique, one of eight
    seen = fake_times(SPANS)
    predicted = simulate(adj, owner, 9, INSTANT)
    assert len(seen) == len(predicted.timed) == TIMED
    assert predicted.timed[0] == 8
    facts = describe(adj, owner, 9)
    interior, boundary = facts.interior_work.double(), (facts.work - facts.interior_work).double()
    rest = [part for part in range(9) if part not in predicted.timed]
    for found, seconds, work in ((predicted.interior, 10, interior), (predicted.boundary, 5, boundary)):
        assert found[predicted.timed].tolist() == [seconds] * TIMED
        scaled = work[rest] * (seconds * TIMED / work[predicted.timed].sum())
        assert found[rest].tolist() == pytest.approx(scaled.tolist())


def test_parts_that_are_empty_take_no_time(adj, fake_times):
    fake_times(SPANS)
    predicted = simulate(adj, torch.full((192,), 2), 3, Network("slow", 1.0, 1.0))
    assert predicted.timed == [2]
    assert predicted.per_part.tolist() == [0, 0, 16]
    assert predicted.communication.tolist() == [0, 0, 0]


# -------------------------------------------------------------------------------------------- the computing times
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_the_timed_parts_are_the_real_ones_and_run_the_real_step(fake_times, adjoint, directed):
    graph = random_graph(1, 30, directed=directed, weighted=True)
    adj = graph.adjacency(normalize="row")
    owner, parts = partition(adj, 3, "range"), 3
    measure, seen = module._time, fake_times(SPANS)
    simulate(adj, owner, parts, INSTANT, width=5, adjoint=adjoint)
    facts = describe(adj, owner, parts, transposed=adjoint)
    assert sorted(int(owner[part.nodes[0]]) for part, *_ in seen) == [0, 1, 2]
    for part, width, backward in seen:
        rank = int(owner[part.nodes[0]])
        rows = part.rows_t if adjoint else part.rows
        assert (width, backward) == (5, adjoint)
        assert part.num_nodes == int(facts.nodes[rank])
        assert part.interior == int(facts.interior_nodes[rank])
        assert rows.far.size(1) == int(facts.halo_rows[rank])
        assert len(rows.exchange.send) == int(facts.sent_rows[rank])
        spans = measure(part, width, backward)
        assert len(spans) == 3
        assert all(0 < span < 1 for span in spans)


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_larger_part_takes_longer(adjoint):
    small, large = (circulant(size) for size in (500, 20_000))
    seconds = [
        simulate(each, torch.zeros(each.num_nodes).int(), 1, INSTANT, adjoint=adjoint).seconds
        for each in (small, large)
    ]
    assert seconds[1] > 5 * seconds[0]


def test_threads_are_as_they_were(adj):
    before = torch.get_num_threads()
    simulate(adj, partition(adj, 2), 2, INSTANT, threads=before + 1)
    assert torch.get_num_threads() == before


# ---------------------------------------------------------------------------------------------------- the networks
def test_loopback_is_measured_once():
    network = find_network("loopback")
    assert 1e-7 < network.latency < 0.1
    assert 1e7 < network.bandwidth < 1e12
    assert find_network("loopback") is network


def test_a_loopback_that_fails_says_why(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    with pytest.raises(DataError, match=r"cannot exchange rows by gloo: .*no-such-interface"):
        module.measure_loopback.__wrapped__()


@pytest.mark.parametrize("name", NETWORKS)
def test_known_networks(name):
    assert find_network(name).name == name


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: find_network("carrier-pigeon"), "loopback, 10gbit, 100gbit, infiniband, but is 'carrier-pigeon'"),
        (lambda: replace(INSTANT, latency=-1.0), "latency >= 0"),
        (lambda: replace(INSTANT, bandwidth=0.0), "bandwidth > 0"),
        (lambda: replace(INSTANT, latency=float("nan")), "latency >= 0"),
    ],
)
def test_bad_networks(run, message):
    with pytest.raises(DataError, match=message):
        run()


@pytest.mark.parametrize("options", [{"width": 0}, {"threads": 0}])
def test_bad_options(adj, options):
    with pytest.raises(DataError, match="from 1 on"):
        simulate(adj, partition(adj, 2), 2, INSTANT, **options)
