"""Everything one can train on: known data sets by name, and a user's own graph."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "Card",
    "DataError",
    "Facts",
    "GraphDataset",
    "Split",
    "cache_root",
    "data_root",
    "find",
    "from_graphml",
    "from_networkx",
    "from_npz",
    "from_pyg",
    "from_scipy",
    "from_tables",
    "load",
    "names",
    "open_file",
    "save",
    "summarise",
]

if TYPE_CHECKING:
    from pprgnn.data.catalog import Card, find, names
    from pprgnn.data.dataset import Facts, GraphDataset
    from pprgnn.data.own.objects import from_graphml, from_networkx, from_npz, from_pyg, from_scipy
    from pprgnn.data.own.tables import from_tables
    from pprgnn.data.registry import load
    from pprgnn.data.roots import cache_root, data_root
    from pprgnn.data.split import Split
    from pprgnn.data.store import open_file, save
    from pprgnn.data.summary import summarise
    from pprgnn.errors import DataError

# Names are imported when they are first used: the catalogue needs no torch, which takes seconds to load.
_HOME = {
    "catalog": ("Card", "find", "names"),
    "dataset": ("Facts", "GraphDataset"),
    "own.objects": ("from_graphml", "from_networkx", "from_npz", "from_pyg", "from_scipy"),
    "own.tables": ("from_tables",),
    "registry": ("load",),
    "roots": ("cache_root", "data_root"),
    "split": ("Split",),
    "store": ("open_file", "save"),
    "summary": ("summarise",),
}
_MODULE_OF = {name: f"pprgnn.data.{module}" for module, names in _HOME.items() for name in names}
_MODULE_OF["DataError"] = "pprgnn.errors"


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value
    raise AttributeError(f"module 'pprgnn.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
