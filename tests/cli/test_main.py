"""The command itself: help, version, start-up, and how errors end it."""

import os
import re
import resource
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
import typer
from typer.testing import CliRunner

from pprgnn import __version__
from pprgnn.cli import main
from pprgnn.cli.options import Commands
from pprgnn.errors import DataError

HEAVY = ("torch", "torch_geometric", "pyarrow", "numpy", "scipy", "safetensors")
PROBE = (
    "import sys; sys.argv[0] = 'pprgnn'\n"
    "from pprgnn.cli.main import run\n"
    "try: run()\n"
    f"finally: print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
)
QUICK = [
    command.split()
    for command in ("--help", "--version", "data --help", "data list", "data list --json", "data info NCI1")
]
QUICK += [["tune", "--help"], ["partition", "--help"], ["reproduce", "--help"], ["models"], ["models", "gat"]]
COMMANDS = ["", "train", "evaluate", "predict", "explain", "tune", "models", "reproduce", "doctor", "partition"]
COMMANDS += ["data", "data list", "data info", "data fetch", "data verify", "data import"]
ALL_HELP = (
    "import sys; from typer.testing import CliRunner; from pprgnn.cli.main import app\n"
    f"for words in {[command.split() for command in (*COMMANDS, 'report', 'explore')]}:\n"
    "    assert CliRunner().invoke(app, [*words, '--help']).exit_code == 0\n"
    f"print([m for m in {HEAVY} if m in sys.modules])"
)


def run(*arguments, code="from pprgnn.cli.main import run; run()", **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=60,
    )


@pytest.fixture
def raising(monkeypatch):
    """A command `fail` that ends with the given exception."""
    monkeypatch.delenv(main.DEBUG, raising=False)

    def command_line(error):
        app = typer.Typer(cls=Commands)
        app.callback()(main.options)

        @app.command()
        def fail():
            raise error

        return app

    return command_line


def test_version():
    assert run("--version").stdout == f"pprgnn {__version__}\n"


def test_no_arguments_show_the_help():
    done = run()
    assert done.returncode != 0
    assert "Usage: pprgnn" in done.stdout + done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command):
    shown = CliRunner().invoke(main.app, [*command.split(), "--help"])
    assert shown.exit_code == 0
    assert f"Example: pprgnn {command}".strip() in shown.output


@pytest.mark.parametrize("command", [*COMMANDS, "report", "explore"])
def test_help_names_values_not_types(command):
    shown = CliRunner().invoke(main.app, [*command.split(), "--help"]).output
    assert not re.search(r"<[a-z]+|x>=|\{[A-Z]|\[\[", shown), shown


def test_the_own_tables_come_first():
    shown = CliRunner().invoke(main.app, ["--help"]).output
    commands = shown.partition("Commands:\n")[2].splitlines()
    assert commands[0].split(maxsplit=1) == [
        "data",
        "Your own tables and known data sets: import, list, fetch, check",
    ]
    inside = CliRunner().invoke(main.app, ["data", "--help"]).output.partition("Commands:\n")[2]
    assert inside.split()[0] == "import"


@pytest.mark.parametrize("command", ["train", "tune"])
def test_the_number_of_jobs_has_one_name_and_a_hidden_old_one(command):
    shown = CliRunner().invoke(main.app, [command, "--help"]).output
    assert "--jobs N" in shown
    assert "--workers" not in shown
    for option in ("--jobs", "--workers"):
        done = CliRunner().invoke(main.app, [command, "chains", option, "0"])
        assert done.exit_code == 2
        assert "greater than or equal to 1" in done.stderr


@pytest.mark.parametrize("command", QUICK, ids=" ".join)
def test_quick_commands_import_nothing_heavy(command, tmp_path):
    done = run(*command, code=PROBE, PPRGNN_DATA=str(tmp_path))
    assert done.returncode == 0
    assert done.stderr == "[]\n"


def test_no_help_imports_anything_heavy():
    assert run(code=ALL_HELP).stdout == "[]\n"


@pytest.mark.parametrize("command", QUICK, ids=" ".join)
def test_quick_commands_start_within_half_a_second(command, tmp_path):
    """In time of the processor, the best of three: the machine may be busy with something else."""

    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run(*command, PPRGNN_DATA=str(tmp_path)).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert any(seconds() < 0.5 for _ in range(3))


def test_an_expected_error_is_one_sentence(raising):
    done = CliRunner().invoke(raising(DataError("a [b] is wrong; mend it.")), ["fail"])
    assert done.exit_code == 1
    assert done.stderr == "Error: a [b] is wrong; mend it.\n"
    assert done.stdout == ""


def test_errors_of_the_file_system_are_expected(raising):
    done = CliRunner().invoke(raising(PermissionError(13, "Permission denied", "/a/b")), ["fail"])
    assert (done.exit_code, done.stderr) == (1, "Error: [Errno 13] Permission denied: '/a/b'\n")


def test_a_mistake_in_the_code_keeps_its_traceback(raising):
    done = CliRunner().invoke(raising(KeyError("x")), ["fail"])
    assert isinstance(done.exception, KeyError)


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_where_it_came_from(raising, how, monkeypatch):
    if how == "environment":
        monkeypatch.setenv(main.DEBUG, "1")
    arguments = ["--debug", "fail"] if how == "option" else ["fail"]
    done = CliRunner().invoke(raising(DataError("wrong.")), arguments)
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.endswith("Error: wrong.\n")
    assert done.exit_code == 1
    os.environ.pop(main.DEBUG, None)


@pytest.mark.parametrize(
    ("error", "said"),
    [(KeyboardInterrupt(), "Stopped."), (KeyboardInterrupt("It resumes."), "Stopped: It resumes.")],
)
def test_ctrl_c(raising, error, said):
    done = CliRunner().invoke(raising(error), ["fail"])
    assert done.exit_code == 130
    assert done.stderr.strip() == said


def test_ctrl_c_outside_a_command(monkeypatch):
    def stop(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "app", stop)
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert caught.value.code == 130


def test_a_reader_that_has_seen_enough():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-u", "-c", "from pprgnn.cli.main import run; run()", "data", "list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_console_script_is_declared():
    (script,) = entry_points(group="console_scripts", name="pprgnn")
    assert script.value == "pprgnn.cli.main:run"
