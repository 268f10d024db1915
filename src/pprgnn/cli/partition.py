"""`pprgnn partition`: a graph in parts, what they cost, and how fast so many processes would be."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from pprgnn.cli.main import Partition
from pprgnn.cli.output import show, show_json
from pprgnn.cli.train import config_for
from pprgnn.core.adjacency import Adjacency
from pprgnn.distributed import partitions
from pprgnn.distributed.partitions import PartitionFacts, choose_method, describe
from pprgnn.distributed.simulate import Network, find_network, simulate
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.terminal import aligned, labelled, paragraph, styled, width
from pprgnn.training.train import load_data
from pprgnn.wording import counted

SHOWN = 16  # parts that are listed one by one; of more, the extremes
COLUMNS = ("nodes", "entries", "interior_nodes", "halo_rows", "sent_rows", "neighbours", "work")


def partition(options: Partition) -> None:
    """Divide the graph, describe the parts, and predict a step with them and with other numbers of them."""
    counts = _counts(options.also)
    config = config_for(options.what)
    method = choose_method(options.method)
    between = _network(options.network, options.latency, options.bandwidth)
    name, adj = _graph(config)
    parts, seed = options.parts, options.seed
    start = time.perf_counter()
    owner = partitions.partition(adj, parts, method, seed)
    seconds = time.perf_counter() - start
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        told = {"data": name, "parts": str(parts), "method": method, "seed": str(seed)}
        save_file({"owner": owner}, options.output, told)
    facts = describe(adj, owner, parts)
    channels = config.model.hidden if options.channels is None else options.channels
    predict = _predictor(adj, between, channels, options.threads)
    steps = {parts: predict(owner, facts)}
    for count in counts:
        if count not in steps:
            other = partitions.partition(adj, count, method, seed)
            steps[count] = predict(other, describe(adj, other, count))
    found = {
        "data": name,
        "num_nodes": adj.num_nodes,
        "num_entries": adj.num_edges,
        "method": method,
        "seed": seed,
        "seconds": seconds,
        **_facts(facts),
        "per_part": {column: getattr(facts, column).tolist() for column in COLUMNS},
        "prediction": steps[parts],
        "simulated": [steps[count] for count in counts],
    }
    if options.as_json:
        show_json(found)
    else:
        show(_lines(found))


def _counts(text: str | None) -> list[int]:
    words = [] if text is None else text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise TrainingError(
            f"--simulate takes numbers from 1 on with commas between them (8,64), but got {text!r}."
        )
    return [int(word) for word in words]


def _graph(config: Config) -> tuple[str, Adjacency]:
    """The name of the one graph, and Ã as it would be trained on."""
    dataset = load_data(config)
    if len(dataset) > 1:
        raise TrainingError(
            f"{dataset.facts.name} has {len(dataset)} graphs, which are distributed graph by graph, without "
            f"a partition."
        )
    model = config.model
    adj = dataset.adjacency(normalize=model.normalize, add_self_loops=model.self_loops)
    return dataset.facts.name, adj


def _network(name: str, latency: float | None, bandwidth: float | None) -> Network:
    if latency is not None and bandwidth is not None:
        return Network("given", latency, bandwidth)
    known = find_network(name)
    given = {"latency": latency, "bandwidth": bandwidth}
    changed: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    return replace(known, name=f"{known.name}, changed", **changed) if changed else known


def _predictor(
    adj: Adjacency, network: Network, channels: int, threads: int
) -> Callable[[Tensor, PartitionFacts], dict[str, Any]]:
    """A function of a partition to what a step takes, and how much faster that is than alone."""
    options: dict[str, Any] = {"width": channels, "threads": threads}

    def steps(owner: Tensor, facts: PartitionFacts) -> dict[str, Any]:
        forward = simulate(adj, owner, facts.parts, network, facts=facts, **options)
        adjoint = simulate(adj, owner, facts.parts, network, adjoint=True, **options)
        return {
            "seconds": forward.seconds,
            "computing": forward.computing,
            "communication": float(forward.communication.max()),
            "adjoint_seconds": adjoint.seconds,
            "bytes": int(forward.bytes.sum()),
            "timed_parts": forward.timed,
        }

    whole = torch.zeros(adj.num_nodes, dtype=torch.int32, device=adj.device)
    alone = steps(whole, describe(adj, whole, 1))

    def predict(owner: Tensor, facts: PartitionFacts) -> dict[str, Any]:
        found = alone if facts.parts == 1 else steps(owner, facts)
        return {
            **_facts(facts),
            **found,
            "speed_up": alone["seconds"] / found["seconds"],
            "adjoint_speed_up": alone["adjoint_seconds"] / found["adjoint_seconds"],
            "alone_seconds": alone["seconds"],
            **options,
            "network": asdict(network),
        }

    return predict


def _facts(facts: PartitionFacts) -> dict[str, Any]:
    return {
        "parts": facts.parts,
        "edge_cut": facts.edge_cut,
        "cut_share": facts.cut_share,
        "halo_rows": int(facts.halo_rows.sum()),
        "balance": facts.balance,
    }


# --------------------------------------------------------------------------------------------------- what is shown
def _lines(found: Mapping[str, Any]) -> list[str]:
    step = found["prediction"]
    network = step["network"]
    texts = {
        "graph": f"{found['data']}: {counted(found['num_nodes'], 'node')}, "
        f"{counted(found['num_entries'], 'entry', 'entries')}",
        "parts": f"{found['parts']} by {found['method']}, in {found['seconds']:.1f} s",
        "edge cut": f"{found['edge_cut']:,} entries, {found['cut_share']:.1%}",
        "halo": f"{counted(found['halo_rows'], 'row')} of others are read per step, "
        f"{step['bytes'] / 1e6:.1f} MB at width {step['width']}",
        "balance": f"{found['balance']:.3f}, the most work over the mean",
        "network": f"{network['name']}: {1e6 * network['latency']:.3g} µs per message, "
        f"{network['bandwidth'] / 1e9:.3g} GB/s",
        "step": f"{_ms(step['seconds'])} ms predicted, {_ms(step['alone_seconds'])} ms on one process: "
        f"{step['speed_up']:.2f} times as fast; adjoint {_ms(step['adjoint_seconds'])} ms, "
        f"{step['adjoint_speed_up']:.2f} times",
    }
    lines = labelled(texts.items())
    lines += ["", *aligned(_part_rows(found["per_part"]))]
    if found["simulated"]:
        lines += ["", *aligned(_simulated(found["simulated"]))]
    timed, threads = len(step["timed_parts"]), step["threads"]
    note = (
        f"Computing times are measured here, with {counted(threads, 'thread')}, on the {timed} heaviest "
        f"parts, and scaled by work for the others; communication is latency · peers + bytes / bandwidth."
    )
    return [*lines, "", styled(paragraph("", note, width()), dim=True)]


def _part_rows(columns: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """One row per part or, of many, what is least, usual and most in each column."""
    header = ["nodes", "entries", "interior", "halo rows", "sent", "neighbours", "work"]
    count = len(columns["work"])
    chosen = {str(part): part for part in range(count)}
    if count > SHOWN:
        columns = {name: sorted(column) for name, column in columns.items()}
        chosen = {"least": 0, "median": count // 2, "most": count - 1}
    *wholes, work = (columns[name] for name in COLUMNS)
    mean = sum(work) / count
    return [
        ["part" if count <= SHOWN else "", *header],
        *([word, *(f"{each[i]:,}" for each in wholes), f"{work[i] / mean:.3f}"] for word, i in chosen.items()),
    ]


def _simulated(steps: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        ["parts", "edge cut", "halo", "balance", "compute", "network", "step ms", "speed-up", "adjoint"],
        *(
            [
                f"{step['parts']}",
                f"{step['cut_share']:.1%}",
                f"{step['halo_rows']:,}",
                f"{step['balance']:.3f}",
                *(_ms(step[name]) for name in ("computing", "communication", "seconds")),
                f"{step['speed_up']:.2f}",
                _ms(step["adjoint_seconds"]),
            ]
            for step in steps
        ),
    ]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:#.3g}".rstrip(".")
