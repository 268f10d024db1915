"""Which split a run has is never left to be guessed: `train`, its files and the report name it, and the data."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from pprgnn.cli.main import app

from ..data.test_ppi import SIZES, write_class_names, write_part

USUAL, APART = "Usual (genes shared): the data set's own graphs", "Genes apart: divided 60/20/20"


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A small PPI-121: ten times the graphs' sizes, and genes that recur in all parts."""
    root = tmp_path_factory.mktemp("data")
    (root / "PPI-121" / "raw").mkdir(parents=True)
    for first, (part, sizes) in enumerate(SIZES.items()):
        sizes = [10 * size for size in sizes]
        write_part(root / "PPI-121" / "raw", part, sizes, first)
        np.save(root / "PPI-121" / "raw" / f"{part}_entrez.npy", np.arange(sum(sizes)) % 17)
    write_class_names(root / "PPI-121", *(f"{number}\tGO:{number}" for number in range(4)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("runs"))
        patch.setenv("PPRGNN_DATA", str(root))
        patch.setenv("PPRGNN_CACHE", str(root / "cache"))
        yield root


def train(*arguments):
    settings = [word for each in ("epochs=1", "hidden=2", "eval_every=1") for word in ("--set", each)]
    done = CliRunner().invoke(app, ["train", *arguments, *settings])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def kept(folder, name="summary.json"):
    with open(f"{folder}/{name}") as file:
        return json.load(file)


@pytest.mark.parametrize(
    ("which", "options", "words"),
    [
        ("recipe", ["ppi-121"], USUAL),
        ("paper", ["paper-ppi-121"], USUAL),
        ("default", ["ppi-121", "--set", "data.split={}"], USUAL),
        ("apart", ["ppi-121", "--set", "split.genes=disjoint"], APART),
    ],
)
def test_a_run_names_its_split_and_its_data(which, options, words):
    shown = train(*options, "-o", which)
    assert words in shown
    assert "PPI-121 (reconstructed labels): 5 graphs" in shown
    assert "note PPI (reconstructed labels): " in shown
    assert kept(which)["data"] == "PPI-121 (reconstructed labels)"
    assert kept(which)["split"].startswith(words)
    assert kept(which, "split.json")["description"] == kept(which)["split"]


def test_a_study_and_the_report_name_them_too():
    pytest.importorskip("matplotlib")
    from pprgnn.report.scores import answer
    from pprgnn.report.subject import open_subjects

    shown = train("ppi-121", "--seeds", "2", "-o", "seeds")
    assert f"split {USUAL}" in shown
    assert len(kept("seeds")["splits"]) == 1
    found = answer(*open_subjects(["seeds"], 0.1, lambda _: None))
    assert found.subject.data == "PPI-121 (reconstructed labels)"
    assert found.facts[0].startswith(USUAL)
