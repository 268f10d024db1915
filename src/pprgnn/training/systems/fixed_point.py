"""TODO."""

from __future__ import annotations

from pprgnn.training.systems.system import System

SYSTEMS: tuple[System, ...] = ()
