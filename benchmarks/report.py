"""Turns the measured data into Markdown, which is printed as well: one source, one form."""

from __future__ import annotations

from benchmarks.contestants import CONTESTANTS, GRAD_TERMS, RIVALS, TOL

LABELS = {who: kind.label for who, kind in RIVALS.items()}
MAIN_LEGEND = f"""\
- ms: median of one forward and backward pass at the same depth for all, {GRAD_TERMS} gradient terms, contestants
  taking turns. Normalisation, sparse building and finding a node order are outside, for everyone. Before any
  timing states agree to 1e-5 and gradients to 1e-3. Behind each time, how many times that of ours it is.
- strongest: the fastest of the others on this shape, its time over that of ours; below 1 it is faster than ours.
- ours: `pprgnn.solve` at the depth that it has found. {LABELS["csr"]}: torch's CSR products into buffers that
  exist, nodes in our order before and after (ours changes it in every pass), adjoint by hand.
  {LABELS["pyg-csr"]}: `GCNConv` on a sparse matrix. {LABELS["pyg"]}: the same, gather and scatter per edge.
  {LABELS["coo"]}: the paper's layout. The last three by autograd through the last {GRAD_TERMS} steps.
- memory: peak above the start of the step, in states of n × d floats, in the order of the times, each in a fresh
  process, ours including the measurement of its depth (others keep no more when deeper; one scratch state of
  {LABELS["csr"]} is there before).
- roof: time that this machine's measured peaks need / measured time of ours. Operations: all dense products
  (2nd² each: one a step, two a gradient term, one in the last) plus the sparse ones (2·nnz·d), at the GEMM peak.
  Bytes: G and B read, G written, CSR read once per step; Z̄, G, B̄ read, Z̄, B̄ written, CSR read per gradient term;
  float32, int32 indices. *overlapped*: max(operations / peak, bytes / bandwidth); *serial*: their sum. Where the
  states fit the cache (batch, ppi-like) memory bandwidth is no bound and the serial figure flatters.
"""
SEARCH_LEGEND = f"""\
Milliseconds, with what finding the depth adds, tolerance {TOL:g}. *ours, at first*: a pass that measures its
depth; *re-used*: the mean of passes that re-use it, as in training, with the checks that fell among them (what
they cost in the long run is in the training table). The others: a pass and the influence search that the paper
makes in every forward pass; in parentheses the search alone and its sparse products; behind, times *re-used*.
"""


def markdown(data: dict) -> str:
    """The whole report."""
    parts = [_head(data)]
    if data["shapes"]:
        measured = {name: row for name, row in data["shapes"].items() if "skipped" not in row}
        header = [
            "shape", "nodes", "edges", "d", "ε", "depth", "ours ms", "strongest", *LABELS.values(),
            "memory (states)", "roof overlapped", "roof serial",
        ]  # fmt: skip
        rows = [_shape_row(name, row, len(header)) for name, row in data["shapes"].items()]
        parts += ["## One layer, forward and backward", table(header, rows), MAIN_LEGEND]
        header = ["shape", "ours, at first", "ours, re-used", *LABELS.values()]
        rows = [_search_row(name, row["contestants"]) for name, row in measured.items()]
        parts += ["## The same with finding the depth", table(header, rows), SEARCH_LEGEND]
    if "memory_depth" in data:
        parts += _memory_part(data["memory_depth"])
    if data["training"]:
        parts += _training_part(data["training"])
    if "scaling" in data:
        parts += _scaling_part(data["scaling"])
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, padded so that it reads well in a terminal."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def _head(data: dict) -> str:
    machine = data["machine"]
    edited = " (edited since)" if data["edited"] else ""
    gemm = ", ".join(f"{size} {rate:.0f}" for size, rate in machine["gemm_gflops"].items())
    stream = ", ".join(f"{kind} {rate:.1f}" for kind, rate in machine["stream_gbytes"].items())
    return (
        f"# Benchmark\n\n"
        f"`{data['command']}` at commit `{data['commit'][:12]}`{edited}, {data['date']}, seed {data['seed']}."
        f"{' **Smoke run: sizes are tiny, the numbers mean nothing.**' if data['smoke'] else ''}\n\n"
        f"{machine['cpu']}, {machine['threads']} threads, {machine['memory_gb']} GB, torch {machine['torch']}, "
        f"load at the start {machine['load_average']:.1f}. GEMM in GFLOP/s: {gemm}. Memory in GB/s: {stream}."
    )


def _shape_row(name: str, row: dict, columns: int) -> list[str]:
    if "skipped" in row:
        return [name, row["skipped"]] + [""] * (columns - 2)
    runs = row["contestants"]
    ours = runs["ours"]["median_ms"]
    ratio = {who: runs[who]["median_ms"] / ours for who in RIVALS}
    strongest = min(ratio, key=ratio.__getitem__)
    memory = [f"{peak['extra_states']:.1f}" if (peak := runs[who]["memory"]) else "-" for who in CONTESTANTS]
    return [
        name,
        f"{row['num_nodes']:,}",
        f"{row['num_edges']:,}",
        str(row["channels"]),
        f"{row['eps']:g}",
        str(runs["ours"]["depth"]),
        _ms(ours),
        f"{LABELS[strongest]}: {_times(ratio[strongest])}",
        *(f"{_ms(runs[who]['median_ms'])}, {_times(ratio[who])}" for who in RIVALS),
        " / ".join(memory),
        f"{row['roofline']['overlapped']:.0%}",
        f"{row['roofline']['serial']:.0%}",
    ]


def _search_row(name: str, runs: dict) -> list[str]:
    ours = runs["ours"]["reusing_ms"]
    cells = [name, _ms(runs["ours"]["measuring_ms"]), _ms(ours)]
    for who in RIVALS:
        search = runs[who]["search_ms"]
        both = runs[who]["median_ms"] + search
        cells.append(f"{_ms(both)} ({_ms(search)}, {runs[who]['search_products']}), {_times(both / ours)}")
    return cells


def _times(ratio: float) -> str:
    return f"{ratio:.1f}×" if ratio >= 10 else f"{ratio:.2f}×"


def _memory_part(data: dict) -> list[str]:
    rows = [
        [str(row["depth"]), f"{row['peak_bytes'] / 2**20:.1f}", f"{row['extra_states']:.2f}"]
        for row in data["rows"]
    ]
    return [
        "## Memory against depth",
        table(["depth", "peak MB", "above the start (states)"], rows),
        f"Relative difference of the peaks: {data['relative_difference']:+.2%}. Forward and backward with "
        f"{GRAD_TERMS} gradient terms, {data['num_nodes']:,} nodes, {data['num_edges']:,} edges, "
        f"{data['channels']} channels, fresh processes.",
    ]


def _training_part(data: dict) -> list[str]:
    rows, notes = [], []
    for name, run in data.items():
        if "skipped" in run:
            rows.append([name, run["skipped"], *[""] * 6])
            continue
        for rule, row in run["rows"].items():
            rows.append(
                [
                    name,
                    rule,
                    _ms(row["median_ms"]),
                    f"{row['median_overhead']:+.1%}",
                    _ms(row["total_ms"]),
                    f"{row['total_overhead']:+.1%}",
                    f"{row['first_depth']} → {row['last_depth']}",
                    str(row["forward_products"]),
                ]
            )
        notes.append(
            f"- {name}: {run['steps']} steps; the default checked {run['checks']} of them, "
            f"{run['products_measuring']} sparse products in all (fewer steps spread them less)."
        )
    header = ["shape", "depth rule", "median ms", "overhead", "total ms", "overhead", "depth", "forward products"]
    legend = (
        "A step is layer + linear head + cross-entropy + Adam. *default*: `DepthMemory()`; *fixed*: the depth "
        "that `Measured` finds for the first step, which is too small for the last one; *fixed, enough*: one that "
        "is not; *influence*: the paper's search in every forward pass. Overheads are relative to *fixed, "
        "enough*, which nobody knows in advance; the total includes every check. Steps of the four take turns."
    )
    return ["## A training step", table(header, rows), legend, "\n".join(notes)]


def _scaling_part(data: dict) -> list[str]:
    rows = []
    for name, run in data.items():
        key = name if name == "depth" else f"num_{name}"
        points = ", ".join(f"{row[key]:,}: {_ms(row['ms'])}" for row in run["rows"])
        rows.append([name, f"{run['exponent']:.2f}", points])
    legend = "Least-squares slope of log time over log size, forward and backward. Edges grow with nodes, 6 each."
    return ["## How time grows", table(["against", "exponent", "ms at"], rows), legend]


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
