"""Partitions: every method, odd graphs, and their facts against a slow dictionary."""

import sys
from collections import defaultdict

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pprgnn import Adjacency
from pprgnn.distributed.partitions import METIS_NODES_PER_PART, ROW_WORK, describe, partition, work_of_rows
from pprgnn.errors import DataError
from tests import warm
from tests.problems import ZOO, random_graph

METHODS = ("metis", "range", "random")


@pytest.fixture(autouse=True)
def _pymetis():
    pytest.importorskip("pymetis")


def blocks(count: int, size: int, reorder: bool = False) -> Adjacency:
    """Dense communities in a ring, one edge between two neighbours; node numbers shuffled."""
    graph = nx.ring_of_cliques(count, size)
    shuffled = torch.randperm(count * size, generator=torch.Generator().manual_seed(9)).tolist()
    graph = nx.relabel_nodes(graph, dict(enumerate(shuffled)))
    edges = torch.tensor(list(graph.edges)).t()
    return Adjacency.from_edge_index(torch.cat([edges, edges.flip(0)], 1), reorder=reorder)


@st.composite
def partitioned(draw):
    """A small graph, directed or not, perhaps reordered inside, with any owners at all."""
    size = draw(st.integers(1, 12))
    graph = random_graph(draw(st.integers(0, 50)), size, directed=draw(st.booleans()), weighted=False)
    loops = draw(st.booleans())
    adj = graph.adjacency(normalize="row", add_self_loops=loops, reorder=draw(st.booleans()))
    parts = draw(st.integers(1, 5))
    owner = draw(st.lists(st.integers(0, parts - 1), min_size=size, max_size=size))
    return adj, torch.tensor(owner, dtype=torch.int32), parts


def slow_facts(matrix: torch.Tensor, owner: list[int], parts: int) -> dict:
    reads, entries, links = defaultdict(set), [0] * parts, defaultdict(set)
    cut, boundary = 0, set()
    pairs = matrix.nonzero().tolist()
    for i, j in pairs:
        entries[owner[i]] += 1
        if owner[i] != owner[j]:
            cut += 1
            boundary |= {i, j}
            reads[owner[i]].add(j)
            links[owner[i]].add(owner[j])
            links[owner[j]].add(owner[i])
    sent = [sum(owner[j] == part for rows in reads.values() for j in rows) for part in range(parts)]
    interior = [[i for i in range(len(owner)) if owner[i] == part and i not in boundary] for part in range(parts)]
    work = [entries[part] + ROW_WORK * owner.count(part) for part in range(parts)]
    return {
        "nodes": [owner.count(part) for part in range(parts)],
        "entries": entries,
        "interior_nodes": [len(nodes) for nodes in interior],
        "interior_entries": [sum(i in nodes for i, _ in pairs) for nodes in interior],
        "halo_rows": [len(reads[part]) for part in range(parts)],
        "sent_rows": sent,
        "neighbours": [len(links[part]) for part in range(parts)],
        "work": work,
        "edge_cut": cut,
        "cut_share": cut / max(1, sum(entries)),
        "balance": max(work) / (sum(work) / parts),
    }


# ------------------------------------------------------------------------------------------------------- the facts
@pytest.mark.parametrize("transposed", [False, True])
@given(problem=partitioned())
def test_facts_are_those_of_a_slow_count(problem, transposed):
    adj, owner, parts = problem
    facts = describe(adj, owner, parts, transposed=transposed)
    matrix = adj.to_dense()  # in the caller's order
    expected = slow_facts(matrix.t() if transposed else matrix, owner.tolist(), parts)
    for name, value in expected.items():
        found = getattr(facts, name)
        found = found.tolist() if isinstance(found, torch.Tensor) else found
        assert found == pytest.approx(value), name
    assert facts.parts == parts


def test_facts_of_nodes_without_edges():
    facts = describe(
        Adjacency.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=1), torch.tensor([1]), 2
    )
    assert facts.nodes.tolist() == [0, 1]
    assert (facts.edge_cut, facts.cut_share, facts.balance) == (0, 0.0, 2.0)


def test_facts_of_a_path_by_hand():
    path = Adjacency.from_edge_index(torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    facts = describe(path, torch.tensor([0, 0, 1, 1]), 3)
    assert facts.edge_cut == 2
    assert facts.cut_share == pytest.approx(1 / 3)
    assert facts.halo_rows.tolist() == facts.sent_rows.tolist() == [1, 1, 0]
    assert facts.neighbours.tolist() == [1, 1, 0]


def test_a_row_that_many_read_is_sent_to_each_part_once():
    star = Adjacency.from_edge_index(torch.tensor([[0] * 6, [1, 2, 3, 4, 5, 6]]), normalize="row")
    facts = describe(star, torch.tensor([0, 1, 1, 1, 2, 2, 2]), 3)
    assert facts.edge_cut == 6
    assert facts.halo_rows.tolist() == [0, 1, 1]
    assert facts.sent_rows.tolist() == [2, 0, 0]
    assert facts.neighbours.tolist() == [2, 1, 1]


# --------------------------------------------------------------------------------------------- the partitions
@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize("graph", ZOO.values(), ids=str)
def test_every_node_gets_a_part(method, graph):
    adj = graph.adjacency(normalize="row")
    for parts in (1, 2, 4, 50):
        owner = partition(adj, parts, method)
        assert (owner.dtype, owner.shape) == (torch.int32, (adj.num_nodes,))
        assert 0 <= int(owner.min()) <= int(owner.max()) < parts


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("nodes", "parts"), [(1, 1), (1, 4), (40, 4), (40, 100)])
def test_nodes_without_edges_are_spread_evenly(method, nodes, parts):
    adj = Adjacency.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=nodes)
    count = torch.bincount(partition(adj, parts, method), minlength=parts)
    assert int(count.sum()) == nodes
    assert int(count.max()) - int(count.min()) <= 1


@given(
    seed=st.integers(0, 50),
    size=st.integers(1, 30),
    parts=st.integers(1, 8),
    method=st.sampled_from(["range", "random"]),
)
def test_no_part_is_heavier_than_the_mean_by_more_than_one_node(seed, size, parts, method):
    adj = random_graph(seed, size, directed=True, weighted=False).adjacency(normalize="row")
    work = describe(adj, partition(adj, parts, method, seed), parts).work
    assert int(work.max()) <= float(work.double().mean()) + int(work_of_rows(adj).max())


@pytest.mark.parametrize("reorder", [False, True])
def test_metis_finds_the_communities_and_balances_work(reorder):
    adj = blocks(16, 20, reorder)
    facts = describe(adj, partition(adj, 4, "metis"), 4)
    assert 8 <= facts.edge_cut <= 12  # at best four edges of the ring, both ways
    assert facts.balance < 1.02
    spread = describe(adj, partition(adj, 4, "random"), 4)
    assert spread.cut_share > 0.6


def test_ranges_are_intervals_of_the_inner_order():
    adj = blocks(16, 20, reorder=True)
    owner = partition(adj, 5, "range")
    inner = adj.permute(owner)
    assert bool((inner.diff() >= 0).all())
    assert not bool((owner.diff() >= 0).all())
    assert describe(adj, owner, 5).cut_share < 0.3 * describe(adj, partition(adj, 5, "random"), 5).cut_share


@pytest.mark.parametrize("method", METHODS)
def test_work_is_balanced_not_the_number_of_nodes(method):
    """Half of the nodes in a clique, the others alone."""
    graph = nx.disjoint_union(nx.complete_graph(100), nx.empty_graph(100))
    adj = Adjacency.from_networkx(graph)
    facts = describe(adj, partition(adj, 2, method), 2)
    assert facts.balance < 1.05
    if method != "random":  # by chance every part has as many of both
        assert int(facts.nodes.max()) > 120


def test_metis_takes_a_directed_graph_with_self_loops_as_undirected():
    """Two communities, arrows one way only; what reads nothing inside still belongs somewhere."""
    graph = nx.disjoint_union(nx.complete_graph(20), nx.complete_graph(20))
    edges = torch.tensor([edge for edge in graph.edges if edge[0] < edge[1]] + [(0, 20)]).t()
    adj = Adjacency.from_edge_index(edges, num_nodes=40, normalize="row", add_self_loops=True)
    owner = partition(adj, 2, "metis")
    assert len(set(owner[:20].tolist())) == len(set(owner[20:].tolist())) == 1
    assert describe(adj, owner, 2).edge_cut == 1


def test_metis_counts_entries_not_pairs_of_nodes():
    """A torus, around one way with arrows: cutting 16 of them costs less than 12 edges that are read both ways."""
    around, along = 12, 16
    node = torch.arange(around * along).view(around, along)
    arrows = torch.stack([node, node.roll(-1, 0)]).flatten(1)
    edges = torch.stack([node, node.roll(-1, 1)]).flatten(1)
    adj = Adjacency.from_edge_index(torch.cat([arrows, edges, edges.flip(0)], 1), normalize="row")
    assert describe(adj, partition(adj, 2, "metis"), 2).edge_cut == 2 * along


@pytest.mark.parametrize("directed", [False, True])
def test_metis_gets_what_it_asks_for(monkeypatch, directed):
    """Each edge at both ends, with the same weight, and no self-loops; it does not check."""
    import pymetis

    def look(parts, adjacency, *, vweights, eweights, **_):
        size = len(vweights)
        start = torch.from_numpy(adjacency.adj_starts).long()
        row = torch.arange(size).repeat_interleave(start.diff())
        weight = torch.ones(len(row)) if eweights is None else torch.from_numpy(eweights).float()
        dense = torch.zeros(size, size).index_put((row, torch.from_numpy(adjacency.adjacent).long()), weight)
        seen.append(dense)
        return 0, [0] * size

    seen = []
    monkeypatch.setattr(pymetis, "part_graph", look)
    adj = random_graph(3, 20, directed=directed, weighted=False).adjacency(add_self_loops=True)
    partition(adj, 2, "metis")
    stored = (adj.to_dense() > 0).float().fill_diagonal_(0)
    assert torch.equal(seen[0], stored + stored.t() if directed else stored)


@pytest.mark.parametrize("method", ["metis", "random"])
def test_a_seed_gives_the_same_partition_again_and_another_one_another(method):
    adj = Adjacency.from_networkx(nx.barabasi_albert_graph(400, 3, seed=0))
    first, again, other = (partition(adj, 4, method, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_metis_says_nothing_and_keeps_its_balance_when_a_hub_outweighs_the_parts():
    code = (
        "import networkx as nx\nfrom pprgnn import Adjacency\n"
        "from pprgnn.distributed.partitions import describe, partition, work_of_rows\n"
        "adj = Adjacency.from_networkx(nx.star_graph(2999))\n"
        "facts = describe(adj, partition(adj, 300, 'metis'), 300)\n"
        "(first, second), hub = facts.work.sort().values[-2:].flip(0).tolist(), int(work_of_rows(adj).max())\n"
        "assert first < 1.05 * hub and second < 200, (hub, first, second)\n"
        "partition(adj, 5000, 'metis'), partition(adj, 2999, 'metis')\n"
    )
    done = warm.run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_auto_is_metis_where_it_is_installed_and_ranges_elsewhere(monkeypatch):
    adj = blocks(16, 20)
    assert torch.equal(partition(adj, 4), partition(adj, 4, "metis"))
    monkeypatch.setattr(sys.modules[partition.__module__], "find_spec", lambda name: None)
    assert torch.equal(partition(adj, 4), partition(adj, 4, "range"))
    with pytest.raises(DataError, match=r"needs pymetis: pip install 'pprgnn\[partition\]'"):
        partition(adj, 4, "metis")


def test_with_few_nodes_per_part_metis_gives_way_to_ranges():
    adj = blocks(4, 8)
    limit = 32 // METIS_NODES_PER_PART
    assert describe(adj, partition(adj, limit, "metis"), limit).edge_cut == 8
    assert torch.equal(partition(adj, limit + 1, "metis"), partition(adj, limit + 1, "range"))


# --------------------------------------------------------------------------------------------- bad arguments
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parts": 0}, "from 1 on, but is 0"),
        ({"parts": 2.5}, "from 1 on, but is 2.5"),
        ({"parts": 2, "method": "kway"}, "auto, metis, range, random, but the method is 'kway'"),
        ({"parts": 2, "seed": -1}, "seed .* but is -1"),
        ({"parts": 2, "seed": 2**31}, "seed"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(DataError, match=message):
        partition(blocks(2, 4), **arguments)


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        (torch.zeros(7).int(), "each of the 8 nodes, but has shape"),
        (torch.zeros(8), "dtype torch.float32"),
        (torch.arange(8), "from 0 to 1, one number per part, but runs from 0 to 7"),
        (torch.full((8,), -1), "runs from -1 to -1"),
    ],
)
def test_bad_partitions(owner, message):
    with pytest.raises(DataError, match=message):
        describe(blocks(2, 4), owner, 2)


# --------------------------------------------------------------------------------------------------- a real graph
def test_a_large_real_graph(data_root):
    from pprgnn.data import load

    adj = load("com-DBLP").adjacency()
    facts = {method: describe(adj, partition(adj, 8, method), 8) for method in METHODS}
    assert all(each.balance < 1.02 for each in facts.values())
    cut = {method: each.cut_share for method, each in facts.items()}
    assert cut["metis"] < 0.15 < cut["range"] < 0.2 < 0.8 < cut["random"]
