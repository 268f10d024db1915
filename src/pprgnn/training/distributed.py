"""What processes that train together do differently from one alone: divide the work, and add up what they find."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch_geometric.nn import GraphNorm, PairNorm
from torch_geometric.nn.conv import MessagePassing

from pprgnn.distributed.layers import RowNumbers, share_batch_norm, use_row_dropout
from pprgnn.distributed.part import cut
from pprgnn.distributed.partitions import choose_method, partition
from pprgnn.distributed.team import Team
from pprgnn.nn.network import Network
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.training.batches import Batch, Batches
from pprgnn.training.errors import TrainingError
from pprgnn.training.optimization import clip_gradient


class DistributedContext:
    """The network and the batches of one process among several; with a team of one, nothing is changed.

    One graph is cut into parts: each process has the rows of its nodes. Of several graphs, each process has its
    share of every batch. Parameters are the same everywhere, but for learned rows of nodes, which are in parts.

    Args:
        team: The processes.
        network: Built by each of them from the same seed.
        batches: Of all data; what is left of them is this process's.
        method: How the one graph is partitioned.
    """

    def __init__(self, team: Team, network: Network, batches: Batches, method: str) -> None:
        self.team, self.network = team, network
        self.nodes: Tensor | None = None  # of a graph in parts, the numbers of the rows here
        self._all_nodes: Tensor | None = None  # the same of all processes; in the first one alone
        self.numbers: RowNumbers | None = None
        self.parameters = sum(p.numel() for p in network.parameters())  # of the whole network
        self.description = ""  # of how the work is divided
        if not team.joined:
            return
        share_batch_norm(network, team)
        if batches.task == "node" and len(batches.sizes) == 1:
            self._take_part(batches, method)
        else:
            batches.share = (team.rank, team.size)
            self.description = f"{team.size} processes, each with its share of the graphs of every step"

    def _take_part(self, batches: Batches, method: str) -> None:
        adj, network, method = batches.adj, self.network, choose_method(method)
        check_can_be_cut(network)
        assert adj is not None
        chosen = {"owner": partition(adj, self.team.size, method)} if self.team.is_main else {}
        [(_, owner)] = self.team.broadcast_tensors(chosen)
        part = cut(adj, owner, self.team)
        batches.take_part(part)
        sizes, halos = zip(*self.team.all_gather((part.num_nodes, part.halo_rows)), strict=True)
        self.description = (
            f"{self.team.size} processes with {min(sizes):,} to {max(sizes):,} nodes each ({method}); "
            f"{sum(halos):,} rows travel per step"
        )
        self.nodes, self._all_nodes = part.nodes, self.team.gather_rows(part.nodes)
        self.numbers = use_row_dropout(network)
        for name in network.row_parameters():
            rows = self.local_rows(network.get_parameter(name).detach())
            network.set_rows(rows.clone())  # the others are to be forgotten

    # ---------------------------------------------------------------------------------------------- random numbers
    def start_epoch(self, seed: int) -> None:
        """Random numbers of their own for the graphs of each process; those of a node are the same in any part."""
        torch.manual_seed(seed + 0x9E3779B1 * self.team.rank)
        if self.numbers is not None:
            self.numbers.restart(seed)

    def set_rows(self, batch: Batch | None = None) -> None:
        """The network is about to see a row of each node here or, given a batch, of its scored ones."""
        if self.numbers is not None and self.nodes is not None:
            rows = None if batch is None else batch.rows
            self.numbers.nodes = self.nodes if rows is None else self.nodes[rows]

    # -------------------------------------------------------------------------------------------------- gradients
    def sum_gradients(self) -> None:
        """Add up what each process found; all at once, because they are many and small."""
        if self.team.size == 1:
            return
        own = set(self.network.row_parameters())
        shared = [p for name, p in self.network.named_parameters() if name not in own]
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in shared]
        reached = shared[0].new_tensor([float(p.grad is not None) for p in shared])
        flat = self.team.all_reduce(torch.cat([reached, *(piece.flatten() for piece in pieces)]))
        reached, *sums = torch.split(flat, [len(shared), *(p.numel() for p in shared)])
        for parameter, found, total in zip(shared, reached.tolist(), sums, strict=True):
            if found:  # where no process has a gradient, there is none: an optimiser treats zeros differently
                parameter.grad = total.view_as(parameter)

    def clip_gradient(self, limit: float) -> float:
        """The norm of the gradient of all parameters, which is scaled down to ``limit``; 0: left as it is."""
        own = set(self.network.row_parameters())
        if self.nodes is None or not own:
            return float(clip_gradient(self.network, limit))
        squares = {True: 0.0, False: 0.0}
        for name, parameter in self.network.named_parameters():
            if parameter.grad is not None:
                squares[name in own] += float(torch.linalg.vector_norm(parameter.grad)) ** 2
        norm: float = (squares[False] + self.team.all_sum(squares[True])[0]) ** 0.5
        if limit and norm > limit:
            for parameter in self.network.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(limit / (norm + 1e-6))
        return norm

    # ---------------------------------------------------------------------------------------------------- weights
    def gather(
        self, tensors: Mapping[str, Tensor], has_rows: Callable[[str], bool] | None = None
    ) -> dict[str, Tensor]:
        """Tensors of the network, or of what goes with it; the first process gets the rows of all nodes."""
        own = set(self.network.row_parameters())
        if self.nodes is None or not own:
            return dict(tensors)
        result = dict(tensors)
        for name in filter(has_rows or own.__contains__, tensors):
            rows = self.team.gather_rows(tensors[name])
            if rows is not None:
                assert self._all_nodes is not None
                result[name] = torch.empty_like(rows).index_copy_(0, self._all_nodes, rows)
        return result

    def gather_weights(self) -> dict[str, Tensor]:
        """The weights at the end, whole; in the first process the network gets them as well."""
        weights = self.gather(self.network.state_dict())
        if self.nodes is not None and self.team.is_main:
            for name in self.network.row_parameters():
                self.network.set_rows(weights[name])
        return weights

    def local_rows(self, tensor: Tensor) -> Tensor:
        """Of a tensor with a row for each node, the rows of this process."""
        return tensor if self.nodes is None else tensor[self.nodes.to(tensor.device)]


def check_can_be_cut(network: Network) -> None:
    """Raise unless each layer of the network can work on a part of a graph."""
    for name, module in network.named_modules():
        passes_messages = isinstance(module, MessagePassing)
        ours = isinstance(module, PPRConv) and type(module)._solve is PPRConv._solve
        if (passes_messages and not ours) or isinstance(module, GraphNorm | PairNorm):
            raise TrainingError(
                f"One graph can be divided among processes where all layers are PPRConv, but {name} is a "
                f"{type(module).__name__}; use the system pprgnn without norm = 'graph' or 'pair', or one process."
            )
    if network.adjacency_options is None:
        raise TrainingError("This system cannot be trained on one graph by several processes; use one process.")
