"""States that are done with, kept for the next solve.

Fresh memory costs more than the arithmetic done in it: the system clears every page at its first touch. GPUs need
none of this, torch's allocator does it there.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import OrderedDict
from functools import cache

import torch
from torch import Tensor

SMALL = 1 << 16  # bytes; below, the system's allocator re-uses memory by itself
SIZES = 4  # how many different state sizes are kept, the latest ones

HUGE_PAGE = 1 << 21
MADV_HUGEPAGE = 14

_free: OrderedDict[tuple[int, torch.dtype], list[Tensor]] = OrderedDict()
_lock = threading.Lock()


def take(like: Tensor) -> Tensor:
    """An uninitialised, contiguous tensor of the shape of ``like``."""
    with _lock:
        stock = _free.get((like.numel(), like.dtype)) if like.device.type == "cpu" else None
        if stock:
            return stock.pop().view(like.shape)
    return _on_huge_pages(torch.empty(like.shape, dtype=like.dtype, device=like.device))


def _on_huge_pages(tensor: Tensor) -> Tensor:
    """Ask Linux for pages of 2 MB: neighbours are read from all over a state, and small pages make that slow."""
    size = tensor.numel() * tensor.element_size()
    if size >= 16 * HUGE_PAGE and tensor.device.type == "cpu" and sys.platform == "linux":
        start = -(-tensor.data_ptr() // HUGE_PAGE) * HUGE_PAGE
        length = (tensor.data_ptr() + size - start) // HUGE_PAGE * HUGE_PAGE
        # Only advice: where it is not taken nothing changes, so the answer does not matter.
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_HUGEPAGE)
    return tensor


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def give(*tensors: Tensor) -> None:
    """Hand over tensors that nobody else refers to."""
    for tensor in tensors:
        small = tensor.numel() * tensor.element_size() < SMALL
        if small or tensor.device.type != "cpu" or tensor.is_inference():  # the last kind cannot serve in training
            continue
        key = (tensor.numel(), tensor.dtype)
        with _lock:
            _free.setdefault(key, []).append(tensor.detach().view(-1))
            _free.move_to_end(key)
            while len(_free) > SIZES:
                _free.popitem(last=False)


def release_buffers() -> None:
    """Return the memory kept for the next solve to the system (``grad_terms`` + 3 states of the last graph)."""
    with _lock:
        _free.clear()
