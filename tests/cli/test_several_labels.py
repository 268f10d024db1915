"""Commands on nodes with several labels: the threshold and the trivial levels are told, used and kept."""

import json

import pytest
from typer.testing import CliRunner

from pprgnn.cli.main import app

TAGS = ("a|b", "b", "b|c", "b", "a|b|c")


def write(folder, suffix, first, count):
    names = [f"p{first + i}" for i in range(count)]
    ring = zip(names, names[1:] + names[:1], strict=True)
    (folder / f"edges{suffix}.csv").write_text("from,to\n" + "".join(f"{a},{b}\n" for a, b in ring))
    rows = (f"{name},{i % 7},{TAGS[i * i % 5]}\n" for i, name in enumerate(names))
    (folder / f"nodes{suffix}.csv").write_text("id,size,tags\n" + "".join(rows))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PPRGNN_CACHE", str(folder / "cache"))
        patch.setenv("PPRGNN_DATA", str(folder / "data"))
        patch.setenv("PPRGNN_REPORT", "0")
        patch.delenv("PPRGNN_DEBUG", raising=False)
        write(folder, "", 0, 60)
        write(folder, "2", 1000, 25)
        tables = ["--edges", "edges.csv", "--nodes", "nodes.csv", "--target", "tags"]
        quick = ["-s", "epochs=2", "-s", "hidden=4"]
        (folder / "told.txt").write_text(call("train", *tables, *quick, "-o", "run"))
        (folder / "study.txt").write_text(call("train", *tables, *quick, "-o", "study", "--seeds", "2"))
        yield folder


def call(*arguments):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.output


def test_train_and_evaluate_tell_the_same(home):
    kept = json.loads((home / "run" / "summary.json").read_text())
    threshold, trivial = kept["threshold"], kept["trivial"]
    assert threshold["rule"] == "validation"
    assert set(trivial) == {"all positive", "prior"}
    for told in ((home / "told.txt").read_text(), call("evaluate", "run")):
        lines = [line.split() for line in told.splitlines()]
        for name, levels in trivial.items():
            assert [*name.split(), f"{100 * levels['micro-F1']:.2f}%"] in [
                line[: len(name.split()) + 1] for line in lines
            ]
            assert f"{name}, on test: " in told
        assert f"labels   predicted above probability {threshold['told']}" in told
        assert "oracle   is told how many labels each row has" in told
    found = json.loads(call("evaluate", "run", "--json"))
    assert found["scores"] == kept["scores"]
    assert (found["threshold"], found["trivial"]) == (threshold, trivial)


def test_new_data_are_scored_with_the_same_threshold_beside_what_the_training_part_would_say(home):
    new = ("--edges", "edges2.csv", "--nodes", "nodes2.csv")
    found = json.loads(call("evaluate", "run", *new, "--json"))
    assert found["threshold"]["rule"] == "validation"
    assert set(found["trivial"]) == {"all positive", "prior"}
    labels = [TAGS[i * i % 5].split("|") for i in range(25)]
    there = sum(map(len, labels))
    assert found["trivial"]["all positive"]["micro-F1"] == pytest.approx(2 * there / (there + 75))
    assert "all positive, on labelled" in call("evaluate", "run", *new)


def test_predictions_are_what_is_above_the_threshold(home):
    threshold = json.loads((home / "run" / "summary.json").read_text())["threshold"]
    assert f"labels   above probability {threshold['told']}" in call("predict", "run")
    for row in json.loads(call("predict", "run", "--json")):
        above = [name for name in "abc" if row[f"p({name})"] > threshold["probability"]]
        assert row["prediction"] == "|".join(above)


def test_a_study_tells_the_mean_of_the_trivial_levels(home):
    runs = [json.loads(path.read_text()) for path in (home / "study").glob("fold-*/summary.json")]
    kept = json.loads((home / "study" / "summary.json").read_text())
    assert len(runs) == 2
    level = kept["trivial"]["prior"]["micro-F1"]
    assert level == pytest.approx(sum(run["trivial"]["prior"]["micro-F1"] for run in runs) / 2)
    assert f"prior {100 * level:.2f}%" in (home / "study.txt").read_text()
