"""The benchmark of compiled code, on tiny graphs."""

import json

import pytest
import torch

from benchmarks import compile as bench


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # Inductor's own
def test_smoke_run_writes_json_and_markdown(tmp_path, capsys):
    bench.main(["--smoke", "--turns", "2", "--shapes", "large", "--output", str(tmp_path / "compile")])
    data = json.loads((tmp_path / "compile.json").read_text())
    assert data["command"].startswith("python -m benchmarks.compile --smoke")
    row = data["shapes"]["large"]
    assert row["depth"]["eager"] == row["depth"]["operator"] == row["depth"]["compiled"] > 0
    assert all(ratio > 0 for ratio in row["ratio"].values())
    assert (tmp_path / "compile.md").read_text() in capsys.readouterr().out


def test_a_wrong_gradient_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    shape = bench.make("large", smoke=True)
    runs = bench.contestants(shape)
    y = torch.zeros(shape.num_nodes, dtype=torch.int64)
    for _, call in runs.values():
        call(shape.b, shape.edge_index, y).backward()
    bench.check_agreement(runs)
    runs["operator"][0].conv.weight.grad.mul_(1.01)
    with pytest.raises(RuntimeError, match=r"operator: the gradient of conv\.weight is off by"):
        bench.check_agreement(runs)
