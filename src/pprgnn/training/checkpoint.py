"""How far a training is, and all that it needs to go on exactly there: tensors, and values for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from pprgnn.nn.infinite_layer import depth_state, restore_depth_state
from pprgnn.training.build import digest
from pprgnn.training.errors import TrainingError
from pprgnn.training.optimization import optimizer_state, restore_optimizer
from pprgnn.training.thresholds import Threshold

if TYPE_CHECKING:
    from pprgnn.training.loop import Training

KINDS = ("network", "best", "optimizer", "depth", "average")
MOMENTS = ("exp_avg", "exp_avg_sq")  # what Adam keeps for each number


@dataclass
class Record:
    """One epoch: its pass over the training part, and a validation of the weights that it made."""

    epoch: int
    loss: float
    lr: float
    grad_norm: float
    train: dict[str, float]
    val: dict[str, float] | None  # None: not validated in this epoch
    best: float | None
    best_epoch: int
    depth: list[int]  # of each infinite-depth layer, as are the next two
    weight_norm: list[float]  # ‖W‖₂ after the epoch
    eps: list[float]  # of the slowest channel
    seconds: float


@dataclass
class Progress:
    """How far training is; all of it goes into a checkpoint."""

    epoch: int = 0
    best: float | None = None  # of the figure that chooses the epoch
    best_loss: float = math.inf  # breaks ties
    best_epoch: int = 0
    smallest_loss: float = math.inf
    seconds: float = 0.0
    warned: list[str] = field(default_factory=list)
    threshold: Threshold = Threshold()  # that the last validation chose
    best_threshold: Threshold = Threshold()  # with the best weights
    unscored: Record | None = None  # of a `shared` validation: the pass of the next epoch scores its weights

    def __post_init__(self) -> None:
        if isinstance(self.unscored, Mapping):
            self.unscored = Record(**self.unscored)
        for name in ("threshold", "best_threshold"):
            if isinstance(value := getattr(self, name), Mapping):  # out of a checkpoint
                setattr(self, name, Threshold.from_dict(value))


def state_dict(training: Training) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state between two epochs. Random numbers are not part of it: every epoch draws its own."""
    depths, depth_tensors = depth_state(training.network)
    moments, groups = optimizer_state(training.optimizer)
    sources = {
        "network": training.network.state_dict(),
        "best": training.best_weights,
        "optimizer": moments,
        "depth": depth_tensors,
        "average": {} if training.average is None else training.average.state(),
    }
    tensors = {f"{kind}/{name}": tensor for kind, named in sources.items() for name, tensor in named.items()}
    tensors = training.distributed.gather(tensors, _row_names(training).__contains__)
    return tensors, {
        "progress": asdict(training.progress),
        "schedule": training.schedule.state(),
        "groups": groups,
        "depths": depths,
        "data": digest(training.dataset),
    }


def _row_names(training: Training) -> set[str]:
    """Of the tensors of a checkpoint, those with a row for each node: learned rows, and the moments of these."""
    learned = training.network.row_parameters()
    names = {f"{kind}/{name}" for kind in ("network", "best", "average") for name in learned}
    rows = [training.network.get_parameter(name) for name in learned]
    groups = training.optimizer.param_groups
    for number, parameter in enumerate(p for group in groups for p in group["params"]):
        if any(parameter is each for each in rows):
            names |= {f"optimizer/{number}.{key}" for key in MOMENTS}
    return names


def load_state_dict(training: Training, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Go on from what :func:`state_dict` gave."""
    state = training.team.broadcast(state)
    name = training.dataset.facts.name
    folder = "its folder" if training.run is None else training.run.folder
    if state.get("data") != digest(training.dataset):
        raise TrainingError(
            f"{name} has other edges or features than when the run in {folder} was stopped; bring the old ones "
            f"back, or start a new run."
        )
    try:
        parts: dict[str, dict[str, Tensor]] = {kind: {} for kind in KINDS}
        in_rows = _row_names(training)
        for name, tensor in training.team.broadcast_tensors(tensors):
            kind, _, rest = name.partition("/")
            if name in in_rows:
                tensor = training.distributed.local_rows(tensor)
            parts[kind][rest] = tensor.to(training.device)
        training.network.load_state_dict(parts["network"])
        training.keep_weights(parts["best"])
        if training.average is not None:
            training.average.restore(parts["average"])
        restore_optimizer(training.optimizer, parts["optimizer"], state["groups"])
        training.schedule.restore(state["schedule"])
        directions = {name: tensor.clone() for name, tensor in parts["depth"].items()}
        restore_depth_state(training.network, state["depths"], directions)
        training.progress = Progress(**state["progress"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(
            f"The checkpoint in {folder} does not fit its config.toml; undo the changes to it, "
            f"or start a new run ({type(error).__name__})."
        ) from error
