"""How fast graphs are read: `python -m benchmarks.data` writes results/data.md and results/data.json.

- com-DBLP from gzip text to a ready `Adjacency`, beside the time Arrow needs to read the same file and do nothing.
- com-DBLP through `pprgnn.data.load`: the first time, and again from the prepared file.
- A CSV of ten million edges with numbers or texts as ids, in a process of its own: time and peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks import machine
from benchmarks.report import table


def bench_text(repeats: int) -> dict:
    """Median seconds of both, taking turns."""
    import pyarrow.csv as csv

    from pprgnn import Adjacency
    from pprgnn.data.readers import snap_graph
    from pprgnn.data.roots import data_root

    path = data_root() / "com-dblp" / "com-dblp.ungraph.txt.gz"

    def arrow() -> object:
        return csv.read_csv(
            path,
            csv.ReadOptions(skip_rows=4, column_names=["source", "destination"]),
            csv.ParseOptions(delimiter="\t"),
        )

    def ours(reorder: Literal["auto"] | bool = "auto") -> object:
        edge_index, node_id = snap_graph(path)
        return Adjacency.from_edge_index(edge_index, num_nodes=len(node_id), reorder=reorder)

    contestants = {"arrow": arrow, "ours": ours, "given_order": lambda: ours(reorder=False)}
    seconds = _take_turns(contestants, repeats)
    arrow_alone = seconds["arrow"]
    ratios = {"ratio": seconds["ours"] / arrow_alone, "ratio_given_order": seconds["given_order"] / arrow_alone}
    return {**seconds, **ratios, "repeats": repeats}


def bench_again(repeats: int) -> dict:
    """First and second load of com-DBLP with its labels and its adjacency; the raw file is in the page cache."""
    from pprgnn.data import load

    first, again, touched = [], [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["PPRGNN_CACHE"] = cache
            for seconds in (first, again):
                start = time.perf_counter()
                dataset = load("com-DBLP")
                adj = dataset.adjacency()
                seconds.append(time.perf_counter() - start)
            start = time.perf_counter()
            for tensor in (dataset[0].y, dataset[0].edge_index, adj.matrix.values(), adj.matrix.col_indices()):
                tensor.sum()
            touched.append(time.perf_counter() - start)
            del dataset, adj
    os.environ.pop("PPRGNN_CACHE")
    samples = {"first": first, "again": again, "touch": touched}
    row = {name: statistics.median(seconds) for name, seconds in samples.items()}
    return {**row, "ratio": row["again"] / row["first"], "repeats": repeats}


def bench_csv(edges: int, text: bool) -> dict:
    """Read a random graph of this many edges (and a tenth of them nodes) in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.csv"
        _write_csv(path, edges, text)
        code = (
            "import time, torch, pprgnn.data.own.tables as tables\n"
            "def peak():  # kilobytes; getrusage would count the process that started this one, too\n"
            "    return next(int(line.split()[1]) for line in open('/proc/self/status') if 'VmHWM' in line)\n"
            "base = peak()\n"
            "start = time.perf_counter()\n"
            f"dataset = tables.from_tables({str(path)!r}); read = time.perf_counter() - start\n"
            "adj = dataset.adjacency(); done = time.perf_counter() - start\n"
            "print(dataset.num_nodes, adj.num_edges, read, done, peak() * 1024 / 1e9, base * 1024 / 1e9)\n"
        )
        printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        nodes, entries, read, done, peak, base = (float(word) for word in printed.split())
        return {
            "edges": edges,
            "nodes": int(nodes),
            "entries": int(entries),
            "megabytes": path.stat().st_size / 1e6,
            "read_seconds": read,
            "seconds": done,
            "gigabytes": peak,
            "gigabytes_before": base,
        }


def _write_csv(path: Path, edges: int, text: bool) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv

    rng = np.random.default_rng(0)
    columns = {}
    for name in ("source", "target"):
        ids = pa.array(rng.integers(0, edges // 10, edges))
        columns[name] = pc.binary_join_element_wise("user-", ids.cast(pa.string()), "") if text else ids
    csv.write_csv(pa.table(columns), path)


def _take_turns(contestants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(repeats + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if turn:  # the first is to warm up
                samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in samples.items()}


def markdown(data: dict) -> str:
    rows = []
    if "text" in data:
        r = data["text"]
        took = f"{r['ours']:.2f} s, Arrow alone {r['arrow']:.2f} s"
        rows.append(["com-DBLP, gzip text to Adjacency", took, f"{r['ratio']:.2f}× Arrow", "<= 3×"])
        plain = f"{r['given_order']:.2f} s"
        ratio = f"{r['ratio_given_order']:.2f}× Arrow"
        rows.append(["the same without the cache-friendly order", plain, ratio, ""])
    if "again" in data:
        r = data["again"]
        touch = f"reading all pages then {1e3 * r['touch']:.0f} ms"
        took = f"first {r['first']:.2f} s, again {1e3 * r['again']:.0f} ms, {touch}"
        rows.append(["com-DBLP, load with labels and Adjacency", took, f"{r['ratio']:.3f} of the first", "< 0.1"])
    for key, what in (("numbers", "whole numbers"), ("texts", "texts")):
        if key in data:
            r = data[key]
            took = f"{r['seconds']:.1f} s ({r['read_seconds']:.1f} s to the graph, the rest to the Adjacency)"
            rows.append(
                [
                    f"CSV of {r['edges']:,} edges, {r['nodes']:,} nodes, ids are {what} ({r['megabytes']:.0f} MB)",
                    took,
                    f"peak {r['gigabytes']:.2f} GB ({r['gigabytes_before']:.2f} GB before reading)",
                    "< 60 s, < 4 GB",
                ]
            )
    edited, m = " (edited since)" if data["edited"] else "", data["machine"]
    head = (
        f"`{data['command']}` at commit `{data['commit'][:12]}`{edited}, {data['date']}, seed {data['seed']}, "
        f"{m['cpu']}, {m['threads']} threads, load at the start {m['load_average']:.1f}. Medians, taking turns.\n"
    )
    return f"# Reading graphs\n\n{head}\n{table(['what', 'time', 'figure', 'target'], rows)}\n"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=machine.ROOT / "results" / "data.md")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--edges", type=int, default=10_000_000)
    arguments = parser.parse_args(given)
    data: dict = {
        "command": "python -m benchmarks.data",
        **machine.commit(),
        "date": machine.now(),
        "machine": machine.describe(),
        "seed": 0,
    }
    from pprgnn.data.roots import data_root

    if (data_root() / "com-dblp").is_dir():
        data["text"] = bench_text(arguments.repeats)
        data["again"] = bench_again(arguments.repeats)
    else:
        print("com-DBLP: not run, it is not in PPRGNN_DATA")
    for key, text in (("numbers", False), ("texts", True)):
        data[key] = bench_csv(arguments.edges, text)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    arguments.output.write_text(markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()
