"""Every system that can be trained: ours, and those it is compared with. `pprgnn models` lists them.

Imports neither torch nor PyG.
"""

from __future__ import annotations

import difflib

from pprgnn.training.errors import TrainingError
from pprgnn.training.systems import classic, deep, fixed_point, infinite, without_gradients
from pprgnn.training.systems.system import System

__all__ = ["SYSTEMS", "System", "find_system", "find_systems"]

SYSTEMS: tuple[System, ...] = (
    *infinite.SYSTEMS,
    *classic.SYSTEMS,
    *deep.SYSTEMS,
    *fixed_point.SYSTEMS,
    *without_gradients.SYSTEMS,
)
_BY_NAME = {name: system for system in SYSTEMS for name in (system.name, *system.aliases)}


def find_system(name: str) -> System:
    """The system of this name, or of this other name, in any case of letters."""
    system = _BY_NAME.get(name.lower())
    if system is None:
        close = difflib.get_close_matches(name.lower(), _BY_NAME, 1)
        hint = f"did you mean {close[0]!r}?" if close else "`pprgnn models` lists them."
        raise TrainingError(f"There is no model {name!r}; {hint}")
    return system


def find_systems(text: str) -> list[System]:
    """The systems of a list such as ``"pprgnn,gcn"``; one that is unknown or named twice is refused."""
    found = [find_system(name.strip()) for name in text.split(",") if name.strip()]
    twice = next((system for system in found if found.count(system) > 1), None)
    if twice or not found:
        problem = f"names {twice.name} twice" if twice else f"is {text!r}"
        raise TrainingError(
            f"--model must name a system, or several different ones as in gcn,appnp, but {problem}."
        )
    return found
