"""Runs to be killed: what the child process of the tests does, and where exactly it dies."""

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from pprgnn.training import loop
from pprgnn.training.config import Config
from pprgnn.training.run import Run
from pprgnn.training.train import resume, train
from tests.training.small_data import Recorder, divided, one_graph, quick, several_graphs

NODE = [
    "epochs=30",
    "layers=2",
    "dropout=0.4",
    "input_dropout=0.1",
    "norm=batch",
    "schedule=one-cycle",
    "eps=[0.5, 0.1]",
    "learn_eps=yes",
    "optimizer=adamw",
    "weight_decay=0.01",
    "clip=1",
    "seed=3",
]
CASES: dict[str, list[str]] = {
    "node": NODE,
    "shared": ["epochs=30", "dropout=0.5", "eps=0.1", "learn_eps=channel", "schedule=cosine", "monitor=loss"],
    "labels": ["epochs=30", "features=given+labels", "dropout=0.2", "learn_eps=yes", "schedule=one-cycle"],
    "graph": [
        "epochs=30",
        "batch_size=5",
        "dropout=0.3",
        "schedule=plateau",
        "plateau_patience=1",
        "patience=25",
        "eval_every=2",
        "class_weights=balanced",
        "lr=0.05",
    ],
    "named": [
        "name=chains",
        "options={length = 12, train = 4, val = 3, test = 2}",
        "batch_size=3",
        "epochs=25",
        "eps=0.1",
        "dropout=0.2",
    ],
}


def settings(case: str) -> Config:
    return quick("checkpoint_seconds=0", *CASES[case])


def begin(case: str, folder: Path, listener: Any = None) -> Any:
    """Start the run of a case."""
    if case == "named":
        return train(settings(case), folder=folder, listener=listener)
    dataset = several_graphs() if case == "graph" else one_graph(nodes=40, edges=70)
    return train(settings(case), dataset=dataset, split=divided(dataset), folder=folder, listener=listener)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def set_trap(place: str, count: int) -> None:
    """Die at the ``count``-th passage of this place: before or after a file takes its name, or in half a line."""
    word, _, name = place.partition(" ")
    passages = 0

    def passed() -> bool:
        nonlocal passages
        passages += 1
        return passages == count

    if word == "inside":  # half a line is written
        append = Run.append

        def half(self: Run, record: Any) -> None:
            if passed():
                with open(self.folder / name, "a", encoding="utf-8") as file:
                    file.write('{"epoch": 3, "lo')
                die()
            append(self, record)

        Run.append = half  # type: ignore[method-assign]
        return
    replace = os.replace

    def trapped(source: Any, target: Any) -> None:
        here = str(target).endswith(name) and passed()
        if here and word == "before":
            die()
        replace(source, target)
        if here:
            die()

    os.replace = trapped


class Slow(Recorder):
    """Leaves time to be killed in."""

    def epoch(self, record: Any) -> None:
        time.sleep(0.01)


def work(case: str, folder: Path, place: str = "", count: int = 1) -> None:
    """Begin the run, or go on with it; with a place, die there."""
    torch.set_num_threads(1)
    loop.CHECKPOINT_SHARE = math.inf  # a checkpoint in every epoch
    os.fsync = lambda file: None  # type: ignore[assignment]  # a killed process is no power failure
    if place:
        set_trap(place, count)
    listener = Recorder() if place else Slow()
    if (folder / "config.toml").is_file():
        resume(folder, listener=listener)
    else:
        begin(case, folder, listener)
