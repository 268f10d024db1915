"""One graph over several processes: partition, exchange of rows, and what all must agree on."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["GraphPart", "Team", "cut", "join", "leave", "partition"]

if TYPE_CHECKING:
    from pprgnn.distributed.launch import join, leave
    from pprgnn.distributed.part import GraphPart, cut
    from pprgnn.distributed.partitions import partition
    from pprgnn.distributed.team import Team

# Imported when first used: the command line looks into this room before it needs torch.
_HOME = {
    "GraphPart": "part",
    "Team": "team",
    "cut": "part",
    "join": "launch",
    "leave": "launch",
    "partition": "partitions",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"pprgnn.distributed.{_HOME[name]}"), name)
    raise AttributeError(f"module 'pprgnn.distributed' has no attribute {name!r}")
