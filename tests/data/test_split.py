"""What two processes compare before they train together."""

import torch

from pprgnn.data.split import Split
from tests.training.small_data import one_graph


def division(*parts: list[int]) -> Split:
    return Split.of(one_graph(), [torch.tensor(part) for part in parts], unit="node")


def test_the_digest_tells_divisions_apart():
    splits = [division([0, 1], [2], [3]), division([0], [1, 2], [3]), division([0, 1], [3], [2])]
    assert len({split.digest() for split in splits}) == 3
    assert splits[0].digest() == division([1, 0], [2], [3]).digest()
