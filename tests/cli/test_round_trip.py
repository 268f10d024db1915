"""From a user's tables to predictions and back, and what bad input leads to."""

import csv
import json

import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from pprgnn.cli.main import app

QUICK = ["-s", "epochs=15", "-s", "hidden=8", "-s", "lr=0.05", "-s", "dropout=0.0"]
TABLES = ["--edges", "edges.csv", "--nodes", "nodes.csv", "--target", "team"]


def write(folder, suffix, first, count, *, label=True):
    """A ring of nodes whose size tells their team."""
    teams = ["red team", "blue, dark", "green"]
    names = [f"n{first + i}" for i in range(count)]
    edges = "from,to\n" + "".join(f"{names[i]},{names[(i + 1) % count]}\n" for i in range(count))
    head = "id,size,colour,team\n" if label else "id,size,colour\n"
    rows = []
    for i, name in enumerate(names):
        values = [name, str(i % 3), "xyz"[i % 3], *([f'"{teams[i % 3]}"'] if label else [])]
        rows.append(",".join(values) + "\n")
    (folder / f"edges{suffix}.csv").write_text(edges)
    (folder / f"nodes{suffix}.csv").write_text(head + "".join(rows))
    return names, [teams[i % 3] for i in range(count)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A trained model in `run`, and the tables it is from; `edges2.csv` and `nodes2.csv` are another graph."""
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PPRGNN_CACHE", str(folder / "cache"))
        patch.setenv("PPRGNN_DATA", str(folder / "data"))
        patch.delenv("PPRGNN_DEBUG", raising=False)
        write(folder, "", 0, 30)
        write(folder, "2", 100, 9, label=False)
        done = call("train", *TABLES, *QUICK, "-o", "run", "--json")
        assert done.exit_code == 0, done.output
        yield folder


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def read(path):
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def check(rows, names, teams, exact=True):
    """Every node once, in its order, with a class and probabilities that belong together."""
    assert [row["id"] for row in rows] == names
    classes = {"red team", "blue, dark", "green"}
    for row in rows:
        shares = {key: float(value) for key, value in row.items() if key.startswith("p(") or key in classes}
        assert len(shares) == 3, row
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5 if exact else 2e-4)  # four digits in text
        likely = max(shares, key=shares.get)
        assert row["prediction"] in likely
    right = sum(row["prediction"] == team for row, team in zip(rows, teams, strict=True))
    assert right == len(rows)  # the size tells the team


# ------------------------------------------------------------------------------------------------ there and back
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_predictions_of_the_own_graph(suffix, home):
    path = home / f"out{suffix}"
    done = call("predict", "run", "-o", path)
    assert done.exit_code == 0, done.output
    names, teams = write(home, "", 0, 30)
    check(read(path), names, teams, exact=suffix == ".parquet")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_predictions_of_a_new_graph(kind, home):
    names, teams = write(home, "2", 100, 9, label=False)
    for name in ("edges2", "nodes2") if kind == "parquet" else ():
        table = pyarrow.csv.read_csv(home / f"{name}.csv")
        pyarrow.parquet.write_table(table, home / f"{name}.parquet")
    new = ["--edges", f"edges2.{kind}", "--nodes", f"nodes2.{kind}"]
    done = call("predict", "run", *new, "-o", "new.csv")
    assert done.exit_code == 0, done.output
    check(read(home / "new.csv"), names, teams, exact=False)
    rows = json.loads(call("predict", "run", *new, "--json").output)
    check(rows, names, teams)


def test_a_finished_run_goes_on(home):
    assert call("train", *TABLES, *QUICK, "-o", "more", "--json").exit_code == 0
    done = call("train", "--resume", "more", "-s", "epochs=19")
    assert done.exit_code == 0, done.output
    assert "resumed  after epoch 15" in done.stdout
    assert "epoch 19/19" in done.stdout
    assert json.loads((home / "more" / "summary.json").read_text())["epochs"] == 19


def test_a_model_that_learned_nothing_is_warned_about(home):
    done = call("train", *TABLES, *QUICK, "-s", "epochs=1", "-s", "lr=1e-9", "-o", "nothing")
    assert done.exit_code == 0, done.output
    assert "model    PPRGNN, " in done.stdout
    shown = " ".join(done.stdout.split())
    summary = json.loads((home / "nothing" / "summary.json").read_text())
    one = len([name for name, count in summary["predicted"].items() if count]) == 1
    score, level = summary["scores"]["test"]["accuracy"], summary["trivial"]["majority"]["accuracy"]
    worse = score < level or (score == level and not one)
    assert ("warning Everything in the test part is predicted to be" in shown) == one
    assert ("of looking at nothing (majority)" in shown) == worse
    assert one or worse
    assert shown.index("warning") < shown.index("convs.0")  # the mathematics come last


def test_training_from_parquet(home):
    for name in ("edges", "nodes"):
        table = pyarrow.csv.read_csv(home / f"{name}.csv")
        pyarrow.parquet.write_table(table, home / f"{name}.parquet")
    tables = ["--edges", "edges.parquet", "--nodes", "nodes.parquet", "--target", "team"]
    done = call("train", *tables, *QUICK, "-o", "run-parquet", "--json")
    assert done.exit_code == 0, done.output
    one, other = (json.loads((home / run / "summary.json").read_text()) for run in ("run", "run-parquet"))
    assert one["scores"] == other["scores"]


def test_json(home):
    outputs = {
        "evaluate": call("evaluate", "run", "--json"),
        "predict": call("predict", "run", "--json"),
        "written": call("predict", "run", "-o", "out.csv", "--json"),
        "import": call("data", "import", *TABLES, "--json"),
        "list": call("data", "list", "--json"),
        "info": call("data", "info", "chains", "--json"),
        "explain": call("explain", "run", "--node", "n3", "--json"),
    }
    for name, done in outputs.items():
        assert done.exit_code == 0, f"{name}: {done.output}"
    found = {name: json.loads(done.output) for name, done in outputs.items()}
    kept = json.loads((home / "run" / "summary.json").read_text())
    assert found["evaluate"]["scores"] == kept["scores"]
    assert len(found["predict"]) == 30
    assert found["written"] == {"file": "out.csv", "rows": 30}
    assert found["import"]["nodes"] == 30


def test_labelled_new_data_is_scored(home):
    write(home, "3", 200, 12)
    done = call("evaluate", "run", "--edges", "edges3.csv", "--nodes", "nodes3.csv", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["scores"]["labelled"]["accuracy"] == 1


# ----------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "--edges", "absent.csv", "--target", "team"], "absent.csv"),
        (["train", "--edges", "edges.csv", "--nodes", "absent.csv", "--target", "team"], "absent.csv"),
        (["train", "--edges", "edges.csv", "--nodes", "nodes.csv"], "--target"),
        (["train", *TABLES[:-1], "colur"], "colur"),
        (["train", *TABLES, "--features", "size,sise"], "sise"),
        (["train", *TABLES, "-s", "lrr=1"], "did you mean 'lr'?"),
        (["train", *TABLES, "-s", "lr"], "key=value"),
        (["train", *TABLES, "-s", "lr=-1"], "training.lr must be a number above 0"),
        (["train", *TABLES, "-o", "run"], "already holds a run"),
        (["train", *TABLES, "--seeds", "2", "-o", "run"], "already holds runs"),
        (["train", *TABLES, "-s", "device=nonsense", "-o", "no"], "training.device"),
        (["train", *TABLES, *QUICK, "-o", "nodes.csv/x"], "nodes.csv"),
        (["train", "absent"], "is neither a recipe (`pprgnn train --settings` lists them) nor known data"),
        (["train", "chans"], "is neither a recipe (did you mean 'chains'?)"),
        (["train", "absent.toml"], "absent.toml cannot be read"),
        (["train", "nodes.csv"], "is neither a recipe"),
        (["train", "absent.safetensors"], "absent.safetensors"),
        (["train"], "Expected a recipe or data set"),
        (["train", "chains", *TABLES], "Expected a data set or --edges, but chains and --edges"),
        (["train", "--resume", "absent"], "must be the folder of a run"),
        (["train", "--resume", "run"], "is finished"),
        (["train", "chains", "--resume", "run"], "--resume takes all settings"),
        (["train", "--resume", "run", "-s", "lr=1"], "Only training.epochs and training.patience may change"),
        (["train", "--resume", "run", "-s", "epochs=1"], "training.epochs must be above that"),
        (["train", *TABLES, "--folds", "none", "-o", "no"], "--folds must be"),
        (["evaluate", "absent"], "There is no run and no model at absent; check the path."),
        (["evaluate", "data"], "data"),
        (["evaluate", "nodes.csv"], "nodes.csv"),
        (["evaluate", "run", "--edges", "edges2.csv", "--nodes", "nodes2.csv"], "is labelled"),
        (["predict", "absent"], "There is no run and no model at absent; check the path."),
        (["predict", "run", "-o", "out.ods"], "must end in .csv, .tsv, .parquet or .xlsx"),
        (["predict", "run", "-o", "absent/out.csv/x.csv"], "cannot be written"),
        (["predict", "run", "--nodes", "nodes.csv"], "--nodes goes with --edges"),
        (["predict", "run", "--edges", "edges2.csv", "--nodes", "edges2.csv"], "edges2.csv has no column 'id'"),
        (["predict", "run/model.safetensors"], "is a model without its data"),
        (["explain", "run", "--node", "nobody"], "nobody"),
        (["explain", "absent", "--node", "n1"], "There is no run and no model at absent"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_bad_input_is_one_sentence(arguments, said, home):
    (home / "data").mkdir(exist_ok=True)
    if arguments[-1].endswith("x.csv"):
        (home / "absent").mkdir(exist_ok=True)
        (home / "absent" / "out.csv").write_text("")
    done = call(*arguments)
    if (home / "absent").is_dir():
        (home / "absent" / "out.csv").unlink()
        (home / "absent").rmdir()
    assert done.exit_code == 1, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.stderr.startswith("Error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (home / "no" / "config.toml").exists()
