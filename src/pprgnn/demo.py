"""``python -m pprgnn.demo``: five models on long chains, and how far each of them sees.

The class of a chain is written on its first node only, and every node has to name it.
"""

from __future__ import annotations

import argparse
import base64
import html
import itertools
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # torch costs seconds to import, and --help does not need it
    from torch import Tensor, nn

CLASSES = 2
CHANCE = 1 / CLASSES
# Model: hops it can see (None: learned), its Okabe-Ito colour and line width. The farther a model sees the wider:
# where lines coincide they nest, and all stay visible.
MODELS: dict[str, tuple[int | None, str, float]] = {
    "GCN, 2 layers": (2, "#E69F00", 2),
    "GCN, 8 layers": (8, "#56B4E9", 3.5),
    "APPNP, 10 steps": (10, "#CC79A7", 5),
    "GCN, 32 layers": (32, "#009E73", 7),
    "PPRGNN (ours)": (None, "#0072B2", 9),
}
TASK = """{length} nodes a chain. The class is written on the first node only (one-hot, noise {noise}); every node
has to name it. {train_chains} chains to train, {val_chains} to validate, {test_chains} to test. Seed: {seed}."""
PICTURE = "accuracy-vs-distance.png"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>PPRGNN demo</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:56em;margin:2em auto;padding:0 1em}}img{{max-width:100%}}
table{{border-collapse:collapse}}td,th{{padding:.25em .6em;text-align:right;border-bottom:1px solid #ccc}}
td:first-child,th:first-child{{text-align:left}}</style></head>
<body><h1>How far can a model see?</h1><p>{task} {note}</p>
<img src="data:image/png;base64,{picture}" alt="Test accuracy of each model against the distance from the head">
<table>{rows}</table>
<p>“&lt;10”, “10-50”, “&gt;50”: test accuracy at these distances from the head. “depth”: hops computed; beyond them
no model can do better than chance. “eps”: the learned decay rate of our model. What is known about its depth:
<i>{status}</i></p>
<h2>Settings</h2><p>The same for all models: {settings}; Adam, tanh, no biases. Training ends early once every
validation node is right with a mean loss below 0.05. The weights with the best validation accuracy, then loss, are
tested.</p><p>Command: <code>{command}</code><br>Versions: {versions}</p></body></html>
"""
Progress = Callable[[str, int, float], None]  # model, epochs done, best validation accuracy so far


@dataclass(frozen=True)
class Settings:
    """What all five models share; they differ in architecture only."""

    length: int = 100
    seed: int = 0
    train_chains: int = 20
    val_chains: int = 20
    test_chains: int = 100
    noise: float = 0.1
    hidden: int = 16
    initial_eps: float = 0.25
    learning_rate: float = 0.01
    max_gradient_norm: float = 1.0
    epochs: int = 200


class Chains(NamedTuple):
    """Chains as one graph; the nodes of a chain follow each other, its head comes first."""

    x: Tensor  # (chains * length, CLASSES)
    edge_index: Tensor
    y: Tensor


@dataclass
class Result:
    """What one model has achieved on the test chains."""

    model: str
    accuracy: float
    accuracy_by_distance: list[float]
    parameters: int
    epochs: int
    seconds: float
    depth: int | None
    eps: float | None = None
    depth_status: str = ""


def make_chains(count: int, length: int, noise: float, seed: int) -> Chains:
    """Undirected chains, as many of each class; only the head has features: its class, one-hot, with noise."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % CLASSES
    x = torch.zeros(count, length, CLASSES)
    # The noise makes every chain a new one: without it the test chains would be the training chains.
    x[:, 0] = torch.eye(CLASSES)[label] + noise * torch.randn(count, CLASSES, generator=generator)
    node = torch.arange(count * length).view(count, length)
    forth = torch.stack([node[:, :-1].flatten(), node[:, 1:].flatten()])
    return Chains(x.flatten(0, 1), torch.cat([forth, forth.flip(0)], dim=1), label.repeat_interleave(length))


def build_model(name: str, settings: Settings) -> nn.Module:
    """One of the five. None has biases: with them 32 layers often learn nothing, and the others gain nothing."""
    from torch.nn import Linear, Tanh
    from torch_geometric.nn import APPNP, GCNConv, Sequential
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    from pprgnn.nn import PPRConv

    hops, hidden = MODELS[name][0], settings.hidden
    layers: list[Any]
    if hops is None:
        # tanh hands a label on at full strength however far it travels, and the state cannot overflow.
        conv = PPRConv(CLASSES, hidden, settings.initial_eps, learn_eps=True, activation="tanh", bias=False)
        layers = [(conv, "x, edge_index -> x"), Linear(hidden, CLASSES, bias=False)]
    elif name.startswith("APPNP"):
        layers = [(Linear(CLASSES, hidden, bias=False), "x -> x"), Tanh(), Linear(hidden, CLASSES, bias=False)]
        layers += [(APPNP(K=hops, alpha=0.1), "x, edge_index -> x")]
    else:
        # Normalising once instead of in every layer changes nothing but the time.
        layers = [(gcn_norm, "edge_index -> edge_index, edge_weight")]
        for inputs, outputs in itertools.pairwise([CLASSES, *[hidden] * (hops - 1), CLASSES]):
            gcn = GCNConv(inputs, outputs, bias=False, normalize=False)
            layers += [(gcn, "x, edge_index, edge_weight -> x"), Tanh()]
        layers.pop()  # logits leave as they are
    model: nn.Module = Sequential("x, edge_index", layers)
    return model


def train(name: str, settings: Settings, parts: list[Chains], progress: Progress) -> Result:
    """Fit on the first part, keep the epoch that is best on the second, report the third."""
    import torch
    from torch.nn.functional import cross_entropy

    started = time.perf_counter()
    training, validation, test = parts
    torch.manual_seed(settings.seed)
    model = build_model(name, settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    best, kept, epoch = (-1.0, 0.0), model.state_dict(), 0
    for epoch in range(1, settings.epochs + 1):
        optimizer.zero_grad()
        loss = cross_entropy(model(training.x, training.edge_index), training.y)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_gradient_norm)
        optimizer.step()
        if epoch % 5:
            continue
        with torch.no_grad():
            logits = model(validation.x, validation.edge_index)
        accuracy = float((logits.argmax(dim=1) == validation.y).float().mean())
        score = (accuracy, -float(cross_entropy(logits, validation.y)))
        if score > best:
            best, kept = score, {key: value.clone() for key, value in model.state_dict().items()}
        progress(name, epoch, best[0])
        if best[0] == 1.0 and best[1] > -0.05:  # every node right and sure of it: nothing left to gain
            break
    model.load_state_dict(kept)
    return evaluate(name, model, test, settings.length, epoch, started)


def evaluate(name: str, model: nn.Module, test: Chains, length: int, epochs: int, started: float) -> Result:
    """Accuracy on the test chains at each distance from the head."""
    import torch

    from pprgnn.nn import PPRConv, measure_afresh

    conv = next((module for module in model.modules() if isinstance(module, PPRConv)), None)
    with measure_afresh(model), torch.no_grad():  # the depth in the table is not carried over from training
        right = (model(test.x, test.edge_index).argmax(dim=1) == test.y).double().view(-1, length)
    result = Result(
        model=name,
        accuracy=float(right.mean()),
        accuracy_by_distance=[float(value) for value in right.mean(dim=0)],
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        epochs=epochs,
        seconds=time.perf_counter() - started,
        depth=MODELS[name][0],
    )
    if conv is not None and conv.last_solution is not None and conv.log_eps is not None:
        result.depth, result.eps = conv.last_solution.depth, float(conv.log_eps.detach().exp())
        status, bound = conv.last_solution.status.value, conv.last_solution.truncation_bound
        if bound is not None:
            status = status.replace("truncation_bound", f"{bound:.1e} of the input")
        result.depth_status = status
    return result


@contextmanager
def show_progress(epochs: int) -> Iterator[Progress]:
    """A bar for each model on a terminal; a few lines otherwise, or without rich."""
    try:
        from rich import progress as bars
    except ImportError:
        bars = None  # type: ignore[assignment]
    if bars is None or not sys.stdout.isatty():

        def write(name: str, epoch: int, accuracy: float) -> None:
            if epoch % 50 == 0 or epoch == epochs:
                print(f"{name}: epoch {epoch} of {epochs}, validation accuracy {accuracy:.1%}", flush=True)

        yield write
        return
    with bars.Progress("{task.description:<16}", bars.BarColumn(), "{task.fields[note]}") as display:
        tasks: dict[str, bars.TaskID] = {}

        def move(name: str, epoch: int, accuracy: float) -> None:
            if name not in tasks:
                tasks[name] = display.add_task(name, total=epochs, note="")
            note = f"epoch {epoch}, validation accuracy {accuracy:.1%}"
            display.update(tasks[name], completed=epoch, note=note)

        yield move


def run_models(settings: Settings) -> tuple[list[Result], bool]:
    """Train all models; also say whether Ctrl-C cut that short."""
    counts = (settings.train_chains, settings.val_chains, settings.test_chains)
    seeds = itertools.count(len(counts) * settings.seed)  # no two parts, and no two runs, share a chain
    parts = [make_chains(count, settings.length, settings.noise, next(seeds)) for count in counts]
    results: list[Result] = []
    try:
        with show_progress(settings.epochs) as progress:
            for name in MODELS:
                results.append(train(name, settings, parts, progress))
                if not sys.stdout.isatty():
                    print(f"{name}: test accuracy {results[-1].accuracy:.1%}", flush=True)
    except KeyboardInterrupt:
        return results, True
    return results, False


def table(results: list[Result]) -> list[list[str]]:
    """Header and rows, as text."""

    def percent(values: list[float]) -> str:
        return f"{sum(values) / len(values):.1%}" if values else "–"  # chains may be too short for a column

    rows = [["model", "test", "<10", "10-50", ">50", "parameters", "epochs", "seconds", "depth", "eps"]]
    for r in results:
        far = r.accuracy_by_distance
        counts = [str(r.parameters), str(r.epochs), f"{r.seconds:.1f}", str(r.depth)]
        eps = "–" if r.eps is None else f"{r.eps:.3g}"
        rows.append([r.model, *map(percent, (far, far[:10], far[10:51], far[51:])), *counts, eps])
    return rows


def draw(results: list[Result], path: Path) -> None:
    """Accuracy against distance, in letters that survive half the size."""
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    figure = Figure(figsize=(9, 5), dpi=160, layout="constrained")
    axes = figure.subplots()
    for r in results:
        _, color, width = MODELS[r.model]
        label = f"{r.model}: {r.accuracy:.1%}"
        axes.plot(r.accuracy_by_distance, color=color, linewidth=width, zorder=12 - width, label=label)
    last = len(results[0].accuracy_by_distance) - 1
    axes.axhline(CHANCE, color="black", linewidth=1, linestyle=(0, (4, 3)), zorder=20)
    axes.text(last, CHANCE - 0.02, f"chance: {CHANCE:.0%}", ha="right", va="top", fontsize=15)
    axes.set_ylim(min([0.4, *(min(r.accuracy_by_distance) - 0.05 for r in results)]), 1.04)
    axes.margins(x=0.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("distance from the only node that shows the class (hops)", fontsize=16)
    axes.set_title("Test accuracy by distance (and over all nodes)", loc="left", fontsize=17)
    axes.tick_params(labelsize=15)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.55), fontsize=15, frameon=False, reverse=True)
    figure.savefig(path)


def write_report(output: Path, results: list[Result], settings: Settings, command: str, interrupted: bool) -> None:
    """The picture, the numbers, and one page that holds both."""
    import torch
    import torch_geometric

    import pprgnn

    draw(results, output / PICTURE)
    versions = {"pprgnn": pprgnn.__version__, "torch": torch.__version__}
    versions |= {"torch-geometric": torch_geometric.__version__, "python": platform.python_version()}
    facts = {"command": command, "interrupted": interrupted, "settings": asdict(settings), "versions": versions}
    document = json.dumps({**facts, "results": [asdict(r) for r in results]}, indent=1, ensure_ascii=False)
    (output / "results.json").write_text(document, encoding="utf-8")

    def row(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    header, *body = table(results)
    page = PAGE.format(
        task=TASK.format(**asdict(settings)),
        note="<b>Stopped early: some models are missing.</b>" if interrupted else "",
        picture=base64.b64encode((output / PICTURE).read_bytes()).decode(),
        rows=row(header, "th") + "".join(row(cells, "td") for cells in body),
        status=html.escape("".join(r.depth_status for r in results)),
        settings=", ".join(f"{name.replace('_', ' ')} {value}" for name, value in asdict(settings).items()),
        command=html.escape(command),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )
    (output / "report.html").write_text(page, encoding="utf-8")


def parse(arguments: list[str]) -> tuple[Path, Settings]:
    """Command line to output folder and settings."""
    parser = argparse.ArgumentParser(
        prog="python -m pprgnn.demo",
        description="Train five models on long chains and show how far each of them sees. Takes under a minute.",
        epilog="example: python -m pprgnn.demo --output demo-output --length 100 --seed 1",
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder to write (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="for the chains and the weights (%(default)s)")
    parser.add_argument("--length", type=int, default=100, help="nodes of a chain (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny chains, few epochs: only to see it run")
    given = parser.parse_args(arguments)
    if given.length < 2 or given.seed < 0:
        parser.error(f"--length must be at least 2 and --seed at least 0, not {given.length} and {given.seed}.")
    if given.quick:
        length = min(given.length, 20)
        return given.output, Settings(length, given.seed, train_chains=4, val_chains=4, test_chains=4, epochs=20)
    return given.output, Settings(given.length, given.seed)


def run(output: Path, settings: Settings, command: str) -> int:
    """Check first, train, then report what is finished; return the exit code."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        import matplotlib  # noqa: F401  (better missed now than after the training)
    except OSError as error:
        sys.exit(f"pprgnn.demo: cannot write to {output} ({error.strerror}); choose another --output folder.")
    except ImportError:
        sys.exit("pprgnn.demo: the picture needs matplotlib; install it with: pip install 'pprgnn[report]'")
    print(TASK.format(**asdict(settings)), flush=True)
    import torch
    import torch_geometric.nn  # noqa: F401  (takes seconds, which should not be charged to the first model)

    torch.set_num_threads(1)  # the matrices are small: a second thread gains nothing and waits for busy cores
    results, interrupted = run_models(settings)
    if not results:
        raise KeyboardInterrupt
    rows = table(results)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print("\nAccuracy on all test nodes, then by their distance from the head of the chain:")
    for name, *cells in rows:
        print("  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]))
    if interrupted:
        print(f"Stopped early: {len(results)} of {len(MODELS)} models are finished.")
    write_report(output, results, settings, command, interrupted)
    print(f"\nWrote {output / 'report.html'} (open it in a browser)")
    print(f"Wrote {output / PICTURE}\nWrote {output / 'results.json'}")
    return 130 if interrupted else 0


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    output, settings = parse(arguments)
    try:
        return run(output, settings, " ".join(["python -m pprgnn.demo", *arguments]))
    except KeyboardInterrupt:
        print("\npprgnn.demo: stopped before the first model was finished; nothing was written.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
