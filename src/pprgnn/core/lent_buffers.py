"""Memory of the pool that comes back by itself, for tensors whose end nobody announces.

What an operator returns belongs to the caller, and a compiler re-uses it as it likes. When the last tensor on it
is gone, the memory serves the next solve.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque

import torch
from torch import Tensor

from pprgnn.core import buffers

_returned: deque[Tensor] = deque()


def lend(taken: Tensor) -> Tensor:
    """A tensor on the memory of ``taken``, which is in the pool again some time after the last use of it."""
    size = taken.numel() * taken.element_size()
    plain = taken.device.type == "cpu" and taken.dtype in (torch.float32, torch.float64)
    if size < buffers.SMALL or not plain or taken.is_inference():  # the pool keeps nothing that is small
        return taken
    array = taken.numpy()  # the tensor made of it keeps it alive, and so do all that share its storage
    # Only noted here: this runs wherever the last reference goes, even while the pool is locked.
    weakref.finalize(array, _note, taken).atexit = False
    return torch.from_numpy(array)


def _note(taken: Tensor) -> None:
    if len(_returned) < buffers.most():  # more than a solve needs would only fill the memory
        _returned.append(taken)


def forget_returned() -> None:
    """Drop what has come back."""
    _returned.clear()


def reclaim() -> None:
    """Put what has come back into the pool."""
    while _returned:
        with contextlib.suppress(IndexError):  # another thread may be faster
            buffers.give(_returned.popleft())
