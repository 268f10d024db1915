"""``python -m pprgnn.demo``: five models on long chains, and how far each of them sees.

The class of a chain is written on its first node only, and every node has to name it. The chains are those of
``pprgnn.data.load("chains")``; the models are plain PyG, trained alike by the few lines below.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch costs seconds to import, and --help does not need it
    from torch import nn
    from torch_geometric.data import Data

    from pprgnn.drawing.plot import Plot

CLASSES = 2
# Model: hops it can see (None: learned), look and width of its line. The farther a model sees the wider: where
# lines coincide they nest, and all stay visible.
MODELS: dict[str, tuple[int | None, int, float]] = {
    "GCN, 2 layers": (2, 4, 2),
    "GCN, 8 layers": (8, 5, 3.5),
    "APPNP, 10 steps": (10, 3, 5),
    "GCN, 32 layers": (32, 2, 7),
    "PPRGNN (ours)": (None, 0, 9),
}
TASK = """{length} nodes a chain. The class is written on the first node only (one-hot, noise {noise}); every node
has to name it. {train_chains} chains to train, {val_chains} to validate, {test_chains} to test. Seed: {seed}."""
NEEDED = ("matplotlib", "jinja2")
PICTURE, PAGE, NUMBERS = "accuracy-vs-distance.png", "report.html", "results.json"


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


def chains(settings: Settings) -> list[Data]:
    """Chains to train, to validate and to test, each part as one graph; the nodes of a chain follow each other."""
    from torch_geometric.data import Batch

    from pprgnn.data import load

    found = load(
        "chains",
        length=settings.length,
        noise=settings.noise,
        train=settings.train_chains,
        val=settings.val_chains,
        test=settings.test_chains,
        seed=settings.seed,
    )
    return [Batch.from_data_list([chain for chain in found if int(chain.part) == part]) for part in range(3)]


def build_model(name: str, settings: Settings) -> nn.Module:
    """One of the five. None has biases: with them 32 layers often learn nothing, and the others gain nothing."""
    from torch.nn import Linear, Tanh
    from torch_geometric.nn import APPNP, GCNConv, Sequential
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    from pprgnn.nn import PPRConv
    from pprgnn.nn.linear_output import AS_PUBLISHED

    hops, hidden = MODELS[name][0], settings.hidden
    layers: list[Any]
    if hops is None:
        # tanh hands a label on at full strength however far it travels, and the state cannot overflow.
        options = AS_PUBLISHED | {"learn_eps": True, "activation": "tanh", "bias": False}
        conv = PPRConv(CLASSES, hidden, settings.initial_eps, **options)
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


def train(name: str, settings: Settings, parts: list[Data]) -> Result:
    """Fit on the first part, keep the epoch that is best on the second, report the third."""
    import torch
    from rich.progress import track
    from torch.nn.functional import cross_entropy

    started = time.perf_counter()
    training, validation, test = parts
    torch.manual_seed(settings.seed)
    model = build_model(name, settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    best, kept, epoch = (-1.0, 0.0), model.state_dict(), 0
    for epoch in track(range(1, settings.epochs + 1), f"{name:<16}"):
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
        if best[0] == 1.0 and best[1] > -0.05:  # every node right and sure of it: nothing left to gain
            break
    model.load_state_dict(kept)
    return evaluate(name, model, test, settings.length, epoch, started)


def evaluate(name: str, model: nn.Module, test: Data, length: int, epochs: int, started: float) -> Result:
    """Accuracy on the test chains at each distance from the head."""
    import torch

    from pprgnn.nn import PPRConv, measure_afresh

    conv = next((module for module in model.modules() if isinstance(module, PPRConv)), None)
    with measure_afresh(model), torch.no_grad():  # the depth in the table is not carried over from training
        right = (model(test.x, test.edge_index).argmax(dim=1) == test.y).double().view(-1, length)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    by_distance, seconds = right.mean(dim=0).tolist(), time.perf_counter() - started
    result = Result(name, float(right.mean()), by_distance, parameters, epochs, seconds, MODELS[name][0])
    if conv is not None and conv.last_solution is not None and conv.log_eps is not None:
        result.depth, result.eps = conv.last_solution.depth, float(conv.log_eps.detach().exp())
        result.depth_status, bound = conv.last_solution.status.value, conv.last_solution.truncation_bound
        if bound is not None:
            result.depth_status = result.depth_status.replace("truncation_bound", f"{bound:.1e} of the input")
    return result


def run_models(settings: Settings) -> tuple[list[Result], bool]:
    """Train all models; also say whether Ctrl-C cut that short."""
    parts, results = chains(settings), list[Result]()
    try:
        for name in MODELS:
            results.append(train(name, settings, parts))
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


def plot(results: list[Result]) -> Plot:
    """Accuracy against distance."""
    from pprgnn.drawing.plot import Line, Place, Plot

    lines = []
    for r in results:
        _, look, width = MODELS[r.model]
        hops = [float(hop) for hop in range(len(r.accuracy_by_distance))]
        name = f"{r.model}: {r.accuracy:.1%}"
        lines.append(Line(name, hops, r.accuracy_by_distance, look, width, dash="-", marked=False))
    chance = Place(f"chance: {1 / CLASSES:.0%}", y=1 / CLASSES, below=True)
    along, up = "distance from the only node that shows the class, hops", "test accuracy, percent"
    return Plot(lines, along, up, [chance], share=True)


def write_files(output: Path, results: list[Result], settings: Settings, command: str, interrupted: bool) -> None:
    """The picture, the numbers, and one page that holds both."""
    import torch
    import torch_geometric

    import pprgnn
    from pprgnn.drawing import canvas
    from pprgnn.report.page import fill
    from pprgnn.report.shown import WIDE_HEIGHT, Table, plotted

    versions = {"pprgnn": pprgnn.__version__, "torch": torch.__version__}
    versions |= {"torch-geometric": torch_geometric.__version__, "python": platform.python_version()}
    facts = {"command": command, "interrupted": interrupted, "settings": asdict(settings), "versions": versions}
    document = json.dumps({**facts, "results": [asdict(r) for r in results]}, indent=1, ensure_ascii=False)
    (output / NUMBERS).write_text(document, encoding="utf-8")
    drawing = plot(results)
    canvas.png(output / PICTURE, (648, 360), drawing.fill, dpi=160)
    best = max(results, key=lambda r: r.accuracy)
    reading = f"{best.model} names the class of {best.accuracy:.1%} of all test nodes."
    how = "Beyond the hops that a model computes it can do no better than chance."
    title = "Test accuracy by distance (and over all nodes)"
    header, *rows = table(results)
    page = fill(
        "demo.html.j2",
        title="How far can a model see?",
        task=TASK.format(**asdict(settings)),
        figure=plotted("distance", title, drawing, reading, how, "hops", WIDE_HEIGHT),
        results=Table(header, rows),
        status="".join(r.depth_status for r in results),
        shared=", ".join(f"{name.replace('_', ' ')} {value}" for name, value in asdict(settings).items()),
        version=pprgnn.__version__,
        **facts,
    )
    (output / PAGE).write_text(page, encoding="utf-8")


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
    except OSError as error:
        sys.exit(f"pprgnn.demo: cannot write to {output} ({error.strerror}); choose another --output folder.")
    if any(find_spec(name) is None for name in NEEDED):  # better missed now than after the training
        sys.exit(f"pprgnn.demo: the page needs {' and '.join(NEEDED)}; install them: pip install 'pprgnn[report]'")
    print(TASK.format(**asdict(settings)), flush=True)
    import torch
    import torch_geometric.nn  # noqa: F401  (takes seconds, which should not be charged to the first model)

    from pprgnn.training.terminal import aligned

    torch.set_num_threads(1)  # the matrices are small: a second thread gains nothing and waits for busy cores
    results, interrupted = run_models(settings)
    if not results:
        raise KeyboardInterrupt
    print("\nAccuracy on all test nodes, then by their distance from the head of the chain:")
    print("\n".join(aligned(table(results))))
    if interrupted:
        print(f"Stopped early: {len(results)} of {len(MODELS)} models are finished.")
    write_files(output, results, settings, command, interrupted)
    print(f"\nWrote {output / PAGE} (open it in a browser)")
    print(f"Wrote {output / PICTURE}\nWrote {output / NUMBERS}")
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
