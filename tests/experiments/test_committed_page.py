"""The page in the repository is what its lines give: nothing on it was typed by hand."""

from pathlib import Path

import pytest

from pprgnn.experiments import EXPERIMENTS
from pprgnn.experiments.page import write_page
from pprgnn.experiments.store import Store

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / "RESULTS.md").is_file(), reason="only in a checkout")
def test_the_page_is_made_of_the_lines(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("PPRGNN_DATA", str(tmp_path / "nothing"))
    write_page(Store(ROOT / "results"), tmp_path / "RESULTS.md", tmp_path / "results" / "figures")
    same = (tmp_path / "RESULTS.md").read_text() == (ROOT / "RESULTS.md").read_text()
    assert same, "RESULTS.md is not what results/*.jsonl give; run `pprgnn reproduce report`"


@pytest.mark.skipif(not (ROOT / "RESULTS.md").is_file(), reason="only in a checkout")
def test_the_readme_says_what_the_page_says():
    page, readme = ((ROOT / name).read_text() for name in ("RESULTS.md", "README.md"))
    short = [line for line in page.split("\n## ")[0].splitlines() if line.startswith("- **")]
    assert len(short) >= 5
    assert [line for line in short if line not in readme.splitlines()] == [], "copy these lines into README.md"


def test_honest_lines_never_let_the_test_part_choose():
    store = Store(ROOT / "results")
    lines = [line for name in EXPERIMENTS for line in store.lines(name) if "error" not in line]
    assert not any(line["test_chose_the_epoch"] for line in lines if line["protocol"] == "honest")
    assert all(line["commit"] and line["date"] and line["config"] for line in lines)
