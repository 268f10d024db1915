"""The systems that ours is compared with, one file each, thin over PyG and grakel.

The layers that can take the place of ours are exported here; all systems train through `pprgnn.training`.
"""

from pprgnn.baselines.eignn import EIGNNConv
from pprgnn.baselines.ignn import IGNNConv
from pprgnn.baselines.mgnni import MGNNIConv

__all__ = ["EIGNNConv", "IGNNConv", "MGNNIConv"]
