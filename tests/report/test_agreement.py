"""Epoch, score and curve of a real run say the same, on the page and in the lines while it trains."""

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from pprgnn.report.curves import training_curves
from pprgnn.report.measured import measure as measuring
from pprgnn.report.measured.results import fingerprint
from pprgnn.report.subject import open_subjects
from pprgnn.training.run import Run
from pprgnn.training.terminal import EpochLines
from pprgnn.training.train import train
from pprgnn.wording import percent
from tests.training.small_data import divided, one_graph, quick

from . import made_up


class Kept(EpochLines):
    """All lines."""

    def __init__(self):
        super().__init__()
        self.shared, self.lines = False, []

    def started(self, training):
        super().started(training)
        self.shared = training.shared

    def epoch(self, record):
        super().epoch(record)
        self.lines.append(self.cells(record))


@pytest.mark.parametrize("settings", [[], ["input_dropout=0.1"]], ids=["shared", "own pass"])
def test_the_best_epoch_is_the_same_everywhere(tmp_path, monkeypatch, settings):
    def measure(run, seconds, announce):
        return made_up.bare(fingerprint=fingerprint(run.model_path))

    monkeypatch.setattr(measuring, "measure", measure)
    dataset, lines = one_graph(nodes=80, edges=160), Kept()
    config = quick("epochs=30", "lr=0.05", "tol=1e-7", "eval_tol=1e-7", *settings)
    summary = train(
        config, dataset=dataset, split=divided(dataset), folder=tmp_path / "run", listener=lines
    ).summary
    assert lines.shared is (not settings)
    best, score = summary["best_epoch"], summary["scores"]["val"]["accuracy"]
    assert summary["best"] == score

    (subject,) = open_subjects([tmp_path / "run"], 1.0, lambda text: None)
    metric = next(each for each in training_curves([subject]) if each.name == "metric")
    assert f"Epoch {best} of 30 was kept, at {percent(score)};" in metric.reading
    validation = metric.table.header.index("validation")
    curve = {row[0]: row[validation] for row in metric.table.rows}
    assert len(curve) == 30
    assert curve[str(best)] == percent(score)

    records = {record["epoch"]: record for record in Run.open(tmp_path / "run").records()}
    assert max(records.values(), key=lambda record: record["val"]["accuracy"])["val"]["accuracy"] == score
    told = f"{100 * score:.2f}%"
    assert f"val accuracy {told}" in lines.lines[best - 1]
    assert [f"best {told} at {best}" in line for line in lines.lines[best - 1 :]] == [True] * (31 - best)
    assert not any(cell.endswith(" at 0") for line in lines.lines for cell in line)
