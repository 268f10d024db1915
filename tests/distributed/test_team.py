"""What the members of a team settle with each other, and the processes in which the tests of this folder run."""

import math
import os
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pprgnn.distributed.team import OLD_NAMES, Team
from tests.distributed.processes import Lost, run_team


def plain(x: torch.Tensor | None) -> Any:
    return None if x is None else x.tolist()


def settle(team: Team) -> dict[str, Any]:
    """Every method once, with what depends on the rank."""
    rank = team.rank
    own = torch.full((rank, 2), float(rank))
    tensors = {"a": torch.arange(3), "none": torch.empty(0, 2), "one": torch.tensor(0.5)}
    return {
        "who": (rank, team.size, team.is_main),
        "all_reduce": team.all_reduce(torch.tensor([1.0, rank])).tolist(),
        "all_sum": team.all_sum(1, rank, 0.5),
        "all_max": team.all_max(-1.0 * rank),
        "all_true": (team.all_true(True), team.all_true(rank != 1), team.all_true(False)),
        "broadcast_number": team.broadcast_number(10.0 + rank),
        "gather_rows": [
            plain(team.gather_rows(each)) for each in (own, torch.full((1,), rank, dtype=torch.int32), own[:0])
        ],
        "all_gather": team.all_gather({"rank": rank}),
        "broadcast": team.broadcast({"rank": rank}),
        "broadcast_tensors": [
            (name, plain(each)) for name, each in team.broadcast_tensors(tensors if team.is_main else {})
        ],
    }


def expected(rank: int, size: int) -> dict[str, Any]:
    ranks = range(size)
    several = [[each, each] for each in ranks for _ in range(each)]  # as many rows as the rank says
    return {
        "who": (rank, size, rank == 0),
        "all_reduce": [size, sum(ranks)],
        "all_sum": [size, sum(ranks), 0.5 * size],
        "all_max": 0.0,
        "all_true": (True, size < 2, False),
        "broadcast_number": 10.0,
        "gather_rows": [whole if rank == 0 else None for whole in (several, list(ranks), [])],
        "all_gather": [{"rank": each} for each in ranks],
        "broadcast": {"rank": 0},
        "broadcast_tensors": [("a", [0, 1, 2]), ("none", []), ("one", 0.5)],
    }


def settle_whole() -> dict[str, Any]:
    return settle(Team())


def settle_alone() -> dict[str, Any]:
    return settle(Team.alone())


def look_for_nan() -> list[float]:
    team = Team()
    found = [team.all_max(math.nan if team.rank == bad else 5.0) for bad in range(team.size)]
    return [*found, team.all_max(math.nan if team.is_main else math.inf)]


def take_turns(folder: str) -> list[str]:
    with Team().main_first():
        seen = os.listdir(folder)
        if Team().is_main:
            time.sleep(0.2)
            Path(folder, "prepared").touch()
    return seen


def settle_group(members: list[int]) -> dict[str, Any] | None:
    group = dist.new_group(members)
    return settle(Team(group)) if dist.get_rank() in members else None


def test_alone():
    assert settle(Team()) == expected(0, 1)
    assert not Team().joined


@pytest.mark.parametrize("size", [1, 2, 3])
def test_several(size):
    for rank, found in enumerate(run_team(settle_whole, size)):
        assert found == expected(rank, size)


def test_the_largest_is_nan_wherever_one_is():
    for found in run_team(look_for_nan, 3):
        assert all(map(math.isnan, found)), found


def test_alone_among_others():
    for found in run_team(settle_alone, 2):
        assert found == expected(0, 1)


def test_others_find_what_the_first_one_prepares(tmp_path):
    assert run_team(take_turns, 3, str(tmp_path)) == [[], ["prepared"], ["prepared"]]


def test_members_of_one_machine(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert Team().local_size == 1  # alone


@pytest.mark.parametrize("members", [[0, 1], [0, 2], [1, 2]])
def test_some_of_the_processes(members):
    answers = run_team(settle_group, 3, members)
    for rank, member in enumerate(members):
        assert answers[member] == expected(rank, 2)


# ------------------------------------------------------------------------------------- the processes of the tests
def fail_in_one() -> None:
    if Team().rank == 1:
        raise ValueError("no good")
    Team().all_reduce(torch.ones(3))


def warn() -> None:
    warnings.warn("careful", UserWarning, stacklevel=1)


def facts() -> tuple[int, int, str]:
    return Team().size, torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def leave() -> None:
    os._exit(3)


def sleep() -> None:
    time.sleep(60)


def test_errors_and_warnings_of_one_process_are_raised_here():
    with pytest.raises(ValueError, match="no good") as caught:
        run_team(fail_in_one, 2)
    assert "fail_in_one" in str(caught.value.__cause__)
    with pytest.raises(UserWarning, match="careful"):
        run_team(warn, 2)
    assert run_team(facts, 2) == [(2, 1, "1")] * 2  # and they live on


def test_who_does_not_answer_is_ended():
    with pytest.raises(TimeoutError, match=r"Ranks \[0\] were not done in 0\.5 s"):
        run_team(sleep, 1, limit=0.5)
    with pytest.raises(Lost):
        run_team(leave, 1)


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_old_names_work_with_a_warning(old, new):
    team = Team()
    with pytest.warns(DeprecationWarning, match=f"is now called Team.{new}"):
        assert getattr(team, old) == getattr(team, new)


def test_other_names_are_unknown():
    with pytest.raises(AttributeError, match="'Team' object has no attribute 'absent'"):
        _ = Team().absent
