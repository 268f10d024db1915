"""`pprgnn report`, and the page that `train` and `reproduce` write by themselves."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

import pprgnn.report as report
from pprgnn.cli import train_here
from pprgnn.cli.main import app
from pprgnn.cli.options import STOPPED, SWITCH
from pprgnn.errors import DataError
from pprgnn.experiments.store import Store

from ..report import made_up

TINY = ["chains", "--set", "epochs=1", "--set", "hidden=4", "--set", "options.length=6"]
TINY += [word for part in ("train", "val", "test") for word in ("--set", f"options.{part}=2")]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PPRGNN_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("PPRGNN_DEBUG", raising=False)
    monkeypatch.delenv(SWITCH, raising=False)


@pytest.fixture
def asked(monkeypatch):
    """What reports were asked for; nothing is measured or drawn."""
    calls = []

    def write(runs, path, *, seconds, announce, again=False):
        calls.append({"runs": [str(run) for run in runs], "path": str(path), "seconds": seconds, "again": again})
        announce("Measuring x: depth")
        if write.error is not None:
            raise write.error
        return path

    write.error = None
    calls_and_error = (calls, write)
    monkeypatch.setattr(report, "write_report", write)
    return calls_and_error


def call(*arguments):
    return CliRunner().invoke(app, [str(word) for word in arguments])


# ---------------------------------------------------------------------------------------------------- the command
def test_one_run_has_its_page_in_its_folder(tmp_path):
    made_up.make_run(tmp_path / "cora", found=made_up.bare(), epochs=[])
    done = call("report", "cora")
    assert (done.exit_code, done.output) == (0, "Drawing the page ...\nThe page is cora/report.html.\n")
    assert "PPRGNN on Cora" in (tmp_path / "cora/report.html").read_text()


def test_options_reach_the_report(asked):
    calls, _ = asked
    assert call("report", "a", "b").output.endswith("The page is report.html.\n")
    assert call("report", "a", "-o", "x.html", "--seconds", 3, "--again").exit_code == 0
    assert calls == [
        {"runs": ["a", "b"], "path": "report.html", "seconds": 30.0, "again": False},
        {"runs": ["a"], "path": "x.html", "seconds": 3.0, "again": True},
    ]


def test_a_damaged_run_is_one_sentence_and_a_failure(tmp_path):
    made_up.make_run(tmp_path / "cora", found=made_up.bare(), epochs=[])
    (tmp_path / "cora/summary.json").write_text("{")
    done = call("report", "cora")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "cora/report.html").exists()


# ------------------------------------------------------------------------------------------------------- training
def test_training_writes_the_page_by_itself(asked):
    calls, _ = asked
    done = call("train", *TINY, "-o", "run")
    assert done.exit_code == 0, done.output
    assert calls == [{"runs": ["run"], "path": "run/report.html", "seconds": 5.0, "again": False}]
    assert done.output.endswith("run/report.html shows it.\n")
    assert "Measuring" not in done.output  # nobody is looking


def test_going_on_writes_it_as_well(asked, monkeypatch):
    summary = made_up.summary(folder="run", seconds=99.0)
    made_up.make_run(Path("run"), found=made_up.bare(), epochs=[])
    monkeypatch.setattr(train_here, "_one_run", lambda *arguments, **options: summary)
    assert call("train", "--resume", "run").exit_code == 0
    assert [(each["runs"], each["seconds"]) for each in asked[0]] == [(["run"], 20.0)]


def test_a_study_has_one_page(asked):
    calls, _ = asked
    done = call("train", *TINY, "-o", "study", "--seeds", 2, "--json")
    assert done.exit_code == 0, done.output
    assert [each["runs"] for each in calls] == [["study"]]
    assert json.loads(done.output)["finished"]  # and nothing else is printed


@pytest.mark.parametrize("how", ["option", "environment"])
def test_it_can_be_switched_off(asked, monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv(SWITCH, "0")
    done = call("train", *TINY, "-o", "run", *(["--no-report"] if how == "option" else []))
    assert done.exit_code == 0, done.output
    assert asked[0] == []
    assert "report" not in done.output


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DataError("There is no room. "), "The report could not be written: There is no room"),
        (ZeroDivisionError("division by zero"), "The report could not be written: division by zero"),
        (KeyboardInterrupt(), "The report could not be written: it was stopped"),
        (
            DataError("It needs jinja2; install it with `pip install 'pprgnn[report]'`."),
            "pip install 'pprgnn[report]'`",
        ),
    ],
)
def test_a_report_that_fails_never_fails_the_training(asked, error, words):
    asked[1].error = error
    done = call("train", *TINY, "-o", "run")
    assert done.exit_code == 0
    assert words in done.output
    assert done.output.endswith("; `pprgnn report run` tries again.\n")


def test_a_report_that_fails_is_silent_for_programs(asked):
    asked[1].error = RuntimeError("no")
    done = call("train", *TINY, "-o", "run", "--json")
    assert done.exit_code == 0
    assert json.loads(done.output)["finished"]


def test_a_training_that_failed_or_stopped_has_no_page(asked, monkeypatch):
    stopped = {"finished": False, "folder": "run", "epochs": 1}
    monkeypatch.setattr(train_here, "_one_run", lambda *arguments, **options: stopped)
    monkeypatch.setattr(train_here, "_show_run", lambda summary: None)
    assert call("train", *TINY, "-o", "run").exit_code == STOPPED
    assert asked[0] == []


# ------------------------------------------------------------------------------------------------------ reproduce
def test_the_page_of_results_is_written_as_one_file(tmp_path):
    done = call("reproduce", "report", "--results", "kept", "--page", "RESULTS.md")
    assert done.exit_code == 0, done.output
    assert done.output == "The page is RESULTS.md.\nAs one file: kept/report.html.\n"
    text = (tmp_path / "kept/report.html").read_text()
    assert "<h1" in text
    assert 'href="#graph-classification"' in text
    assert 'id="graph-classification"' in text
    assert (
        call("reproduce", "report", "--results", "kept", "--no-report").output == "The page is kept/RESULTS.md.\n"
    )


def test_text_of_the_results_is_markdown_without_markup(tmp_path):
    from pprgnn.drawing.plot import Line, Plot
    from pprgnn.report import page as results_page

    page = tmp_path / "PAGE.md"
    page.write_text(
        "# Results\n\n## A & B\n\n<script>alert(1)</script>\n\n| a | b |\n| --- | --- |\n"
        "| 1<br>2 | [x](javascript:alert(1)) |\n\n"
        "![It says](<kept/figures/a b.png>)\n\n![not there](nowhere.png)\n"
    )
    plot = Plot([Line("GCN", [1.0], [80.0], look=1, bars=[1.0])], "depth", "accuracy", ticks={1.0: "1"})
    sections = {"graphs": lambda results, pictures: pictures.add("a b", [plot], "It says")}
    one = {"graphs": results_page.EXPERIMENTS["graphs"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_page, "SECTIONS", sections)
        patch.setattr(results_page, "EXPERIMENTS", one)
        text = results_page.render_results(Store(tmp_path / "kept"), page)
    assert text.count("<script") == 1
    assert "<td>1<br>2</td>" in text
    assert 'href="javascript' not in text
    assert 'aria-label="It says"' in text
    assert "var(--red, #c95400)" in text
    assert "<em>not there</em>" in text
    assert 'id="a--b"' in text
