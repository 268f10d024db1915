"""Processes that train together must have the same code, settings and data: they say so before they start."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

import pprgnn
from pprgnn.distributed.team import Team
from pprgnn.errors import DataError


@cache
def code_digest() -> str:
    """A short text that tells this version of the package from others."""
    found = hashlib.blake2b(torch.__version__.encode(), digest_size=8)
    package = Path(pprgnn.__file__).parent
    for path in sorted(package.rglob("*.py")):
        found.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return found.hexdigest()


def check_alike(team: Team, facts: Mapping[str, str]) -> None:
    """Raise in all processes if one of them has other facts, or other code, than the first."""
    if team.size == 1:
        return
    told = team.told({"code": code_digest(), **facts, "host": platform.node()})
    for rank, theirs in enumerate(told):
        for name, value in told[0].items():
            if name != "host" and theirs.get(name) != value:
                raise DataError(
                    f"All processes must have the same {name}, but that of process {rank} (on {theirs['host']}) "
                    f"differs from that of process 0 (on {told[0]['host']}); bring all machines to the same "
                    f"state, then start again."
                )
