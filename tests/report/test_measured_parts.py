"""Each part of the measurements against the slow and obvious way to find the same numbers."""

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from pprgnn import Adjacency
from pprgnn.core.activation import RELU, TANH
from pprgnn.core.bounds import StepBounds
from pprgnn.core.problem import Problem
from pprgnn.data.dataset import GraphDataset
from pprgnn.nn import PPRConv
from pprgnn.nn.infinite_layer import infinite_layers
from pprgnn.nn.linear_output import AS_PUBLISHED
from pprgnn.report.measured.measure import baselines, classes, published, spread_labels
from pprgnn.report.measured.recursions import (
    arriving_gradients,
    chosen_terms,
    convergence,
    cost,
    decay,
    layer_convergence,
    layer_truncation,
    left_out,
    truncation,
)
from pprgnn.report.measured.results import (
    ClassScores,
    Convergence,
    Cost,
    Missing,
    Reach,
    Smoothing,
    Truncation,
)
from pprgnn.report.measured.states import WEIGHTLESS, energy, influences, mean_distance, reach, smoothing
from pprgnn.report.measured.trained_run import Allowance, Passes, Solve, TrainedRun
from pprgnn.training.explain import explain_node
from pprgnn.training.metrics import scores
from pprgnn.training.run import Run
from pprgnn.training.thresholds import Threshold
from pprgnn.training.train import train
from tests import problems, reference
from tests.training.small_data import divided, facts, one_graph, quick, random_edges, several_graphs


def plenty() -> Allowance:
    return Allowance(60.0, 60.0, Run("somewhere").folder)


def opened(folder: Any, dataset: GraphDataset, *chosen: str) -> TrainedRun:
    train(quick("epochs=6", *chosen), dataset=dataset, split=divided(dataset), folder=folder)
    return TrainedRun(Run.open(folder))


def line_graph(nodes: int = 24) -> GraphDataset:
    """A long way to go, with a ring at its end, an isolated node, and classes by place."""
    here = torch.arange(nodes - 2)
    edges = torch.cat([torch.stack([here, here + 1]), torch.tensor([[nodes - 2], [nodes - 6]])], dim=1)
    x = torch.randn(nodes, 5, generator=torch.Generator().manual_seed(3))
    data = Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=(torch.arange(nodes) * 3) // nodes)
    data.num_nodes = nodes
    return GraphDataset.from_graphs([data], facts("line", "node", 3))


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Two layers, tanh, a rate for each channel, no self-loops."""
    chosen = ("layers=2", "activation=tanh", "learn_eps=channel", "eps=0.3", "self_loops=false", "hidden=6")
    return opened(tmp_path_factory.mktemp("runs") / "line", line_graph(), *chosen)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """One layer, ReLU, one rate, self-loops: the usual network."""
    return opened(tmp_path_factory.mktemp("runs") / "plain", one_graph(20, 3), "eps=0.5", "hidden=8")


def solve_of(problem: Problem, depth: int, tol: float = 1e-5) -> Solve:
    layer = PPRConv(None, problem.b.size(1), grad_terms=3, **AS_PUBLISHED)
    return Solve("a layer", layer, problem, depth, "MEASURED", tol)


def dense(adj: Adjacency) -> Tensor:
    return adj.to_dense().double()


@st.composite
def recursions(draw: st.DrawFn) -> Problem:
    seed = draw(st.integers(0, 10_000))
    graph = problems.random_graph(
        seed, draw(st.integers(1, 7)), directed=draw(st.booleans()), weighted=draw(st.booleans())
    )
    generator = torch.Generator().manual_seed(seed)
    b = torch.randn(graph.num_nodes, 3, generator=generator)
    weight = draw(st.sampled_from([0.0, 0.3, 1.0, 3.0])) * torch.randn(3, 3, generator=generator)
    eps = draw(st.sampled_from([torch.tensor(0.4), torch.tensor([0.3, 1.0, 4.0])]))
    adj = graph.adjacency(add_self_loops=True, dtype=torch.float32)
    return Problem(b, weight, eps, adj, draw(st.sampled_from([RELU, TANH])))


# ---------------------------------------------------------------------------------------------------- convergence
@given(recursions())
@settings(max_examples=20)
def test_errors_are_those_of_dense_matrices_and_never_above_the_certificate(problem: Problem) -> None:
    found = layer_convergence(solve_of(problem, 5), plenty())
    assert isinstance(found, Convergence)
    a, b, weight, eps = dense(problem.adj), *(each.double() for each in (problem.b, problem.weight, problem.eps))
    infinite = reference.limit(b, weight, a, eps, problem.activation.function)
    scale, sup = float(b.norm()), float(b.abs().max())
    faded = b
    for k in range(found.depths[-1] + 1):
        if k in found.depths[::4] + found.depths[-1:]:
            place = found.depths.index(k)
            state = reference.states(b, weight, a, eps, problem.activation.function, k)[0]
            assert found.errors[place] == pytest.approx(
                float((state - infinite).norm()) / scale, rel=1e-6, abs=100 * found.rounding
            )
            assert found.influence[place] == pytest.approx(float(faded.abs().max()) / sup, rel=1e-6)
        faded = problem.activation.function((a @ faded @ weight) / (1 + (k + 1) * eps))
    for error, certificate in zip(found.errors, found.certificate, strict=True):
        assert certificate is None or error <= certificate + found.rounding
    assert found.depths[0] == 0
    assert found.errors[-1] <= 4 * found.rounding


def test_every_depth_up_to_rounding_is_there_and_the_chosen_one_keeps_its_promise(subject: TrainedRun) -> None:
    found = convergence(subject, plenty())
    assert isinstance(found, list)
    assert [each.layer for each in found] == [name for name, _ in infinite_layers(subject.model.network)]
    for each, solve in zip(found, subject.solves, strict=True):
        assert each.depths == list(range(len(each.depths)))
        assert (each.chosen, each.tol) == (solve.depth, subject.model.config.training.eval_tol)
        assert 0 < each.chosen <= each.depths[-1]
        assert each.errors[each.chosen] <= each.tol
        assert each.errors[each.chosen - 3] > each.tol / 1000  # it is not much deeper than that
        assert each.rounding < 1e-14  # double precision


def test_without_a_certificate_two_deep_passes_that_agree_are_the_reference() -> None:
    """A large norm that never comes into play: W is triangular, so its powers stay small."""
    b, weight = (
        torch.randn(5, 2, generator=torch.Generator().manual_seed(0)),
        torch.tensor([[1.0, 40.0], [0, 1.0]]),
    )
    adj = problems.ring(5).adjacency(dtype=torch.float32)
    problem = Problem(b, weight, torch.tensor(0.02), adj, RELU)
    assert problem.bounds().depth(1e-16, 2000) is None
    found = layer_convergence(solve_of(problem, 20), plenty())
    assert isinstance(found, Convergence)
    assert set(found.certificate) == {None}
    assert 50 < found.depths[-1] < 200
    assert max(found.errors[-2:]) <= found.rounding < 1e-12


def test_a_layer_that_does_not_settle_says_so() -> None:
    draw = torch.Generator().manual_seed(0)
    weight = 60 * torch.linalg.qr(torch.randn(2, 2, generator=draw)).Q
    adj = problems.ring(5).adjacency(dtype=torch.float32)
    problem = Problem(torch.randn(5, 2, generator=draw), weight, torch.tensor(0.01), adj, TANH)
    found = layer_convergence(solve_of(problem, 200), plenty())
    assert isinstance(found, Missing)
    assert "still changes after" in found.reason


def negative(weight: float) -> Convergence:
    """W < 0 and ReLU on a ring: shallow states flip between two values with every step."""
    adj = problems.ring(6).adjacency(dtype=torch.float32)
    problem = Problem(torch.ones(6, 1), torch.tensor([[weight]]), torch.tensor(0.5), adj, RELU)
    found = layer_convergence(solve_of(problem, 20), plenty())
    assert isinstance(found, Convergence)
    return found


def test_a_cycle_is_not_taken_for_convergence() -> None:
    found = negative(-6.0)
    assert found.errors[:20:2] == pytest.approx([0.91667] * 10, abs=1e-4)
    assert found.errors[1:20:2] == pytest.approx([0.08333] * 10, abs=1e-4)
    assert max(found.errors[-2:]) <= found.rounding < 1e-10


def test_rounding_is_what_rounding_does_to_the_state_however_bad_that_is() -> None:
    assert negative(-40.0).rounding > 0.5  # steps up to 40 times as large, some eighty of them


def test_a_short_time_gives_fewer_depths_and_none_gives_a_sentence(plain: TrainedRun) -> None:
    solve = plain.solves[0]
    slow = Solve(solve.name, solve.layer, solve.given, solve.depth, solve.status, solve.tol)
    slow.__dict__["step_seconds"] = 0.01  # as on a large graph
    everything = layer_convergence(slow, plenty())
    some = layer_convergence(slow, Allowance(5.0, 30.0, Run("R").folder))
    none = layer_convergence(slow, Allowance(0.05, 30.0, Run("R").folder))
    assert isinstance(everything, Convergence)
    assert isinstance(some, Convergence)
    assert len(some.depths) < len(everything.depths)
    assert solve.depth in some.depths
    by_depth = dict(zip(everything.depths, everything.errors, strict=True))
    assert all(by_depth[k] == error for k, error in zip(some.depths, some.errors, strict=True) if k in by_depth)
    assert isinstance(none, Missing)
    assert "`pprgnn report R --seconds " in none.reason


def test_states_that_overflow_are_missing() -> None:
    adj = problems.ring(4).adjacency(dtype=torch.float64)
    huge = Problem(
        1e300 * torch.ones(4, 1).double(), 1e12 * torch.ones(1, 1).double(), torch.tensor(0.1), adj, RELU
    )
    assert isinstance(layer_convergence(solve_of(huge, 5), plenty()), Missing)


# ---------------------------------------------------------------------------------------------------------- decay
def test_decay_is_the_product_of_the_rates(subject: TrainedRun) -> None:
    found = decay(subject, plenty())
    assert isinstance(found, list)
    for each, (_, layer) in zip(found, infinite_layers(subject.model.network), strict=True):
        rates = torch.as_tensor(layer.eps).detach().double()
        assert each.eps == pytest.approx((float(rates.min()), float(rates.median()), float(rates.max())), rel=1e-6)
        norm = reference.spectral_norm(layer.weights()[0].detach())
        for eps, line in zip(each.eps, each.ours, strict=True):
            assert line == pytest.approx([math.prod(1 / (1 + i * eps) for i in range(n)) for n in each.hops])
        strong = [left * norm**n for n, left in enumerate(each.ours[0])]
        assert each.with_weight == pytest.approx(strong, rel=1e-5)
        assert each.appnp["0.1"] == pytest.approx([0.9**n for n in each.hops])
        assert each.ours[0][-1] <= 1e-4 < each.ours[0][-2]
        assert each.ours[0][:2] == [1.0, 1.0]  # the first hop costs nothing


# ----------------------------------------------------------------------------------------------------- truncation
@given(recursions(), st.integers(0, 6))
def test_gradients_of_few_terms_are_off_by_what_autograd_says_and_less_than_the_bound(
    problem: Problem, depth: int
) -> None:
    arriving = torch.randn(problem.b.shape, generator=torch.Generator().manual_seed(1))
    found = layer_truncation(solve_of(problem, depth), arriving, plenty())
    inputs = [each.double() for each in (problem.b, problem.weight, problem.eps)]
    phi, a = problem.activation.function, dense(problem.adj)

    def gradients(terms: int | None) -> list[Tensor]:
        return reference.gradients(inputs, arriving.double(), a, phi, depth, terms)[:2]

    whole = gradients(None)
    if isinstance(found, Missing):
        assert float(whole[0].norm()) == 0
        return
    assert found.terms == list(range(1, depth + 2))
    assert found.used == 3
    for n, of_b, of_weight, bound in zip(found.terms, found.error_b, found.error_weight, found.bound, strict=True):
        some = gradients(n)
        errors = [float((x - y).norm()) / (float(y.norm()) or 1.0) for x, y in zip(some, whole, strict=True)]
        assert [of_b, of_weight] == pytest.approx(errors, rel=1e-6, abs=1e-12)
        assert bound is None or of_b <= bound * (1 + 1e-9) + 1e-14
    assert found.error_b[-1] == 0.0


def test_the_bound_is_the_sum_over_the_terms_left_out() -> None:
    bounds = StepBounds(2.0, 0.5, 1.5)
    c = [2.0, 2.0 / 1.5, 1.0, 2.0 / 2.5]
    assert left_out(bounds, 2, 3) == pytest.approx(1.5 * (c[0] * c[1] + c[0] * c[1] * c[2]))
    assert left_out(bounds, 4, 3) == 0.0


def test_the_gradient_that_arrives_is_that_of_the_training_loss(plain: TrainedRun, subject: TrainedRun) -> None:
    (arriving,) = arriving_gradients(plain, plain.solves).values()
    network, (solve,) = plain.model.network, plain.solves
    state = Passes(solve.problem).state(solve.depth).float().requires_grad_()
    rows = plain.masks["train"]
    loss = torch.nn.functional.cross_entropy(network.head(state)[rows], plain.dataset.labels()[rows])
    assert torch.allclose(arriving, torch.autograd.grad(loss, state)[0], atol=1e-7)
    found = truncation(subject, plenty())
    assert isinstance(found, list)
    assert [each.layer for each in found] == ["convs.0", "convs.1"]
    for each in found:
        assert all(error >= 0 for error in each.error_b)
        assert each.error_b[0] > each.error_b[-2] > 0
        assert each.used == subject.model.config.model.grad_terms
    assert all(parameter.grad is None for parameter in subject.model.network.parameters())


# ---------------------------------------------------------------------------------------------------------- reach
def usual_matrix(dataset: GraphDataset) -> Tensor:
    data = dataset[0]
    return reference.dense_adjacency(data.edge_index, data.get("edge_weight"), data.num_nodes, "sym", True)


def test_shares_by_hop_are_those_of_single_explanations_and_of_powers_of_the_matrix(subject: TrainedRun) -> None:
    found = reach(subject, plenty())
    assert isinstance(found, Reach)
    a, nodes = usual_matrix(subject.dataset), subject.masks["test"].nonzero().flatten().tolist()
    assert found.nodes == len(nodes)
    powers = [torch.linalg.matrix_power(a, k) for k in range(11)]
    others = {
        "GCN, 2 layers": powers[2],
        "GCN, 8 layers": powers[8],
        "APPNP (α = 0.1, 10 steps)": sum(0.1 * 0.9**i * powers[i] for i in range(10)) + 0.9**10 * powers[10],
        "IGNN (fixed point, rate 0.9)": torch.linalg.inv(torch.eye(len(a)) - 0.9 * a),
    }
    explained = [explain_node(subject.model, subject.dataset, node) for node in nodes]
    distances = reference_hops(subject.dataset)
    ours = [each.share_by_distance for each in explained]
    counts = [each.nodes_by_distance for each in explained]
    expected = {
        subject.system.title: folded(ours, len(found.hops), 1),
        "count": folded(counts, len(found.hops), 1),
    }
    for name, matrix in others.items():
        rows = []
        for node in nodes:
            row, far = matrix[node].abs(), distances[node]
            rows.append([float(row[far == h].sum() / row.sum()) for h in range(int(far.max()) + 1)])
        expected[name] = folded(rows, len(found.hops), 1)
    assert {line.name for line in found.lines} | {"count"} == set(expected)
    for line in found.lines:
        assert line.shares == pytest.approx(expected[line.name], abs=2e-4), line.name
        assert sum(line.shares) == pytest.approx(1.0)
        assert line.measured == (line.name == subject.system.title)
    assert found.nodes_by_hop == pytest.approx(expected["count"])
    assert found.hops == list(range(len(found.hops)))


def test_what_follows_from_the_graph_alone_are_rows_of_the_matrix_along_the_messages() -> None:
    graph = problems.random_graph(2, 6, directed=True, weighted=True)
    adj = graph.adjacency(add_self_loops=True)
    a, nodes = adj.to_dense(), torch.eye(6).double()
    eighth, forever = torch.linalg.matrix_power(a, 8), torch.linalg.inv(nodes - 0.9 * a)
    assert torch.allclose(influences(WEIGHTLESS["GCN, 8 layers"], adj, nodes).t(), eighth)
    found = influences(WEIGHTLESS["IGNN (fixed point, rate 0.9)"], adj, nodes).t()
    assert float((found - forever).abs().max()) < 2e-4 * float(forever.max())


def folded(rows: list[Any], bins: int, scale: float) -> list[float]:
    """The mean by hop; the last bin has all beyond."""
    table = [[*row[: bins - 1], sum(row[bins - 1 :])] for row in (list(r) + [0.0] * bins for r in rows)]
    return [scale * sum(column) / len(rows) for column in zip(*table, strict=True)]


def reference_hops(dataset: GraphDataset) -> Tensor:
    """Shortest paths by trying all of them; -1: none."""
    data = dataset[0]
    far = torch.full((data.num_nodes, data.num_nodes), 10_000)
    far[data.edge_index[1], data.edge_index[0]] = 1
    far.fill_diagonal_(0)
    for middle in range(data.num_nodes):
        far = torch.minimum(far, far[:, middle, None] + far[None, middle])
    return torch.where(far >= 10_000, -1, far)


def test_reach_over_several_graphs_takes_nodes_of_all_of_them(tmp_path: Any) -> None:
    several = opened(tmp_path / "run", several_graphs(12, 2, task="node"), "hidden=4")
    found = reach(several, plenty())
    assert isinstance(found, Reach)
    assert found.nodes == int(several.masks["test"].sum())
    assert all(sum(line.shares) == pytest.approx(1.0) for line in found.lines)
    assert len(several.graphs) <= 32
    assert several.logits.shape == (found.nodes, 2)


# ------------------------------------------------------------------------------------------------------ smoothing
def test_energy_and_distance_are_those_of_all_edges_and_all_pairs() -> None:
    graph = problems.random_graph(4, 7, directed=False, weighted=True)
    adj = graph.adjacency(add_self_loops=True)
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[2] = 0
    degree = torch.zeros(7, dtype=torch.float64).index_add_(0, graph.edge_index[1], graph.edge_weight) + 1
    scaled = x / degree.sqrt()[:, None]
    pairs = zip(*graph.edge_index.tolist(), graph.edge_weight.tolist(), strict=True)
    expected = sum(w * float((scaled[i] - scaled[j]).square().sum()) for i, j, w in pairs) / 2
    assert energy(adj, x) == pytest.approx(expected / float(x.square().sum()))
    assert energy(adj, degree.sqrt()[:, None]) == pytest.approx(0.0, abs=1e-12)
    kept = [i for i in range(7) if i != 2]
    cosines = [float(torch.cosine_similarity(x[i], x[j], dim=0)) for i in kept for j in kept if i != j]
    assert mean_distance(x) == pytest.approx(1 - sum(cosines) / len(cosines))
    assert mean_distance(torch.ones(7, 3)) == pytest.approx(0.0, abs=1e-12)
    assert mean_distance(torch.zeros(7, 3)) == 0.0
    assert energy(adj, torch.zeros(7, 3)) == 0.0
    row = graph.adjacency(add_self_loops=True, normalize="row")
    assert energy(row, torch.ones(7, 2)) == pytest.approx(0.0, abs=1e-12)


def test_states_at_each_depth_are_those_of_the_finite_network(subject: TrainedRun) -> None:
    found = smoothing(subject, plenty())
    assert isinstance(found, Smoothing)
    assert found.depths == [0, 1, 2, 4, 8, 16, 32, 64, 128]
    ours, sgc, appnp = found.lines
    assert (ours.measured, sgc.measured, appnp.measured) == (True, False, False)
    a = usual_matrix(subject.dataset)
    x = subject.dataset[0].x.double()
    z, kept = x, {}
    for k in range(129):
        kept[k] = z
        z = 0.9 * a @ z + 0.1 * x
    layers = [layer for _, layer in infinite_layers(subject.model.network)]
    own = reference.dense_adjacency(subject.dataset[0].edge_index, None, len(a))
    for i, k in enumerate(found.depths):
        state = subject.input.double()
        for layer in layers:
            b = state @ layer.lin.weight.double().t() + layer.bias.double()
            eps = torch.as_tensor(layer.eps).double()
            state = reference.states(b, layer.weight.double(), own, eps, torch.tanh, k)[0].detach()
        for line, exact in ((ours, state), (sgc, torch.linalg.matrix_power(a, k) @ x), (appnp, kept[k])):
            wanted = float((exact * (exact - a @ exact)).sum() / exact.square().sum())
            assert line.energy[i] == pytest.approx(wanted, rel=1e-3, abs=1e-6)
            assert line.distance[i] == pytest.approx(mean_distance(exact), rel=1e-3, abs=1e-5)
    assert [type(layer.depth_rule).__name__ for layer in layers] == ["DepthMemory"] * 2  # as it was


# ----------------------------------------------------------------------------------------------------------- cost
def test_ours_keeps_as_many_states_as_terms_and_plain_autograd_more_with_every_step(plain: TrainedRun) -> None:
    found = cost(plain, plenty())
    assert isinstance(found, Cost)
    state = plain.solves[0].given.b.numel() * 4
    assert found.depths == [1, 2, 4, 8, 16, 32, 64, 128]
    assert found.bytes == [(min(5, depth) + 1) * state for depth in found.depths]  # and a small G⁽⁰⁾ itself
    unrolled = [each for each in found.unrolled_bytes if each is not None]
    growth = [(b - a) / (d - c) for (a, b), (c, d) in zip(pairwise(unrolled), pairwise(found.depths), strict=True)]
    assert set(growth) == {2 * state}  # the product and the state of each step
    assert all(each > 0 for each in found.seconds)
    assert found.repeats >= 3
    assert found.threads == torch.get_num_threads()


def test_a_short_time_stops_within_the_part(plain: TrainedRun) -> None:
    found = cost(plain, Allowance(0.02, 30.0, Run("R").folder))
    assert isinstance(found, Missing) or found.depths == [1, 2, 4, 8, 16, 32, 64, 128][: len(found.depths)]
    assert isinstance(cost(plain, Allowance(0.0, 30.0, Run("R").folder)), Missing)


# ------------------------------------------------------------------------------------------- classes and baselines
def test_scores_by_class_are_counted(plain: TrainedRun) -> None:
    found = classes(plain, plenty())
    y, predicted = plain.y.tolist(), plain.logits.argmax(1).tolist()
    assert found.part == "test"
    assert found.confusion == [[sum((t, p) == (a, b) for t, p in zip(y, predicted, strict=True)) for b in range(3)]
                               for a in range(3)]  # fmt: skip
    for c in range(3):
        hits, said, there = (
            sum(t == p == c for t, p in zip(y, predicted, strict=True)), predicted.count(c), y.count(c)
        )  # fmt: skip
        assert found.precision[c] == (hits / said if said else 0.0)
        assert found.recall[c] == (hits / there if there else 0.0)
        assert found.f1[c] == pytest.approx(2 * hits / (said + there) if said + there else 0.0)
        assert found.support[c] == there
    accuracy = Run.open(plain.run.folder).summary["scores"]["test"]["accuracy"]
    assert sum(found.confusion[c][c] for c in range(3)) / len(y) == pytest.approx(accuracy)


def test_several_labels_have_no_confusion_but_the_same_f1_as_the_metric() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, y = torch.randn(40, 4, generator=draw), (torch.rand(40, 4, generator=draw) > 0.6).float()
    y[:, 3] = 0
    names = facts("labels", "node", 4, multi_label=True)
    threshold = Threshold("validation", (-0.5,))
    model = SimpleNamespace(facts=names, decide=threshold.marks)
    for metric, name in (("micro-F1", "macro-F1"), ("oracle micro-F1", "oracle macro-F1")):
        asked: Any = SimpleNamespace(model=model, logits=logits, y=y, part="test", metric=metric)
        found = classes(asked, plenty())
        assert found.confusion is None
        macro = scores(logits, y, multi_label=True, metrics=[name], threshold=threshold)[name]
        assert sum(found.f1) / 4 == pytest.approx(macro)
        assert found.support == y.sum(0).int().tolist()


def test_one_column_of_logits_is_that_of_the_second_class() -> None:
    asked: Any = SimpleNamespace(
        model=SimpleNamespace(facts=facts("two", "graph", 2)),
        logits=torch.tensor([[1.0], [-1.0], [2.0]]),
        y=torch.tensor([1, 0, 0]),
        part="val",
        metric="accuracy",
    )
    found = classes(asked, plenty())
    assert isinstance(found, ClassScores)
    assert (found.confusion, found.part) == ([[1, 1], [0, 1]], "val")


def test_baselines_are_scored_on_the_same_part(plain: TrainedRun) -> None:
    found = {each.name: each for each in baselines(plain, plenty())}
    y, train_rows, test_rows = plain.dataset.labels(), plain.masks["train"], plain.masks["test"]
    common = int(torch.bincount(y[train_rows], minlength=3).argmax())
    assert found["majority"].value == pytest.approx(float((y[test_rows] == common).float().mean()))
    data = plain.dataset[0]
    a = reference.dense_adjacency(data.edge_index, None, data.num_nodes).float()
    known = torch.nn.functional.one_hot(y, 3).float() * train_rows[:, None]
    spread = known
    for _ in range(50):
        spread = (0.9 * a @ spread + 0.1 * known).clamp(0, 1)
    assert torch.allclose(spread_labels(plain, y, train_rows), spread, atol=1e-6)
    right = spread[test_rows].argmax(1) == y[test_rows]
    assert found["label propagation"].value == pytest.approx(float(right.float().mean()))
    assert all(each.measured for each in found.values())  # nobody published anything about this graph


def test_the_paper_is_quoted_with_its_protocol(plain: TrainedRun) -> None:
    def quoted(name: str, protocol: str, metric: str = "accuracy") -> dict[str, Any]:
        asked: Any = SimpleNamespace(
            run=SimpleNamespace(folder=Run("nowhere").folder),
            dataset=SimpleNamespace(facts=facts(name, "graph", 2)),
            split=SimpleNamespace(protocol=protocol),
            metric=metric,
        )
        return {each.name: each for each in published(asked)}

    mutag = quoted("MUTAG", "honest")
    assert mutag["PPRGNN in the paper"].value == pytest.approx(0.904)
    assert mutag["PPRGNN in the paper"].spread == pytest.approx(0.072)
    assert next(iter(mutag)) == "PPRGNN in the paper"
    assert all("another protocol" in each.source and not each.measured for each in mutag.values())
    assert not any("another protocol" in each.source for each in quoted("MUTAG", "paper").values())
    assert quoted("PPI", "honest", "micro-F1")["PPRGNN in the paper"].value == pytest.approx(0.989)
    for name in ("PPI-GO", "com-DBLP", "Cora"):
        assert not quoted(name, "honest", "micro-F1")
    assert not quoted("MUTAG", "honest", "ROC AUC")
    assert "structure-free baseline, Errica et al. 2020" in quoted("PROTEINS", "honest")


def test_a_truncation_of_few_points_is_cut_from_the_same_curve(plain: TrainedRun) -> None:
    solve, (arriving,) = plain.solves[0], arriving_gradients(plain, plain.solves).values()
    whole = layer_truncation(solve, arriving, plenty())
    assert isinstance(whole, Truncation)
    for count in range(3, solve.depth + 2):
        chosen = chosen_terms(solve.depth + 1, count, 5)
        assert chosen == sorted(set(chosen))
        assert chosen[0] == 1
        assert set(chosen) <= set(whole.terms)
        assert {min(5, solve.depth + 1), solve.depth + 1} <= set(chosen)


def test_random_edges_leave_a_node_alone() -> None:
    """The graphs of these tests have an isolated node, for which all of the above must hold."""
    assert int(random_edges(20, 60, torch.Generator().manual_seed(0)).max()) < 19
