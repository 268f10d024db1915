"""States in files, for graphs whose states do not fit the memory: the system keeps there what fits of them.

The files have no names, so that they are gone with the tensors, also after a crash. Their space is reserved at
once: a full disk shows before the work, instead of ending the process in the middle of it.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref

import torch
from torch import Tensor

_folders: dict[int, str] = {}  # of every tensor in a file, by its address


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
    _folders[flat.data_ptr()] = folder
    weakref.finalize(memory, _folders.pop, flat.data_ptr(), None).atexit = False
    return flat.view(shape)


def folder_of(tensor: Tensor) -> str | None:
    """The folder of the file that this tensor is in, or ``None`` for memory."""
    return _folders.get(tensor.untyped_storage().data_ptr()) if _folders else None


def check_folder(folder: str) -> str:
    """Raise unless files can be made there."""
    if not os.path.isdir(folder):
        raise ValueError(f"States are to be kept in the folder {folder!r}, which does not exist; create it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"States are to be kept in the folder {folder!r}, where this user may not write.")
    return folder
