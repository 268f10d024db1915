"""The paper's tables and figure, and more: each a grid of cells whose results are kept, and a page made of them.

Imports neither torch nor PyG until a cell runs.
"""

from __future__ import annotations

from pprgnn.experiments.ablations import ABLATIONS
from pprgnn.experiments.amazon import AMAZON
from pprgnn.experiments.chains import CHAINS
from pprgnn.experiments.convolutions import CONVOLUTIONS
from pprgnn.experiments.depth import DEPTH
from pprgnn.experiments.experiment import Experiment, Extent
from pprgnn.experiments.graphs import GRAPHS
from pprgnn.experiments.heterophily import HETEROPHILY
from pprgnn.experiments.ppi import PPI
from pprgnn.experiments.timing import TIMING

__all__ = ["EXPERIMENTS", "Experiment", "Extent"]

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each for each in (GRAPHS, PPI, AMAZON, TIMING, DEPTH, CHAINS, HETEROPHILY, CONVOLUTIONS, ABLATIONS)
}
