"""What compiling costs or saves: `python -m benchmarks.compile` writes results/compile.*.

One training step of a layer, a linear head and the cross entropy, forward and backward, with adaptive depth:

- eager: as it is.
- operator: the layer through `pprgnn::solve`, which compiled and exported code calls, but without a compiler.
- compiled: all of it in `torch.compile(fullgraph=True)`, with Inductor.

They take turns, each with its own copy of the same weights; a ratio compares two steps of the same turn.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import machine, shapes
from benchmarks.report import table
from benchmarks.shapes import SEED, Shape
from pprgnn.nn import PPRConv, compiled_layers
from pprgnn.nn.linear_output import AS_PUBLISHED

CLASSES = 16
AGREE = 1e-4  # relative difference of loss and gradients, allowed before any timing
TURNS = {"batch": 300, "ppi-like": 15, "large": 15}


def make(name: str, smoke: bool) -> Shape:
    if name != "large":
        return shapes.make(name, smoke)
    graph = shapes.communities(600, 4000) if smoke else shapes.communities(200_000, 2_000_000)
    return shapes.dress(name, *graph, 8 if smoke else 64, 0.25)


class Model(torch.nn.Module):
    """Layer, head and loss; ``way`` is how the layer is called."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.conv = PPRConv(shape.channels, shape.channels, eps=shape.eps, **AS_PUBLISHED)
        self.head = torch.nn.Linear(shape.channels, CLASSES)
        self.way: Callable[..., Tensor] = PPRConv.__call__
        with torch.no_grad():
            self.conv.weight.copy_(shape.weight)

    def forward(self, x: Tensor, edge_index: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(self.head(self.way(self.conv, x, edge_index, None)), y)


def contestants(shape: Shape) -> dict[str, tuple[Model, Callable[..., Tensor]]]:
    eager = Model(shape)
    operator, whole = copy.deepcopy(eager), copy.deepcopy(eager)
    operator.way = compiled_layers.forward_product
    torch._dynamo.reset()
    return {
        "eager": (eager, eager),
        "operator": (operator, operator),
        "compiled": (whole, torch.compile(whole, fullgraph=True)),
    }


def seconds(model: Model, call: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> float:
    model.zero_grad()
    start = time.perf_counter()
    call(*inputs).backward()
    return time.perf_counter() - start


def check_agreement(runs: dict[str, tuple[Model, Callable[..., Tensor]]]) -> None:
    """Of the gradients of the last step, which came from all of it."""
    wanted = dict(runs["eager"][0].named_parameters())
    for name, (model, _) in runs.items():
        for which, parameter in model.named_parameters():
            difference = (parameter.grad - wanted[which].grad).norm() / wanted[which].grad.norm()
            if not float(difference) <= AGREE:
                raise RuntimeError(f"{name}: the gradient of {which} is off by {float(difference):.1e}.")


def bench(name: str, turns: int, smoke: bool) -> dict:
    shape = make(name, smoke)
    runs = contestants(shape)
    y = torch.randint(CLASSES, (shape.num_nodes,), generator=torch.Generator().manual_seed(SEED))
    inputs = (shape.b, shape.edge_index, y)
    for _ in range(3):  # the depth is found, the code compiled, the memory warm
        for model, call in runs.values():
            seconds(model, call, inputs)
    check_agreement(runs)
    times: dict[str, list[float]] = {who: [] for who in runs}
    for _ in range(turns):
        for who, (model, call) in runs.items():
            times[who].append(seconds(model, call, inputs))
    ratios = {
        who: statistics.median(one / other for one, other in zip(times[who], times["eager"], strict=True))
        for who in ("operator", "compiled")
    }
    return {
        "num_nodes": shape.num_nodes,
        "num_edges": shape.num_edges,
        "channels": shape.channels,
        "depth": {who: model.conv.last_solution.depth for who, (model, _) in runs.items()},
        "turns": turns,
        "median_ms": {who: 1e3 * statistics.median(each) for who, each in times.items()},
        "ratio": ratios,
    }


def markdown(data: dict) -> str:
    header = ["shape", "nodes", "edges", "d", "depth", "eager, ms", "operator / eager", "compiled / eager"]
    rows = [
        [
            name,
            f"{row['num_nodes']:,}",
            f"{row['num_edges']:,}",
            str(row["channels"]),
            str(row["depth"]["eager"]),
            f"{row['median_ms']['eager']:.4g}",
            f"{row['ratio']['operator']:.3f}",
            f"{row['ratio']['compiled']:.3f}",
        ]
        for name, row in data["shapes"].items()
    ]
    edited = "*" if data["edited"] else ""
    where = data["machine"]
    smoke = "**Smoke run: sizes are tiny, the numbers mean nothing.**\n\n" if data["smoke"] else ""
    return f"""# Compiled against plain

{smoke}`{data["command"]}`, {data["date"]}, commit {data["commit"][:7]}{edited}, seed {data["seed"]}.
{where["cpu"]}, {where["threads"]} threads, torch {where["torch"]}, load of the machine before:
{where["load_average"]:.1f}.

One training step, forward and backward: a layer with adaptive depth, a linear head, the cross entropy. *operator*:
the layer through `pprgnn::solve`, which compiled and exported code calls; *compiled*: the whole step in
`torch.compile(fullgraph=True)`. They take turns; medians of the ratios within a turn. The gradients agree to
{AGREE:g} before any timing.

{table(header, rows)}

An asterisk: the working tree had changes.
"""


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile", description=__doc__)
    parser.add_argument("--shapes", nargs="+", choices=[*TURNS], default=[*TURNS], help="which ones (all)")
    parser.add_argument("--turns", type=int, help="of each shape (300 for the small one, 15 for the others)")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--output", type=Path, default=Path("results/compile"))
    arguments = parser.parse_args(given)
    typed = sys.argv[1:] if given is None else given
    data = {
        "command": " ".join(["python -m benchmarks.compile", *typed]),
        **machine.commit(),
        "date": machine.now(),
        "seed": SEED,
        "smoke": arguments.smoke,
        "machine": machine.describe(),
        "shapes": {},
    }
    for name in arguments.shapes:
        data["shapes"][name] = bench(name, arguments.turns or TURNS[name], arguments.smoke)
        print(f"{name}: {data['shapes'][name]['ratio']}", flush=True)
    arguments.output.with_suffix(".json").write_text(json.dumps(data, indent=1))
    arguments.output.with_suffix(".md").write_text(markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()
