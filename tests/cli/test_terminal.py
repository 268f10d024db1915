"""Every command as a user sees it: in windows of several widths, with Ctrl-C, into a pipe."""

import json
import os
import pty
import re
import shlex
import threading

import pytest

from pprgnn.training.run import Run
from pprgnn.training.terminal import Lines
from tests import warm

from .terminal import ESCAPE, on_terminal, several_on_terminal

TINY = [f"-soptions.{word}" for word in ("length=10", "train=2", "val=2", "test=2")]
CHAINS = ["train", "chains", *TINY, "-sepochs=30"]
WIDTHS = (60, 80, 120)
CTRL_C = b"\x03"
STOPPING = "Stopping after this"
EDGES = "source,target\n" + "".join(f"{i},{(i + 1) % 12}\n" for i in range(12))
NODES = "id,size,team\n" + "".join(f"{i},{i % 2},{'red' if i % 2 else 'blue'}\n" for i in range(12))


IN_A_ROW = """
import json, sys
from pprgnn.cli.main import run
for sys.argv[1:] in json.loads(sys.argv[1]):
    try:
        run()
    except SystemExit as end:
        print("<<<", end.code or 0, flush=True)
"""
# also where the tests run under nohup
HANGS_UP = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); {warm.ENTRY}"


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory):
    """A cache and a data root of its own."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PPRGNN_CACHE", str(home / "cache"))
        patch.setenv("PPRGNN_DATA", str(home / "data"))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """What every command showed; they run in one process, one after the other."""
    folder = tmp_path_factory.mktemp("session")
    (folder / "edges.csv").write_text(EDGES)
    (folder / "nodes.csv").write_text(NODES)
    tables = ["--edges", "edges.csv", "--nodes", "nodes.csv", "--target", "team"]
    tune = ["tune", "chains", *TINY, "-sepochs=3", "--trials", "2", "-o"]
    commands = {}
    for width in WIDTHS:
        commands |= {
            f"train {width}": (width, [*CHAINS, "-o", f"run-{width}"], {}),
            f"evaluate {width}": (width, ["evaluate", "run-60"], {}),
            f"explain {width}": (width, ["explain", "run-60", "--graph", "1", "--node", "5"], {}),
            f"tune {width}": (width, [*tune, f"tuning-{width}"], {}),
            f"info {width}": (width, ["data", "info", "chains"], {}),
            f"list {width}": (width, ["data", "list"], {}),
            f"import {width}": (width, ["data", "import", *tables], {}),
        }
    commands |= {
        "doctor": (80, ["doctor"], {}),
        "plain train": (80, [*CHAINS, "-o", "plain"], {"NO_COLOR": "1"}),
        "plain evaluate": (80, ["evaluate", "run-60"], {"NO_COLOR": "1"}),
        "plain list": (80, ["data", "list"], {"NO_COLOR": "1"}),
        "predict": (80, ["predict", "run-60"], {}),
        "predict to file": (80, ["predict", "run-60", "-o", "out.csv"], {}),
        "several": (80, [*CHAINS, "-sepochs=2", "--seeds", "2", "-o", "study"], {}),
        "unknown": (80, ["train", "chans"], {}),
        "finished": (80, ["train", "--resume", "run-60"], {}),
    }
    shown = several_on_terminal(list(commands.values()), folder)
    return dict(zip(commands, shown, strict=True)), folder


# ------------------------------------------------------------------------------------------------- all commands
def test_every_command_ends_well(session):
    for name, shown in session[0].items():
        assert shown.code == (1 if name in ("unknown", "finished") else 0), f"{name}: {shown.text}"
        assert "Traceback" not in shown.text, name


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["train", "evaluate", "explain", "tune", "info", "list", "import"])
def test_no_line_is_longer_than_the_window(command, width, session):
    shown = session[0][f"{command} {width}"]
    assert shown.widest <= width, max(shown.lines, key=len)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_live_line(width, session):
    shown = session[0][f"train {width}"]
    live = [line for line in shown.lines if re.search(r"epoch \d+/30 ", line) and "left" in line]
    assert live
    cells = [r"epoch \d+/30", r"val accuracy [\d.]+%", r"best [\d.]+%", r"\d+:\d\d left"]
    if width >= 120:
        cells += [r"^[█░]{12} ", r" at \d+ ", r"loss [\d.e-]+", r"depth \d+", r"[\d.e-]+ s/epoch"]
    for cell in cells:
        assert any(re.search(cell, line) for line in live), (cell, live)
    assert "\x1b[?25l" in shown.raw  # the cursor goes ...
    assert shown.raw.rindex("\x1b[?25h") > shown.raw.rindex("\x1b[?25l")  # ... and comes back


def test_the_end_of_a_training(session):
    shown, folder = session[0]["train 80"], session[1]
    for words in (["train"], ["val"], ["test"]):
        (row,) = (line for line in shown.lines if re.match(rf"{words[0]} +\d", line))
        assert row.count("%") >= 2
    assert any(line.startswith("layer") and line.endswith("what is known") for line in shown.lines)
    assert "`pprgnn predict run-80 -o predictions.csv` uses it." in shown.lines
    assert Run.open(folder / "run-80").finished
    assert len(Run.open(folder / "run-80").records()) == 30
    assert re.search(r"\x1b\[1m +accuracy", shown.raw)  # a bold header


def test_no_colour_when_it_is_not_wanted(session):
    for name in ("plain train", "plain evaluate", "plain list"):
        assert not re.search(r"\x1b\[[0-9;]*m", session[0][name].raw), name
    assert re.search(r"\x1b\[[0-9;]*m", session[0]["evaluate 80"].raw)


def test_evaluate(session):
    scores = json.loads((session[1] / "run-60" / "summary.json").read_text())["scores"]
    for part in ("train", "val", "test"):
        assert re.search(rf"^{part} +{100 * scores[part]['accuracy']:.2f}%", session[0]["evaluate 80"].text, re.M)


def test_predict(session):
    assert "60 nodes of chains: " in session[0]["predict"].text  # 6 chains of 10
    assert "Nothing was written; add -o FILE.csv" in session[0]["predict"].text
    assert "Written to out.csv." in session[0]["predict to file"].lines
    assert len((session[1] / "out.csv").read_text().splitlines()) == 61


def test_tune(session):
    shown, folder = session[0]["tune 80"], session[1]
    assert re.findall(r"^trial (\d)  val accuracy", shown.text, re.M) == ["1", "2"]
    assert any(re.search(r"trial [12]/2  epoch \d/3 ", line) for line in shown.lines)  # the line that moves
    assert "`pprgnn train tuning-80/best.toml` trains with it." in shown.lines
    assert (folder / "tuning-80" / "best.toml").is_file()
    assert shown.raw.rindex("\x1b[?25h") > shown.raw.rindex("\x1b[?25l")


def test_doctor_and_data(session):
    assert any(line.startswith("check    ok") for line in session[0]["doctor"].lines)
    assert any(line.startswith("chains") and line.endswith("generated") for line in session[0]["list 80"].lines)
    assert "chains" in session[0]["info 80"].text
    assert any(line.startswith("nodes        12") for line in session[0]["import 80"].lines)


def test_several_runs(session):
    shown = session[0]["several"]
    assert re.search(r"test accuracy: [\d.]+% ± [\d.]+% over 2 runs", shown.text)
    assert shown.widest <= 80, max(shown.lines, key=len)


def test_errors_are_one_sentence_in_red(session):
    for name in ("unknown", "finished"):
        assert session[0][name].raw.startswith("\x1b[31m\x1b[1mError:\x1b[0m "), session[0][name].raw
        assert session[0][name].raw.count("\r\n") == 1


# ------------------------------------------------------------------------------------------------------- Ctrl-C
def test_ctrl_c_saves_and_the_command_it_prints_goes_on(tmp_path):
    long = [*CHAINS, "-sepochs=60", "-scheckpoint_seconds=0", "-o", "run"]
    shown = on_terminal(*long, folder=tmp_path, keys=[("epoch 1/60", CTRL_C)])
    assert shown.code == 130
    assert STOPPING in shown.text
    assert "Traceback" not in shown.text
    last = shown.lines[-2] if not shown.lines[-1] else shown.lines[-1]
    found = re.fullmatch(r"Stopped after epoch (\d+); go on with `(pprgnn train --resume run)`\.", last)
    assert found, shown.text
    stopped = int(found[1])
    assert 1 <= stopped < 60
    assert len(Run.open(tmp_path / "run").records()) == stopped

    again = on_terminal(*shlex.split(found[2])[1:], folder=tmp_path)
    assert again.code == 0
    assert f"resumed  after epoch {stopped}" in again.lines
    epochs = [record["epoch"] for record in Run.open(tmp_path / "run").records()]
    assert epochs == list(range(1, 61))
    assert Run.open(tmp_path / "run").finished


def test_a_dropped_connection_saves(tmp_path):
    terminal, inside = pty.openpty()
    command = [*CHAINS, "-sepochs=5000", "-spatience=0", "-scheckpoint_seconds=1000", "-o", "run"]
    process = warm.start(HANGS_UP, *command, files=(inside,) * 3, folder=tmp_path, terminal=True)
    os.close(inside)
    shown = b""
    while b"epoch 1/5000" not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    process.join(60)
    assert process.exitcode is not None
    assert process.exitcode >= 0  # it was not killed
    run = Run.open(tmp_path / "run")
    found = run.load_checkpoint()
    assert found is not None
    assert 1 <= found[1]["progress"]["epoch"] < 5000
    assert run.summary["finished"] is False


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    """Epochs of many long chains: nobody wants to wait for one."""
    slow = ["-soptions.length=400", "-soptions.train=100", "-sdepth=400", "-sepochs=60"]
    keys = [("epoch 1/60", CTRL_C), (STOPPING, CTRL_C)]
    shown = on_terminal("train", "chains", *TINY, *slow, "-o", "run", folder=tmp_path, keys=keys)
    assert shown.code == 130
    assert "Traceback" not in shown.text
    assert "Stopped: go on with `pprgnn train --resume run`." in shown.lines
    assert "kept in" not in shown.text  # it did not even look at the scores
    assert shown.raw.rindex("\x1b[?25h") > shown.raw.rindex("\x1b[?25l")


# --------------------------------------------------------------------------------------------------------- a pipe
def test_into_a_pipe(tmp_path):
    commands = [
        [*CHAINS, "-o", "run"],
        ["evaluate", "run"],
        ["predict", "run"],
        ["tune", "chains", *TINY, "-sepochs=3", "--trials=2", "-o", "tuning"],
        ["train", "absent"],
    ]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "40"}
    done = warm.run(IN_A_ROW, json.dumps(commands), folder=tmp_path, environment=environment)
    assert not ESCAPE.search(done.stdout + done.stderr)
    assert "\r" not in done.stdout
    train, evaluate, predict, tune, absent, rest = re.split(r"<<< \d\n", done.stdout)
    assert re.findall(r"<<< (\d)", done.stdout) == ["0", "0", "0", "0", "1"]
    assert rest == absent == ""
    first = r"^epoch 1/30  loss .*  val accuracy .*  best .*  depth \d+  .* s/epoch  .* left$"
    assert re.search(first, train, re.M)
    assert re.search(r"^epoch 30/30  .*  done$", train, re.M)
    assert re.search(r"^val +\d", evaluate, re.M)
    assert len(predict.splitlines()) == 61
    assert predict.startswith("graph\tid\tlabel\tprediction\tprobability\t")
    assert len(re.findall(r"^trial \d  val accuracy", tune, re.M)) == 2
    said, error = done.stderr.splitlines()
    assert re.fullmatch(r"60 nodes of chains: \d+ as \d, \d+ as \d", said)
    assert error.startswith("Error: 'absent' is neither a recipe")


def test_a_note_that_interrupts_a_line_comes_after_it(monkeypatch):
    """As Ctrl-C does, at the moment when Python writes: it then refuses to write anything else."""
    lines, told, in_a_line = Lines(), [], threading.Lock()

    def say(text):
        if threading.current_thread() is threading.main_thread():
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")
        with in_a_line:
            told.append(text)

    monkeypatch.setattr(lines, "say", say)
    before = threading.enumerate()
    with in_a_line:
        lines.note("Stopping")
        assert told == []
    for thread in threading.enumerate():
        if thread not in before:
            thread.join()
    assert told == ["Stopping"]
