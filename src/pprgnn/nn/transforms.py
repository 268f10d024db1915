"""The operators once more, as functions that ``torch.func`` can transform: grad, vjp, jacrev, vmap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pprgnn.nn import compiled


class _Looped(torch.autograd.Function):
    """Whatever comes in batches is done one by one."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        def part(i: int) -> list[Any]:
            given = zip(args, in_dims, strict=True)
            return [arg.select(dim, i) if isinstance(dim, int) else arg for arg, dim in given]

        results = [cls.apply(*part(i)) for i in range(info.batch_size)]  # type: ignore[no-untyped-call]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        return tuple(torch.stack(each) for each in zip(*results, strict=True)), (0,) * len(results[0])


class Solve(_Looped):
    """:data:`pprgnn.nn.compiled.solve`."""

    forward = staticmethod(compiled._run)
    setup_context = staticmethod(compiled._save_solve)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        return compiled._solve_gradients(_SolveBackward.apply, ctx, grad)


class _SolveBackward(_Looped):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return tuple(compiled._pull(*args))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("The gradient of a solve cannot be differentiated again.")


class Propagate(_Looped):
    """:data:`pprgnn.nn.compiled.propagate`."""

    forward = staticmethod(compiled._product)
    setup_context = staticmethod(compiled._save_product)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return compiled._product_gradients(Propagate.apply, _EdgeGradient.apply, ctx, grad)


class _EdgeGradient(_Looped):
    forward = staticmethod(compiled._edge_gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("The gradient of a product by its edge weights cannot be differentiated again.")
