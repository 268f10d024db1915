"""`train --model a,b,c`: several systems on the same data, each with its folder, one table and one page."""

import json

import pytest
from typer.testing import CliRunner

import pprgnn.report as report
import pprgnn.training.loop as loop
from pprgnn.cli.main import app
from pprgnn.training.errors import TrainingError

SMALL = [word for part in ("train", "val", "test") for word in ("--set", f"options.{part}=2")]
SMALL += ["--set", "epochs=2", "--set", "options.length=5"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PPRGNN_REPORT", "0")


def call(*arguments):
    return CliRunner().invoke(app, [str(word) for word in arguments])


def said(done):
    return " ".join(done.output.split())


def train(*arguments, data="chains"):
    return call("train", data, *SMALL, *arguments)


def test_each_system_has_its_folder_and_a_row(tmp_path):
    done = train("--model", "pprgnn, GCN,mlp", "-o", "all")
    assert done.exit_code == 0, done.output
    splits = {(tmp_path / "all" / name / "split.json").read_text() for name in ("pprgnn", "gcn", "mlp")}
    assert len(splits) == 1
    lines = done.output.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("system"))
    assert lines[head].split() == ["system", "val", "accuracy", "test", "accuracy", "time"]
    assert [line.split()[0] for line in lines[head + 1 : head + 5]] == ["pprgnn", "gcn", "mlp", "majority"]
    assert "gcn (2/3): epoch 2/2" in done.output


def test_json_tells_all_of_them_and_nothing_else():
    found = json.loads(train("--model", "gcn,mlp", "--json", "-o", "all").output)
    assert found["finished"]
    assert found["failed"] == {}
    assert list(found["systems"]) == ["gcn", "mlp"]
    assert found["systems"]["mlp"]["scores"]["test"]["accuracy"] >= 0


def test_seeds_make_a_study_of_each(tmp_path):
    done = train("--model", "gcn,mlp", "--seeds", 2, "-o", "all")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "all" / "gcn" / "fold-0-seed-1" / "summary.json").is_file()
    assert done.output.count(" ± ") == 4


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("gcn,appmp", "There is no model 'appmp'; did you mean 'appnp'?"),
        ("gcn,wl", "WL labels graphs"),
        ("gcn,mlp,gcn", "names gcn twice"),
        (",", "but is ','"),
        ("pprgnn,gat,heads", "There is no model 'heads'"),
    ],
)
def test_what_cannot_be_is_said_before_the_first_training(tmp_path, models, words):
    done = train("--model", models, "-o", "all")
    assert done.exit_code != 0
    assert words in said(done)
    assert "epoch" not in done.output
    assert not (tmp_path / "all").exists()


def test_settings_that_one_does_not_read_are_refused(tmp_path):
    done = train("--model", "gat,gcn", "--set", "heads=2", "-o", "all")
    assert "There is no setting 'heads' in GCN" in said(done)
    assert not (tmp_path / "all").exists()


def test_edge_weights_are_refused_before_the_first_training(tmp_path):
    (tmp_path / "edges.csv").write_text(
        "a,b,weight\n" + "".join(f"{i},{i + 1},0.{i % 9 + 1}\n" for i in range(30))
    )
    (tmp_path / "nodes.csv").write_text("id,x,y\n" + "".join(f"{i},{i % 5}.5,c{i % 2}\n" for i in range(31)))
    tables = ["--edges", "edges.csv", "--nodes", "nodes.csv", "--target", "y"]
    done = call("train", *tables, "--set", "epochs=1", "--model", "gcn,gat", "-o", "all")
    assert "GAT cannot use edge weights" in said(done)
    assert not (tmp_path / "all").exists()
    done = call("train", *tables, "--set", "epochs=1", "--model", "gcn,mlp", "-o", "all")
    assert done.exit_code == 0, done.output
    (tmp_path / "edges.csv").unlink()  # every run has a copy
    assert call("predict", "all/mlp", "-o", "out.csv").exit_code == 0


def test_resume_goes_on_with_what_is_missing(tmp_path, monkeypatch):
    trained, whole = [], loop.Training.fit

    def stop_at_second(self, **options):
        trained.append(self.config.model.system)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return whole(self, **options)

    monkeypatch.setattr(loop.Training, "fit", stop_at_second)
    train("--model", "gcn,mlp,appnp", "-o", "all")
    done = call("train", "--resume", "all")
    assert done.exit_code == 0, done.output
    assert trained == ["gcn", "mlp", "mlp", "appnp"]
    assert [line.split()[0] for line in done.output.splitlines() if "%" in line][-4:] == [
        "gcn",
        "mlp",
        "appnp",
        "majority",
    ]
    assert call("train", "--resume", "all").exit_code == 0  # nothing is left: the table again
    assert len(trained) == 4
    assert "leave out --set" in said(call("train", "--resume", "all", "--set", "epochs=3"))
    assert "already holds runs" in said(train("--model", "gcn,mlp", "-o", "all"))


def test_folders_that_are_in_use_are_refused_before_anything_is_made(tmp_path):
    assert train("--model", "mlp", "-o", "all/mlp").exit_code == 0
    assert "already holds runs" in said(train("--model", "gcn,mlp", "-o", "all"))
    assert not (tmp_path / "all" / "gcn").exists()


def test_a_command_for_one_run_names_one_inside():
    assert train("--model", "gcn,mlp", "-o", "all").exit_code == 0
    assert "name one inside, such as all/gcn." in said(call("predict", "all"))


def test_one_that_fails_does_not_stop_the_others(monkeypatch):
    whole = loop.Training.fit

    def fail(self, **options):
        if self.config.model.system == "gcn":
            raise TrainingError("The loss exploded.")
        return whole(self, **options)

    monkeypatch.setattr(loop.Training, "fit", fail)
    done = train("--model", "gcn,mlp", "-o", "all")
    assert done.exit_code == 1
    assert "gcn failed: The loss exploded." in done.output
    assert any(line.startswith("mlp ") for line in done.output.splitlines())


def test_one_page_about_all(monkeypatch):
    asked = []

    def write(runs, path, **options):
        asked.append(([str(run) for run in runs], str(path)))
        return path

    monkeypatch.setattr(report, "write_report", write)
    assert train("--model", "gcn,mlp", "-o", "all", "--report").exit_code == 0
    assert call("report", "all").exit_code == 0
    assert asked == [(["all/gcn", "all/mlp"], "all/report.html")] * 2
