"""Gradient × input: what the input of every node, and what the biases, add to a score.

One forward pass through the whole graph is kept, and every question goes back through it. Where that would take
too long there are two other ways. :mod:`pprgnn.explore.local` follows some nodes alone. The one here is for one
recursion without an activation, exact and fast on the largest graphs: the gradient of one row comes into it as a
single row g, and every level of its adjoint then is one vector over the nodes times one over the channels,
Ḡ⁽ⁿ⁾ = (Ãᵀ)ⁿ eᵥ ⊗ g (Wβ₀)ᵀ ... (Wβₙ₋₁)ᵀ. Nothing as large as a state is ever computed. The vectors over the nodes
tell the state of the row at every depth, too: Σₗ (eᵥᵀ Ãˡ B) (Wβₗ₋₁) ... (Wβ₀).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from threading import Event

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.kernel import multiply
from pprgnn.core.decay import decay
from pprgnn.core.problem import as_eps
from pprgnn.core.solution import Solution, Status
from pprgnn.data.sparse_features import take_rows, to_dense
from pprgnn.nn.network import Network
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.nn.stacked import NodeNet
from pprgnn.nn.task_nets import CoPurchaseNet
from pprgnn.nn.through_adjacency import SolvingAdjacency
from pprgnn.training.attribution import inputs_of, learned_rows, target_score
from pprgnn.training.batches import Batch
from pprgnn.training.model import Model

asker_gone: ContextVar[Event | None] = ContextVar("asker_gone", default=None)


class LeftError(Exception):
    """Nobody waits for the answer any more."""


def check_asker(*_: object) -> None:
    """Give up, if whoever asked has gone; called between steps of what takes long."""
    gone = asker_gone.get()
    if gone is not None and gone.is_set():
        raise LeftError


# ----------------------------------------------------------------------------------------- through the whole graph
@dataclass(frozen=True)
class Traced:
    """A score and what it is made of."""

    score: float  # as in `pprgnn.training.explain.Decision`
    nodes: Tensor  # what the input of each node adds; float64, on the CPU
    biases: float  # what the biases add
    left_out: str = ""  # a sentence on what was not followed; empty: nothing was
    partial: bool = False  # whether other nodes could have been followed, too, which takes longer


def gradients(model: Model, logits: Tensor, target: int, x: Tensor) -> tuple[float, Tensor, float]:
    """Score, its gradient at ``x``, and the contribution of the biases; what autograd has kept stays."""
    score = target_score(logits, target, model.facts.multi_label)
    biases = _biases(model.network)
    gradient, *others = torch.autograd.grad(score, [x, *biases], retain_graph=True, materialize_grads=True)
    pairs = zip(others, biases, strict=True)
    total = sum((float((one * other.detach()).sum(dtype=torch.float64)) for one, other in pairs), 0.0)
    return float(score.detach()), gradient, total


def trace(model: Model, logits: Tensor, target: int, x: Tensor) -> tuple[float, Tensor, float]:
    """Score, contribution of every row of ``x``, and that of the biases."""
    score, gradient, biases = gradients(model, logits, target, x)
    return score, gradient.mul_(x.detach()).sum(1).double().cpu(), biases


def follow_biases(network: Network) -> None:
    """From here on gradients flow to the biases and to no other parameter."""
    network.requires_grad_(False)
    for bias in _biases(network):
        bias.requires_grad_(True)


def _biases(network: Network) -> list[Tensor]:
    return [each for name, each in network.named_parameters() if name.rpartition(".")[2] == "bias"]


class WholeGraph:
    """Exact, for every network with a gradient; the first question makes the pass.

    The model is at its final depths; ``left_out`` says what the gradients of its layers leave out.
    """

    def __init__(self, model: Model, batch: Batch, left_out: str = "") -> None:
        self.model, self.batch, self.left_out = model, batch, left_out
        self._kept: tuple[Tensor, Tensor] | None = None

    def trace(self, row: int, target: int, all_nodes: bool) -> Traced:
        """Where the score of a class comes from; always from all nodes."""
        network, batch = self.model.network, self.batch
        with torch.enable_grad():
            if self._kept is None:
                x = inputs_of(network, batch).requires_grad_(True)
                given = None if batch.x is None else x
                self._kept = x, network.encode(given, batch.edges, batch.edge_weight)
            x, state = self._kept
            if batch.graph is None:
                logits = network.decode(state[row : row + 1])[0]
            else:
                logits = network.decode(state, batch.graph, batch.num_graphs)[row]
            return Traced(*trace(self.model, logits, target, x), self.left_out)


# --------------------------------------------------------------------- through one recursion without an activation
def is_linear(network: Network) -> bool:
    """Whether its inputs go straight into its only recursion, which has no activation."""
    conv: torch.nn.Module
    if isinstance(network, CoPurchaseNet):
        conv = network.conv
    elif isinstance(network, NodeNet) and len(network.convs) == 1:
        if network.input_layer is not None or network.residual:
            return False
        (conv,) = network.convs
    else:
        return False
    return type(conv) is PPRConv and getattr(conv.activation, "slope", None) == 1.0


class LinearGraph:
    """Answers of such a network at its final depth, if it treats rows one by one behind the recursion."""

    def __init__(self, model: Model, batch: Batch, conv: PPRConv, depth: int) -> None:
        assert isinstance(batch.edges, Adjacency)
        self.model, self.batch, self.adj, self.depth = model, batch, batch.edges, depth
        self.weight = conv.recurrent_weight().detach()
        self.eps = as_eps(conv.eps, self.weight, self.weight.size(0)).detach()
        self.bias = torch.zeros_like(self.weight[0]) if conv.bias is None else conv.bias.detach()
        self.shift = int(conv.smooth_input)  # B is one hop farther away then
        with torch.no_grad():
            inputs = learned_rows(model.network) if batch.x is None else batch.x
            self.inputs = self.adj.permute(conv.lin(inputs)).detach()  # what it adds up, without the bias
        self._at = lru_cache(1)(self._walked)  # two questions about each row

    def _walked(self, row: int) -> tuple[Tensor, Tensor]:
        """(Ãᵀ)ⁿ eᵥ for n = 0, 1, ..., one row each, in the inner order; and the state of the row at each depth."""
        adj, last = self.adj, self.depth + self.shift
        walks = adj.value.new_empty(last + 1, adj.num_nodes, 1)
        walks[0].zero_()[row if adj.rank is None else int(adj.rank[row])] = 1.0
        for n in range(last):
            check_asker()
            multiply(adj.matrix_t, walks[n], out=walks[n + 1])
        walks, product = walks.squeeze(2), torch.eye(len(self.weight)).to(self.weight)
        terms = walks[self.shift :] @ self.inputs + walks[: self.depth + 1].sum(1, keepdim=True) * self.bias
        for n in range(1, self.depth + 1):
            product = (self.weight * decay(n - 1, self.eps)) @ product
            terms[n] = terms[n] @ product
        return walks, terms.cumsum(0)

    def _logits(self, row: int, states: Tensor) -> Tensor:
        """Behind the recursion, for several states of one row."""
        network = self.model.network
        given = self.batch.x
        x = None if given is None else to_dense(take_rows(given, slice(row, row + 1))).expand(len(states), -1)
        return network.decode(network.encode(x, _Copies(row, states)))

    def formed(self, row: int, depths: Sequence[int]) -> Tensor:
        """The logits of a row at these depths."""
        with torch.no_grad():
            return self._logits(row, self._at(row)[1][list(depths)]).cpu()

    def trace(self, row: int, target: int, all_nodes: bool) -> Traced:
        """Where the score of a class comes from; always from all nodes."""
        walks, states = self._at(row)
        state = states[-1:].clone().requires_grad_(True)
        with torch.enable_grad():
            score, gradient, biases = gradients(self.model, self._logits(row, state)[0], target, state)
        rows = [gradient[0]]  # ... per channel
        for n in range(self.depth):
            rows.append((self.weight * decay(n, self.eps)) @ rows[-1])
        channels = torch.stack(rows)
        inputs = (self.inputs @ channels.t()).mul_(walks[self.shift :].t()).sum(1)
        biases += float(walks[: self.depth + 1].sum(1) @ (channels @ self.bias))
        return Traced(score, self.adj.unpermute(inputs).double().cpu(), biases)


class _Copies(SolvingAdjacency):
    """One node as often as there are states of it; without edges, because the recursion has been solved."""

    def __init__(self, node: int, states: Tensor) -> None:
        count, none = len(states), torch.zeros(0, dtype=torch.int32, device=states.device)
        starts = torch.zeros(count + 1, dtype=torch.int32, device=states.device)
        Adjacency.__init__(self, starts, none, states.detach().new_empty(0))
        self.nodes, self.states = torch.full((count,), node, device=states.device), states

    def solve(
        self, layer: Tensor, b: Tensor, weight: Tensor, eps: float | Tensor, activation: Activation
    ) -> Solution:
        """Those states."""
        return Solution(self.states, 0, Status.FIXED)
