"""How long a step would take on so many processes and such a network, predicted on one machine.

The model. A process sends its rows, computes what needs no rows of others while those travel, and then the rest:

    packing + max(interior, communication) + boundary

communication = latency · peers + bytes / bandwidth, with bytes = the larger of those sent and those received (both
directions work at once, and at the cost of no computing time); peers are the parts with which it exchanges rows. A
step takes as long as the slowest process. Computing times are measured: real parts are cut and run the real step.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pprgnn.core.activation import resolve_activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.buffers import acquire
from pprgnn.core.backend.passes import pull_back, step
from pprgnn.core.problem import Problem
from pprgnn.distributed.part import GraphPart, HaloExchange, cut
from pprgnn.distributed.partitions import PartitionFacts, describe
from pprgnn.distributed.team import Team
from pprgnn.errors import DataError

TIMED = 4  # parts whose steps are run, the heaviest; the times of the others follow from their work
REPEATS = 7
PATIENCE = timedelta(seconds=60)  # with two processes that are to meet


# ----------------------------------------------------------------------------------------------------- the network
@dataclass(frozen=True)
class Network:
    """What lies between two processes."""

    name: str
    latency: float  # seconds until a message to one peer is on its way and has arrived, without its bytes
    bandwidth: float  # bytes per second, in each direction

    def __post_init__(self) -> None:
        if not (self.latency >= 0 and self.bandwidth > 0):
            raise DataError(
                f"A network needs a latency >= 0 (seconds) and a bandwidth > 0 (bytes per second), but has "
                f"{self.latency:g} and {self.bandwidth:g}."
            )


# Line rates, and usual latencies: of TCP for the first two, of RDMA for InfiniBand (HDR). These are assumptions,
# to be replaced by the figures of the network at hand.
NETWORKS = {
    network.name: network
    for network in (
        Network("10gbit", 50e-6, 1.25e9),
        Network("100gbit", 20e-6, 12.5e9),
        Network("infiniband", 2e-6, 25e9),
    )
}


def find_network(name: str) -> Network:
    """A network by its name; ``loopback``, between two processes of this machine, is measured."""
    if name == "loopback":
        return measure_loopback()
    if name not in NETWORKS:
        raise DataError(f"A network is one of loopback, {', '.join(NETWORKS)}, but is {name!r}.")
    return NETWORKS[name]


@cache
def measure_loopback() -> Network:
    """Time an ``all_to_all_single`` of gloo between two new processes, of few bytes and of many."""
    with tempfile.TemporaryDirectory() as folder:
        code = "import sys; from pprgnn.distributed.simulate import probe; probe(int(sys.argv[1]), sys.argv[2])"
        commands = [[sys.executable, "-c", code, str(rank), str(Path(folder) / "store")] for rank in range(2)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running = [subprocess.Popen(command, **pipes) for command in commands]
        try:
            said = [process.communicate(timeout=2 * PATIENCE.seconds) for process in running]
        finally:
            for process in running:
                process.kill()
    for process, (_, errors) in zip(running, said, strict=True):
        if process.returncode:
            why = errors.strip().splitlines()[-1:]
            raise DataError(f"Two processes of this machine cannot exchange rows by gloo: {''.join(why)}")
    few, many = (tuple(each) for each in json.loads(said[0][0]))
    return Network("loopback", few[1], (many[0] - few[0]) / max(many[1] - few[1], 1e-9))


def probe(rank: int, store: str) -> None:
    """One of the two processes; the first one prints pairs of bytes and seconds."""
    torch.set_num_threads(1)
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # as between the processes of `pprgnn train --nproc`
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=PATIENCE)
    found = []
    for numbers, repeats in ((16, 200), (1 << 21, 20)):
        sent, received = torch.zeros(2 * numbers), torch.empty(2 * numbers)

        def send(sent: Tensor = sent, received: Tensor = received) -> None:
            dist.all_to_all_single(received, sent)  # half of it stays here

        found.append((numbers * sent.element_size(), _median_seconds(send, repeats)))
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def _median_seconds(run: Callable[[], object], repeats: int) -> float:
    samples = []
    for _ in range(repeats + 2):  # the first two to warm up
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples[2:])


# -------------------------------------------------------------------------------------------------- the prediction
@dataclass(frozen=True)
class Prediction:
    """Seconds of one step; the tensors (float64) have one number per part."""

    packing: Tensor
    interior: Tensor
    boundary: Tensor
    communication: Tensor
    bytes: Tensor  # sent by each part
    timed: list[int]  # parts whose computing times were measured, not scaled

    @property
    def per_part(self) -> Tensor:
        """Of each process."""
        return self.packing + torch.maximum(self.interior, self.communication) + self.boundary

    @property
    def seconds(self) -> float:
        """Of the slowest process."""
        return float(self.per_part.max())

    @property
    def computing(self) -> float:
        """Of the process that computes longest: what a step takes on a perfect network."""
        return float((self.packing + self.interior + self.boundary).max())


def simulate(
    adj: Adjacency,
    owner: Tensor,
    parts: int,
    network: Network,
    *,
    width: int = 64,
    threads: int = 1,
    adjoint: bool = False,
    facts: PartitionFacts | None = None,
) -> Prediction:
    """Predict one step of the forward pass, or of the adjoint; see the top of this file for the model.

    Args:
        adj: The whole graph.
        owner: The part of each node.
        parts: How many.
        network: Between any two of them.
        width: Channels of the state.
        threads: Of each process.
        adjoint: A step of the backward pass instead, which reads along Ãᵀ.
        facts: What :func:`describe` says of the partition, transposed for the adjoint, if it is known already.
    """
    if width < 1 or threads < 1:
        raise DataError(f"Width and threads must be whole numbers from 1 on, but are {width} and {threads}.")
    facts = describe(adj, owner, parts, transposed=adjoint) if facts is None else facts
    timed = [int(part) for part in facts.work.argsort(descending=True)[:TIMED] if facts.nodes[part]]
    team, before = _ImaginedTeam(parts), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        cuts = (cut(adj, owner, team, rank=part, exchange=_Stopwatch) for part in timed)
        found = [_time(part, width, adjoint) for part in cuts]
    finally:
        torch.set_num_threads(before)
    measured = torch.tensor(found, dtype=torch.float64)
    work = torch.stack([facts.sent_rows, facts.interior_work, facts.work - facts.interior_work]).double().cpu()
    seconds = work * (measured.sum(0) / work[:, timed].sum(1).clamp(min=1))[:, None]
    seconds[:, timed] = measured.t()
    row = width * adj.value.element_size()
    traffic = torch.maximum(facts.sent_rows, facts.halo_rows).double().cpu() * row
    communication = network.latency * facts.neighbours.double().cpu() + traffic / network.bandwidth
    packing, interior, boundary = seconds
    return Prediction(packing, interior, boundary, communication, facts.sent_rows.cpu() * row, timed)


class _ImaginedTeam(Team):
    """So many processes, none of which exists."""

    def __init__(self, size: int) -> None:
        self.joined, self.group, self.rank, self.size = False, None, 0, size
        self.device = torch.device("cpu")


class _Stopwatch(HaloExchange):
    """Packs the rows to send but carries nothing; notes when a step starts, has packed, waits, and goes on."""

    def __init__(
        self, send: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], team: Team
    ) -> None:
        super().__init__(send, send_counts, receive_counts, _ImaginedTeam(1))
        self.times: list[float] = []

    def start(self, x: Tensor) -> None:
        self.times = [time.perf_counter()]
        super().start(x)
        self.times.append(time.perf_counter())

    def wait(self) -> Tensor:
        self.times.append(time.perf_counter())
        received = super().wait().zero_()  # not what happened to be in memory, which may be slow to compute with
        self.times.append(time.perf_counter())
        return received

    def spans(self, end: float) -> tuple[float, float, float]:
        """Of packing, of the interior, and of the boundary."""
        start, packed, waits, goes_on = self.times
        return packed - start, waits - packed, end - goes_on


def _time(part: GraphPart, width: int, adjoint: bool) -> list[float]:
    """Median seconds of packing, interior and boundary of one step."""
    b = part.value.new_empty(part.num_nodes, width).uniform_()
    g, out, scratch = (acquire(b).copy_(b) for _ in range(3))
    weight = part.value.new_full((width, width), 1 / width)
    problem = Problem(b, weight, part.value.new_ones(()), part, resolve_activation("relu"))
    watch = (part.rows_t if adjoint else part.rows).exchange
    assert isinstance(watch, _Stopwatch)
    samples = []
    for _ in range(REPEATS + 1):
        if adjoint:  # one product: of the two terms, the second one has nothing below it
            pull_back(problem, out, [g], b, 1, 2, (True, True, True, False), False)
        else:
            step(problem, 0, g, out, scratch)
        samples.append(watch.spans(time.perf_counter()))
    return [statistics.median(span) for span in zip(*samples[1:], strict=True)]  # the first one to warm up
