"""What answers for a few nodes of com-DBLP cost beside a full pass: writes results/few-nodes.md and .json.

`python -m benchmarks.few_nodes` takes networks with random weights of a given ‖W‖₂; with folders of trained runs
behind it, those. Both sides start from a prepared graph and model; they take turns, and medians count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks import machine
from benchmarks.report import table
from pprgnn.data import load
from pprgnn.data.dataset import GraphDataset
from pprgnn.errors import DataError
from pprgnn.training.build import Shape, build_network
from pprgnn.training.config import Config
from pprgnn.training.few_nodes import FewNodes
from pprgnn.training.model import Model

GRID = ((1.0, 0.5), (1.0, 1.0), (1.0, 2.0), (0.25, 0.5), (0.25, 1.0))  # eps, ‖W‖₂
TOLERANCES = (1e-3, 1e-5)


def random_model(dataset: GraphDataset, hidden: int, eps: float, norm: float) -> Model:
    """One layer over learned rows; all rows have about the same size, W a norm of choice."""
    torch.manual_seed(0)
    config = Config().with_settings([f"hidden={hidden}", f"eps={eps}"])
    shape = Shape.of(dataset, None)
    network = build_network(config.model, shape).eval()
    with torch.no_grad():
        weight = network.convs[0].weight
        weight.mul_(norm / torch.linalg.matrix_norm(weight, ord=2))
        network.embedding.weight.normal_()
    return Model(network, config, dataset.facts, shape, "embedding")


def with_tolerance(model: Model, tol: float) -> Model:
    training = replace(model.config.training, eval_tol=tol)
    return replace(model, config=replace(model.config, training=training))


def measure(model: Model, dataset: GraphDataset, asked: int, repeats: int) -> dict:
    """Random nodes and full passes in turns."""
    few, batches = FewNodes(model, dataset), model.batches(dataset)
    conv = next(layer for layer in model.network.modules() if type(layer).__name__ == "PPRConv")
    draw = torch.Generator().manual_seed(0)
    efforts, full, differences = [], [], []
    few.logits([0])  # to warm up
    for _ in range(repeats):
        start = time.perf_counter()
        logits, _ = model.evaluate(batches)
        full.append(time.perf_counter() - start)
        for _ in range(3):
            nodes = torch.randperm(dataset.num_nodes, generator=draw)[:asked]
            found, effort = few.logits(nodes)
            efforts.append(effort)
            differences.append(float((found - logits[nodes]).abs().max() / logits[nodes].abs().max()))
    proved = [effort for effort in efforts if effort.certified]
    row = {
        "asked": asked,
        "norm": float(torch.linalg.matrix_norm(conv.weight.detach(), ord=2)),
        "eps": conv.eps if isinstance(conv.eps, float) else float(conv.eps.detach().min()),
        "tol": model.config.training.eval_tol,
        "full_ms": 1e3 * statistics.median(full),
        "few_ms": 1e3 * statistics.median(effort.seconds for effort in efforts),
        "proved": f"{len(proved)} of {len(efforts)}",
        "nodes": statistics.median(effort.nodes / effort.all_nodes for effort in efforts),
        "edges": statistics.median(effort.edges / effort.all_edges for effort in efforts),
        "read": statistics.median(effort.entries / effort.all_edges for effort in proved) if proved else None,
        "difference": max(differences),
    }
    return {**row, "ratio": row["full_ms"] / row["few_ms"]}


def markdown(data: dict) -> str:
    header = ["model", "asked", "eps", "‖W‖₂", "tol", "proved", "nodes", "edges", "edges read, all steps"]
    header += ["ms", "full pass, ms", "ratio", "difference"]
    rows = []
    for row in data["rows"]:
        cells = [row["model"], str(row["asked"]), f"{row['eps']:g}", f"{row['norm']:.2f}", f"{row['tol']:g}"]
        cells += [row["proved"], f"{row['nodes']:.2%}", f"{row['edges']:.2%}"]
        cells += ["" if row["read"] is None else f"{row['read']:.2f}×", f"{row['few_ms']:,.0f}"]
        rows.append([*cells, f"{row['full_ms']:,.0f}", f"{row['ratio']:.1f}×", f"{row['difference']:.0e}"])
    m, edited = data["machine"], " (edited since)" if data["edited"] else ""
    return f"""# Answers for a few nodes of com-DBLP

`{data["command"]}` at commit `{data["commit"][:12]}`{edited}, {data["date"]}, {m["cpu"]},
{m["threads"]} threads, load at the start {m["load_average"]:.1f}. Medians over random nodes.

- *proved*: how often the neighbourhood was enough; otherwise it was a full pass, included in the times.
- *nodes*, *edges*: the share of the graph that the answer was computed on.
- *edges read*: by all steps together, in multiples of all edges; a full pass reads all of them in each step.
- *difference*: the largest one of the logits from those of the full pass, relative to the largest logit.

{table(header, rows)}
"""


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="folders of trained runs on com-DBLP")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--asked", type=int, nargs="+", default=[1, 10], help="how many nodes at once")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", default="com-DBLP")
    parser.add_argument("--output", type=Path, default=machine.ROOT / "results" / "few-nodes.md")
    arguments = parser.parse_args(given)
    try:
        dataset = load(arguments.data)
    except DataError as error:
        print(f"not run: {error}")
        return
    if arguments.runs:
        models = ((run.name, Model.load(run)) for run in arguments.runs)
    else:
        name = f"random, width {arguments.hidden}"
        models = ((name, random_model(dataset, arguments.hidden, eps, norm)) for eps, norm in GRID)
    data: dict = {
        "command": " ".join(["python -m benchmarks.few_nodes", *(run.name for run in arguments.runs)]),
        **machine.commit(),
        "date": machine.now(),
        "machine": machine.describe(),
        "rows": [],
    }
    for name, model in models:
        for tol in TOLERANCES:
            for asked in arguments.asked:
                row = measure(with_tolerance(model, tol), dataset, asked, arguments.repeats)
                data["rows"].append({"model": name, **row})
                print(data["rows"][-1], flush=True)
    arguments.output.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    arguments.output.write_text(markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()
