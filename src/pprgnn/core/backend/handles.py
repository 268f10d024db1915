"""Numbers for objects: operators of compiled code take tensors and no objects, but can find them by number."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch
from torch import Tensor

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
