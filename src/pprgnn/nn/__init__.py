"""PyTorch Geometric layers and networks: a thin shell over the core."""

from pprgnn.nn.conv_nets import ConvStack, InfiniteConvNet
from pprgnn.nn.infinite_depth import InfiniteDepth
from pprgnn.nn.infinite_layer import (
    depth_state,
    freeze_depth,
    infinite_layers,
    look_every,
    measure_afresh,
    restore_depth_state,
    set_tolerance,
)
from pprgnn.nn.network import Network, ppr_layers
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.nn.stacked import PPRGNN, GraphNet, NodeNet
from pprgnn.nn.task_nets import CoPurchaseNet, LabelNet, PaperGraphNet, PPINet

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
    "look_every",
    "measure_afresh",
    "ppr_layers",
    "restore_depth_state",
    "set_tolerance",
]
