"""Several systems on the same data: a folder with a run, or a study, of each.

All of them are checked and made before the first one is trained. What is finished is not trained again, so a
comparison that was stopped or killed goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Silent
from pprgnn.training.run import CONFIG, Run, check_unused, locked, read_json, write_json
from pprgnn.training.study import ALL, Listeners, Study, is_study

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset
    from pprgnn.training.workers import Workers

COMPARISON = "comparison.json"


def is_comparison(folder: Path | str) -> bool:
    """Whether a folder holds several systems."""
    return (Path(folder) / COMPARISON).is_file()


@dataclass
class Comparison:
    """Systems in one folder, in the order in which they are trained."""

    folder: Path
    systems: Sequence[str]

    @classmethod
    def create(
        cls,
        folder: Path | str,
        configs: Sequence[Config],
        dataset: GraphDataset | None = None,
        *,
        command: str = "",
        **repeats: Any,
    ) -> Comparison:
        """A new one; a system that cannot be trained on these data is refused before anything is written.

        The configs differ in the system. With ``folds``, or more than one seed, each system has a study:
        ``repeats`` are the options of :meth:`Study.create`.
        """
        from pprgnn.training.defaults import settle
        from pprgnn.training.train import check_trainable, choose_split, load_data

        folder, folds = Path(folder), repeats.get("folds")
        taken = (CONFIG, COMPARISON, *(f"{config.model.system}/{CONFIG}" for config in configs))
        check_unused(folder, *taken)
        own, dataset = dataset, load_data(configs[0]) if dataset is None else dataset
        split = choose_split(configs[0], dataset)
        if folds is not None and folds != ALL and folds > split.count:
            raise TrainingError(f"{dataset.facts.name} has only {split.count} splits, not {folds}.")
        for config in configs:
            check_trainable(config, dataset, split)
        for config in configs:
            place = folder / config.model.system
            if folds is None and repeats.get("seeds", 1) == 1:
                config = settle(config, dataset, [split])
                Run.create(place, config, split, own=own, command=command)
            else:
                Study.create(place, config, own, command=command, **repeats)
        facts = {"systems": [config.model.system for config in configs], "command": command}
        write_json(folder / COMPARISON, facts)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path | str) -> Comparison:
        return cls(Path(folder), read_json(Path(folder) / COMPARISON, "comparison")["systems"])

    @property
    def folders(self) -> list[Path]:
        return [self.folder / name for name in self.systems]

    def run(self, listeners: Listeners = lambda label: Silent(), workers: Workers | None = None) -> dict[str, Any]:
        """Train what is not finished; a system that fails does not keep the others from theirs."""
        found: dict[str, Mapping[str, Any]] = {}
        failed: dict[str, str] = {}
        with locked(self.folder):
            for number, (name, place) in enumerate(zip(self.systems, self.folders, strict=True), start=1):
                label = f"{name} ({number}/{len(self.systems)})"
                try:
                    found[name] = _trained(place, label, listeners, workers) | {"folder": str(place)}
                except TrainingError as error:
                    failed[name] = str(error)
                    continue
                if not found[name]["finished"]:
                    break
        return {
            "finished": len(found) == len(self.systems) and all(each["finished"] for each in found.values()),
            "systems": found,
            "failed": failed,
            "folder": str(self.folder),
        }


def _trained(place: Path, label: str, listeners: Listeners, workers: Workers | None) -> dict[str, Any]:
    """The summary of one system, which is trained to its end or to Ctrl-C if it was not."""
    from pprgnn.training.train import resume

    if is_study(place):
        return Study.open(place, workers).run(lambda run: listeners(f"{label}, {run}"))
    summary = Run.open(place).summary
    if summary is not None and summary["finished"]:
        return summary
    return resume(place, listener=listeners(label)).summary
