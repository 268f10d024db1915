"""Processes that train together: starting them with torch's own launcher, and joining them."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pprgnn.distributed.team import Team

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells each process
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
RUN_ID = "TORCHELASTIC_RUN_ID"
SPEAKER = "PPRGNN_SPEAKER"  # who says that a process has ended, if not those that are left
FROM_OUTSIDE = [-number for number in signal.Signals if number not in (signal.SIGTERM, signal.SIGINT)]
PR_SET_PDEATHSIG = 1  # of prctl(2)
GRACE = 25  # seconds that the others have to end after one has; then torch ends them


def is_launched() -> bool:
    """Whether torchrun (or who speaks as it does) has started this process as one of several."""
    return all(name in os.environ for name in LAUNCHED)


def is_restarted() -> bool:
    """Whether torchrun has started the job again after a failure."""
    return is_launched() and int(os.environ.get(RESTARTS, "0")) > 0


def job_name() -> str | None:
    """What torchrun calls the job, the same after a restart; ``None``: it has no name."""
    name = os.environ.get(RUN_ID, "none")
    return None if name in ("", "none") else name


def join(device: str = "auto") -> Team:
    """Join the others: NCCL between GPUs, gloo between CPUs."""
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    from pprgnn.distributed.team import Team

    _end_with_launcher()
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    elif sys.platform == "linux" and os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all on this machine: nothing leaves it
    store, rank, size = next(rendezvous("env://"))
    # After a restart the store still holds the addresses of those that ended.
    store = PrefixStore(f"start {os.environ.get(RESTARTS, '0')}", store)
    dist.init_process_group("nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=size)
    return Team()


def _end_with_launcher() -> None:
    """Linux ends this process when our launcher is killed: nobody would tell it, and it would wait for ever."""
    if sys.platform == "linux" and SPEAKER in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def leave() -> None:
    """Leave the others, in good order."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def is_about_others(error: BaseException) -> bool:
    """Whether it says that another process cannot be reached, rather than that something is wrong here."""
    import torch.distributed as dist

    return isinstance(error, RuntimeError) and (isinstance(error, dist.DistError) or "gloo" in str(error))


def is_first_to_tell(text: str, about_others: bool) -> bool:
    """Whether no other process has said this; that others cannot be reached is news only if nobody said why."""
    import torch.distributed as dist

    if about_others and SPEAKER in os.environ:
        return False
    try:  # the store is not in a process that may have ended, but in torchrun
        store = dist.distributed_c10d._get_default_store()
        if store.add("told", 1) > 1 and about_others:
            return False
        return int(store.add(f"told: {text}", 1)) == 1
    except (RuntimeError, ValueError):
        return True  # nobody can be asked


def launch(arguments: Sequence[str], processes: int, restarts: int = 0) -> tuple[int, str] | None:
    """Run ``python -m pprgnn ARGUMENTS`` in so many processes; ``None``: all went well.

    Otherwise the process that failed first, and how: ``"exit code 1"``, ``"SIGKILL"``, ... After Ctrl-C it is a
    ``KeyboardInterrupt``, once all have ended.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # we say it in a sentence
    os.environ[SPEAKER] = "launcher"
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=restarts,
        local_addr="localhost",
        shutdown_timeout=GRACE,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "pprgnn", *arguments)
    except ChildFailedError as error:
        # Who was killed is the cause; who noticed comes after it, but within the same second.
        ended = sorted(error.failures.items(), key=lambda item: (item[1].exitcode not in FROM_OUTSIDE, item[0]))
        rank, failure = ended[0]
        how = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        return rank, how
    except SignalException as error:
        raise KeyboardInterrupt from error
    return None
