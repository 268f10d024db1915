"""What was measured on a trained model, as plain values: they go into a run's folder as JSON, and into figures."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Missing:
    """Why something was not measured.

    Attributes:
        reason: A sentence for the reader.
        seconds: If only time was short, about how much of it would have been enough.
    """

    reason: str
    seconds: float | None = None


@dataclass(frozen=True)
class Convergence:
    """The error of depth k against the infinite one, in one layer. Errors are relative to ‖B‖.

    Attributes:
        layer: Its name in the network.
        depths: 0, 1, 2, ...
        errors: ‖G⁽⁰;ᵏ⁾ - G⁽⁰;∞⁾‖ / ‖B‖, measured against a pass so deep that only rounding is left.
        certificate: The proved bound of each; ``None`` while no finite bound is known.
        influence: The paper's estimate ‖E⁽ᵏ⁾‖∞ / ‖B‖∞, which is no bound.
        chosen: The depth that the layer's rule chose.
        status: What is known about it, a word of :class:`pprgnn.Status`.
        tol: The error allowed.
        rounding: Below it, rounding is all there is.
    """

    layer: str
    depths: list[int]
    errors: list[float]
    certificate: list[float | None]
    influence: list[float]
    chosen: int
    status: str
    tol: float
    rounding: float


@dataclass(frozen=True)
class Decay:
    """How much of a message is left after n hops, in one layer, before the graph has its say.

    Attributes:
        layer: Its name in the network.
        eps: The decay rates: smallest, median, largest channel.
        hops: 0, 1, 2, ...
        ours: ∏ βᵢ over the first n hops, for the smallest, median and largest rate.
        with_weight: ∏ βᵢ ‖W‖₂, for the smallest rate: what the certificate counts with.
        appnp: (1-α)ⁿ, by α.
    """

    layer: str
    eps: tuple[float, float, float]
    hops: list[int]
    ours: tuple[list[float], list[float], list[float]]
    with_weight: list[float]
    appnp: dict[str, list[float]]


@dataclass(frozen=True)
class ReachLine:
    """Shares of the influence on a node by the distance it comes from; they add up to 1."""

    name: str
    shares: list[float]
    measured: bool  # on the trained network; otherwise it follows from the graph alone, without weights


@dataclass(frozen=True)
class Reach:
    """From how far away decisions come, in the mean over some nodes of the test part.

    Attributes:
        hops: 0, 1, 2, ...; the last one stands for itself and all beyond.
        lines: This model first, then others.
        nodes: Over how many nodes the mean was taken.
        nodes_by_hop: In the mean, how many nodes are so far away.
    """

    hops: list[int]
    lines: list[ReachLine]
    nodes: int
    nodes_by_hop: list[float]


@dataclass(frozen=True)
class FeatureShares:
    """Which features decide, in the mean over some nodes or graphs of the test part.

    Attributes:
        names: The most important first; columns that were made from one column of a table are one.
        shares: Of what all features add to the scores of the predicted classes, without signs.
        count: How many features there are.
        unit: ``node`` or ``graph``: what has labels.
        samples: Over how many of them the mean was taken.
        residual: What integrated gradients missed, as a share of what they should have added up to.
    """

    names: list[str]
    shares: list[float]
    count: int
    unit: str
    samples: int
    residual: float


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
    """The error of a gradient with N terms, relative to the gradient with all of them, in one layer.

    Attributes:
        layer: Its name in the network.
        terms: 1, 2, ...
        error_b, error_weight: ‖N terms - all terms‖ / ‖all terms‖ of the gradients of B and of W.
        bound: The proved bound for B, relative in the same way; ``None``: no finite one.
        used: The number that trained this model; ``None``: all.
    """

    layer: str
    terms: list[int]
    error_b: list[float]
    error_weight: list[float]
    bound: list[float | None]
    used: int | None


@dataclass(frozen=True)
class Cost:
    """Time and memory of a training step of the first layer against depth, beside plain automatic differentiation.

    Attributes:
        depths: 1, 2, 4, ...
        seconds, bytes: Ours: median time, and memory for states kept for the gradient.
        unrolled_seconds, unrolled_bytes: The same recursion, step by step under autograd; ``None``: not run.
        threads, repeats: How it was measured.
    """

    depths: list[int]
    seconds: list[float]
    bytes: list[int]
    unrolled_seconds: list[float | None]
    unrolled_bytes: list[int | None]
    threads: int
    repeats: int


@dataclass(frozen=True)
class ClassScores:
    """How well each class is found, on one part of the data.

    Attributes:
        part: Usually "test".
        names, precision, recall, f1, support: By class.
        confusion: Counts, rows are true and columns predicted classes; ``None`` with several labels per row.
    """

    part: str
    names: list[str]
    precision: list[float]
    recall: list[float]
    f1: list[float]
    support: list[int]
    confusion: list[list[int]] | None


@dataclass(frozen=True)
class Baseline:
    """A score to compare with: no training needed, or somebody else's.

    Attributes:
        name: "majority", "label propagation", "PPRGNN in the paper" ...
        value: Of the run's metric, between 0 and 1; of the test part.
        spread: Its standard deviation, where it is known.
        source: Where it comes from, as a phrase; names other protocols as such.
        measured: Here and now, on the same split.
    """

    name: str
    value: float
    spread: float | None
    source: str
    measured: bool


@dataclass(frozen=True)
class Measurements:
    """All that was measured on one run; what was not says why.

    Attributes:
        fingerprint: Of the model's file: measurements of another one are of no use.
        seconds: What measuring took.
        commit, date: Of the code that measured, and when.
        machine: A phrase: processor and threads.
        allowed: How many seconds measuring might have taken.
    """

    fingerprint: str
    seconds: float
    commit: str | None
    date: str
    machine: str
    convergence: list[Convergence] | Missing
    decay: list[Decay] | Missing
    reach: Reach | Missing
    smoothing: Smoothing | Missing
    truncation: list[Truncation] | Missing
    cost: Cost | Missing
    classes: ClassScores | Missing
    features: FeatureShares | Missing
    baselines: list[Baseline] = field(default_factory=list)
    allowed: float = 30.0

    def needs_time(self) -> bool:
        """Whether something is missing that would be there, had there been more time."""
        parts = (getattr(self, each.name) for each in fields(self))
        return any(isinstance(part, Missing) and part.seconds is not None for part in parts)
