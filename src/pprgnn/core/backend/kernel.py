"""The compiled CPU code, when it is there and fits; otherwise the callers use torch operations.

``kernel.cpp``, the fused kernel, is built as an optional extension, one library per instruction set, and so is
``graph.cpp``, which builds matrices, once. Nothing depends on them: every result is the same without, only slower.
``PPRGNN_KERNEL=torch`` in the environment switches both off.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from pprgnn.core.activation import TANH, Activation

if TYPE_CHECKING:
    from pprgnn.core.problem import Problem, Recursion
    from pprgnn.core.recursion import Gradients

MAX_CHANNELS = 256  # beyond, the dense product dominates and the vendor's library is the better one
_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_BY_CAPABILITY = {"AVX512": ("_kernel_avx512", "_kernel_avx2", "_kernel"), "AVX2": ("_kernel_avx2", "_kernel")}


def _library(choice: str | None) -> ctypes.CDLL | None:
    stems = _BY_CAPABILITY.get(torch.backends.cpu.get_cpu_capability(), ("_kernel",))
    return None if choice == "torch" else _load(stems)


@cache
def _load(stems: tuple[str, ...]) -> ctypes.CDLL | None:
    for stem in stems:
        for suffix in EXTENSION_SUFFIXES:
            path = Path(__file__).parents[1] / (stem + suffix)
            if path.exists():
                try:
                    return ctypes.CDLL(str(path))
                except OSError:  # built for another system or without its OpenMP: go on without
                    continue
    return None


def _library_for(matrix: Tensor, x: Tensor) -> ctypes.CDLL | None:
    fits = x.device.type == "cpu" and x.dtype in _SUFFIX and x.size(1) > 0
    if not fits or matrix.crow_indices().dtype != torch.int32:
        return None
    return _library(os.environ.get("PPRGNN_KERNEL"))


def graph_library(like: Tensor, num_nodes: int, num_entries: int) -> ctypes.CDLL | None:
    """The library of ``graph.cpp``, or ``None`` for torch: it works on the CPU and counts in 32 bits."""
    fits = like.device.type == "cpu" and max(num_nodes, num_entries) < 2**31 - 1
    return _load(("_graph",)) if fits and os.environ.get("PPRGNN_KERNEL") != "torch" else None


def library_for(problem: Recursion) -> ctypes.CDLL | None:
    """The library that can run all steps of this problem, or ``None`` for torch operations: the one choice."""
    adj = getattr(problem, "adj", None)
    if adj is None or problem.b.size(1) > MAX_CHANNELS or phi_number(problem.activation) is None:
        return None
    return _library_for(adj.matrix, problem.b)


def library_name() -> str:
    """What runs the steps on this machine: the name of the fused kernel that was loaded, or ``torch``."""
    library = _library(os.environ.get("PPRGNN_KERNEL"))
    return "torch" if library is None else Path(library._name).name.partition(".")[0].lstrip("_")


def multiply(matrix: Tensor, x: Tensor, out: Tensor) -> Tensor:
    """Sparse ``matrix @ x`` into ``out``: no allocation."""
    library = _library_for(matrix, x) if x.is_contiguous() and out.is_contiguous() else None
    if library is None:
        return torch.addmm(out, matrix, x, beta=0, out=out)
    _call(library, "pprgnn_product", matrix, x, out)
    return out


def descend(
    library: ctypes.CDLL,
    problem: Problem,
    rows: PartRows,
    states: list[Tensor],
    n: int = 0,
    halo: Tensor | None = None,
    order: Tensor | None = None,
    warm: bool = False,
) -> None:
    """Run steps down to G⁽ⁿ⁾, which goes to ``states[0]``, G⁽ⁿ⁺¹⁾ to ``states[1]`` (far states share buffers).

    The last state is φ(B), or there already if ``warm``. Of each, the rows that need no others' rows or, given
    those as ``halo``, the rows that do. Given ``order``, ``states[0]`` comes out in the caller's node order.
    """
    weight, eps = problem.weight.contiguous(), problem.eps.expand(problem.b.size(1)).contiguous()
    given = (problem.b, *_far(rows, halo), weight, eps, _phi(problem), n, len(states) - 1)
    _call(library, "pprgnn_descend", rows.near, *given, states, order, None, int(warm))


def look(sketch: Tensor, weight: Tensor, faint: float) -> tuple[Tensor, float] | None:
    """What :func:`pprgnn.core.training_step.look` answers, or ``None`` where C cannot see the numbers."""
    probes, channels = sketch.shape
    square = weight.shape == (channels, channels) and weight.dtype == sketch.dtype in _SUFFIX and channels > 0
    library = _library(os.environ.get("PPRGNN_KERNEL")) if square and sketch.device.type == "cpu" else None
    if library is None:
        return None
    shares, norm = torch.empty_like(sketch[0]), ctypes.c_double()
    function = getattr(library, f"pprgnn_look_{_SUFFIX[sketch.dtype]}")
    try:
        call(function, channels, probes, sketch, weight, ctypes.c_double(faint), shares, ctypes.byref(norm))
    except (ValueError, RuntimeError):  # no numbers in memory: tensors of torch.func
        return None
    return shares, norm.value


def iterate(
    library: ctypes.CDLL,
    matrix: Tensor,
    b: Tensor,
    weight: Tensor,
    phi: float,
    states: list[Tensor],
    at: Tensor | None,
    warm: bool,
) -> None:
    """X ← φ(MXW + B), or φ'(at) ⊙ (MXW + B), once for each state but the last, which it starts from.

    Unless ``warm``, the last one is filled first, with X = 0 on the right-hand side.
    """
    far, eps = _far(PartRows.whole(matrix), None), torch.zeros_like(weight[0])  # nothing decays
    given = (b, *far, weight.contiguous(), eps, ctypes.c_double(phi), 0, len(states) - 1)
    _call(library, "pprgnn_descend", matrix, *given, states, None, at, int(warm))


def ascend(
    library: ctypes.CDLL,
    problem: Problem,
    rows: PartRows,
    sums: Gradients,
    states: list[Tensor],
    z: list[Tensor],
    terms: int,
    n: int = 0,
    halo: Tensor | None = None,
) -> None:
    """Add term n of the adjoint, and as many as there are ``states`` G⁽ⁿ⁺¹⁾, ..., for the rows of :func:`descend`.

    Z̄⁽ⁿ⁾ is in ``z[0]``, the next one goes to ``z[1]``, and so on, taking turns.
    """
    weight, eps = problem.weight.contiguous(), problem.eps.expand(problem.weight.size(0)).contiguous()
    given = (weight, weight.t().contiguous(), *_far(rows, halo), eps, _phi(problem), n, len(states), terms)
    _call(library, "pprgnn_ascend", rows.near, *given, states, z, sums.b, sums.weight, sums.eps)


def _far(rows: PartRows, halo: Tensor | None) -> tuple[object, ...]:
    """The entries that read others' rows, those rows, and which rows of the result are meant."""
    if halo is None:
        return None, None, None, None, 0, rows.interior
    far = rows.far
    indices = (far.crow_indices(), far.col_indices(), far.values())
    return *indices, halo, rows.interior, rows.near.size(0)


def phi_number(activation: Activation) -> float | None:
    """How the kernel is told φ: the slope below 0, or 2 for tanh; ``None``: it does not know it."""
    return 2.0 if isinstance(activation, type(TANH)) else getattr(activation, "slope", None)


def _phi(problem: Problem) -> ctypes.c_double:
    number = phi_number(problem.activation)
    assert number is not None
    return ctypes.c_double(number)


def _pointer(tensor: Tensor) -> int:
    """Where its numbers are; C code cannot see strides, other devices, or that there are no numbers."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(
            f"The CPU kernel needs contiguous tensors on the CPU, but one of shape {tuple(tensor.shape)} has "
            f"strides {tensor.stride()} on {tensor.device}; use tensor.contiguous(), or PPRGNN_KERNEL=torch."
        )
    pointer = tensor.data_ptr()
    if pointer == 0 and tensor.numel():
        raise ValueError(
            f"The CPU kernel needs tensors with numbers in memory, but {type(tensor).__name__} has none (a tensor "
            f"subclass, a fake tensor or one of torch.func); use a plain tensor."
        )
    return pointer


def _argument(value: object) -> object:
    if isinstance(value, list):
        return (ctypes.c_void_p * len(value))(*map(_pointer, value))
    if value is None or isinstance(value, Tensor):
        return ctypes.c_void_p(None if value is None else _pointer(value))
    return ctypes.c_int64(value) if isinstance(value, int) else value


def call(function: Callable[..., int], *arguments: object) -> None:
    """Run a function of a library on numbers and contiguous tensors, with the threads that torch uses."""
    if function(*(_argument(argument) for argument in arguments), ctypes.c_int(torch.get_num_threads())):
        raise MemoryError("No memory for the scratch space of the CPU kernel.")


def _call(library: ctypes.CDLL, name: str, matrix: Tensor, *arguments: object) -> None:
    graph = (matrix.crow_indices(), matrix.col_indices(), matrix.values())
    like = next(argument for argument in arguments if isinstance(argument, Tensor))
    call(getattr(library, f"{name}_{_SUFFIX[like.dtype]}"), matrix.size(0), like.size(1), *graph, *arguments)


# ------------------------------------------------------------------------------------------ parts of a graph
class Exchange(Protocol):
    """Fetches the rows that others hold, while the rest is computed."""

    def start(self, x: Tensor) -> None:
        """Send the rows of ``x`` that others need, and begin to receive theirs."""

    def wait(self) -> Tensor:
        """The rows of others; valid until the next start."""


@dataclass(frozen=True)
class PartRows:
    """Rows of a matrix; first the interior ones, which need nothing of others."""

    near: Tensor  # CSR (rows, rows): entries that read rows here
    far: Tensor  # CSR (rows - interior, rows of others)
    interior: int
    exchange: Exchange | None  # None: all rows are here

    @classmethod
    def whole(cls, matrix: Tensor) -> PartRows:
        """All rows of a matrix that is here."""
        return cls(matrix, matrix, matrix.size(0), None)

    def halves(self, x: Tensor) -> Iterator[Tensor | None]:
        """``None`` for what needs no rows of others, which travel meanwhile; then those rows, for the rest."""
        if self.exchange is None:
            yield None
            return
        self.exchange.start(x)
        yield None
        yield self.exchange.wait()

    def product(self, x: Tensor, out: Tensor) -> Tensor:
        """The rows of the matrix times all of x, of which these rows are here."""
        for halo in self.halves(x):
            if halo is None:
                multiply(self.near, x, out=out)
            elif self.far.values().numel():
                boundary = out[self.interior :]
                torch.addmm(boundary, self.far, halo, out=boundary)
        return out
