"""Measurements of whole runs of all kinds, and their file."""

import dataclasses
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from pprgnn.data.dataset import GraphDataset
from pprgnn.report.measured import measure as measuring
from pprgnn.report.measured import recursions
from pprgnn.report.measured.measure import LISTED, measure
from pprgnn.report.measured.results import (
    FORMAT,
    Baseline,
    Measurements,
    Missing,
    keep_measurements,
    kept_measurements,
)
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.run import Run
from pprgnn.training.study import Study
from pprgnn.training.train import train
from tests.training.small_data import divided, facts, is_sentence, one_graph, quick, several_graphs, wide_graph

PARTS = ("convergence", "decay", "reach", "smoothing", "truncation", "cost", "classes", "features")
NO_RECURSION = {"convergence", "decay", "smoothing", "truncation", "cost"}


def directed(nodes: int = 16) -> GraphDataset:
    """A directed, weighted graph with a self-loop, in which nobody points to some nodes; one class in its test."""
    draw = torch.Generator().manual_seed(5)
    edges = torch.randint(nodes, (2, 40), generator=draw).unique(dim=1)
    data = Data(edge_index=edges, x=torch.randn(nodes, 4, generator=draw), num_nodes=nodes)
    data.edge_weight = torch.rand(edges.size(1), generator=draw) + 0.1
    data.y = (torch.arange(nodes) % 4 == 3).long() * 0 + (torch.arange(nodes) % 4 == 1).long()
    return GraphDataset.from_graphs([data], facts("directed", "node", 2))


def without_edges() -> GraphDataset:
    data = Data(edge_index=torch.empty(2, 0).long(), x=torch.eye(8), y=torch.arange(8) % 2, num_nodes=8)
    return GraphDataset.from_graphs([data], facts("lonely", "node", 2))


KINDS: dict[str, tuple[Any, tuple[str, ...], set[str]]] = {
    "usual": (one_graph, (), set()),
    "several rates": (one_graph, ("eps=[1.0, 0.25]", "layers=2", "grad_terms=0", "norm=batch"), set()),
    "several labels": (lambda: one_graph(multi_label=True), ("jk=cat", "layers=2"), set()),
    "learned rows": (lambda: one_graph(channels=0), ("class_weights=balanced",), {"features"}),
    "directed": (directed, ("normalize=row", "activation=tanh"), set()),
    "no edges": (without_edges, (), set()),
    "depth given": (one_graph, ("depth=3",), set()),
    "graphs": (lambda: several_graphs(40), ("residual=true",), {"reach"}),
    "nodes of graphs": (lambda: several_graphs(12, task="node"), (), set()),
    "sparse features": (wide_graph, ("dropout=0.5", "input_dropout=0.5"), set()),
    "gcn": (one_graph, ("system=gcn", "layers=2"), NO_RECURSION),
    "gcn of sparse features": (wide_graph, ("system=gcn", "layers=2", "dropout=0.5"), NO_RECURSION),
    "mlp of sparse features": (wide_graph, ("system=mlp",), NO_RECURSION),
    "ignn": (one_graph, ("system=ignn",), NO_RECURSION - {"smoothing"}),
    "mgnni": (one_graph, ("system=mgnni",), NO_RECURSION - {"smoothing"}),
    "sse": (one_graph, ("system=sse",), NO_RECURSION | {"reach", "features"}),
    "attention": (one_graph, ("system=infinite", "own.conv=gat"), {"truncation", "cost"}),
    "infinite gcn": (one_graph, ("system=infinite", "own.conv=gcn"), {"truncation", "cost"}),
    "kernel": (lambda: unweighted(several_graphs(24)), ("system=gk",), NO_RECURSION | {"reach", "features"}),
}


def unweighted(dataset: GraphDataset) -> GraphDataset:
    graphs = [Data(x=g.x, edge_index=g.edge_index, y=g.y, num_nodes=g.num_nodes) for g in dataset]
    return GraphDataset.from_graphs(graphs, dataset.facts)


@pytest.fixture(scope="module", autouse=True)
def _few_depths() -> Iterator[None]:
    """What great depth costs is not the question here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recursions, "DEPTHS", (1, 2, 4))
        yield


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Measurements]:
    return made(tmp_path_factory.mktemp("usual") / "run", "usual")


def made(folder: Path, kind: str) -> tuple[Run, Measurements]:
    build, settings, _ = KINDS[kind]
    dataset = build()
    config = Config().with_settings(settings) if kind == "kernel" else quick("epochs=3", *settings)
    train(config, dataset=dataset, split=divided(dataset), folder=folder)
    run = Run.open(folder)
    return run, measure(run)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "usual"])
def test_every_kind_of_run_is_measured_or_says_why_not(kind: str, tmp_path: Path) -> None:
    if kind == "kernel":
        pytest.importorskip("sklearn")
    before_draw = torch.random.get_rng_state()
    run, found = made(tmp_path / "run", kind)
    check(run, found, KINDS[kind][2])
    assert torch.equal(torch.random.get_rng_state(), before_draw)


def check(run: Run, found: Measurements, absent: set[str]) -> None:
    missing = {name: value for name in PARTS if isinstance(value := getattr(found, name), Missing)}
    assert set(missing) == absent, missing
    assert all(is_sentence(each.reason) and "--seconds" not in each.reason for each in missing.values())
    assert found.baselines
    assert all(isinstance(each, Baseline) and 0 <= each.value <= 1 and each.measured for each in found.baselines)
    layers = [layer["layer"] for layer in (run.summary or {}).get("layers", [])]
    for name in ("convergence", "decay", "truncation"):
        if name not in absent:
            assert [each.layer for each in getattr(found, name)] == layers
    if "convergence" not in absent:
        for each, told in zip(found.convergence, (run.summary or {})["layers"], strict=True):  # type: ignore[arg-type]
            pairs = zip(each.errors, each.certificate, strict=True)
            assert all(proved is None or error <= proved + each.rounding for error, proved in pairs)
            assert each.status in (told["status"], "MEASURED")
    if "reach" not in absent:
        assert all(sum(line.shares) == pytest.approx(1.0) for line in found.reach.lines)  # type: ignore[union-attr]
    if "features" not in absent:
        shares = found.features.shares  # type: ignore[union-attr]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1.0) or len(shares) == LISTED  # all of them are, if there are few
        assert found.features.residual < 0.02  # type: ignore[union-attr]
    keep_measurements(run, found)
    assert kept_measurements(run) == found


def test_the_usual_run(usual: tuple[Run, Measurements]) -> None:
    run, found = usual
    check(run, found, set())
    assert found.seconds > 0
    assert "thread" in found.machine
    assert time.strptime(found.date, "%Y-%m-%dT%H:%M:%S%z")


def test_each_part_is_announced_and_a_time_of_nothing_measures_only_what_is_free(
    usual: tuple[Run, Measurements],
) -> None:
    told: list[str] = []
    found = measure(usual[0], seconds=0.0, announce=told.append)
    assert len(told) == len(set(told)) == 10
    assert isinstance(found.classes, type(usual[1].classes))
    assert found.decay == usual[1].decay
    for name in ("convergence", "reach", "smoothing", "truncation", "features", "cost"):
        reason = getattr(found, name).reason
        assert is_sentence(reason)
        assert f"`pprgnn report {usual[0].folder} --seconds " in reason


def test_what_does_not_fit_into_its_share_takes_the_time_of_less_important_parts(
    usual: tuple[Run, Measurements], monkeypatch: pytest.MonkeyPatch
) -> None:
    def six_seconds(subject: Any, allowance: Any) -> Missing:
        return Missing("done") if allowance.allows(6) else allowance.too_long("It", 6)

    def five_minutes(subject: Any, allowance: Any) -> Missing:
        return Missing("done") if allowance.allows(300) else allowance.too_long("It", 300)

    def taken_by(name: str, part: Any, share: float) -> Any:
        return part if share == 0 else five_minutes if name == "reach" else six_seconds

    parts = [(name, taken_by(name, part, share), phrase, share) for name, part, phrase, share in measuring.PARTS]
    monkeypatch.setattr(measuring, "PARTS", tuple(parts))
    found = measure(usual[0], seconds=10)
    assert found.convergence == Missing("done")  # its share alone would have been 2.1 s
    assert isinstance(found.reach, Missing)
    assert "would take about 300 s; " in found.reach.reason
    assert measure(usual[0], seconds=7).convergence != Missing("done")  # not without a margin


def test_a_member_of_a_study_is_a_run(tmp_path: Path) -> None:
    dataset = several_graphs(30)
    Study.create(tmp_path / "study", quick("epochs=2"), dataset, folds=1).run()
    members = [path.parent for path in (tmp_path / "study").glob("*/model.safetensors")]
    run = Run.open(members[0])
    found = measure(run)
    assert not isinstance(found.classes, Missing)
    assert isinstance(found.reach, Missing)
    assert [each.name for each in found.baselines] == ["majority"]


def test_a_run_without_a_model_and_a_model_of_nonsense(usual: tuple[Run, Measurements], tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    shutil.copytree(usual[0].folder, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    with safe_open(run.model_path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) * 1e30 for key in file.keys()}  # noqa: SIM118
        metadata = {key: text for key, text in file.metadata().items() if key != "digest"}
    save_file(tensors, run.model_path, metadata)
    found = measure(run)
    assert all(is_sentence(getattr(found, name).reason) for name in PARTS)
    assert found.baselines  # labels are enough for them
    keep_measurements(run, found)
    assert kept_measurements(run) == found
    run.model_path.unlink()
    with pytest.raises(TrainingError, match="has no model yet; continue it with"):
        measure(run)
    assert kept_measurements(run) is None


# ------------------------------------------------------------------------------------------------------- the file
def test_what_is_kept_comes_back_with_its_gaps(usual: tuple[Run, Measurements], tmp_path: Path) -> None:
    shutil.copytree(usual[0].folder, tmp_path / "run")
    run, gap = Run.open(tmp_path / "run"), Missing("It rained.")
    assert kept_measurements(run) is None or (run.folder / "measurements.json").unlink() is None
    assert kept_measurements(run) is None
    found = dataclasses.replace(usual[1], convergence=gap, cost=gap, commit=None, baselines=[])
    keep_measurements(run, found)
    assert kept_measurements(run) == found
    with open(run.model_path, "ab") as file:
        file.write(b"\0")
    assert kept_measurements(run) is None  # another model


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace(FORMAT, "another format"),
        lambda text: text.replace('"seconds"', '"minutes"', 1),
        lambda text: text.replace('"depths": [', '"depths": ["no", '),
        lambda text: text.replace('"errors": [', '"errors": [null, '),
        lambda text: json.dumps({**json.loads(text), "reach": 3}),
        lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "decay"}),
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_file_counts_as_none(damage: Any, usual: tuple[Run, Measurements], tmp_path: Path) -> None:
    shutil.copytree(usual[0].folder, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    keep_measurements(run, usual[1])
    path = run.folder / "measurements.json"
    whole = path.read_text(encoding="utf-8")
    damaged = damage(whole)
    assert damaged != whole
    path.write_text(damaged, encoding="utf-8")
    assert kept_measurements(run) is None


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(
    usual: tuple[Run, Measurements], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(TrainingError, match=r"measurements.json cannot be written .*; make room"):
        keep_measurements(Run(tmp_path / "file"), usual[1])
