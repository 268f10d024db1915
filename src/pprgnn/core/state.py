"""What an :class:`~pprgnn.Adjacency` consists of, for storing it: tensors, and facts as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, int64

from pprgnn.core.csr import index_dtype
from pprgnn.core.entries import Normalization

NORMALIZATIONS: dict[str, Normalization] = {"sym": "sym", "row": "row", "none": None}
TRUTH = {"yes": True, "no": False}


class Facts(NamedTuple):
    """What is known about a matrix besides its entries."""

    num_nodes: int
    normalize: Normalization
    symmetric: bool
    norm_bound: float | None  # None: not computed yet

    def to_text(self) -> dict[str, str]:
        """As text by name: what the header of a file can hold."""
        known = {} if self.norm_bound is None else {"norm_bound": repr(self.norm_bound)}
        return {
            "num_nodes": str(self.num_nodes),
            "normalize": self.normalize or "none",
            "symmetric": "yes" if self.symmetric else "no",
            **known,
        }

    @classmethod
    def from_text(cls, text: Mapping[str, str]) -> Facts:
        """Read :meth:`to_text`; a ``ValueError`` in one sentence for anything else."""
        try:
            bound = float(text["norm_bound"]) if "norm_bound" in text else None
            facts = cls(int(text["num_nodes"]), NORMALIZATIONS[text["normalize"]], TRUTH[text["symmetric"]], bound)
        except (KeyError, ValueError) as error:
            raise _wrong(f"its facts are {dict(text)}") from error
        if bound is not None and not 0 <= bound < math.inf:
            raise _wrong(f"norm_bound is {bound}")
        return facts


def check_tensors(tensors: Mapping[str, Tensor], num_nodes: int) -> None:
    """Raise unless names, types and lengths fit. Looks at two numbers, however large the matrix is."""
    names = sorted(tensors)
    if names not in (["col", "crow", "value"], ["col", "crow", "order", "rank", "value"]):
        raise _wrong(f"its tensors are {', '.join(names) or 'missing'}")
    count = tensors["col"].numel()
    index = index_dtype(num_nodes, count)
    lengths = {"crow": num_nodes + 1, "col": count, "value": count, "order": num_nodes, "rank": num_nodes}
    for name, tensor in tensors.items():
        if tensor.shape != (lengths[name],):
            raise _wrong(f"{name} has shape {tuple(tensor.shape)} instead of ({lengths[name]},)")
        if not tensor.is_contiguous():
            raise _wrong(f"{name} is not contiguous")
        dtypes = {"value": tensor.dtype if tensor.is_floating_point() else None, "order": int64, "rank": int64}
        if tensor.dtype != dtypes.get(name, index):
            raise _wrong(f"{name} has dtype {tensor.dtype}")
    crow = tensors["crow"]
    if int(crow[0]) != 0 or int(crow[-1]) != count:
        raise _wrong(f"crow runs from {int(crow[0])} to {int(crow[-1])} instead of 0 to {count}")


def _wrong(what: str) -> ValueError:
    return ValueError(f"This is not the state of an Adjacency, because {what}; store it again from the edges.")
