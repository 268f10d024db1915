"""`pprgnn models`: the list, one system, and sizes on data."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from pprgnn.cli.main import app
from pprgnn.data.own.objects import from_pyg
from pprgnn.data.store import save
from pprgnn.training import system
from pprgnn.training.config import Config
from pprgnn.training.recipes import find_recipe
from pprgnn.training.systems import SYSTEMS, System, find_system
from pprgnn.training.train import train
from tests.cli.terminal import on_terminal

NAMES = [each.name for each in SYSTEMS]


def shown(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["models", *arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def graph(tmp_path):
    """A file with a small graph; weighted if asked for."""

    def written(weighted: bool = False) -> str:
        ring = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
        data = Data(x=torch.randn(12, 3), edge_index=torch.cat([ring, ring.flip(0)], 1), y=torch.arange(12) % 2)
        if weighted:
            data.edge_weight = torch.rand(24) + 0.5
        path = tmp_path / f"graph-{weighted}.safetensors"
        save(from_pyg(data), path)
        return str(path)

    return written


# ------------------------------------------------------------------------------------------------------- the list
def test_every_system_has_its_line_and_below_it_sentence_paper_and_parameters():
    lines = shown().splitlines()
    for each in SYSTEMS:
        (number,) = [i for i, line in enumerate(lines) if line.split()[:1] == [each.name]]
        assert each.title in lines[number]
        assert str(each.year) in lines[number]
        assert lines[number + 1].strip() == each.summary
        assert lines[number + 2].strip() == f"paper: {each.paper}"
        read = [name for name in each.reads if name != "architecture"]
        if read or each.own_names:
            assert lines[number + 3].strip() == f"parameters: {', '.join((*read, *each.own_names))}"
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in NAMES] == NAMES


def test_the_list_as_json():
    found = json.loads(shown("--json"))
    assert [each["name"] for each in found] == NAMES
    for each, entry in zip(found, SYSTEMS, strict=True):
        assert (each["year"], each["link"], each["tasks"]) == (entry.year, entry.link, list(entry.tasks))
        assert (each["edge_weights"], each["new_graphs"], each["kind"]) == (
            entry.edge_weights,
            entry.new_graphs,
            entry.kind,
        )


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_list_fits_the_window(columns):
    found = on_terminal("models", columns=columns)
    assert found.code == 0
    assert found.widest <= columns
    text = re.sub(r"\s+", " ", found.text)
    for each in SYSTEMS:
        assert f"{each.name} " in text
        assert each.summary in text
        assert f"paper: {each.paper}" in text
    assert "pprgnn models NAME" in text
    header = next(line for line in found.lines if line.startswith("name"))
    rows = [line for line in found.lines if line.split()[:1] and line.split()[0] in NAMES]
    years = {line.index(str(find_system(line.split()[0]).year)) for line in rows}
    assert years == {header.index("year")}  # aligned, across all kinds


def test_what_is_missing_can_be_seen(monkeypatch):
    monkeypatch.setattr(system.importlib.util, "find_spec", lambda name: None)
    kernels = [each for each in SYSTEMS if each.requires]
    assert kernels
    lines = shown().splitlines()
    for each in kernels:
        assert f"    {each.summary} Needs pip install 'pprgnn[kernels]'." in lines
    assert "pip install 'pprgnn[kernels]', which is missing" in shown(kernels[0].name)
    assert json.loads(shown(kernels[0].name, "--json"))["missing"] == "pip install 'pprgnn[kernels]'"


# ---------------------------------------------------------------------------------------------------- one of them
@pytest.mark.parametrize("each", SYSTEMS, ids=NAMES)
def test_everything_about_one(each: System):
    text = shown(each.name.upper())
    for word in (each.title, each.paper, str(each.year), each.link, each.summary, f"--model {each.name}"):
        assert word in text
    config = Config.for_system(each.name)
    for name in each.reads:
        assert re.search(rf"^  {name} = ", text, re.MULTILINE)
    for name, default, _, sentence in each.describe_own():
        shown_default = default if isinstance(default, str) else json.dumps(default)
        assert f"  {name} = {shown_default}" in text
        assert sentence in text
    for key in each.settings:
        value = config.value(key)
        assert f"  {key.partition('.')[2]} = {value if isinstance(value, str) else json.dumps(value)}" in text
    assert ("[model.own]" in text) == bool(each.own_names)
    found = json.loads(shown(each.name, "--json"))
    assert {entry["key"]: entry["value"] for entry in found["settings"]} == json.loads(
        json.dumps({entry["key"]: config.value(entry["key"]) for entry in found["settings"]})
    )
    for recipe in found["recipes"]:
        assert Config.from_toml(find_recipe(recipe)).model.system == each.name


def test_one_fits_the_window():
    for columns in (70, 120):
        found = on_terminal("models", "gat", "pprgnn", columns=columns)
        assert found.code == 0
        assert found.widest <= columns
        assert "cora-gat" in found.text


def test_several_at_once():
    assert [each["name"] for each in json.loads(shown("gcn", "gat", "--json"))] == ["gcn", "gat"]
    assert "Graph Attention Networks" in shown("gcn", "gat")


def test_an_unknown_name():
    done = CliRunner().invoke(app, ["models", "gaat"])
    assert (done.exit_code, done.stderr) == (1, "Error: There is no model 'gaat'; did you mean 'gat'?\n")
    assert "`pprgnn models` lists them" in CliRunner().invoke(app, ["models", "zzzzzz"]).stderr


# ----------------------------------------------------------------------------------------------------- parameters
def test_sizes_are_those_that_training_reports(graph):
    path = graph()
    found = {each["name"]: each for each in json.loads(shown("--data", path, "--json"))}
    assert list(found) == NAMES
    for name in ("pprgnn", "gcn", "gat", "appnp", "eignn"):
        config = Config.for_system(name).with_values({"data.name": path, "epochs": 1, "device": "cpu"})
        assert train(config).summary["parameters"] == found[name]["parameters"]
    assert found["dgcnn"]["parameters"] is None
    assert "labels graphs, but here labels are per node" in found["dgcnn"]["why"]
    text = shown("--data", path, "gcn", "dgcnn")
    assert re.search(rf"^gcn +{found['gcn']['parameters']:,}$", text, re.MULTILINE)
    assert re.search(r"^dgcnn +–  DGCNN labels graphs", text, re.MULTILINE)
    assert "gat" not in text


def test_who_cannot_use_weights_says_so(graph):
    found = {each["name"]: each for each in json.loads(shown("--data", graph(weighted=True), "--json"))}
    assert found["gcn"]["parameters"]
    assert found["gat"]["parameters"] is None
    assert "GAT cannot use edge weights" in found["gat"]["why"]


def test_sizes_fit_the_window(graph):
    found = on_terminal("models", "--data", graph(), columns=80)
    assert found.code == 0
    assert found.widest <= 80


def test_unknown_data():
    done = CliRunner().invoke(app, ["models", "--data", "nothing-of-this-name"])
    assert done.exit_code == 1
    assert "nothing-of-this-name" in done.stderr
    assert "Traceback" not in done.output


# ------------------------------------------------------------------------------------------ settings of training
def test_settings_are_those_of_the_system():
    done = CliRunner().invoke(app, ["train", "--model", "gat", "--settings"])
    assert done.exit_code == 0
    assert "  heads = 8" in done.output
    assert "  lr = 0.005" in done.output
    assert "  eps = " not in done.output
    done = CliRunner().invoke(app, ["train", "cora", "--model", "gat", "--set", "heads=3", "--settings"])
    assert "  heads = 3" in done.output
    assert "  name = Cora" in done.output
    done = CliRunner().invoke(app, ["train", "--settings"])
    assert "  eps = 1.0" in done.output
    assert "[model.own]" not in done.output


def test_no_torch_without_data(tmp_path):
    code = "import sys; from pprgnn.cli.main import run\ntry: run()\nfinally: print('torch' in sys.modules)"
    for arguments in ([], ["gat"], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "models", *arguments], capture_output=True, text=True, env=os.environ
        )
        assert done.stdout.endswith("False\n")
