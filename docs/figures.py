"""Draws docs/images/depth.png: `python docs/figures.py`. The graph, the seed and the rules are all in here."""

from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import torch

import pprgnn
from pprgnn import Adjacency, Certificate, Influence, Measured, solve

EPS, NORM, TOL = 0.25, 3.0, 1e-5


def what_is_left(axis: plt.Axes) -> None:
    """The share of a message that is left after n hops, W being the identity."""
    n = torch.arange(60, dtype=torch.float64)
    for eps in (1.0, 0.25, 0.1, 0.06, 0.02):
        left = torch.cat([torch.ones(1), (1 / (1 + n * eps)).cumprod(0)])
        axis.semilogy(left, label=f"ε = {eps:g}")
    axis.set(xlabel="hops", ylabel="share of a message that is left", ylim=(1e-6, 1.5), xlim=(0, 60))
    axis.legend()


def errors_and_rules(axis: plt.Axes) -> None:
    """The true error at every depth, its proved bound, and the depth that each rule chooses."""
    torch.manual_seed(0)
    adj = Adjacency.from_networkx(nx.karate_club_graph(), dtype=torch.float64)
    b, weight = torch.randn(34, 8).double(), torch.randn(8, 8).double()
    weight *= NORM / torch.linalg.matrix_norm(weight, ord=2)

    def run(depth: int | pprgnn.DepthRule) -> pprgnn.Solution:
        return solve(b, weight, adj, eps=EPS, depth=depth, tol=TOL)

    limit = run(200).state
    depths = range(50)
    axis.semilogy(depths, [float((run(k).state - limit).norm() / b.norm()) for k in depths], label="true error")
    norms = [NORM / (1 + n * EPS) for n in range(60)]
    products = torch.tensor(norms).double().cumprod(0)
    proved = [(k, float(products[k]) / (1 - norms[k + 1])) for k in depths if norms[k + 1] < 1]
    axis.semilogy(*zip(*proved, strict=True), "--", label="proved bound")
    axis.axhline(TOL, color="grey", linewidth=0.8)
    for rule, colour in ((Measured(), "C2"), (Influence(), "C4"), (Certificate(), "C3")):
        found = run(rule)
        axis.axvline(found.depth, color=colour, linestyle=":", label=f"{type(rule).__name__}(): {found.depth}")
    axis.set(xlabel="depth", ylabel="error relative to ‖B‖", ylim=(1e-9, 1e4), xlim=(0, 60))
    axis.legend(loc="upper right")


if __name__ == "__main__":
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
    what_is_left(left)
    errors_and_rules(right)
    figure.savefig(Path(__file__).parent / "images" / "depth.png", dpi=120)
