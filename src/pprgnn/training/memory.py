"""How much memory there is, and how much training will need."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pprgnn.training.cgroup import memory_limit, memory_room
from pprgnn.training.errors import TrainingError

if TYPE_CHECKING:
    import torch

MEMINFO = Path("/proc/meminfo")
GIB, MIB = 1 << 30, 1 << 20

# The C library maps tensors from this size on one by one. Smaller ones share a heap, where states that come and go
# leave holes: measured, 1.3 to 1.8 times the memory that is in use.
MAPPED = 32 * MIB
HOLES = 1.6


@dataclass(frozen=True)
class Estimate:
    """Bytes that training needs at its peak, and what for."""

    total: int
    parts: Mapping[str, int]

    def describe(self) -> str:
        """One line, the largest part first; parts below a hundredth are left out."""
        largest = sorted(self.parts.items(), key=lambda part: -part[1])
        shown = ", ".join(f"{size_text(n)} {name}" for name, n in largest if n * 100 >= max(self.total, 1))
        return f"about {size_text(self.total)} ({shown})" if shown else f"about {size_text(self.total)}"


def estimate_memory(
    *,
    parameters: int,
    layers: Sequence[tuple[int, int]],
    num_nodes: int,
    num_edges: int,
    grad_terms: int | None,
    checkpoint: bool,
    num_classes: int,
    bytes_per_number: int = 4,
    symmetric: bool = True,
    held: int = 0,
    optimizer_copies: int = 2,
    best_copies: int = 1,
    depth: int = 30,
    copies_between: int = 0,
    smooth_input: bool = False,
) -> Estimate:
    """What training a stack of infinite-depth layers needs at its peak, without Python and its libraries.

    For a gradient of N terms, a layer holds N + 1 states (with checkpointing 3) from its forward to its backward
    pass, see `core/adjoint.py`, and some more while it works, which `core/backend/buffers.py` keeps for the next
    one.

    Args:
        parameters: how many numbers are learned.
        layers: width of input and output of each layer, in their order.
        num_nodes: nodes in the largest step.
        num_edges: stored entries in the largest step: both directions, and self-loops.
        grad_terms: terms of the gradient; ``None``: all.
        checkpoint: whether states are computed again in the backward pass.
        num_classes: outputs per node; 0 on graph tasks, where they are few.
        bytes_per_number: 4 for single precision.
        symmetric: whether the matrix is its own transpose; otherwise both are there.
        held: bytes of the data set, as far as they are not loaded yet.
        optimizer_copies: numbers that the optimiser keeps per parameter; 2 for Adam.
        best_copies: copies of the parameters that are kept, such as the best ones so far.
        depth: how deep a layer is expected to go; matters when it keeps all states (``grad_terms=None``).
        copies_between: further tensors kept per layer after the first, each as large as its input: one for
            dropout, one for a norm, one for a residual connection.
        smooth_input: whether layers average their input over the neighbours first.
    """
    from pprgnn.core.backend.passes import FEW_TERMS  # here, since it imports torch

    terms = depth if grad_terms is None else grad_terms
    repeats = checkpoint and terms > 1  # one state is kept either way
    column = num_nodes * bytes_per_number
    kept = sum(_allocated(3 if repeats else terms + 1, column * width) for _, width in layers)
    between = sum(_allocated(copies_between, column * width) for width, _ in layers[1:])
    # Each width has buffers of its own. Two more states for the input term, or for gradients on their way, and two
    # to smooth it.
    widths = {width for _, width in layers}
    room = 3 if not repeats else 4 if terms <= FEW_TERMS else terms + 3
    working = sum(_allocated(room, column * width) for width in widths)
    working += _allocated(4 if smooth_input else 2, column * max(widths, default=0))
    matrix = num_edges * (4 + bytes_per_number) + 4 * (num_nodes + 1)
    parts = {
        "for states that the gradient needs": kept + between,
        "to work in": working,
        "for outputs": _allocated(3, column * num_classes),
        "for the graph": matrix * (1 if symmetric else 2) + 16 * num_nodes,  # with the order of its nodes
        "for parameters": parameters * bytes_per_number * (2 + optimizer_copies + best_copies),
        "for the data": held,
    }
    return Estimate(sum(parts.values()), parts)


def _allocated(count: int, size: int) -> int:
    """Bytes of so many tensors of a size, with the holes between them."""
    return int(count * size * (HOLES if size < MAPPED else 1))


def choose_checkpointing(keep: Estimate, checkpoint: Estimate, available: int | None) -> bool:
    """Whether to compute states again instead of keeping them: only if memory asks for it.

    Raises :class:`TrainingError` if neither fits. ``None``, memory that is not known, is taken to be enough.
    """
    if available is None or keep.total <= available:
        return False
    if checkpoint.total <= available:
        return True
    least = min(keep, checkpoint, key=lambda estimate: estimate.total)
    even = " even with checkpointing" if least is checkpoint else ""
    raise TrainingError(
        f"Training needs {least.describe()}{even}, but {size_text(available)} are available; use a smaller hidden "
        f"width, fewer layers, fewer grad_terms or smaller batches, or a machine with more memory."
    )


def available_memory(device: str | torch.device = "cpu") -> int | None:
    """Bytes that can still be used on a device; ``None``: not known.

    On the CPU, what the system could free for us or what the container's limit leaves, whichever is less.
    """
    if str(device).startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return _least(_meminfo("MemAvailable") or _sysconf("SC_AVPHYS_PAGES"), memory_room())


def total_memory() -> int | None:
    """Bytes of the machine, or of the container if it has less; ``None``: not known."""
    return _least(_meminfo("MemTotal") or _sysconf("SC_PHYS_PAGES"), memory_limit())


def _least(*sizes: int | None) -> int | None:
    return min((size for size in sizes if size is not None), default=None)


def _meminfo(name: str) -> int | None:
    try:
        lines = MEMINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((int(words[1]) * 1024 for words in found), None)


def _sysconf(name: str) -> int | None:
    """Where there is no /proc; macOS knows the pages it has, but not how many are free."""
    try:
        pages, size = os.sysconf(name), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return pages * size if pages > 0 else None


def size_text(size: int) -> str:
    """A number of bytes as people say it."""
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / MIB:.1f} MiB"
