"""The systems that ours is compared with, thin over PyG and grakel.

The layers that can take the place of ours are exported here; all systems train through `pprgnn.training`.
"""

from pprgnn.baselines.ignn import EIGNNConv, IGNNConv, MGNNIConv

__all__ = ["EIGNNConv", "IGNNConv", "MGNNIConv"]
