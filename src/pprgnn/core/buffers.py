"""States that are done with, kept for the next solve.

Fresh memory costs more than the arithmetic done in it: the system clears every page at its first touch. GPUs need
none of this, torch's allocator does it there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import torch
from torch import Tensor

SMALL = 1 << 16  # bytes; below, the system's allocator re-uses memory by itself
SIZES = 4  # how many different state sizes are kept, the latest ones

_free: OrderedDict[tuple[int, torch.dtype], list[Tensor]] = OrderedDict()
_lock = threading.Lock()


def take(like: Tensor) -> Tensor:
    """An uninitialised, contiguous tensor of the shape of ``like``."""
    with _lock:
        stock = _free.get((like.numel(), like.dtype)) if like.device.type == "cpu" else None
        if stock:
            return stock.pop().view(like.shape)
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


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
