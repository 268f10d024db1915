"""Cells so small that their training takes no time, on data that need no files."""

from types import SimpleNamespace

from pprgnn.experiments.cell import Cell, settings_of
from pprgnn.training.config import Config

CHAINS = {"data.name": "chains", "data.options": {"length": 4, "train": 3, "val": 2, "test": 2}}
QUICK = {"model.hidden": 4, "training.epochs": 3, "training.threads": 1}


def tiny_cell(changes=None, *, system="gcn", **facts):
    """One of the experiment `chains`, with other settings and other coordinates if wanted."""
    config = Config.for_system(system).with_values(CHAINS | QUICK | (changes or {}))
    return Cell(**({"experiment": "chains", "config": config} | facts))


def hurry(monkeypatch):
    """Leave out what takes longer than such a training: asking git and all packages, and tidying memory up."""
    facts = {"threads": {"torch": 1}, "cpu": "a", "commit": "b", "versions": {"pprgnn": "c"}}
    monkeypatch.setattr("pprgnn.training.environment.environment", lambda: dict(facts))
    monkeypatch.setattr("pprgnn.experiments.run_cell.gc", SimpleNamespace(collect=int, freeze=int))


def tiny_line(cell, **results):
    """What a training of the cell might have given."""
    usual = {"metric": "accuracy", "test": 0.5, "total_seconds": 1.0, "config": settings_of(cell.config)}
    return cell.coordinates | usual | results
