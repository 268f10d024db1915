"""PyTorch Geometric layers and models: a thin shell over the core."""

from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.nn.pprgnn import PPRGNN

__all__ = ["PPRGNN", "PPRConv"]
