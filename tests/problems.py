"""A zoo of small named graphs, and the other ingredients of a recursion: b, weight, eps, φ.

Everything is float64, so that "equal" can mean 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import torch
from torch import Tensor

from pprgnn import Activation, Adjacency, leaky_relu


@dataclass(frozen=True)
class Graph:
    """Edges in PyG's convention: row 0 sends to row 1."""

    name: str
    edge_index: Tensor
    num_nodes: int
    edge_weight: Tensor | None = None

    def adjacency(self, **options: Any) -> Adjacency:
        options.setdefault("dtype", torch.float64)
        return Adjacency.from_edge_index(self.edge_index, self.edge_weight, self.num_nodes, **options)

    def __repr__(self) -> str:  # shown by pytest and hypothesis
        return self.name


def both_ways(edges: Tensor) -> Tensor:
    return torch.cat([edges, edges.flip(0)], dim=1)


def from_networkx(name: str, graph: nx.Graph) -> Graph:
    graph = nx.convert_node_labels_to_integers(graph)
    edges = torch.tensor(list(graph.edges), dtype=torch.long).t()
    return Graph(name, edges if graph.is_directed() else both_ways(edges), graph.number_of_nodes())


def ring(num_nodes: int) -> Graph:
    """Regular: every b that is constant over the nodes is an eigenvector, so results are known by hand."""
    here = torch.arange(num_nodes)
    return Graph(f"ring{num_nodes}", both_ways(torch.stack([here, here.roll(-1)])), num_nodes)


def random_graph(seed: int, num_nodes: int, *, directed: bool, weighted: bool) -> Graph:
    """Each ordered or unordered pair is an edge with chance 0.4; there may be isolated nodes."""
    draw = torch.Generator().manual_seed(seed)
    chosen = torch.rand(num_nodes, num_nodes, generator=draw) < 0.4
    weights = torch.rand(num_nodes, num_nodes, generator=draw, dtype=torch.float64) + 0.1
    chosen.fill_diagonal_(False)
    if not directed:
        chosen, weights = chosen.triu() | chosen.triu().t(), weights.triu() + weights.triu(1).t()
    edge_index = chosen.nonzero().t().contiguous()
    edge_weight = weights[edge_index[0], edge_index[1]] if weighted else None
    return Graph(f"random({seed}, directed={directed})", edge_index, num_nodes, edge_weight)


def _zoo() -> list[Graph]:
    draw = torch.Generator().manual_seed(0)
    path = from_networkx("path", nx.path_graph(7))
    # A directed cycle with chords: every node is pointed to, so symmetric normalisation keeps every edge.
    cycle = torch.stack([torch.arange(6), torch.arange(6).roll(-1)])
    chords = torch.tensor([[0, 0, 2, 5], [2, 3, 5, 1]])
    directed = torch.cat([cycle, chords], dim=1)
    half = torch.rand(6, generator=draw, dtype=torch.float64) + 0.2
    loops = torch.tensor([[0, 3], [0, 3]])
    return [
        path,
        from_networkx("grid", nx.grid_2d_graph(3, 4)),
        from_networkx("star", nx.star_graph(6)),
        from_networkx("karate", nx.karate_club_graph()),
        from_networkx("barabasi_albert", nx.barabasi_albert_graph(20, 2, seed=0)),
        Graph("directed", directed, 6),
        Graph("weighted", path.edge_index, 7, torch.cat([half, half])),
        Graph("directed_weighted", directed, 6, torch.rand(10, generator=draw, dtype=torch.float64) + 0.2),
        Graph("isolated_nodes", path.edge_index + 1, 10),
        Graph("one_node", torch.empty(2, 0, dtype=torch.long), 1),
        Graph("no_edges", torch.empty(2, 0, dtype=torch.long), 4),
        Graph("self_loops", torch.cat([path.edge_index, loops], dim=1), 7),
    ]


ZOO = {graph.name: graph for graph in _zoo()}


# ---------------------------------------------------------------------------------------------- ingredients
def draw_weight(channels: int, norm: float, seed: int = 0) -> Tensor:
    """A random matrix with ‖W‖₂ = norm."""
    draw = torch.Generator().manual_seed(1000 + seed)
    weight = torch.randn(channels, channels, generator=draw, dtype=torch.float64)
    return weight * (norm / torch.linalg.matrix_norm(weight, ord=2))


def draw_b(num_nodes: int, channels: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(2000 + seed)
    return torch.randn(num_nodes, channels, generator=draw, dtype=torch.float64)


def draw_eps(channels: int, per_channel: bool, base: float = 0.5) -> float | Tensor:
    """One number, or per channel the numbers base, 1.5 base, 2 base, ..."""
    return base * (1 + 0.5 * torch.arange(channels, dtype=torch.float64)) if per_channel else base


# ---------------------------------------------------------------------------------------------- activations
@dataclass(frozen=True)
class Phi:
    """What ``solve`` takes, and the same function written plainly for the reference."""

    name: str
    activation: str | Activation
    plain: Callable[[Tensor], Tensor]
    lipschitz: float = 1.0

    def __repr__(self) -> str:
        return self.name


def _softsign_slope(z: Tensor) -> Tensor:
    return (1 + z.abs()) ** -2


ACTIVATIONS = {
    phi.name: phi
    for phi in (
        Phi("relu", "relu", torch.relu),
        Phi("leaky_relu", "leaky_relu", lambda z: z.clamp_min(0) + 0.01 * z.clamp_max(0)),
        Phi("leaky_relu_0.3", leaky_relu(0.3), lambda z: z.clamp_min(0) + 0.3 * z.clamp_max(0)),
        Phi("tanh", "tanh", torch.tanh),
        Phi("identity", "identity", lambda z: z.clone()),
        # φ' from the input z: the backward pass must recover z
        Phi(
            "softsign",
            Activation(torch.nn.functional.softsign, _softsign_slope, lipschitz=1.0),
            lambda z: z / (1 + z.abs()),
        ),
        # φ' from the output
        Phi(
            "elu",
            Activation(
                torch.nn.functional.elu, lambda g: torch.where(g > 0, 1.0, g + 1), lipschitz=1.0, from_output=True
            ),
            torch.nn.functional.elu,
        ),
        # L > 1: the bounds must use it
        Phi(
            "steep",
            Activation(
                lambda z: 1.5 * torch.nn.functional.softsign(z),
                lambda z: 1.5 * _softsign_slope(z),
                lipschitz=1.5,
                name="steep",
            ),
            lambda z: 1.5 * z / (1 + z.abs()),
            lipschitz=1.5,
        ),
    )
}
