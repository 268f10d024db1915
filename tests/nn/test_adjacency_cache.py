"""A graph is built once, and never taken for another."""

import gc
import weakref

import pytest
import torch

from pprgnn import Adjacency
from pprgnn.core.csr import BLOCK, fingerprint
from pprgnn.nn import PPRConv, through_adjacency
from pprgnn.nn.operators import Graph, adjacency
from pprgnn.nn.through_adjacency import CAPACITY, cached_adjacency

EDGES = [[0, 1, 1, 2], [1, 0, 2, 1]]


@pytest.fixture(autouse=True)
def _empty():
    through_adjacency._entries.clear()
    yield
    through_adjacency._entries.clear()


class Lookup:
    """Looks a graph up and counts how often it had to be built."""

    def __init__(self):
        self.built = 0

    def __call__(self, edges, weight=None, options=()):
        def build():
            self.built += 1
            return Adjacency.from_edge_index(edges, weight, 4, normalize=None)

        adj = cached_adjacency((edges, weight), options, build)
        wanted = torch.zeros(4, 4).index_put(
            (edges[1], edges[0]), torch.ones(edges.size(1)) if weight is None else weight, accumulate=True
        )
        torch.testing.assert_close(adj.to_dense(), wanted, rtol=0, atol=0)  # whatever happens, it is the right one
        return adj


@pytest.fixture
def lookup():
    return Lookup()


def test_the_same_tensors_are_built_once(lookup):
    edges, weight = torch.tensor(EDGES), torch.rand(4)
    assert lookup(edges, weight) is lookup(edges, weight)
    lookup(edges)
    lookup(edges, weight, options=("row",))
    lookup(edges, weight)
    assert lookup.built == 3


def test_changes_in_place_are_seen(lookup):
    edges, weight = torch.tensor(EDGES), torch.ones(4)
    lookup(edges, weight)
    edges[0, 0] = 3
    lookup(edges, weight)
    weight.mul_(2)
    lookup(edges, weight)
    assert lookup.built == 3


def test_a_view_on_changed_memory_is_another_graph(lookup):
    memory = torch.tensor([EDGES[0] + [3], EDGES[1] + [3]])
    lookup(memory[:, :4])
    lookup(memory[:, 1:])
    memory[:, 2] = 0
    lookup(memory[:, :4])
    lookup(memory[:, 1:])
    assert lookup.built == 4


def test_memory_that_is_freed_and_used_again_is_another_graph(lookup):
    places = set()
    for shift in range(50):
        edges = (torch.tensor(EDGES) + shift) % 4
        places.add(edges.data_ptr())
        lookup(edges)
        del edges
    assert len(places) < 50  # it really was the same memory


def test_changes_that_leave_no_trace_are_seen(lookup):
    """What compiled code does: it writes through pointers, and other tensors have the same memory."""
    edges = torch.tensor(EDGES)
    lookup(edges)
    version = edges._version
    edges.numpy()[0, 0] = 3
    assert edges._version == version
    lookup(edges)
    edges.data[0, 0] = 2
    lookup(edges)
    lookup(edges.data)
    assert lookup.built == 3


def test_what_an_operator_builds_is_not_touched_by_later_changes():
    crow, col = torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32)
    value = torch.tensor([1.0, 2.0])

    def found(value):
        return adjacency(Graph(crow, value, col, None, None, None, None, "csr none"), 2, torch.float32)

    first = found(value)
    value.mul_(10)
    assert first.to_dense().tolist() == [[0.0, 1.0], [2.0, 0.0]]
    assert found(value / 10) is first
    assert found(value) is not first


def test_equal_numbers_of_another_type_are_another_graph(lookup):
    edges, weight = torch.tensor(EDGES), torch.ones(4)
    lookup(edges, weight)
    tensors = edges, weight.double()
    double = cached_adjacency(tensors, (), lambda: Adjacency.from_edge_index(*tensors, 4))
    assert double.dtype == torch.float64


def test_equal_bits_of_another_kind_are_another_graph():
    def adj():
        return Adjacency.from_edge_index(torch.tensor(EDGES))

    matrix = torch.eye(3).roll(1, 0).to_sparse_csr()
    parts = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    alike = (
        matrix,
        torch.sparse_csc_tensor(*parts, (3, 3)),
        torch.zeros(2, 6, dtype=torch.long),
        torch.zeros(6, 2, dtype=torch.long),
        torch.zeros(2, 12, dtype=torch.int32),
    )
    assert len({id(cached_adjacency((each,), (), adj)) for each in alike}) == len(alike)


def test_inference_tensors_are_right(lookup):
    with torch.inference_mode():
        edges = torch.tensor(EDGES)
        lookup(edges)
        edges[0, 0] = 3
        lookup(edges)


def test_equal_content_is_found_again_after_its_tensor_is_gone(lookup):
    for _ in range(5):
        lookup(torch.tensor(EDGES))
    assert lookup.built == 1


def test_equal_contents_of_two_graphs_are_found_again_after_their_tensors_are_gone(lookup):
    for _ in range(3):
        one, other = torch.tensor(EDGES), torch.tensor(EDGES).roll(1, 1)
        lookup(one)
        lookup(other)
        del one, other
    assert lookup.built == 2


def test_a_layer_forgets_a_graph_that_is_gone():
    conv, x = PPRConv(3, 3, depth=2), torch.randn(4, 3)
    gone, kept = torch.tensor([[0, 3], [1, 2]]), torch.tensor(EDGES)
    conv(x, gone)
    adj = weakref.ref(through_adjacency._entries[0].adj)
    conv(x, kept)
    assert adj() is not None
    del gone
    conv(x, kept)
    gc.collect()
    assert adj() is None


def test_old_graphs_go(lookup):
    edges = [torch.randint(0, 4, (2, 6)) for _ in range(CAPACITY + 3)]
    adjacencies = [weakref.ref(lookup(each)) for each in edges]
    gc.collect()
    assert [ref() is not None for ref in adjacencies] == [False] * 3 + [True] * CAPACITY
    del edges
    lookup(torch.tensor(EDGES))
    gc.collect()
    assert not any(ref() for ref in adjacencies)


def test_compiled_layers_build_a_graph_once(monkeypatch):
    torch._dynamo.reset()
    built, real = [], Adjacency.from_edge_index
    monkeypatch.setattr(Adjacency, "from_edge_index", lambda *args, **kind: built.append(1) or real(*args, **kind))
    net = torch.nn.ModuleList([PPRConv(3, 3, smooth_input=True), PPRConv(3, 3)])
    x, edges = torch.randn(4, 3), torch.tensor(EDGES)
    fast = torch.compile(lambda x, edges: net[1](net[0](x, edges), edges), backend="aot_eager", fullgraph=True)
    for _ in range(3):
        fast(x, edges).sum().backward()
    assert len(built) == 1
    fast(x, edges.flip(0)).sum().backward()
    assert len(built) == 2
    torch._dynamo.reset()


def test_changes_of_data_are_seen(lookup):
    """They leave no trace in the version of a tensor."""
    edges, weight = torch.tensor(EDGES), torch.ones(4)
    lookup(edges, weight)
    weight.data.mul_(5)
    lookup(edges, weight)
    edges.data[0, 0] = 3
    lookup(edges, weight)
    weight.numpy()[1] = -1
    lookup(edges, weight)
    assert lookup.built == 4


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_changes_of_the_data_of_a_matrix_are_seen(layout):
    conv, x = PPRConv(3, 3, depth=2), torch.randn(4, 3)
    matrix = torch.eye(4).roll(1, 0).to_sparse(layout=getattr(torch, layout))
    before = conv(x, matrix)
    (matrix._values() if layout == "sparse_coo" else matrix.values()).data[1:] *= 5
    after = conv(x, matrix)
    assert not torch.equal(before, after)
    assert torch.equal(after, conv(x, matrix.clone()))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.float64, torch.uint8])
def test_a_fingerprint_follows_every_bit(dtype):
    draw = torch.Generator().manual_seed(0)
    for size in (1, 2, 7, 8, 100, 3 * BLOCK + 5):
        tensor = torch.randint(0, 100, (2, size), generator=draw).to(dtype)
        known, flat = fingerprint(tensor), tensor.view(-1)
        assert fingerprint(tensor.clone()) == fingerprint(tensor.t().contiguous().t()) == known
        for _ in range(20):
            place = int(torch.randint(0, 2 * size, (), generator=draw))
            bits = flat.clone().view(torch.uint8)
            byte = place * flat.element_size() + int(torch.randint(0, flat.element_size(), (), generator=draw))
            bits[byte] ^= 1 << int(torch.randint(0, 8, (), generator=draw))
            assert fingerprint(bits.view(dtype).view_as(tensor)) != known
        if size > 1:
            assert (
                len({fingerprint(each) for each in (tensor, tensor.flip(0), tensor.flip(1), tensor.roll(1))}) == 4
            )
    assert fingerprint(-torch.ones(6, dtype=torch.float64)) != fingerprint(torch.ones(6, dtype=torch.float64))


def test_a_fingerprint_takes_little_memory_and_time():
    edges = torch.randint(0, 1000, (2, 1_000_000))
    with torch.profiler.profile(profile_memory=True) as profile:
        fingerprint(edges)
    assert max(event.self_cpu_memory_usage for event in profile.events()) < 2**20
