"""The benchmarks of training, on tiny runs."""

import json

from benchmarks import epochs, quality
from pprgnn.training.recipes import FOLDER

TINY = ["options.length=4", "epochs=3", "hidden=4"]


def test_overhead_counts_the_time_in_solves(monkeypatch):
    monkeypatch.setattr(epochs, "OVERHEAD", {"tiny": ["chains", *TINY]})
    row = epochs.bench_overhead("tiny")
    assert row["epochs"] == 2
    assert 0 < row["solves"] < row["epoch"]
    assert row["worst"] >= row["ratio"] > 1


def test_tolerances_take_turns(monkeypatch, capsys):
    recipe = (FOLDER / "chains.toml").read_text()
    monkeypatch.setattr("pprgnn.training.recipes.find_recipe", lambda name: FOLDER / "chains.toml")
    assert "chains" in recipe
    settings = {name: [*changes, *TINY, "metric=micro-F1"] for name, changes in epochs.TOLERANCES.items()}
    monkeypatch.setattr(epochs, "TOLERANCES", settings)
    rows = epochs.bench_tolerances(hidden=4, epochs=3, seeds=2)
    assert list(rows) == list(settings)
    assert all(len(row["seconds"]) == 6 for row in rows.values())
    assert all(len(row["test"]) == 2 for row in rows.values())
    told = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert told[:6] != sorted(told[:6])  # not one after the other
    data = {"command": "c", "commit": "0" * 40, "edited": False, "date": "d", "machine": {"load_average": 0.0}}
    text = epochs.markdown(data | {"overhead": {}, "tolerance": rows})
    assert "1.00" in text  # the influence search against itself


def test_quality_of_a_recipe(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(quality, "STUDIES", {"chains": (None, 2)})
    monkeypatch.setattr(
        "pprgnn.training.config.Config.from_toml",
        classmethod(lambda cls, path: cls().with_settings(["name=chains", *TINY])),
    )
    quality.main(["chains", "--workers", "1", "--output", str(tmp_path / "q")])
    row = json.loads((tmp_path / "q.json").read_text())["chains"]
    assert row["runs"] == 2
    assert list(row["test_by_seed"]) == ["0", "1"]
    assert "pprgnn train chains --seeds 2 --ensemble" in capsys.readouterr().out
