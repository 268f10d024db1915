"""A run is a folder: what was asked, where it ran, how it went, what came out, and how to repeat it.

================  =====================================================================
config.toml       every setting, written out
environment.json  machine, versions, commit
split.json        which nodes or graphs trained, validated and tested
data.safetensors  the graph itself, when it was the user's own
metrics.jsonl     one line per epoch
checkpoint.*      all that training needs to go on, also for more epochs after the end
model.safetensors the weights of the best epoch and what is needed to use them
summary.json      the scores, the depth of each layer, and the command that repeats the run
================  =====================================================================
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprgnn.data.atomic_io import plain, read_tensors, write_tensors, write_text
from pprgnn.errors import DataError
from pprgnn.training.config import Config, settings
from pprgnn.training.errors import TrainingError
from pprgnn.wording import counted

try:
    import fcntl
except ImportError:  # not a POSIX system: no folder is claimed there
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from torch import Tensor

    from pprgnn.data.dataset import GraphDataset
    from pprgnn.data.split import Split

CONFIG, ENVIRONMENT, SPLIT = "config.toml", "environment.json", "split.json"
DATA, METRICS, CHECKPOINT = "data.safetensors", "metrics.jsonl", "checkpoint.safetensors"
MODEL, SUMMARY = "model.safetensors", "summary.json"
BEFORE = "checkpoint-before.safetensors"
CHECKPOINT_FORMAT = "pprgnn checkpoint, version 1"
LOCKS = Path("/proc/locks")
MAY_CHANGE = ("training.epochs", "training.patience")  # of a run that goes on


class Run:
    """A run's folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(
        cls,
        folder: Path | str,
        config: Config,
        split: Split,
        *,
        own: GraphDataset | None = None,
        command: str = "",
    ) -> Run:
        """A new folder, with a copy of the user's own graphs; one that already holds a run is refused."""
        from pprgnn.data.store import save
        from pprgnn.training.environment import environment

        run = cls(folder)
        if (run.folder / CONFIG).exists():
            raise TrainingError(
                f"{run.folder} already holds a run; continue it with `pprgnn train --resume {run.folder}`, or "
                f"choose another folder with -o."
            )
        with made(run.folder, "The run's folder"):
            run._sweep()
            facts = environment() | {"command": command, "started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
            facts["settled"] = list(config.settled)
            write_json(run.folder / ENVIRONMENT, facts)
            split.save(run.folder / SPLIT)
            if own is not None:
                save(own, run.folder / DATA)
            write_text(run.folder / CONFIG, config.to_toml())  # last: the run is there when its config is
        return run

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        run = cls(folder)
        if not (run.folder / CONFIG).is_file():
            inside = sorted(run.folder.glob(f"*/{CONFIG}"))  # of several systems, for example
            remedy = f"name one inside, such as {inside[0].parent}" if inside else "check the path"
            raise TrainingError(f"{folder} must be the folder of a run, but has no {CONFIG}; {remedy}.")
        return run

    # -------------------------------------------------------------------------------------------------- contents
    @property
    def config(self) -> Config:
        """Its settings; the path of the user's own graph is that of the copy in the folder."""
        config = Config.from_toml(self.folder / CONFIG)
        if (self.folder / ENVIRONMENT).is_file():
            config = config.marked(None, self.environment.get("settled", ()))
        return on_copy(config, self.folder)

    @property
    def split(self) -> Split:
        """Which part of the data did what."""
        from pprgnn.data.split import Split

        return Split.load(self.folder / SPLIT)

    @property
    def environment(self) -> dict[str, Any]:
        """Machine, versions, and the command that started it."""
        return read_json(self.folder / ENVIRONMENT)

    @property
    def summary(self) -> dict[str, Any] | None:
        """What came out, once it is there."""
        path = self.folder / SUMMARY
        if not path.is_file():
            return None
        summary = read_json(path)
        if "finished" not in summary:
            raise DataError(f"{path} does not say whether training came to its end; the run is damaged.")
        return summary

    @property
    def finished(self) -> bool:
        return bool((self.summary or {}).get("finished"))

    @property
    def model_path(self) -> Path:
        return self.folder / MODEL

    # -------------------------------------------------------------------------------------------------- progress
    def append(self, record: Mapping[str, Any]) -> None:
        """One line more."""
        with self._writing(METRICS) as path, open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(plain(record)) + "\n")

    def records(self) -> list[dict[str, Any]]:
        """The lines so far; one that a crash cut short is left out."""
        path = self.folder / METRICS
        if not path.is_file():
            return []
        *lines, _ = path.read_bytes().split(b"\n")  # what follows the last end of a line was cut short
        try:
            records = [json.loads(line) for line in lines if line]
            if not all(isinstance(record, dict) and "epoch" in record for record in records):
                raise ValueError("a line is no record of an epoch")
        except ValueError as error:
            raise DataError(f"{path} must hold a JSON object in each line, but does not ({error}).") from error
        return records

    def rewind(self, epoch: int) -> None:
        """Forget what came after this epoch: training goes on from there."""
        self._sweep()
        kept = [record for record in self.records() if record["epoch"] <= epoch]
        write_text(self.folder / METRICS, "".join(json.dumps(record) + "\n" for record in kept))

    def _sweep(self) -> None:
        # Half a file, from a process that was killed while writing it; safetensors has names of its own for them.
        for left in (each for pattern in ("*.part", ".tmp*") for each in self.folder.glob(pattern)):
            left.unlink(missing_ok=True)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """All that training needs to go on, in one file: it cannot contradict itself."""
        metadata = {"format": CHECKPOINT_FORMAT, "state": json.dumps(state)}
        with self._writing(CHECKPOINT) as path:
            if path.is_file():
                self._keep(path)
            write_tensors(path, tensors, metadata)

    def _keep(self, path: Path) -> None:
        """The one before stays, under its other name, until there is a newer one."""
        second = path.with_name(f"{BEFORE}.part")
        with suppress(OSError):  # not every disk has links; the newest alone is enough to go on from
            second.unlink(missing_ok=True)
            os.link(path, second)
            os.replace(second, path.with_name(BEFORE))

    @contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        try:
            yield self.folder / name
        except OSError as error:
            raise TrainingError(
                f"{self.folder / name} cannot be written ({error.strerror or error}); make room, then continue "
                f"with `pprgnn train --resume {self.folder}`."
            ) from error

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What :meth:`save_checkpoint` wrote last, or before that if it is damaged; None: nothing yet."""
        path, before = self.folder / CHECKPOINT, self.folder / BEFORE
        if not path.is_file():
            return None
        try:
            return self._read_checkpoint(path)
        except DataError:
            if not before.is_file():
                raise
            found = self._read_checkpoint(before)
            with suppress(OSError):  # the damaged one must not become the one before, which is all there is now
                os.replace(before, path)
            epoch = found[1]["progress"]["epoch"]
            text = f"The checkpoint {path} is damaged; the one before it, of epoch {epoch}, is used instead."
            warnings.warn(text, UserWarning, stacklevel=2)
            return found

    def _read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        try:
            tensors, metadata = read_tensors(path)
            state = json.loads(metadata["state"]) if metadata.get("format") == CHECKPOINT_FORMAT else None
        except (KeyError, ValueError) as error:
            raise DataError(
                f"The checkpoint {path} is damaged; remove it, and the run starts again from its first epoch."
            ) from error
        if state is None:
            raise DataError(f"{path} is not a checkpoint ({CHECKPOINT_FORMAT}); remove it to start again.")
        return tensors, state

    def finish(self, summary: Mapping[str, Any]) -> None:
        how = {
            "command": self.environment.get("command", ""),
            "repeat": f"pprgnn train {self.folder / CONFIG} -o NEW_FOLDER",
        }
        with self._writing(SUMMARY) as path:
            write_json(path, {**summary, **how})
        if summary["finished"]:
            (self.folder / BEFORE).unlink(missing_ok=True)

    def extend(self, changes: Sequence[str]) -> None:
        """More epochs, or more patience, from now on; whatever else is changed is refused."""
        old = Config.from_toml(self.folder / CONFIG)
        new = old.with_settings(changes)
        changed = [each.key for each in settings(old.model.system) if old.value(each.key) != new.value(each.key)]
        other = [key for key in changed if key not in MAY_CHANGE]
        if other:
            raise TrainingError(
                f"Only {' and '.join(MAY_CHANGE)} may change on --resume, but {other[0]} would; start a new run."
            )
        summary = self.summary
        if summary is not None and summary["finished"]:
            self._check_longer(summary["epochs"], old, new)
            write_json(self.folder / SUMMARY, {**summary, "finished": False})
        write_text(self.folder / CONFIG, new.to_toml())

    def _check_longer(self, done: int, old: Config, new: Config) -> None:
        """Raise unless a finished run has something to do under the new settings."""
        epochs, patience, before = new.training.epochs, new.training.patience, old.training.patience
        if not (self.folder / CHECKPOINT).is_file():
            problem = "has no checkpoint to go on from; train anew with more epochs"
        elif epochs <= done:
            problem = f"has {counted(done, 'epoch')}, so training.epochs must be above that, but is {epochs}"
        elif done < old.training.epochs and patience and patience <= before:
            waited = counted(before, "epoch")
            problem = f"ended early, after {waited} without a better one; raise training.patience, too"
        else:
            return
        raise TrainingError(f"The run in {self.folder} is finished and {problem}.")


def on_copy(config: Config, folder: Path, name: str | None = None) -> Config:
    """The same settings for the copy of the user's own graph in a folder, by its path or name; if there is one."""
    own = folder / DATA
    return config.with_values({"data.name": name or str(own), "data.options": {}}) if own.is_file() else config


@contextmanager
def made(folder: Path, what: str = "The folder") -> Iterator[None]:
    """Within it files are written into a folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        raise TrainingError(f"{what} {folder} {reason}; choose another with -o.") from error


def check_unused(folder: Path, *names: str) -> None:
    """Raise if there are several runs in a folder already, which one of these files tells."""
    if any((folder / name).exists() for name in names):
        raise TrainingError(
            f"{folder} already holds runs; continue with `pprgnn train --resume {folder}`, or choose another "
            f"folder with -o."
        )


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a table whole, or leave the old file."""
    write_text(path, json.dumps(plain(values), indent=1))


def read_json(path: Path, what: str = "run") -> dict[str, Any]:
    """A table in a file of a run, or of something else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); the {what} is damaged.") from error
    if not isinstance(values, dict):
        raise DataError(f"{path} must hold a table, but holds {type(values).__name__}; the {what} is damaged.")
    return values


# ------------------------------------------------------------------------------------ one process at a time
@contextmanager
def locked(folder: Path | str) -> Iterator[None]:
    """Within it the folder, made if need be, is this process's own; another one that wants it is refused.

    The folder itself is locked, so nothing is left in it. Where that cannot be done (some network drives), or the
    folder cannot be made, which others say better, nothing is refused.
    """
    folder, claim = Path(folder), None
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        claim = os.open(folder, os.O_RDONLY)
    try:
        if claim is not None and fcntl is not None:
            _lock(claim, folder)
        yield
    finally:
        if claim is not None:
            os.close(claim)


def _lock(claim: int, folder: Path) -> None:
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise TrainingError(
            f"{folder} is in use by {_owner(folder)}; wait until it has ended, or choose another folder."
        ) from error
    except OSError:
        pass


def _owner(folder: Path) -> str:
    """Who has claimed it, where the system tells."""
    inode = folder.stat().st_ino
    with suppress(OSError):
        for line in LOCKS.read_text(encoding="ascii").splitlines():
            fields = line.split()
            if "FLOCK" in fields and fields[5].endswith(f":{inode}") and "->" not in fields and fields[4] != "0":
                return f"another process ({fields[4]})"
    return "another process"
