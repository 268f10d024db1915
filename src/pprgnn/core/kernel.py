"""The fused CPU kernel, when it is there and fits; otherwise the callers use torch operations.

``kernel.cpp`` is built as an optional extension, one library per instruction set. Nothing depends on it: every
result is the same without, only slower. ``PPRGNN_KERNEL=torch`` in the environment switches it off.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pprgnn.core.recursion import Problem

MAX_CHANNELS = 256  # beyond, the dense product dominates and the vendor's library is the better one
_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_BY_CAPABILITY = {"AVX512": ("_kernel_avx512", "_kernel_avx2", "_kernel"), "AVX2": ("_kernel_avx2", "_kernel")}


@cache
def _library(choice: str | None) -> ctypes.CDLL | None:
    if choice == "torch":
        return None
    for stem in _BY_CAPABILITY.get(torch.backends.cpu.get_cpu_capability(), ("_kernel",)):
        for suffix in EXTENSION_SUFFIXES:
            path = Path(__file__).with_name(stem + suffix)
            if path.exists():
                try:
                    return ctypes.CDLL(str(path))
                except OSError:  # built for another system or without its OpenMP: go on without
                    continue
    return None


def library_for(problem: Problem) -> ctypes.CDLL | None:
    """The library that can run this problem, or ``None`` for the torch path."""
    x, matrix = problem.b, problem.adj.matrix
    fits = (
        x.device.type == "cpu"
        and x.dtype in _SUFFIX
        and 0 < x.size(1) <= MAX_CHANNELS
        and hasattr(problem.activation, "slope")
        and matrix.crow_indices().dtype == torch.int32
    )
    return _library(os.environ.get("PPRGNN_KERNEL")) if fits else None


def forward(library: ctypes.CDLL, problem: Problem, states: list[Tensor]) -> None:
    """Run all steps down to n = 0; ``states[n]`` is where G⁽ⁿ⁾ goes (far states share buffers)."""
    b, d = problem.b, problem.b.size(1)
    weight, eps = problem.weight.contiguous(), problem.eps.expand(d).contiguous()
    pointers = (ctypes.c_void_p * len(states))(*[state.data_ptr() for state in states])
    _call(
        library,
        "pprgnn_forward",
        b,
        *_graph(problem.adj.matrix, d),
        *(_pointer(t) for t in (b, weight, eps)),
        ctypes.c_double(problem.activation.slope),  # type: ignore[attr-defined]
        ctypes.c_int64(len(states) - 1),
        pointers,
    )


def adjoint(
    library: ctypes.CDLL,
    problem: Problem,
    weight_t: Tensor,
    z_bar: Tensor,
    below: Tensor,
    z_out: Tensor | None,
    b_bar: Tensor | None,
) -> Tensor:
    """P = Ãᵀ Z̄; returns G⁽ⁿ⁺¹⁾ᵀ P and, given ``z_out``, writes the next Z̄ there and adds it to ``b_bar``."""
    d = z_bar.size(1)
    outer, weight_t = torch.empty_like(weight_t, memory_format=torch.contiguous_format), weight_t.contiguous()
    _call(
        library,
        "pprgnn_adjoint",
        z_bar,
        *_graph(problem.adj.matrix_t, d),
        *(_pointer(t) for t in (weight_t, z_bar, below)),
        ctypes.c_double(problem.activation.slope),  # type: ignore[attr-defined]
        *(_pointer(t) for t in (z_out, b_bar, outer)),
    )
    return outer


def _graph(matrix: Tensor, channels: int) -> tuple[object, ...]:
    parts = (matrix.crow_indices(), matrix.col_indices(), matrix.values())
    return ctypes.c_int64(matrix.size(0)), ctypes.c_int64(channels), *(_pointer(part) for part in parts)


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _call(library: ctypes.CDLL, name: str, like: Tensor, *arguments: object) -> None:
    threads = ctypes.c_int(torch.get_num_threads())
    if getattr(library, f"{name}_{_SUFFIX[like.dtype]}")(*arguments, threads):
        raise MemoryError("No memory for the scratch space of the CPU kernel (a few megabytes per thread).")
