"""The benchmark of the fused kernel runs, and leaves the environment as it was."""

import json
import os

from benchmarks import kernel


def test_it_writes_a_row_for_each_activation_width_and_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "NODES", 1000)
    monkeypatch.setattr(kernel, "DEPTH", 5)
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    kernel.main(["--channels", "3", "--repeats", "1", "--output", str(tmp_path / "kernel")])
    assert len(json.loads((tmp_path / "kernel.json").read_text())["found"]) == 4
    assert (tmp_path / "kernel.md").read_text().count("×") == 4
    assert os.environ["PPRGNN_KERNEL"] == "torch"
