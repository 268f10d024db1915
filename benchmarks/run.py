"""Measure everything: ``python -m benchmarks.run [--shapes ...] [--repeats N] [--smoke] [--output FILE]``.

Writes FILE (JSON) and a Markdown table beside it, after every part, so that an interrupt loses nothing. The full
run is planned to take less than 25 minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks import machine, memory, report, scaling, shapes, training
from benchmarks.contestants import (
    CONTESTANTS,
    GRAD_TERMS,
    RIVALS,
    Contestant,
    Disagreement,
    ExpertCsr,
    Ours,
    Result,
    Rival,
    check_agreement,
)

SLOW = 30.0  # seconds; a run that long needs no warm-up, so the run that checks agreement counts as a sample
VERY_SLOW = 120.0  # and is the only sample
BUDGET = 60.0  # seconds a contestant may take in the rounds of a shape, unless it is slow
ROUND = 0.2  # seconds a short contestant fills per round with repeated runs
REUSING = "ours, depth re-used"
Job = tuple[dict, str, str, Callable[[], dict]]
TRAINING_STEPS = {"batch": 300, "com-DBLP": 40}


def say(text: str) -> None:
    print(text, flush=True)


# --------------------------------------------------------------------------------------------------- one shape
def bench_shape(name: str, repeats: int, smoke: bool, roof: dict) -> dict:
    """Check that the contestants agree, time them in turns, measure their memory, compare with the roof."""
    start = time.perf_counter()
    shape = shapes.make(name, smoke)
    n, d, nnz = shape.num_nodes, shape.channels, shape.num_edges
    say(f"  {n:,} nodes, {nnz:,} edges, d = {d} (made in {time.perf_counter() - start:.1f} s)")
    rate = machine.gemm_gflops(n, d, d)
    roof["gemm_gflops"][f"{n}x{d}x{d}"] = rate

    start = time.perf_counter()
    choosing = Ours(shape)
    prepare_s = {"ours": time.perf_counter() - start}
    measuring_s, measuring = _timed(choosing)  # finds the depth; from here on it is re-used
    depth = choosing.run().depth
    contestants: dict[str, Contestant] = {"ours": choosing.at(depth)}
    for who, kind in RIVALS.items():
        start = time.perf_counter()
        contestants[who] = kind(shape, depth)
        prepare_s[who] = time.perf_counter() - start

    first, runs, reference = {}, {}, contestants["ours"].run()
    for who, contestant in contestants.items():
        first[who], result = _timed(contestant)
        differences = check_agreement(result, reference, who)
        runs[who] = {"depth": depth, "products": result.products, "prepare_s": prepare_s[who], **differences}
        say(f"  {who}: prepared in {prepare_s[who]:.2f} s, first run {first[who]:.3f} s")
        if isinstance(contestant, ExpertCsr):  # which of torch's two
            runs[who]["product"] = contestant.product.__name__
    runs["ours"].update(products_when_measuring=measuring.products, measuring_ms=1e3 * measuring_s)
    del measuring, reference, result

    taking_turns = alternate({**contestants, REUSING: choosing}, {**first, REUSING: first["ours"]}, repeats)
    runs["ours"]["reusing_ms"] = 1e3 * statistics.mean(taking_turns.pop(REUSING))  # checks included as they come
    for who, samples in taking_turns.items():
        runs[who].update(samples=len(samples), median_ms=1e3 * statistics.median(samples))
        runs[who].update(min_ms=1e3 * min(samples), max_ms=1e3 * max(samples))
    for who in RIVALS:
        runs[who].update(bench_search(contestants[who], 1 if first[who] > 5 else 3))
    contestants.clear()  # the children need the memory
    del choosing, contestant
    for who in CONTESTANTS:
        runs[who]["memory"] = memory.contestant_peak(shape, who, smoke)
    work = machine.roofline(n, d, nnz, runs["ours"]["depth"], GRAD_TERMS)
    facts = {"num_nodes": n, "num_edges": nnz, "channels": d, "eps": shape.eps, "gemm_gflops": rate}
    return {**facts, "contestants": runs, "roofline": work}


def bench_search(rival: Rival, repeats: int) -> dict:
    """What the paper's search of a depth costs, by this contestant's products."""
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        hop = rival.search()
        samples.append(time.perf_counter() - start)
    return {"search_ms": 1e3 * statistics.median(samples), "search_products": hop + 1}


def alternate(contestants: dict[str, Contestant], first: dict[str, float], repeats: int) -> dict[str, list[float]]:
    """Samples of each contestant, taken in turns: all, all again, ..."""
    samples = {who: [seconds] if seconds > SLOW else [] for who, seconds in first.items()}
    rounds = {who: _rounds(seconds, repeats) for who, seconds in first.items()}
    for turn in range(max(rounds.values())):
        for who, contestant in contestants.items():
            if turn >= rounds[who]:
                continue
            inner = max(1, min(20, int(ROUND / first[who])))
            samples[who] += [_timed(contestant)[0] for _ in range(inner)]
        medians = ", ".join(f"{who} {1e3 * statistics.median(s):.4g} ms" for who, s in samples.items())
        say(f"  round {turn + 1}: {medians}")
    return samples


def _rounds(seconds: float, repeats: int) -> int:
    if seconds > SLOW:
        return 0 if seconds > VERY_SLOW else 1
    return min(repeats, max(2, int(BUDGET / seconds)))


def _timed(contestant: Contestant) -> tuple[float, Result]:
    start = time.perf_counter()
    result = contestant.run()
    return time.perf_counter() - start, result


def bench_training(name: str, smoke: bool) -> dict:
    return training.run(shapes.make(name, smoke), 3 if smoke else TRAINING_STEPS[name])


# ---------------------------------------------------------------------------------------------------- the whole
def save(data: dict, path: Path) -> None:
    """JSON, and Markdown from the same data beside it."""
    for row in data["shapes"].values():
        if "skipped" not in row:  # anew for all: a later shape may have found a higher peak
            seconds = row["contestants"]["ours"]["median_ms"] / 1e3
            row["roofline"].update(machine.roofline_fractions(row["roofline"], seconds, data["machine"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")
    path.with_suffix(".md").write_text(report.markdown(data))


def start_data(arguments: argparse.Namespace) -> dict:
    """What is known before the first timing; with ``--resume``, what an earlier run of this commit has found."""
    facts = machine.commit()
    if arguments.resume and arguments.output.exists():
        data = json.loads(arguments.output.read_text())
        if data["commit"] == facts["commit"] and data["smoke"] == arguments.smoke:
            data["edited"] |= facts["edited"]
            return data
        say("Nothing to resume: the file is of another commit or size.")
    description = machine.describe()
    if description["load_average"] > 0.5 and not arguments.smoke:
        say(f"The machine is busy (load {description['load_average']:.1f}): wait, or timings will mean little.")
    say("Measuring the machine ...")
    return {
        "command": " ".join(["python -m benchmarks.run", *arguments.given]),
        **facts,
        "date": machine.now(),
        "seed": shapes.SEED,
        "smoke": arguments.smoke,
        "machine": {**description, **machine.measure(arguments.smoke)},
        "shapes": {},
        "training": {},
    }


def jobs(data: dict, arguments: argparse.Namespace) -> list[Job]:
    """(where the result goes, under which key, what to say, how to get it), in order."""
    smoke, repeats, roof = arguments.smoke, arguments.repeats, data["machine"]
    one_layer: list[Job] = [
        (data["shapes"], name, f"Shape {name}", partial(bench_shape, name, repeats, smoke, roof))
        for name in arguments.shapes
    ]
    steps: list[Job] = [
        (data["training"], name, f"Training on {name}", partial(bench_training, name, smoke))
        for name in TRAINING_STEPS
    ]
    if arguments.only_shapes or arguments.only_training:
        return one_layer if arguments.only_shapes else steps
    peaks = (data, "memory_depth", "Memory against depth", partial(memory.depth_peaks, smoke))
    return [*one_layer, peaks, *steps, (data, "scaling", "Scaling", partial(scaling.run, smoke))]


def main(given: list[str] | None = None) -> None:
    given = sys.argv[1:] if given is None else given
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure speed and memory.")
    parser.add_argument("--shapes", nargs="+", choices=shapes.NAMES, default=list(shapes.NAMES))
    parser.add_argument("--only-shapes", action="store_true", help="no memory, training and scaling tables")
    parser.add_argument("--only-training", action="store_true", help="the training table alone")
    parser.add_argument("--repeats", type=int, default=5, help="rounds per shape (slow contestants get fewer)")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--resume", action="store_true", help="keep what the output file has of this commit")
    parser.add_argument("--output", type=Path, default=Path("results/bench.json"))
    arguments = parser.parse_args(given)
    arguments.given = given
    torch.manual_seed(shapes.SEED)
    if arguments.smoke:  # beside other work, tiny operations of several threads wait for each other
        torch.set_num_threads(1)
    started = time.perf_counter()
    data, failures = start_data(arguments), []
    for place, key, title, job in jobs(data, arguments):
        if key in place and "skipped" not in place[key]:
            say(f"{title}: already measured")
            continue
        say(f"{title} ...")
        try:
            place[key] = job()
        except shapes.MissingData as missing:
            say(f"  {missing}")
            place[key] = {"skipped": str(missing)}
        except Disagreement as wrong:  # the other shapes are still worth having
            say(f"  FAILED: {wrong}")
            failures.append(f"{title}: {wrong}")
            place[key] = {"skipped": f"failed: {wrong}"}
        save(data, arguments.output)
    save(data, arguments.output)
    say(f"\n{report.markdown(data)}")
    say(f"{time.perf_counter() - started:.0f} s; written to {arguments.output} and its .md")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
