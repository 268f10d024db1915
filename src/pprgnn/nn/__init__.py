"""PyTorch Geometric layers and networks: a thin shell over the core."""

from pprgnn.nn.conv_nets import ConvStack, InfiniteConvNet
from pprgnn.nn.infinite_depth import InfiniteDepth
from pprgnn.nn.label_net import LabelNet
from pprgnn.nn.layers import (
    depth_state,
    freeze_depth,
    infinite_layers,
    measure_afresh,
    ppr_layers,
    restore_depth_state,
    set_tolerance,
)
from pprgnn.nn.network import Network
from pprgnn.nn.paper import CoPurchaseNet, PaperGraphNet, PPINet
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.nn.pprgnn import PPRGNN
from pprgnn.nn.stacked import GraphNet, NodeNet

__all__ = [
    "PPRGNN",
    "CoPurchaseNet",
    "ConvStack",
    "GraphNet",
    "InfiniteConvNet",
    "InfiniteDepth",
    "LabelNet",
    "Network",
    "NodeNet",
    "PPINet",
    "PPRConv",
    "PaperGraphNet",
    "depth_state",
    "freeze_depth",
    "infinite_layers",
    "measure_afresh",
    "ppr_layers",
    "restore_depth_state",
    "set_tolerance",
]
