"""What was measured on a trained model, as plain values: they go into a run's folder as JSON, and into figures."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pprgnn.data.atomic_io import write_text
from pprgnn.data.download import sha256
from pprgnn.training.errors import TrainingError
from pprgnn.training.run import Run

FILE = "measurements.json"
FORMAT = "pprgnn measurements, version 4"


@dataclass(frozen=True)
class Missing:
    """Why something was not measured; ``seconds``: only time was short, and so much would have been enough."""

    reason: str
    seconds: float | None = None


@dataclass(frozen=True)
class Convergence:
    """The error of depth k against the infinite one, in one layer. Errors are relative to ‖B‖."""

    layer: str
    depths: list[int]
    errors: list[float]  # ‖G⁽⁰;ᵏ⁾ - G⁽⁰;∞⁾‖ / ‖B‖, measured against a pass so deep that only rounding is left
    certificate: list[float | None]  # the proved bound of each; None while no finite bound is known
    influence: list[float]  # the paper's estimate ‖E⁽ᵏ⁾‖∞ / ‖B‖∞, which is no bound
    chosen: int  # the depth that the layer's rule chose
    status: str  # what is known about it, a word of `pprgnn.Status`
    tol: float
    rounding: float  # below it, rounding is all there is


@dataclass(frozen=True)
class Decay:
    """How much of a message is left after n hops, in one layer, before the graph has its say."""

    layer: str
    eps: tuple[float, float, float]  # smallest, median, largest channel
    hops: list[int]
    ours: tuple[list[float], list[float], list[float]]  # ∏ βᵢ over the first n hops, for each of these rates
    with_weight: list[float]  # ∏ βᵢ ‖W‖₂, for the smallest rate: what the certificate counts with
    appnp: dict[str, list[float]]  # (1-α)ⁿ, by α


@dataclass(frozen=True)
class ReachLine:
    """Shares of the influence on a node by the distance it comes from; they add up to 1."""

    name: str
    shares: list[float]
    measured: bool  # on the trained network; otherwise it follows from the graph alone, without weights


@dataclass(frozen=True)
class Reach:
    """From how far away decisions come, in the mean over some nodes of the test part."""

    hops: list[int]  # the last one stands for itself and all beyond
    lines: list[ReachLine]  # this model first, then others
    nodes: int  # over which the mean was taken
    nodes_by_hop: list[float]  # in the mean, how many nodes are so far away


@dataclass(frozen=True)
class FeatureShares:
    """Which features decide, in the mean over some nodes or graphs of the test part."""

    names: list[str]  # the most important first; columns that were made from one column of a table are one
    shares: list[float]  # of what all features add to the scores of the predicted classes, without signs
    count: int  # of all features
    unit: str  # node or graph: what has labels
    samples: int  # over which the mean was taken
    residual: float  # what integrated gradients missed, as a share of what they should have added up to


@dataclass(frozen=True)
class SmoothingLine:
    """How alike the states of neighbours and of all nodes are at each depth."""

    name: str
    energy: list[float]  # Dirichlet energy tr(Xᵀ(I-Ã)X) / ‖X‖²: 0 means that neighbours cannot be told apart
    distance: list[float]  # mean cosine distance of pairs of nodes: 0 means that no nodes can be told apart
    measured: bool


@dataclass(frozen=True)
class Smoothing:
    """Over-smoothing against depth."""

    depths: list[int]
    lines: list[SmoothingLine]


@dataclass(frozen=True)
class Truncation:
    """The error of a gradient with N terms, relative to the gradient with all of them, in one layer."""

    layer: str
    terms: list[int]
    error_b: list[float]  # ‖N terms - all terms‖ / ‖all terms‖
    error_weight: list[float]
    bound: list[float | None]  # proved for B, relative in the same way; None: no finite one
    used: int | None  # the number that trained this model; None: all


@dataclass(frozen=True)
class Cost:
    """Time and memory of a training step of the first layer, beside the same recursion under plain autograd."""

    depths: list[int]
    seconds: list[float]  # median
    bytes: list[int]  # of states kept for the gradient
    unrolled_seconds: list[float | None]  # None: not run
    unrolled_bytes: list[int | None]
    threads: int
    repeats: int


@dataclass(frozen=True)
class ClassScores:
    """How well each class is found, on one part of the data."""

    part: str
    names: list[str]
    precision: list[float]
    recall: list[float]
    f1: list[float]
    support: list[int]
    confusion: list[list[int]] | None  # rows are true and columns predicted classes; None with several labels


@dataclass(frozen=True)
class Baseline:
    """A score to compare with: no training needed, or somebody else's."""

    name: str
    value: float  # of the run's metric on the test part, between 0 and 1
    spread: float | None
    source: str  # a phrase; names other protocols as such
    measured: bool  # here and now, on the same split


@dataclass(frozen=True)
class Measurements:
    """All that was measured on one run; what was not says why."""

    fingerprint: str  # of the model's file: measurements of another one are of no use
    seconds: float  # that measuring took
    commit: str | None  # of the code that measured
    date: str
    machine: str  # processor and threads
    convergence: list[Convergence] | Missing
    decay: list[Decay] | Missing
    reach: Reach | Missing
    smoothing: Smoothing | Missing
    truncation: list[Truncation] | Missing
    cost: Cost | Missing
    classes: ClassScores | Missing
    features: FeatureShares | Missing
    baselines: list[Baseline] = field(default_factory=list)
    allowed: float = 30.0  # seconds that measuring might have taken

    def needs_time(self) -> bool:
        """Whether something is missing that would be there, had there been more time."""
        parts = (getattr(self, each.name) for each in fields(self))
        return any(isinstance(part, Missing) and part.seconds is not None for part in parts)


# ---------------------------------------------------------------------------------------- in the folder of the run
def fingerprint(model: Path) -> str:
    """A short text that tells this file from others."""
    return sha256(model, gzipped=False)[:32]


def keep_measurements(run: Run, found: Measurements) -> None:
    """Write them into the run's folder, whole or not at all."""
    path = run.folder / FILE
    text = json.dumps({"format": FORMAT, **asdict(found)}, allow_nan=False, indent=1, ensure_ascii=False)
    try:
        write_text(path, text)
    except OSError as error:
        raise TrainingError(
            f"{path} cannot be written ({error.strerror or error}); make room, or allow writing there."
        ) from error


def kept_measurements(run: Run) -> Measurements | None:
    """Those in the run's folder; ``None``: there are none, of another model, or the file is damaged."""
    try:
        values = json.loads((run.folder / FILE).read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            return None
        found: Measurements = _built(Measurements, values)
        return found if found.fingerprint == fingerprint(run.model_path) else None
    except (OSError, ValueError, RecursionError):
        return None


def _built(kind: Any, value: Any) -> Any:
    """A value out of JSON in this type; ValueError: it does not fit."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        for each in inner:
            with suppress(ValueError):
                return _built(each, value)
    if is_dataclass(kind) and isinstance(value, dict) and set(value) == {each.name for each in fields(kind)}:
        hints = get_type_hints(kind)
        return kind(**{name: _built(hints[name], each) for name, each in value.items()})  # type: ignore[operator]
    if origin is list and isinstance(value, list):
        return [_built(inner[0], each) for each in value]
    if origin is tuple and isinstance(value, list) and len(value) == len(inner):
        return tuple(_built(each, part) for each, part in zip(inner, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {key: _built(inner[1], each) for key, each in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if kind in (float, int, str, bool, NoneType) and type(value) is kind:
        return value
    raise ValueError(f"{value!r} is not {kind}")
