"""The demo: small, in-process, and as a user meets it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pprgnn import demo

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


@pytest.fixture(autouse=True)
def _keep_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_quick_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "folder"
    assert demo.main(["--quick", "--seed", "3", "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert [r["model"] for r in results["results"]] == list(demo.MODELS)
    assert results["settings"]["seed"] == 3
    assert all(len(r["accuracy_by_distance"]) == results["settings"]["length"] for r in results["results"])
    page = (output / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "http://" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)  # needs no other file
    assert "--quick --seed 3" in page
    known = page.split("What is known about its depth:")[1].split("</i>")[0]
    assert "_" not in known  # no name of the code
    assert re.search(r"at most \d\.\de-\d+ of the input\.", known)
    assert (output / demo.PICTURE).stat().st_size > 10_000
    for name in ("report.html", "results.json", demo.PICTURE, *demo.MODELS):
        assert name in printed


def test_baselines_cannot_see_beyond_their_depth() -> None:
    """What the picture claims: a node farther away than a model has hops gets the same answer in every chain."""
    settings = demo.Settings(length=20)
    chains, _, _ = demo.chains(demo.Settings(length=20, train_chains=4))
    for name, (hops, _, _) in demo.MODELS.items():
        torch.manual_seed(0)
        model = demo.build_model(name, settings)
        with torch.no_grad():
            seen = model(chains.x, chains.edge_index).view(4, 20, -1).abs().sum(dim=(0, 2)) > 0
        reach = 19 if hops is None else min(hops, 19)
        assert seen[: min(reach, 8) + 1].all(), name
        assert not seen[reach + 1 :].any(), name


def test_ctrl_c_reports_what_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = demo.train

    def interrupted(name: str, *rest: object) -> demo.Result:
        if name == "APPNP, 10 steps":
            raise KeyboardInterrupt
        return train(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(demo, "train", interrupted)
    assert demo.main(["--quick", "--output", str(tmp_path)]) == 130
    assert "2 of 5 models are finished" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["results"]) == 2


def test_ctrl_c_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "run_models", lambda settings: ([], True))
    assert demo.main(["--quick", "--output", str(tmp_path)]) == 130
    assert "nothing was written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_help_shows_an_example() -> None:
    command = [sys.executable, "-m", "pprgnn.demo", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "example: python -m pprgnn.demo" in done.stdout


def test_output_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"cannot write to .*taken .*choose another --output folder") as stopped:
        demo.main(["--output", str(path)])
    assert stopped.value.code  # a sentence: exit code 1
    assert path.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("wrong", [["--length", "1"], ["--seed", "-1"], ["--length", "long"]])
def test_wrong_arguments(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        demo.main(wrong)
    assert stopped.value.code == 2
