"""States that are done with, kept for the next solve.

Fresh memory costs more than the arithmetic done in it: the system clears every page at its first touch. GPUs need
none of this, torch's allocator does it there. Where memory is too small, states can be in files.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import os
import sys
import tempfile
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SMALL = 1 << 16  # bytes; below, the system's allocator re-uses memory by itself
SIZES = 4  # how many different state sizes are kept, the latest ones

HUGE_PAGE = 1 << 21
MADV_HUGEPAGE = 14

Kind = tuple[int, torch.dtype, str | None]  # number of entries, their type, the folder of the file

SCRATCH = 5  # states that a solve or a backward pass works in, beside those it keeps

_free: OrderedDict[Kind, list[Tensor]] = OrderedDict()
_most = [SCRATCH]  # of one kind
_lock = threading.Lock()
_folders: list[str] = []  # the innermost last
_returned: deque[Tensor] = deque()  # what nobody refers to any more, on its way back
_folder_by_address: dict[int, str] = {}  # of every tensor in a file


def acquire(like: Tensor) -> Tensor:
    """An uninitialised, contiguous tensor of the shape of ``like``."""
    large = like.device.type == "cpu" and _size(like) >= max(SMALL, 1)
    folder = _folder() if large else None
    with _lock:
        stock = _free.get((like.numel(), like.dtype, folder)) if large else None
        if stock:
            return stock.pop().view(like.shape)
    if folder is not None:
        return in_file(like.shape, like.dtype, check_folder(folder))
    return _on_huge_pages(torch.empty(like.shape, dtype=like.dtype, device=like.device))


def buffer_index(n: int, keep: int, ends: bool) -> int:
    """Which buffer G⁽ⁿ⁾ goes to, such that G⁽⁰⁾ ... G⁽ᵏᵉᵉᵖ⁾ are in the first ones in the end; others alternate.

    That takes max(keep, 1) + 1 buffers. Of the ``ends`` alone, G⁽⁰⁾ and G⁽ᵏᵉᵉᵖ⁾, it takes three at most.
    """
    last = max(keep, 1)
    if n < last:
        return n if not ends else 2 * (n % 2)
    last_place = 1 if ends else last
    return last_place - (n - last) % 2


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _folder() -> str | None:
    return _folders[-1] if _folders else os.environ.get("PPRGNN_STATES") or None


@contextmanager
def states_on_disk(folder: str | Path) -> Iterator[None]:
    """Keep the states of all solves inside in files of this folder: the same numbers, slower, on less memory.

    ``PPRGNN_STATES=folder`` in the environment does the same for a whole program. The files vanish by themselves.

    Example:
        >>> import tempfile, torch, pprgnn
        >>> adj = pprgnn.Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
        >>> with tempfile.TemporaryDirectory() as folder, states_on_disk(folder):
        ...     pprgnn.solve(torch.eye(2), torch.eye(2), adj, depth=1).state
        tensor([[1., 1.],
                [1., 1.]])
    """
    where = check_folder(str(folder))
    _folders.append(where)
    try:
        yield
    finally:
        _folders.remove(where)
        with _lock:
            for kind in [kind for kind in _free if kind[2] == where]:
                del _free[kind]


def _on_huge_pages(tensor: Tensor) -> Tensor:
    """Ask Linux for pages of 2 MB: neighbours are read from all over a state, and small pages make that slow."""
    size = _size(tensor)
    if size >= 16 * HUGE_PAGE and tensor.device.type == "cpu" and sys.platform == "linux":
        start = -(-tensor.data_ptr() // HUGE_PAGE) * HUGE_PAGE
        length = (tensor.data_ptr() + size - start) // HUGE_PAGE * HUGE_PAGE
        # Only advice: where it is not taken nothing changes, so the answer does not matter.
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_HUGEPAGE)
    return tensor


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def release(*tensors: Tensor) -> None:
    """Hand over tensors that nobody else refers to."""
    for tensor in tensors:
        small = _size(tensor) < SMALL
        if small or tensor.device.type != "cpu" or tensor.is_inference():  # the last kind cannot serve in training
            continue
        key = (tensor.numel(), tensor.dtype, folder_of(tensor))
        if key[2] not in (None, _folder()):  # nobody would ask for this file again
            continue
        with _lock:
            stock = _free.setdefault(key, [])
            if len(stock) < _most[0]:
                stock.append(tensor.detach().view(-1))
            _free.move_to_end(key)
            while len(_free) > SIZES:
                _free.popitem(last=False)


def reserve(states: int) -> None:
    """A solve keeps so many states: as many are worth keeping for the next one."""
    _most[0] = max(_most[0], states + SCRATCH)


def release_buffers() -> None:
    """Return the memory and files kept for the next solve to the system: the states of one solve and a few."""
    _returned.clear()
    with _lock:
        _free.clear()
        _most[0] = SCRATCH


# ------------------------------------------------------------------------------- memory that comes back by itself
# What an operator returns belongs to the caller, and a compiler re-uses it as it likes. When the last tensor on it
# is gone, the memory serves the next solve.
def release_later(taken: Tensor) -> Tensor:
    """A tensor on the memory of ``taken``, which is in the pool again some time after the last use of it."""
    size = taken.numel() * taken.element_size()
    plain = taken.device.type == "cpu" and taken.dtype in (torch.float32, torch.float64)
    if size < SMALL or not plain or taken.is_inference():  # the pool keeps nothing that is small
        return taken
    array = taken.numpy()  # the tensor made of it keeps it alive, and so do all that share its storage
    # Only noted here: this runs wherever the last reference goes, even while the pool is locked.
    weakref.finalize(array, _note, taken).atexit = False
    return torch.from_numpy(array)


def _note(taken: Tensor) -> None:
    if len(_returned) < _most[0]:  # more than a solve needs would only fill the memory
        _returned.append(taken)


def collect() -> None:
    """Put what has come back into the pool."""
    while _returned:
        with suppress(IndexError):  # another thread may be faster
            release(_returned.popleft())


# ------------------------------------------------------------------------------------------------ states in files
# For graphs whose states do not fit the memory: the system keeps there what fits of them. The files have no names,
# so that they are gone with the tensors, also after a crash. Their space is reserved at once: a full disk shows
# before the work, instead of ending the process in the middle of it.
def in_file(shape: torch.Size, dtype: torch.dtype, folder: str) -> Tensor:
    """A tensor of this shape in a file of its own, filled with zeros."""
    count = math.prod(shape)
    size = count * dtype.itemsize
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            memory = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise OSError(
            f"A state of {size / 1e9:.3g} GB cannot be kept in the folder {folder!r} ({error.strerror}); make "
            f"room there, choose another folder, or use fewer grad_terms."
        ) from error
    flat = torch.frombuffer(memory, dtype=dtype, count=count)  # holds `memory`, and with it the file
    _folder_by_address[flat.data_ptr()] = folder
    weakref.finalize(memory, _folder_by_address.pop, flat.data_ptr(), None).atexit = False
    return flat.view(shape)


def folder_of(tensor: Tensor) -> str | None:
    """The folder of the file that this tensor is in, or ``None`` for memory."""
    return _folder_by_address.get(tensor.untyped_storage().data_ptr()) if _folder_by_address else None


def check_folder(folder: str) -> str:
    """Raise unless files can be made there."""
    if not os.path.isdir(folder):
        raise ValueError(f"States are to be kept in the folder {folder!r}, which does not exist; create it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"States are to be kept in the folder {folder!r}, where this user may not write.")
    return folder


# --------------------------------------------------------------------------------------------- numbers for objects
# Operators of compiled code take tensors and no objects, but can find them by number.
_numbers = itertools.count(1)
_objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def handle_of(thing: Any) -> Tensor:
    """A number for ``thing``, in a tensor: a graph compiled for one object then serves its copies as well."""
    number = next(_numbers)
    _objects[number] = thing
    with torch.inference_mode(False):  # such a tensor could not take part in training later
        return torch.tensor(number, device="cpu")


def object_of(handle: Tensor | None) -> Any | None:
    """The object of that number as long as it lives; ``None`` in another process than its own."""
    return None if handle is None else _objects.get(int(handle))
