"""A graph over several processes is the graph in one: states, gradients, depths, and what travels."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import pprgnn
from pprgnn import Adjacency, Certificate, DepthMemory, Fixed, Influence, Measured
from pprgnn.core.activation import resolve_activation
from pprgnn.core.backend import kernel
from pprgnn.core.backend.passes import pull_back, step
from pprgnn.core.problem import Problem
from pprgnn.core.solution import ConvergenceWarning, NotFiniteError
from pprgnn.distributed.part import HaloExchange, cut
from pprgnn.distributed.team import Team
from tests.distributed.processes import run_team
from tests.problems import draw_b, draw_eps, draw_weight

# Directed graphs here have such nodes; it makes no difference to what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:Symmetric normalisation gives weight 0:UserWarning")

OWNERS = {
    "random": lambda n, size: torch.randint(0, size, (n,), generator=torch.Generator().manual_seed(n)),
    "blocks": lambda n, size: torch.arange(n) * size // max(n, 1),
    "first is empty": lambda n, size: torch.arange(n) % max(size - 1, 1) + (size > 1),
    "all in the last": lambda n, size: torch.full((n,), size - 1),
    "int32": lambda n, size: (torch.arange(n) % size).int(),
}
RULES = {
    "measured": Measured(),
    "certificate": Certificate(),
    "influence": Influence(),
    "fixed": Fixed(4),
    "none": Fixed(0),
    "memory": None,
}


@dataclass(frozen=True)
class Case:
    nodes: int = 60
    edges: int = 150
    isolated: int = 3  # nodes without edges
    directed: bool = False
    weighted: bool = False
    normalize: str | None = "sym"
    reorder: bool = False
    owners: str = "random"
    channels: int = 7
    activation: str = "relu"
    per_channel: bool = False
    rule: str = "measured"
    grad_terms: int | None = 5
    checkpoint: bool = False
    kernel: str = ""
    dtype: torch.dtype = torch.float64
    seed: int = 0

    def adjacency(self) -> Adjacency:
        draw = torch.Generator().manual_seed(self.seed)
        edges = torch.randint(0, max(1, self.nodes - self.isolated), (2, self.edges), generator=draw)
        weight = torch.rand(self.edges, generator=draw, dtype=torch.float64) + 0.1 if self.weighted else None
        if not self.directed:
            edges = torch.cat([edges, edges.flip(0)], dim=1)
            weight = None if weight is None else torch.cat([weight, weight])
        options: dict[str, Any] = {"normalize": self.normalize, "reorder": self.reorder, "dtype": self.dtype}
        return Adjacency.from_edge_index(edges, weight, self.nodes, **options)

    def owner(self, size: int) -> Tensor:
        return OWNERS[self.owners](self.nodes, size)


def solve(case: Case, adj: Adjacency, own: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
    """Rows, sums and choices of a solve of the rows ``own``, with the gradients of a loss of state and Ã B."""
    b, pull = (draw_b(case.nodes, case.channels, seed).to(case.dtype)[own] for seed in (0, 1))
    weight = draw_weight(case.channels, 1.5).to(case.dtype).requires_grad_()
    eps = torch.as_tensor(draw_eps(case.channels, case.per_channel), dtype=case.dtype).requires_grad_()
    b.requires_grad_()
    memory = DepthMemory()
    options = {"grad_terms": case.grad_terms, "activation": case.activation, "checkpoint": case.checkpoint}
    rule, choices = RULES[case.rule] or memory, []
    for scale in (1.0, 1.001, 1.05, 0.4) if case.rule == "memory" else (1.0,):
        solution = pprgnn.solve(b, weight * scale, adj, eps=eps, depth=rule, **options)
        choices.append((solution.depth, solution.status.name, solution.products, memory.checks))
        loss = (solution.state * pull).sum()
    smooth = adj @ b
    (loss + (smooth * pull.flip(1)).sum()).backward()
    rows = {"state": solution.state.detach(), "smooth": smooth.detach(), "b": b.grad}
    return rows, {"weight": weight.grad, "eps": eps.grad}, choices


def solve_parts(cases: list[Case]) -> list[Any]:
    team, answers = Team(), []
    for case in cases:
        os.environ["PPRGNN_KERNEL"] = case.kernel
        part = cut(case.adjacency(), case.owner(team.size), team)
        rows, sums, choices = solve(case, part, part.nodes)
        for gradient in sums.values():
            team.all_reduce(gradient)
        answers.append((part.nodes, rows, sums, choices))
    os.environ.pop("PPRGNN_KERNEL")
    return answers


def check(size: int, cases: list[Case], limit: float = 60.0) -> None:
    """Compare each case with one process."""
    for case, *answers in zip(cases, *run_team(solve_parts, size, cases, limit=limit), strict=True):
        # Against float64 also where parts are float32: there ε̄ of one process with the fused kernel is itself up
        # to 1e-5 off, farther than that of the parts, so it cannot be the measure of them.
        exact, everyone = replace(case, dtype=torch.float64), torch.arange(case.nodes)
        expected, expected_sums, _ = solve(exact, exact.adjacency(), everyone)
        *_, choices = solve(case, case.adjacency(), everyone)
        order = torch.cat([nodes for nodes, *_ in answers])
        assert torch.equal(order.sort().values, torch.arange(case.nodes)), case
        near = 1e-10 if case.dtype == torch.float64 else 1e-5
        for name, value in expected.items():
            found = torch.cat([rows[name] for _, rows, *_ in answers])
            assert distance(found, value[order]) <= near, (case, name)
        for _, _, sums, own_choices in answers:
            assert own_choices == choices, case
            for name, value in expected_sums.items():
                assert distance(sums[name], value) <= near, (case, name)


def distance(found: Tensor, expected: Tensor) -> float:
    """Relative to the largest entry."""
    assert found.shape == expected.shape
    if not expected.numel():
        return 0.0
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-3))


COMMON = Case()
CASES = [
    *(Case(owners=owners, directed=directed) for owners in OWNERS for directed in (False, True)),
    *(
        Case(directed=directed, weighted=weighted, normalize=normalize, reorder=reorder)
        for directed, weighted, normalize, reorder in (
            (False, True, "sym", False),
            (True, True, "sym", True),
            (False, False, "row", True),
            (True, True, "row", False),
            (False, False, "sym", True),
        )
    ),
    *(
        Case(activation=activation, kernel=kernel, directed=True, per_channel=True)
        for activation in ("relu", "leaky_relu", "tanh", "identity")
        for kernel in ("", "torch")
    ),
    *(
        Case(channels=channels, kernel=kernel, directed=channels == 16, grad_terms=2)
        for channels, kernel in ((1, ""), (1, "torch"), (16, ""), (16, "torch"), (300, ""))
    ),
    *(
        Case(grad_terms=terms, checkpoint=checkpoint, directed=True, kernel=kernel)
        for terms, checkpoint in ((None, False), (5, True), (1, False), (1, True), (None, True))
        for kernel in ("", "torch")
    ),
    *(Case(rule=rule, directed=directed, reorder=directed) for rule in RULES for directed in (False, True)),
    Case(dtype=torch.float32, channels=16),
    Case(dtype=torch.float32, channels=16, directed=True, reorder=True),
    Case(dtype=torch.float32, channels=16, directed=True, kernel="torch", reorder=True),
    Case(nodes=6, edges=0),  # nobody reads anything
    Case(nodes=1, edges=0, isolated=0),
    Case(nodes=2, edges=1, isolated=0, directed=True),
    Case(nodes=3, edges=9, isolated=0),  # self-loops, and fewer nodes than processes
]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_equals_one_process(size):
    check(size, CASES, limit=240)


@settings(max_examples=25)
@given(
    size=st.integers(2, 4),
    case=st.builds(
        Case,
        nodes=st.integers(1, 25),
        edges=st.integers(0, 80),
        isolated=st.integers(0, 4),
        directed=st.booleans(),
        weighted=st.booleans(),
        normalize=st.sampled_from(["sym", "row"]),
        reorder=st.booleans(),
        owners=st.sampled_from(list(OWNERS)),
        channels=st.integers(1, 9),
        activation=st.sampled_from(["relu", "tanh"]),
        grad_terms=st.sampled_from([None, 1, 3]),
        checkpoint=st.booleans(),
        kernel=st.sampled_from(["", "torch"]),
        seed=st.integers(0, 1000),
    ),
)
def test_any_graph_equals_one_process(size, case):
    check(size, [case])


# --------------------------------------------------------------------------------------------- what all agree upon
def meet_trouble() -> dict[str, Any]:
    team = Team()
    part = cut(COMMON.adjacency(), COMMON.owner(team.size), team)
    b, weight = draw_b(60, 4)[part.nodes], draw_weight(4, 3.0)
    found = {}
    spoiled = b.clone()
    if team.rank == 1:
        spoiled[2, 1] = torch.nan
    try:
        pprgnn.solve(spoiled, weight, part)
    except NotFiniteError as error:
        found["nan"] = str(error)
    for name, factor, options in (
        ("capped", 1.0, {"eps": 0.01, "max_depth": 5}),
        ("overflow", 1e300, {"depth": 9}),
    ):
        with pytest.warns(ConvergenceWarning):
            solution = pprgnn.solve(b, weight * factor, part, **options)
        found[name] = (solution.depth, solution.status.name)
    return found


def test_trouble_of_one_is_seen_by_all():
    answers = run_team(meet_trouble, 3)
    assert "b[2, 1] is nan" in answers[1].pop("nan")
    for rank in (0, 2):
        assert "in another process" in answers[rank].pop("nan")
    assert answers == [{"capped": (5, "CAPPED"), "overflow": (9, "NOT_FINITE")}] * 3


# ---------------------------------------------------------------------------------------------------- what travels
def count_traffic(case: Case, depth: int, terms: int) -> dict[str, Any]:
    """Numbers sent in each call of torch, forward and back."""
    team, sent = Team(), []
    real = dist.all_to_all_single

    def counted(output: Tensor, rows: Tensor, *args: Any, **kwargs: Any) -> Any:
        sent.append((output.numel() * output.element_size(), rows.numel() * rows.element_size()))
        return real(output, rows, *args, **kwargs)

    dist.all_to_all_single = counted
    os.environ["PPRGNN_KERNEL"] = case.kernel
    try:
        part = cut(case.adjacency(), case.owner(team.size), team)
        b = draw_b(case.nodes, case.channels).to(case.dtype)[part.nodes].requires_grad_()
        weight = draw_weight(case.channels, 1.0).to(case.dtype)
        state = pprgnn.solve(b, weight, part, depth=depth, grad_terms=terms).state
        forward, sent = list(sent), sent
        sent.clear()
        state.sum().backward()
    finally:
        dist.all_to_all_single = real
        os.environ.pop("PPRGNN_KERNEL")
    counters = part.rows.exchange.bytes_sent, part.rows_t.exchange.bytes_sent
    return {"forward": forward, "back": sent, "halo": part.halo_rows, "counted": counters}


def rows_read(dense: Tensor, owner: Tensor, size: int) -> Tensor:
    """How many rows of sender (row) each reader (column) reads, by the definition."""
    count = torch.zeros(size, size, dtype=torch.long)
    for reader in range(size):
        read = (dense[owner == reader] != 0).any(0)
        for sender in set(range(size)) - {reader}:
            count[sender, reader] = (read & (owner == sender)).sum()
    return count


@pytest.mark.parametrize(
    "case", [Case(dtype=torch.float32), Case(dtype=torch.float32, directed=True, normalize="row", reorder=True)]
)
@pytest.mark.parametrize("library", ["", "torch"])
def test_each_step_sends_just_the_rows_that_are_read_in_one_call(case, library):
    size, depth, terms = 3, 6, 4
    case = replace(case, kernel=library)
    dense, owner, row_bytes = case.adjacency().to_dense(), case.owner(size), 4 * case.channels
    there, back = rows_read(dense, owner, size), rows_read(dense.t(), owner, size)
    assert there.sum() > 0
    for rank, found in enumerate(run_team(count_traffic, size, case, depth, terms)):
        assert found["halo"] == there[:, rank].sum()
        for name, read, steps in (("forward", there, depth), ("back", back, terms)):
            received, sent = int(read[:, rank].sum()) * row_bytes, int(read[rank].sum()) * row_bytes
            assert found[name] == [(received, sent)] * steps
        sent_there, sent_back = (
            int(there[rank].sum()) * depth * row_bytes,
            int(back[rank].sum()) * terms * row_bytes,
        )
        both = (sent_there + sent_back,) * 2
        assert found["counted"] == ((sent_there, sent_back) if case.directed else both)


class NoProcesses(Team):
    """As many members as wanted, of which this one is real."""

    def __init__(self, size: int) -> None:
        self.joined, self.group, self.rank, self.size = False, None, 0, size
        self.device = torch.device("cpu")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("reorder", [False, True])
def test_interior_rows_read_no_others_and_boundary_rows_do(directed, reorder):
    case = Case(edges=60, directed=directed, normalize="row", reorder=reorder)
    adj, owner = case.adjacency(), case.owner(3)
    dense, seen = adj.to_dense(), []
    linked = (dense != 0) | (dense.t() != 0)
    for rank in range(3):
        part = cut(adj, owner, NoProcesses(3), rank=rank)
        abroad = linked[part.nodes][:, owner != rank].any(1)
        assert 0 < part.interior < part.num_nodes
        assert not abroad[: part.interior].any()
        assert abroad[part.interior :].all()
        assert (owner[part.nodes] == rank).all()
        assert part.fingerprint == adj.fingerprint
        assert part.norm_bound == adj.norm_bound
        seen.append(part.nodes)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(60))


class Recorder(HaloExchange):
    """Carries nothing, but notes when it is called."""

    def __init__(self, send: Tensor, gives: Any, takes: Any, team: Team) -> None:
        super().__init__(send, gives, takes, NoProcesses(1))
        self.events: list[str] = []

    def start(self, x: Tensor) -> None:
        super().start(x)
        self.events.append("start")

    def wait(self) -> Tensor:
        self.events.append("wait")
        return super().wait().zero_()


@pytest.mark.parametrize("library", ["", "torch"])
@pytest.mark.parametrize("back", [False, True])
def test_interior_rows_are_computed_while_rows_travel(library, back, monkeypatch):
    if not library and kernel.library_name() == "torch":
        pytest.skip("the fused kernel is not built here")
    monkeypatch.setenv("PPRGNN_KERNEL", library)
    case = Case(directed=True)
    part = cut(case.adjacency(), case.owner(2), NoProcesses(2), rank=0, exchange=Recorder)
    events = (part.rows_t if back else part.rows).exchange.events

    def noted(name: str, place: Any) -> None:
        real = getattr(place, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            fused = name != "multiply"
            events.append("boundary" if fused and any(each is halo for each in args) else "interior")
            return real(*args, **kwargs)

        monkeypatch.setattr(place, name, call)

    exchange = (part.rows_t if back else part.rows).exchange
    problem = Problem(
        draw_b(60, 7)[part.nodes],
        draw_weight(7, 1.0),
        torch.tensor(0.5, dtype=torch.float64),
        part,
        resolve_activation("relu"),
    )
    exchange.start(problem.b)
    halo = exchange.wait()  # the same memory each time
    events.clear()
    noted("multiply", kernel)
    noted("descend", kernel)
    noted("ascend", kernel)
    out, scratch = torch.empty_like(problem.b), torch.empty_like(problem.b)
    if back:
        pull_back(problem, problem.b.relu(), [problem.b.relu()], problem.b, 1, 2, (True, True, True, False), False)
    else:
        step(problem, 0, problem.b, out, scratch)
    assert events == ["start", "interior", "wait", *(["boundary"] if not library else [])]


# ---------------------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("owner", "message"),
    [
        (torch.zeros(59, dtype=torch.long), r"each of the 60 nodes, but has shape \(59,\)"),
        (torch.zeros(60, 1, dtype=torch.long), r"has shape \(60, 1\)"),
        (torch.zeros(60), r"whole number .* dtype torch\.float32"),
        (torch.full((60,), 2), r"from 0 to 1, .* runs from 2 to 2; partition the graph into 2 parts"),
        (torch.arange(60) - 1, r"runs from -1 to 58"),
    ],
)
def test_a_wrong_owner_is_an_error(owner, message):
    with pytest.raises(ValueError, match=message):
        cut(COMMON.adjacency(), owner, NoProcesses(2))


def test_edge_weights_cannot_be_learned_in_parts():
    weight = torch.ones(2, requires_grad=True)
    adj = Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]), weight)
    with pytest.raises(ValueError, match=r"cannot be learned; use one process\."):
        cut(adj, torch.zeros(2, dtype=torch.long), Team())


def test_a_part_stays_what_it_is():
    part = cut(COMMON.adjacency(), torch.zeros(60, dtype=torch.long), Team())
    assert part.to(torch.float64) is part
    with pytest.raises(ValueError, match="convert the graph and cut it anew"):
        part.to(torch.float32)
    assert repr(part) == "GraphPart(1 of 1, rows=60, interior=60, halo_rows=0, normalize='sym')"
