"""The rows that the states of a few nodes depend on by more than an error allowed: a push from them outward.

Rows satisfy ‖(ÃGW)_i‖ <= ‖W‖₂ Σ_j |Ã_ij| ‖G_j‖. Leaving out (taking as 0) the row of node j at level n therefore
changes the asked rows of G⁽⁰⁾ by at most κₙ a⁽ⁿ⁾_j ‖G⁽ⁿ⁾_j‖ together, where κₙ = ∏_{m<n} L ‖W βₘ‖₂,
a⁽⁰⁾ = 1 on the asked nodes and a⁽ⁿ⁺¹⁾ = |Ã|ᵀ a⁽ⁿ⁾. The push follows a outward and leaves out the cheapest nodes as
long as the sum of their prices stays within the error allowed: what remains is a proof, with neither a product of
the whole graph nor a look at the features of what is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.kernel import multiply
from pprgnn.core.csr import csr_tensor, index_dtype, ranges
from pprgnn.core.decay import decay
from pprgnn.core.problem import Problem, as_eps
from pprgnn.core.recursion import descend
from pprgnn.core.solution import Solution, Status
from pprgnn.nn.through_adjacency import SolvingAdjacency

ROWS_AT_ONCE = 1 << 18  # of which the entries are gathered together
MANY = 1 / 16  # of all entries: beyond, a product of the whole matrix with a vector is faster than gathering them
WORTH = 0.3  # of the entries that a pass over the whole graph reads: beyond, that pass is the better one
ROUNDING = 1 + 1e-5  # of the norm of a matrix
SMALLEST = 1e-25  # share that single precision holds, with its products


class NotWorthwhile(Exception):
    """The neighbourhood would cost as much as the graph; the message says why, as the end of a sentence."""


# ------------------------------------------------------------------------------------------------------- bounds
@dataclass(frozen=True)
class RowGrowth:
    """|Ã| s <= rate · s, for row sizes s: a row is measured beside its size, because hubs may have larger rows.

    s_i is the number of entries of row i to some power: ½ suits symmetric normalisation (there √degree is an
    eigenvector), 0 suits row normalisation.
    """

    power: float
    rate: float
    signed: bool  # whether there are negative entries
    rounding: float  # of a sum over a row, as a factor

    @classmethod
    def of(cls, adj: Adjacency) -> RowGrowth:
        """The better of both powers; one pass over the entries, so do it once for a graph."""
        matrix = adj.matrix
        crow, value = matrix.crow_indices(), matrix.values()
        if not value.numel():
            return cls(0.0, 0.0, False, 1.0)
        powers, signed = (0.5, 0.0), bool((value < 0).any())
        sizes = torch.stack([_sizes(crow.diff(), power) for power in powers], dim=1).to(value.dtype)
        if signed:
            matrix = csr_tensor(crow, matrix.col_indices(), value.abs())
        grown = multiply(matrix, sizes, out=torch.empty_like(sizes)) / sizes
        rounding = 1 + torch.finfo(value.dtype).eps * (2 + int(crow.diff().max()))
        rate, power = min(zip((float(rate) for rate in grown.amax(0)), powers, strict=True))
        return cls(power, rate * rounding, signed, rounding)

    def sizes(self, adj: Adjacency, rows: Tensor | None = None) -> Tensor:
        """The s of these rows of the inner order, of all by default; all are at least 1."""
        crow = adj.matrix.crow_indices()
        return _sizes(crow.diff() if rows is None else crow[rows + 1] - crow[rows], self.power)


def _sizes(entries: Tensor, power: float) -> Tensor:
    return entries.clamp(min=1).double() ** power


@dataclass(frozen=True)
class LayerBounds:
    """What one recursion can do to rows."""

    steps: list[float]  # cₙ = L ‖W βₙ‖₂ for n = 0, 1, ..., as far as the recursion may go
    lipschitz: float  # L, the constant of φ
    finite: bool  # whether the recursion ends after these steps (a given depth), instead of being cut there

    @classmethod
    def of(
        cls, weight: Tensor, eps: float | Tensor, activation: Activation, max_depth: int, depth: int | None = None
    ) -> LayerBounds:
        """Of the recursion with W and ε; ``depth`` if it is a given one."""
        weight = weight.detach()
        rates = as_eps(eps, weight, weight.size(0)).detach()
        count = max_depth + 2 if depth is None else depth
        if rates.dim():
            scaled = (weight * decay(n, rates) for n in range(count))
            norms = [float(torch.linalg.matrix_norm(each, ord=2)) for each in scaled]
        else:
            norm = float(torch.linalg.matrix_norm(weight, ord=2))
            norms = [norm / (1 + n * float(rates)) for n in range(count)]
        lipschitz = activation.lipschitz
        return cls([lipschitz * ROUNDING * norm for norm in norms], lipschitz, depth is not None)

    def row_bounds(self, b: float, growth: RowGrowth) -> list[float]:
        """γₙ with ‖G⁽ⁿ⁾_j‖ <= γₙ s_j for all nodes, from ‖B_j‖ <= b s_j; infinite where nothing is known."""
        if self.finite:
            bounds = [self.lipschitz * b]
        else:
            last = self.steps[-1] * growth.rate  # the steps only weaken from there on
            bounds = [self.lipschitz * b / (1 - last) if last < 1 else math.inf]
        for step in reversed(self.steps):
            bounds.append(step * growth.rate * bounds[-1] + self.lipschitz * b)
        return bounds[::-1]


# -------------------------------------------------------------------------------------------------------- push
@dataclass
class Push:
    """Nodes by how early they are needed (inner order), and what is left of the error allowed.

    Each call of :meth:`recursion` and :meth:`product` goes one part of a network backward and adds the nodes that
    this part needs, so that the rows needed at any level of any part are the first so many.
    """

    adj: Adjacency
    growth: RowGrowth
    nodes: Tensor
    allowed: float
    parts: int  # still to come, which share what is allowed
    spent: float = 0.0
    entries: int = 0  # that the recursions will read
    place: Tensor = field(init=False)  # 1 + the place of a node in ``nodes``; 0: not there

    def __post_init__(self) -> None:
        count, device = self.adj.num_nodes, self.nodes.device
        # As long as the graph, but memory that nobody has written to is not there yet.
        self.place = torch.zeros(count, dtype=torch.int32, device=device)
        self._sum = torch.zeros(count, dtype=torch.float64, device=device)
        self._add(self.nodes, first=True)

    def look_around(self) -> None:
        """Add all nodes that the present ones read, at no price."""
        rows, _ = self._spread(self.nodes, torch.ones_like(self.nodes, dtype=torch.float64))
        self._add(rows[self.place[rows] == 0])

    def recursion(self, bounds: LayerBounds, shares: Tensor, b: float) -> tuple[list[int], Tensor]:
        """How many rows each level of a recursion needs, and the shares of the rows of B; ‖B_j‖ <= b s_j.

        ``shares`` are what an error in each row of ``nodes`` costs.
        """
        row_bounds = bounds.row_bounds(b, self.growth)
        rows, a, kappa, sizes = self.nodes, shares, 1.0, [len(self.nodes)]
        total = bounds.lipschitz * shares
        # Half of what this part may leave out is for the end of the recursion, where nothing more is followed.
        rest, end = self.allowed * (1 - 1 / self.parts), 0.5 * self.allowed / self.parts
        depth = self._proved_depth(bounds, row_bounds, shares, end)
        if depth == len(bounds.steps) and not bounds.finite:
            raise NotWorthwhile(f"the proof needs more than max_depth = {len(bounds.steps) - 2} steps")
        for n, step in enumerate(bounds.steps):
            self._check_worth(n, depth)
            rows, a = self._spread(rows, a)
            kappa *= step
            prices = kappa * row_bounds[n + 1] * a * self.growth.sizes(self.adj, rows)
            if float(prices.sum()) <= self.allowed - rest:  # G⁽ⁿ⁺¹⁾ may be left out altogether
                self._spend(prices)
                break
            places, kept = self._keep(rows, prices, max(self.allowed - rest - end, 0.0) / max(depth - n, 1))
            rows, a, places = rows[kept], a[kept], places[kept]
            total = torch.cat([total, total.new_zeros(len(self.nodes) - len(total))])
            total.index_add_(0, places, bounds.lipschitz * kappa * a)
            sizes.append(int(places.max()) + 1)
        ends, self.parts = self._ends(), self.parts - 1
        self.entries += sum(int(ends[size - 1]) for size in sizes[:-1])
        return sizes, total

    def product(self, shares: Tensor, x: float) -> Tensor:
        """The shares of the rows of X in ÃX, from those of ÃX; ‖X_j‖ <= x s_j."""
        rows, a = self._spread(self.nodes, shares)
        prices = x * a * self.growth.sizes(self.adj, rows)
        places, kept = self._keep(rows, prices, self.allowed / self.parts)
        self.parts -= 1
        before = shares.new_zeros(len(self.nodes))
        return before.index_add_(0, places[kept], a[kept])

    def _proved_depth(self, bounds: LayerBounds, row_bounds: list[float], shares: Tensor, allowed: float) -> int:
        """How deep it has to go at most: Σ a s grows at most by the rate of the graph."""
        mass = float((shares * self.growth.sizes(self.adj, self.nodes)).sum())
        for n, step in enumerate(bounds.steps):
            mass *= step * self.growth.rate
            if mass * row_bounds[n + 1] <= allowed:
                return n
        return len(bounds.steps)

    def _check_worth(self, n: int, depth: int) -> None:
        """Raise when the levels to come would read most of what a pass over the whole graph reads."""
        now = int(self._ends()[-1])
        if now * (depth - n) > WORTH * self.adj.num_edges * depth:
            share = now / self.adj.num_edges
            raise NotWorthwhile(f"{share:.0%} of all edges matter within {n} of at most {depth} steps")

    def _ends(self) -> Tensor:
        """How many entries the first rows have, for each number of rows but none."""
        crow = self.adj.matrix.crow_indices()
        return (crow[self.nodes + 1] - crow[self.nodes]).cumsum(0)

    def _spread(self, rows: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        """|Ã|ᵀ a: the rows reached and their shares."""
        adj = self.adj
        crow, col, value = adj.matrix.crow_indices(), adj.matrix.col_indices(), adj.matrix.values()
        counts = (crow[rows + 1] - crow[rows]).long()
        many = int(counts.sum()) > MANY * adj.num_edges
        tiny = len(rows) > 0 and float(shares.min()) < SMALLEST
        if many and not tiny and not self.growth.signed and adj._matrix_t is not None:
            vector = torch.zeros(adj.num_nodes, 1, dtype=value.dtype, device=value.device)
            vector[rows, 0] = shares.to(value.dtype)
            product = multiply(adj.matrix_t, vector, out=torch.empty_like(vector)).flatten()
            reached = product.nonzero().flatten()
            return reached, product[reached].double() * self.growth.rounding
        for some in torch.split(torch.arange(len(rows), device=rows.device), ROWS_AT_ONCE):
            entries = ranges(crow[rows[some]].long(), counts[some])
            columns = col[entries].long()
            self._sum.index_add_(
                0, columns, value[entries].abs().double() * shares[some].repeat_interleave(counts[some])
            )
        few = int(counts.sum()) < adj.num_nodes // 64 and len(rows) <= ROWS_AT_ONCE  # few are sorted
        reached = torch.unique(columns) if few else self._sum.nonzero().flatten()
        sums = self._sum[reached]
        self._sum[reached] = 0.0
        return reached[sums > 0], sums[sums > 0]  # an entry may be a stored zero

    def _keep(self, rows: Tensor, prices: Tensor, allowance: float) -> tuple[Tensor, Tensor]:
        """Leave out the last rows that the allowance pays for, add the others; returns places, and who is kept.

        New rows come last, the cheapest at the end. The rows of a level then are the first so many: their number
        grows, and falls again when the level is so deep that rows known from before can be left out.
        """
        known = len(self.nodes)
        places = self.place[rows].long() - 1
        new = (places < 0).nonzero().flatten()
        new = new[prices[new].argsort(descending=True)]
        places[new] = torch.arange(known, known + len(new), device=rows.device)
        by_place = prices.new_zeros(known + len(new)).index_add_(0, places, prices).flip(0)
        out = int(torch.searchsorted(by_place.cumsum(0), allowance, right=True))
        self._spend(by_place[:out])
        end = len(by_place) - out
        self._add(rows[new[: max(end - known, 0)]])
        return places, (places < end).nonzero().flatten()

    def _spend(self, prices: Tensor) -> None:
        price = float(prices.sum())
        self.allowed, self.spent = self.allowed - price, self.spent + price

    def _add(self, rows: Tensor, first: bool = False) -> None:
        start = 0 if first else len(self.nodes)
        self.place[rows] = torch.arange(start + 1, start + 1 + len(rows), dtype=torch.int32, device=rows.device)
        self.nodes = rows if first else torch.cat([self.nodes, rows])


# ------------------------------------------------------------------------------------------------- neighbourhood
class Neighbourhood(SolvingAdjacency):
    """The rows and columns of Ã that a push found, with the entries of Ã itself: nothing is normalised anew.

    Layers run on it as on any adjacency; their recursions compute at every level the rows that are needed there.

    Attributes:
        nodes: the caller's number of each row.
        levels: for each layer, by its handle, how many rows G⁽⁰⁾, G⁽¹⁾, ... need.
        input_norms: for each layer, by its handle, the norm of the asked rows of B.
    """

    def __init__(self, push: Push, rows: int, asked: int, levels: dict[int, list[int]]) -> None:
        adj, nodes = push.adj, push.nodes
        matrix = adj.matrix
        crow, inner = matrix.crow_indices(), nodes[:rows]  # the others are read, but need no product
        counts = (crow[inner + 1] - crow[inner]).long()
        entries = ranges(crow[inner].long(), counts)
        columns = push.place[matrix.col_indices()[entries].long()] - 1
        kept = columns >= 0
        lengths = torch.zeros(len(nodes) + 1, dtype=torch.long, device=nodes.device)
        row = torch.arange(rows, device=nodes.device).repeat_interleave(counts)[kept]
        lengths[1 : rows + 1] = torch.bincount(row, minlength=rows)
        index = index_dtype(len(nodes), len(row))
        super().__init__(lengths.cumsum(0).to(index), columns[kept].to(index), matrix.values()[entries[kept]])
        self.nodes = nodes if adj.order is None else adj.order[nodes].long()
        self.asked, self.levels, self.spent = asked, levels, push.spent
        self.input_norms: dict[int, float] = {}

    def solve(
        self, layer: Tensor, b: Tensor, weight: Tensor, eps: float | Tensor, activation: Activation
    ) -> Solution:
        """The recursion of the layer with this handle: G⁽⁰⁾, right in the rows that are needed."""
        sizes = self.levels[int(layer)]
        self.input_norms[int(layer)] = float(torch.linalg.vector_norm(b[: self.asked].detach()))
        rates, depth = as_eps(eps, b, weight.size(0)), len(sizes) - 1
        states = [torch.zeros_like(b), torch.zeros_like(b)]
        product = torch.empty_like(b[: max(sizes)])

        def step(n: int, g: Tensor) -> Tensor:
            rows, out = sizes[n], states[n % 2]
            needed = Problem(b[:rows], weight, rates, self, activation)
            needed.step(n, g, out[:rows], product[:rows])
            if n + 2 <= depth:
                out[rows : sizes[n + 2]] = 0.0  # what this buffer held before, two levels farther
            return out

        start = states[depth % 2]
        activation.apply_(start[: sizes[depth]].copy_(b[: sizes[depth]]))
        return Solution(descend(step, start, range(depth)), depth, Status.CERTIFIED, products=depth)

    def product(self, x: Tensor, out: Tensor, transposed: bool = False) -> Tensor:
        """The first rows of Ã x, as many as ``out`` has; of Ãᵀ x all."""
        rows = out.size(0)
        if transposed or rows == self.num_nodes:
            return super().product(x, out, transposed)
        crow, col, value = self.matrix.crow_indices(), self.matrix.col_indices(), self.matrix.values()
        end = int(crow[rows])
        return multiply(csr_tensor(crow[: rows + 1], col[:end], value[:end], columns=self.num_nodes), x, out=out)
