"""What memory there is, what training needs, and what follows from both."""

import subprocess
import sys

import pytest
import torch

from pprgnn.training import environment
from pprgnn.training.environment import GIB, MIB, available_memory, total_memory
from pprgnn.training.errors import TrainingError
from pprgnn.training.memory import Estimate, choose_checkpointing, estimate_memory

# Big enough that every state is mapped by itself: 2^20 nodes, states of 4 MiB per channel.
CASE = {
    "parameters": 1000,
    "layers": [(32, 16), (16, 16)],
    "num_nodes": 1 << 20,
    "num_edges": 1 << 23,
    "grad_terms": 5,
    "checkpoint": False,
    "num_classes": 8,
}
STATE = 4 * 16 * MIB


def parts(**changes):
    return list(estimate_memory(**CASE | changes).parts.values())


# --------------------------------------------------------------------------------------------------- available
def test_available_memory_follows_what_is_used():
    if sys.platform != "linux":
        pytest.skip("other systems do not tell")
    assert 0 < available_memory() < total_memory()
    assert abs(available_memory("cpu") - available_memory(torch.device("cpu"))) < GIB  # others may run, too


def test_a_limit_of_the_container_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "MEMINFO", tmp_path / "meminfo")
    environment.MEMINFO.write_text("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  500 kB\n")
    monkeypatch.setattr(environment, "memory_limit", lambda: None)
    monkeypatch.setattr(environment, "memory_room", lambda: None)
    assert (total_memory(), available_memory()) == (1000 * 1024, 500 * 1024)
    monkeypatch.setattr(environment, "memory_limit", lambda: 700)
    monkeypatch.setattr(environment, "memory_room", lambda: 0)
    assert (total_memory(), available_memory()) == (700, 0)


def test_without_proc_the_system_is_asked_and_may_not_know(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "MEMINFO", tmp_path / "absent")
    monkeypatch.setattr(environment, "memory_limit", lambda: None)
    monkeypatch.setattr(environment, "memory_room", lambda: None)
    answers = {"SC_PHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}

    def sysconf(name):
        if name not in answers:
            raise ValueError("unrecognized configuration name")  # macOS on SC_AVPHYS_PAGES
        return answers[name]

    monkeypatch.setattr(environment.os, "sysconf", sysconf)
    assert (total_memory(), available_memory()) == (40960, None)


def test_a_gpu_tells_itself(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (device.index, 10))
    assert available_memory("cuda:7") == available_memory(torch.device("cuda:7")) == 7


# ---------------------------------------------------------------------------------------------------- estimate
def test_every_part_by_hand():
    graph = 8 * (1 << 23) + 4 * ((1 << 20) + 1) + 16 * (1 << 20)
    outputs, parameters = 3 * 32 * MIB, 1000 * 4 * 5
    assert parts() == [2 * 6 * STATE, 5 * STATE, outputs, graph, parameters, 0]
    assert parts(checkpoint=True)[:2] == [2 * 3 * STATE, (4 + 2) * STATE]  # each state is found anew
    assert parts(checkpoint=True, grad_terms=9)[:2] == [2 * 3 * STATE, (12 + 2) * STATE]  # too long
    assert parts(grad_terms=None)[:2] == [2 * 31 * STATE, 5 * STATE]
    assert parts(grad_terms=1, checkpoint=True) == parts(grad_terms=1)  # nothing to repeat
    assert parts(smooth_input=True)[:2] == [2 * 6 * STATE, 7 * STATE]
    assert parts(copies_between=2)[0] == 2 * 6 * STATE + 2 * STATE
    assert parts(layers=[(32, 16), (16, 32)])[:2] == [6 * 3 * STATE, 3 * 3 * STATE + 2 * 2 * STATE]
    assert parts(symmetric=False)[3] == 2 * graph - 16 * (1 << 20)
    assert parts(held=123)[5] == 123
    assert parts(num_classes=0)[2] == 0
    assert estimate_memory(**CASE).total == sum(parts())


def test_small_states_leave_holes():
    small = parts(num_nodes=1 << 16)
    assert small[0] == pytest.approx(1.6 * 2 * 6 * STATE / 16, rel=1e-6)


def test_the_largest_part_comes_first():
    estimate = Estimate(11 * GIB, {"a": GIB, "b": 10 * GIB, "c": 1000, "d": 0})
    assert estimate.describe() == "about 11.0 GiB (10.0 GiB b, 1.0 GiB a)"
    assert Estimate(3 * MIB, {"a": 3 * MIB}).describe() == "about 3.0 MiB (3.0 MiB a)"


TRAIN = """
import json, os, resource, sys, torch
from pprgnn import Adjacency
from pprgnn.nn import PPRConv
from pprgnn.nn.linear_output import AS_PUBLISHED  # which training's networks are made of
torch.set_num_threads(1)

def train(num_nodes, checkpoint):
    near = torch.arange(num_nodes)
    edges = torch.cat([torch.stack([near, near.roll(k)]) for k in (1, -1)], dim=1)
    x = torch.randn(num_nodes, 4)
    start = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
    adj = Adjacency.from_edge_index(edges, num_nodes=num_nodes)
    options = {"depth": 4, "grad_terms": 4, "checkpoint": checkpoint, **AS_PUBLISHED}
    net = torch.nn.ModuleList([PPRConv(4, 16, **options), PPRConv(16, 16, **options)])
    net[1](net[0](x, adj), adj).sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - start

train(1000, False)
for checkpoint in (False, True):
    child = os.fork()  # peaks of its own, without importing everything again
    if not child:
        print(train(550_000, checkpoint), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_estimate_is_what_training_takes():
    command = [sys.executable, "-W", "ignore", "-c", TRAIN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    case = {"parameters": 1000, "layers": [(4, 16), (16, 16)], "num_nodes": 550_000, "num_edges": 1_100_000}
    for checkpoint, growth in zip((False, True), map(int, done.stdout.split()), strict=True):
        estimate = estimate_memory(**case, grad_terms=4, checkpoint=checkpoint, num_classes=0)
        assert 0.85 * growth < estimate.total < 1.4 * growth, (checkpoint, estimate.total / growth)


# ------------------------------------------------------------------------------------------------------ choice
KEEP, AGAIN = Estimate(30 * GIB, {"to keep": 30 * GIB}), Estimate(20 * GIB, {"to repeat": 20 * GIB})


def test_states_are_computed_again_only_if_memory_asks_for_it():
    assert choose_checkpointing(KEEP, AGAIN, None) is False
    assert choose_checkpointing(KEEP, AGAIN, 30 * GIB) is False
    assert choose_checkpointing(KEEP, AGAIN, 30 * GIB - 1) is True
    assert choose_checkpointing(KEEP, AGAIN, 20 * GIB) is True


def test_what_does_not_fit_gets_a_sentence():
    sentence = (
        r"Training needs about 20.0 GiB \(20.0 GiB to repeat\) even with checkpointing, but 12.5 GiB are available"
    )
    with pytest.raises(TrainingError, match=sentence):
        choose_checkpointing(KEEP, AGAIN, 25 * GIB // 2)
    with pytest.raises(TrainingError, match=r"needs about 20.0 GiB \(20.0 GiB to repeat\), but 0.0 MiB"):
        choose_checkpointing(AGAIN, KEEP, 0)  # one layer with few terms: checkpointing is no help
