"""Several runs of one config, over splits and seeds, and what they have in common: mean and standard deviation.

A study is a folder of runs. What is finished is not run again, so a study that was stopped or killed goes on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprgnn.data.atomic_io import write_text
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Listener, Silent
from pprgnn.training.run import CONFIG, DATA, SUMMARY, Run, check_unused, locked, read_json, write_json
from pprgnn.training.workers import StoppedError, Workers, at_work
from pprgnn.wording import counted

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

STUDY = "study.json"
ALL = -1
Listeners = Callable[[str], Listener]  # who is told about the run of this label


def is_study(folder: Path | str) -> bool:
    """Whether a folder holds a study."""
    return (Path(folder) / STUDY).is_file()


@dataclass
class Study:
    """Runs over ``folds`` and ``seeds`` in one folder."""

    folder: Path
    config: Config
    folds: Sequence[int]
    seeds: Sequence[int]
    workers: Workers
    ensemble: bool = False

    @classmethod
    def create(
        cls,
        folder: Path | str,
        config: Config,
        dataset: GraphDataset | None = None,
        *,
        folds: int | None = None,
        seeds: int = 1,
        workers: int | Workers = 1,
        ensemble: bool = False,
        command: str = "",
    ) -> Study:
        """A new study.

        Args:
            folder: Where to keep it.
            config: Settings of every run, but for split and seed.
            dataset: What to learn from, if not what the config names; the study keeps a copy.
            folds: How many splits, from the first on; :data:`ALL` of them; ``None``: the config's one.
            seeds: How many seeds, from the config's on.
            workers: How many runs at once, each in a process of its own with one CPU thread, and where.
            ensemble: Whether the seeds of a split are also scored together, by their mean probability.
            command: What started it, for the record.
        """
        from pprgnn.data.store import save
        from pprgnn.training.defaults import settle
        from pprgnn.training.train import load_data

        folder, data = Path(folder), config.data
        check_unused(folder, CONFIG)
        own, dataset = dataset is not None, load_data(config) if dataset is None else dataset
        splits = dataset.splits(data.protocol, data.split_seed, **data.split)
        count = len(splits)
        if folds is not None and folds > count:
            raise TrainingError(f"{dataset.facts.name} has only {count} splits under this protocol, not {folds}.")
        chosen = [data.fold] if folds is None else list(range(count if folds == ALL else folds))
        config = settle(config, dataset, [splits[fold] for fold in chosen])
        folder.mkdir(parents=True, exist_ok=True)
        if own:
            save(dataset, folder / DATA)
        workers = Workers(workers) if isinstance(workers, int) else workers
        facts = {
            "folds": chosen,
            "seeds": [config.training.seed + number for number in range(seeds)],
            "workers": asdict(workers),
            "ensemble": ensemble,
            "command": command,
            "settled": config.settled,
        }
        write_json(folder / STUDY, facts)
        write_text(folder / CONFIG, config.to_toml())
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path | str, workers: Workers | None = None) -> Study:
        """An existing study; with ``workers``, others than it was made with."""
        folder = Path(folder)
        facts = read_json(folder / STUDY, "study")
        made_with = facts["workers"]
        made_with = Workers(made_with) if isinstance(made_with, int) else Workers(**made_with)
        config = Run.open(folder.absolute()).config  # workers elsewhere were started in other folders
        config = config.marked(None, facts.get("settled", ()))
        return cls(folder, config, facts["folds"], facts["seeds"], workers or made_with, facts["ensemble"])

    def members(self) -> Iterator[tuple[str, Config]]:
        """The name and the settings of each run."""
        for fold in self.folds:
            for seed in self.seeds:
                config = self.config.with_values({"data.fold": fold, "training.seed": seed})
                yield f"fold-{fold}-seed-{seed}", config

    def run(self, listeners: Listeners = lambda label: Silent()) -> dict[str, Any]:
        """All runs that are not finished yet; then the summary."""
        with locked(self.folder):
            missing = [(name, config) for name, config in self.members() if not self._finished(name)]
            (self._run_here if self.workers.is_this_process else self._run_parallel)(missing, listeners)
        return self._summary()

    def _run_here(self, missing: Sequence[tuple[str, Config]], listeners: Listeners) -> None:
        for number, (name, config) in enumerate(missing, start=1):
            listener = listeners(f"{name} ({number}/{len(missing)})")
            if not _one(config, self.folder / name, listener)["finished"]:
                break

    def _run_parallel(self, missing: Sequence[tuple[str, Config]], listeners: Listeners) -> None:
        """A line as each run ends; with Ctrl-C those that run are saved."""
        folder = self.folder.absolute()
        jobs = [(config, folder / name) for name, config in missing]
        go_on = f"`pprgnn train --resume {self.folder}` goes on"
        tell = listeners(counted(len(missing), "run")).note
        with (
            suppress(StoppedError),
            at_work(self.workers, go_on=go_on, announce=tell) as at_once,
            closing(at_once(_job, jobs)) as done,
        ):
            for number, (name, summary) in enumerate(done, start=1):
                metric, scores = summary["metric"], summary["scores"]
                shown = ", ".join(f"{part} {100 * each[metric]:.2f}%" for part, each in scores.items())
                tell(f"{name} ({number}/{len(jobs)}): {metric} {shown}")

    def _finished(self, name: str) -> bool:
        folder = self.folder / name
        return (folder / CONFIG).is_file() and Run.open(folder).finished

    def _summary(self) -> dict[str, Any]:
        paths = {name: self.folder / name / SUMMARY for name, _ in self.members()}
        runs = [{"run": name} | read_json(path) for name, path in paths.items() if path.is_file()]
        finished = [each for each in runs if each["finished"]]
        if not finished:  # stopped in the first one
            return {"finished": False, "runs": [], "mean": {}, "std": {}, "metric": "", "folder": str(self.folder)}
        mean, std = _statistics([each["scores"] for each in finished])
        trivial = [each.get("trivial") or {} for each in finished]  # older runs have none
        keys = ("run", "fold", "seed", "scores", "best_epoch", "epochs", "seconds", "test_chose_the_epoch")
        summary = {
            "finished": len(finished) == len(self.folds) * len(self.seeds),
            **{key: finished[0][key] for key in ("data", "note", "protocol", "metric")},
            "splits": list(dict.fromkeys(each["split"] for each in finished)),
            "mean": mean,
            "std": std,
            "trivial": _statistics(trivial)[0] if all(trivial) else {},
            "runs": [{key: each[key] for key in keys} for each in finished],
            "folder": str(self.folder),
        }
        if self.ensemble and summary["finished"]:
            summary["ensemble"] = dict(zip(("mean", "std"), _statistics(list(self._ensembles())), strict=True))
        write_json(self.folder / SUMMARY, summary)
        return summary

    def _ensembles(self) -> Iterator[dict[str, dict[str, float]]]:
        """For each split, the scores of the mean probability over the seeds."""
        from pprgnn.training.evaluation import ensemble_scores
        from pprgnn.training.model import Model
        from pprgnn.training.train import load_data

        dataset = load_data(self.config)
        for fold in self.folds:
            folders = [self.folder / f"fold-{fold}-seed-{seed}" for seed in self.seeds]
            masks = Run.open(folders[0]).split.masks(dataset)
            yield ensemble_scores([Model.load(folder) for folder in folders], dataset, masks)


def _one(config: Config, folder: Path, listener: Listener) -> dict[str, Any]:
    """One run, from the start or from where it stopped."""
    from pprgnn.training.train import resume, train

    started = (folder / CONFIG).is_file()
    trained = resume(folder, listener=listener) if started else train(config, folder=folder, listener=listener)
    return trained.summary


def _job(job: tuple[Config, Path]) -> tuple[str, dict[str, Any]] | None:
    """A run beside others, with one CPU thread: threads of several processes would fight over the cores."""
    config, folder = job
    summary = _one(config.with_values({"training.threads": 1}), folder, Silent())
    return (folder.name, summary) if summary["finished"] else None


def _statistics(scores: Sequence[Mapping[str, Mapping[str, float]]]) -> tuple[Any, Any]:
    """Mean and standard deviation (of the population, as the field has it) of every score; ``None``: not known."""

    def of_all(figure: Callable[[Sequence[float]], float]) -> dict[str, dict[str, float | None]]:
        found: dict[str, dict[str, float | None]] = {}
        for part, names in scores[0].items():
            columns = {name: [each[part][name] for each in scores] for name in names}
            # A metric may be undefined on a small part.
            found[part] = {name: None if None in values else figure(values) for name, values in columns.items()}
        return found

    return of_all(statistics.fmean), of_all(statistics.pstdev)
