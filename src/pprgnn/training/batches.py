"""A data set on its device, cut into batches of whole graphs, and divided among processes that train together.

Every graph is normalised once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GraphNorm, PairNorm
from torch_geometric.nn.conv import MessagePassing

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.blocks import cut_blocks, take_blocks
from pprgnn.core.csr import ranges
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import hide_columns, take_rows
from pprgnn.distributed.layers import RowNumbers, share_batch_norm, use_row_dropout
from pprgnn.distributed.part import GraphPart, cut
from pprgnn.distributed.partitions import choose_method, partition
from pprgnn.distributed.team import Team
from pprgnn.nn.network import Network
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.training.errors import TrainingError

AT_ONCE = 8  # batches of graphs are gathered together: for small ones, the many small operations cost most


@dataclass(frozen=True)
class Batch:
    """What one pass through a network needs, and what it should come to."""

    x: Tensor | None
    edges: Adjacency | Tensor | None  # as the network wants it; None: ``x`` are hops
    edge_weight: Tensor | None
    graph: Tensor | None  # graph tasks: the graph of each node
    num_graphs: int
    rows: Tensor | None  # node tasks: which nodes are scored; None: all
    y: Tensor  # of the scored nodes, or of the graphs

    def scored(self, state: Tensor) -> Tensor:
        """Of the state of a node task, the rows that count."""
        return state if self.rows is None else take_rows(state, self.rows)


class Batches:
    """Cuts the graphs of a data set into batches.

    ``adjacency_options`` say how the network wants Ã; ``None``: it wants a plain ``edge_index``. The last
    ``label_columns`` of the features ``x`` are labels, see :mod:`label_input`.
    """

    def __init__(
        self,
        dataset: GraphDataset,
        x: Tensor | None,
        adjacency_options: Mapping[str, Any] | None,
        device: torch.device,
        label_columns: int = 0,
    ) -> None:
        self.dataset = dataset.copy() if dataset._indices is not None else dataset
        self.task = dataset.facts.task
        self.device, self.label_columns = device, label_columns
        data, slices = self.dataset._data, self.dataset.slices
        self.sizes = torch.tensor(self.dataset.graph_sizes, device=device)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.x = None if x is None else x.to(device)
        self.y: Tensor | None = data.y.to(device) if "y" in data else None
        self.adj: Adjacency | None = None
        # Of several processes, each has a share of the graphs of a batch, or a part of the one graph there is.
        self.share = (0, 1)
        self.per_pass = 1  # graphs that are evaluated at once, by one process
        self.nodes: Tensor | None = None
        self._single: dict[int, tuple[Any, ...]] = {}
        edge_index, weight, dtype = data.edge_index, data.get("edge_weight"), torch.get_default_dtype()
        cuts = torch.tensor([0, edge_index.size(1)]) if slices is None else slices["edge_index"]
        if adjacency_options is None:
            self.edge_index = edge_index.to(device)
            self.edge_weight = None if weight is None else weight.to(device, dtype)
            self.edge_starts, self.edge_counts = cuts[:-1].to(device), cuts.diff().to(device)
            return
        if len(self.dataset) == 1:
            adj = self.dataset.adjacency(0, **adjacency_options)
        else:  # all graphs, with nodes counted through
            through = edge_index + torch.repeat_interleave(self.starts.cpu(), cuts.diff())
            count = int(self.sizes.sum())
            adj = Adjacency.from_edge_index(through, weight, count, reorder=False, **adjacency_options)
        self.adj = adj.to(dtype).to(device)  # in the precision of networks, whatever the weights came in

    def all_graphs(self) -> Tensor:
        """The numbers of all graphs."""
        return torch.arange(len(self.sizes), device=self.device)

    def take_part(self, part: GraphPart) -> None:
        """From here on, only the nodes of this part of the one graph there is."""
        nodes = self.nodes = part.nodes
        self.adj, self.x = part, None if self.x is None else take_rows(self.x, nodes)
        self.y = None if self.y is None else self.y[nodes]
        self.sizes, self.starts = torch.tensor([[len(nodes)], [0]], device=self.device)
        self._single.clear()

    def own_labels(self, of_all: Tensor) -> Tensor:
        """Of one value per label, those of the nodes that are here."""
        of_all = of_all.to(self.device)
        return of_all if self.nodes is None else of_all[self.nodes]

    @property
    def at_once(self) -> int:
        """How many graphs are evaluated at once, by all processes together."""
        return self.per_pass * self.share[1]

    def label_rows(self) -> Tensor | slice:
        """Which labels belong to the rows of an evaluation of all graphs."""
        rank, processes = self.share
        if processes == 1:
            return slice(None)
        graphs = torch.cat([ids[rank::processes] for ids in torch.split(self.all_graphs(), self.at_once)])
        return graphs if self.task == "graph" else ranges(self.starts[graphs], self.sizes[graphs])

    def parts(self, mask: Tensor) -> Tensor:
        """The graphs with at least one label under this mask (one bool per label)."""
        if self.nodes is not None:
            return self.all_graphs()  # other parts may have the labels
        mask = mask.to(self.device)
        if self.task == "graph":
            return mask.nonzero().flatten()
        counts = torch.zeros(len(self.sizes), dtype=torch.long, device=self.device)
        owner = torch.repeat_interleave(self.all_graphs(), self.sizes)
        return counts.index_add_(0, owner, mask.long()).nonzero().flatten()

    def cut(
        self, graphs: Tensor, size: int, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Iterator[Batch]:
        """Batches of ``size`` graphs, shuffled if there is a generator; scored where ``mask`` says so.

        Of several processes, each gets its share of every batch, which may be none of its graphs.
        """
        if generator is not None:
            graphs = graphs[torch.randperm(len(graphs), generator=generator).to(self.device)]
        rank, processes = self.share
        if self.task == "graph" and processes == 1:
            for ids in torch.split(graphs, AT_ONCE * size):
                yield from self._divided(ids, size)
            return
        for ids in torch.split(graphs, size):
            yield self.batch(ids[rank::processes], mask)

    def _divided(self, ids: Tensor, size: int) -> Iterator[Batch]:
        """The same batches as one by one, cut out of a single one: they share its memory."""
        whole = self.batch(ids)
        if len(ids) <= size:
            yield whole
            return
        assert whole.graph is not None
        bounds = [*range(0, len(ids), size), len(ids)]  # among the graphs
        cuts = _cuts(self.sizes[ids], bounds)
        for edges, (start, end), (first, last) in zip(
            self._divided_edges(whole, ids, bounds, cuts), pairwise(bounds), pairwise(cuts), strict=True
        ):
            x = None if whole.x is None else take_rows(whole.x, slice(first, last))
            owner, y = whole.graph[first:last] - start, whole.y[start:end]
            yield Batch(x, *edges, owner, end - start, None, y)

    def _divided_edges(
        self, whole: Batch, ids: Tensor, bounds: list[int], cuts: list[int]
    ) -> Iterator[tuple[Adjacency | Tensor, Tensor | None]]:
        if isinstance(whole.edges, Adjacency) and self.adj is not None:
            numbers = ids.tolist()
            for adj, (start, end) in zip(cut_blocks(whole.edges, cuts), pairwise(bounds), strict=True):
                # The graphs tell matrices apart as well as their entries do.
                adj.fingerprint = hash((self.adj.fingerprint, *numbers[start:end]))
                yield adj, None
            return
        assert isinstance(whole.edges, Tensor)
        for (start, end), first in zip(pairwise(_cuts(self.edge_counts[ids], bounds)), cuts, strict=False):
            weight = None if whole.edge_weight is None else whole.edge_weight[start:end]
            yield whole.edges[:, start:end] - first, weight

    def batch(self, ids: Tensor, mask: Tensor | None = None, *, hide: bool = False) -> Batch:
        """These graphs as one batch; with ``hide``, no label of a scored node is among the features."""
        nodes, edges, weight, owner = self._graphs(ids)
        x = None if self.x is None else take_rows(self.x, nodes)
        if self.task == "graph":
            y = torch.empty(0) if self.y is None else self.y[ids]
            return Batch(x, edges, weight, owner, len(ids), None, y)
        rows = None if mask is None else mask[nodes].nonzero().flatten()
        if hide and x is not None:
            x = hide_columns(x, slice(None) if rows is None else rows, x.size(1) - self.label_columns)
        y = torch.empty(0) if self.y is None else self.y[nodes] if rows is None else self.y[nodes][rows]
        return Batch(x, edges, weight, None, len(ids), rows, y)

    def _graphs(self, ids: Tensor) -> tuple[Any, Any, Tensor | None, Tensor | None]:
        """Nodes (a slice or indices), edges, weights, graph of each node; those of single graphs are kept."""
        if len(ids) != 1 or self.task == "graph":
            starts, sizes = self.starts[ids], self.sizes[ids]
            owner = torch.repeat_interleave(torch.arange(len(ids), device=self.device), sizes)
            return ranges(starts, sizes), *self._edges(ids, starts, sizes), owner
        number = int(ids[0])
        if number not in self._single:
            start, size = int(self.starts[number]), int(self.sizes[number])
            edges = self._edges(ids, self.starts[ids], self.sizes[ids])
            self._single[number] = slice(start, start + size), *edges, None
        return self._single[number]

    def _edges(self, ids: Tensor, starts: Tensor, sizes: Tensor) -> tuple[Any, Tensor | None]:
        if self.adj is not None:
            return (self.adj if len(self.sizes) == 1 else take_blocks(self.adj, starts, sizes)), None
        if len(self.sizes) == 1:
            return self.edge_index, self.edge_weight
        chosen = ranges(self.edge_starts[ids], self.edge_counts[ids])
        shift = torch.repeat_interleave(sizes.cumsum(0) - sizes, self.edge_counts[ids])
        weight = None if self.edge_weight is None else self.edge_weight[chosen]
        return self.edge_index[:, chosen] + shift, weight


def _cuts(sizes: Tensor, bounds: list[int]) -> list[int]:
    """How much comes before each of these graphs."""
    ends = [0, *sizes.cumsum(0).tolist()]
    return [ends[bound] for bound in bounds]


class DistributedContext:
    """The network and the batches of one process among several; with a team of one, nothing is changed.

    One graph is cut into parts: each process has the rows of its nodes. Of several graphs, each process has its
    share of every batch. Parameters are the same everywhere, but for learned rows of nodes, which are in parts.
    Each builds the network from the same seed and the batches of all data; what is left of them is its own.
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
            if limit:
                return float(torch.nn.utils.clip_grad_norm_(self.network.parameters(), limit))
            norms = [torch.linalg.vector_norm(p.grad) for p in self.network.parameters() if p.grad is not None]
            return float(torch.linalg.vector_norm(torch.stack(norms)))
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
