"""Whether a run fits into memory, and how."""

from __future__ import annotations

import torch
from torch import Tensor

from pprgnn.data.dataset import GraphDataset
from pprgnn.training.build import Shape
from pprgnn.training.config import Config


def must_checkpoint(
    config: Config, dataset: GraphDataset, x: Tensor | None, shape: Shape, device: torch.device
) -> bool:
    """Whether states must be computed again instead of kept; refuses what cannot fit at all."""
    return config.training.memory == "checkpoint"
