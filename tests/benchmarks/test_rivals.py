"""The benchmarks of the rivals, on tiny runs."""

import json

import pytest

from benchmarks import ignn, levels
from pprgnn.training.recipes import find_recipe


def test_ignn_on_tiny_shapes(tmp_path, capsys):
    ignn.main(["--smoke", "--shapes", "batch", "ppi-like", "--repeats", "2", "--output", str(tmp_path / "ignn")])
    found = json.loads((tmp_path / "ignn.json").read_text())["shapes"]
    assert list(found) == ["batch", "ppi-like"]
    for row in found.values():
        assert row["ratio"] > 0
        assert len(row["contestants"]["coo"]["samples"]) == 2
        assert 10 < row["contestants"]["ours"]["steps"] < ignn.MAX_STEPS  # some dozens, as it says
    assert "times faster" in capsys.readouterr().out


def test_a_wrong_contestant_is_not_timed(monkeypatch):
    monkeypatch.setattr(ignn, "STOP", 1e-1)  # ends far too early
    with pytest.raises(RuntimeError, match="coo on batch is off"):
        ignn.bench("batch", 1, smoke=True)


def test_levels_have_recipes():
    assert all(find_recipe(name) is not None for name in levels.LEVELS)


def test_a_level_is_run_kept_and_judged(monkeypatch, tmp_path, capsys):
    tiny = ["name=chains", "options.length=4", "epochs=3", "hidden=4"]
    monkeypatch.setattr(levels, "LEVELS", {"cora-gcn": levels.Level(None, 2, 101.0, 0.5, "nowhere")})
    monkeypatch.setattr(
        "pprgnn.training.config.Config.from_toml", classmethod(lambda cls, path: cls().with_settings(tiny))
    )
    arguments = ["cora-gcn", "--workers", "1", "--output", str(tmp_path / "l"), "--folder", str(tmp_path / "runs")]
    levels.main(arguments)
    first = capsys.readouterr().out
    assert "missed by" in first
    monkeypatch.setattr(levels, "LEVELS", {"cora-gcn": levels.Level(None, 2, 0.0, 0.5, "nowhere")})
    levels.main(arguments)  # from the study that is there
    assert "reached" in capsys.readouterr().out
    assert (tmp_path / "runs" / "cora-gcn").is_dir()
