"""IGNN's layer on our core against its direct formulation: `python -m benchmarks.ignn` writes results/ignn.*.

- ours: :func:`pprgnn.baselines.equilibrium.equilibrium`, forward and backward.
- coo: :func:`pprgnn.baselines.direct_ignn.direct_equilibrium`, plain torch as in the published code: state d × n,
  a product with a COO tensor, the largest change looked at after every iteration, forward and backward.

Both solve to the same accuracy, which is checked against a solve in double precision. They take turns; medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

import pprgnn
from benchmarks import machine, shapes
from benchmarks.contestants import Result, relative_difference
from benchmarks.report import table
from benchmarks.shapes import Shape
from pprgnn.baselines.direct_ignn import MAX_STEPS, STOP, direct_equilibrium
from pprgnn.baselines.equilibrium import equilibrium
from pprgnn.baselines.ignn import project_columns

KAPPA = {"batch": 0.95, "ppi-like": 0.8, "com-DBLP": 0.5}  # less where a step is slow: fewer steps
TOL = 1e-5  # relative error; the published code's STOP leaves about as large an error
WIDE = 128
SLOW = 15.0  # seconds; a contestant that takes so long has three turns
ALLOWED, ALLOWED_GRADIENT = 1e-4, 1e-2  # relative differences to the solve in double precision


def contracting(shape: Shape) -> Tensor:
    """A weight matrix at the edge of the ball, where training drives it: some dozens of steps."""
    return project_columns(torch.eye(shape.channels) + shape.weight, KAPPA[shape.name]).clone()


class Ours:
    """On our core."""

    label = "ours"

    def __init__(self, shape: Shape, dtype: torch.dtype = torch.float32, tol: float = TOL) -> None:
        self.adj = pprgnn.Adjacency.from_edge_index(shape.edge_index, num_nodes=shape.num_nodes, dtype=dtype)
        _ = self.adj.matrix_t, self.adj.norm_bound
        self.b = shape.b.to(dtype, copy=True).requires_grad_()
        self.weight = contracting(shape).to(dtype).requires_grad_()
        self.upstream, self.tol = shape.upstream.to(dtype), tol

    def run(self) -> Result:
        self.b.grad = self.weight.grad = None
        cap = MAX_STEPS if self.b.dtype == torch.float32 else 10 * MAX_STEPS
        solution = equilibrium(self.b, self.weight, self.adj, tol=self.tol, max_depth=cap)
        solution.state.backward(self.upstream)
        return Result(solution.state.detach(), self.b.grad, self.weight.grad, solution.depth, solution.products)


class Coo(Ours):
    """As published."""

    label = "direct, COO, d × n"

    def run(self) -> Result:
        self.b.grad = self.weight.grad = None
        solution = direct_equilibrium(self.b, self.weight, self.adj, stop=STOP, max_depth=MAX_STEPS)
        # STOP is absolute, and gradients are small numbers: scaled to the size of B, so that it means the same.
        unit = float(self.upstream.norm() / self.b.detach().norm())
        solution.state.backward(self.upstream / unit)
        grads = unit * self.b.grad, unit * self.weight.grad
        return Result(solution.state.detach(), *grads, solution.depth, solution.products)


def bench(name: str, repeats: int, smoke: bool) -> dict:
    """Check both, then time them in turns."""
    shape = shapes.make(name, smoke)
    contestants = {"ours": Ours(shape), "coo": Coo(shape)}
    # In double precision a wide one takes minutes: there they are compared with each other.
    exact = (Ours(shape, torch.float64, 1e-7) if shape.channels <= WIDE else contestants["ours"]).run()
    rows: dict[str, dict] = {}
    for who, contestant in contestants.items():
        result = contestant.run()  # warms up as well
        errors = {
            field: relative_difference(getattr(result, field).double(), getattr(exact, field))
            for field in ("state", "grad_b", "grad_weight")
        }
        if not (errors["state"] < ALLOWED and max(errors.values()) < ALLOWED_GRADIENT):
            raise RuntimeError(f"{who} on {name} is off: {errors}, allowed {ALLOWED} and {ALLOWED_GRADIENT}")
        rows[who] = {"steps": result.depth, "products": result.products, "samples": [], **errors}
    for turn in range(repeats):
        for who, contestant in contestants.items():
            if turn >= 3 and rows[who]["samples"][0] > SLOW:
                continue
            started = time.perf_counter()
            contestant.run()
            rows[who]["samples"].append(time.perf_counter() - started)
            print(f"{name}, turn {turn + 1}, {who}: {1e3 * rows[who]['samples'][-1]:.4g} ms", flush=True)
    for row in rows.values():
        row["median_ms"] = 1e3 * statistics.median(row["samples"])
        row["step_ms"] = row["median_ms"] / row["steps"]
    facts = {"num_nodes": shape.num_nodes, "num_edges": shape.num_edges, "channels": shape.channels}
    ratio = rows["coo"]["median_ms"] / rows["ours"]["median_ms"]
    return {**facts, "contestants": rows, "ratio": ratio}


def markdown(data: dict) -> str:
    header = [
        "shape",
        "nodes",
        "edges",
        "d",
        "kappa",
        "ours, ms",
        "steps",
        "direct, ms",
        "steps",
        "times faster",
        "per step",
    ]
    rows = []
    for name, row in data["shapes"].items():
        ours, coo = row["contestants"]["ours"], row["contestants"]["coo"]
        cells = [name, f"{row['num_nodes']:,}", f"{row['num_edges']:,}", str(row["channels"]), f"{KAPPA[name]:g}"]
        cells += [f"{ours['median_ms']:.4g}", str(ours["steps"]), f"{coo['median_ms']:.4g}", str(coo["steps"])]
        rows.append([*cells, f"**{row['ratio']:.1f}**", f"{coo['step_ms'] / ours['step_ms']:.1f}"])
    origin = f"commit {data['commit'][:7]}{'*' if data['edited'] else ''}"
    return f"""# IGNN on our core against its direct formulation

`{data["command"]}`, {data["date"]}, {origin}, load of the machine before: {data["machine"]["load_average"]:.1f}.
One forward and one backward pass. The states are within {ALLOWED:g} of a solve in double precision (with more than
{WIDE} channels, of each other), the gradients within {ALLOWED_GRADIENT:g}, where the slope of ReLU may differ next
to 0; that is checked first. W is the projection of the identity plus a random matrix: at the edge of the ball,
where training drives it. In turns, medians of {data["repeats"]} (of 3 where one takes over {SLOW:.0f} s).
*direct*: state d × n, COO products, the change looked at after each iteration, as the published code does it.
Steps are those of the forward pass.

{table(header, rows)}
"""


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ignn", description=__doc__)
    parser.add_argument("--shapes", nargs="+", choices=[*KAPPA], default=[*KAPPA])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="tiny shapes: does it run?")
    parser.add_argument("--output", type=Path, default=Path("results/ignn"))
    arguments = parser.parse_args(given)
    data = {
        "command": " ".join(["python -m benchmarks.ignn", *(sys.argv[1:] if given is None else given)]),
        **machine.commit(),
        "date": machine.now(),
        "machine": machine.describe(),
        "repeats": arguments.repeats,
        "shapes": {},
    }
    for name in arguments.shapes:
        try:
            data["shapes"][name] = bench(name, arguments.repeats, arguments.smoke)
        except shapes.MissingData as error:
            print(f"{name}: {error}")
            continue
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
        arguments.output.with_suffix(".md").write_text(markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()
