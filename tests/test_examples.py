"""Every example runs as a user runs it, reaches the quality that it promises, and is named in its README."""

import ast
import os
import re
import runpy
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests import warm

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = {path.stem: path for path in FOLDER.glob("*.py")}
HAS_ONNX = all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
NO_NETWORK = "http://127.0.0.1:9"  # nobody listens there

# What each has to print: a pattern, and between which limits every number must be that it finds.
PROMISES = {
    "any_conv": [
        (r"^\w+Conv +[\d.]+% +([\d.]+)%", 3, 95, 100),
        (r"^\w+Conv +([\d.]+)%", 3, 50, 65),
        (r"^\w+Conv .* (\d+)$", 3, 14, 200),  # the opposite corner is 14 hops away
    ],
    "compile_and_export": [
        (r"^torch\.\w+.* differs by (\S+)", 4, 0, 1e-4),
        (r"^freeze_depth .* differs by (\S+)", 1, 0, 1e-4),
        (r"^ONNX Runtime.* differs by (\S+)", 2 if HAS_ONNX else 0, 0, 1e-4),
    ],
    "directed": [
        (r"^in .* danger +([\d.]+)%", 1, 95, 100),
        (r"^out .* origin +([\d.]+)%", 1, 95, 100),
        (r"^both .* danger +([\d.]+)%", 1, 95, 100),
        (r"^both .* origin +([\d.]+)%", 1, 95, 100),
        (r"^in .* origin +([\d.]+)%", 1, 60, 85),
        (r"^(?:out|undirected) .* danger +([\d.]+)%", 2, 60, 85),
    ],
    "edge_features": [
        (r"^RGCNConv, relations .* ([\d.]+)%", 1, 95, 100),
        (r"^GINEConv, edge features .* ([\d.]+)%", 1, 95, 100),
        (r"^RGCNConv, all ties alike .* ([\d.]+)%", 1, 35, 65),
    ],
    "explain": [
        (r"^test accuracy .* (\d+)%", 1, 95, 100),
        (r"^precision .*named: (\d+)%", 1, 90, 100),
        (r"^fidelity\+ .* ([\d.]+)$", 1, 0.3, 0.7),
        (r"^fidelity- .* ([\d.]+)$", 1, 0, 0.1),
    ],
    "graph_classification": [(r"^PPRGNN.* ([\d.]+)%", 1, 95, 100), (r"^GCN.* ([\d.]+)%", 1, 45, 80)],
    "heterogeneous": [(r"^infinite depth .* ([\d.]+)%", 1, 90, 100), (r"^two layers .* ([\d.]+)%", 1, 33, 65)],
    "karate_club": [(r"^PPRGNN .* (\d+)%", 1, 82, 100), (r"^GCN.* (\d+)%", 1, 70, 84)],
    "long_range": [
        (r"^PPRGNN .* ([\d.]+)%$", 1, 95, 100),
        (r"^GCN.* ([\d.]+)%$", 1, 50, 56),
        (r"learned eps ([\d.]+)", 1, 0.01, 0.2),
    ],
    "tables": [
        (r"it has seen: ([\d.]+)%", 1, 85, 100),
        (r"by the model: ([\d.]+)%", 1, 85, 100),
        (r"by age alone: ([\d.]+)%", 1, 60, 75),
    ],
}


def _as_a_script(path: Path, folder: Path, output: Path) -> None:
    """In a process of its own."""
    with open(output, "w", encoding="utf-8") as file:
        sys.stdout = sys.stderr = file
        os.chdir(folder)
        os.environ |= {"http_proxy": NO_NETWORK, "https_proxy": NO_NETWORK}
        os.environ.pop("PPRGNN_DATA", None)
        torch.set_num_threads(1)
        warnings.simplefilter("error")
        # raised by torch's own export to ONNX
        warnings.filterwarnings("ignore", r"`isinstance\(treespec", FutureWarning)
        sys.argv = [str(path)]
        runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_keep_their_promises(name, tmp_path):
    folder, output = tmp_path / "here", tmp_path / "output.txt"
    folder.mkdir()
    process = warm.SERVER.Process(target=_as_a_script, args=(EXAMPLES[name], folder, output))
    process.start()
    process.join(240)
    assert process.exitcode == 0, output.read_text()
    printed = output.read_text(encoding="utf-8")
    assert not list(folder.iterdir()), "an example leaves no files behind"
    for pattern, count, least, most in PROMISES[name]:
        found = [float(number) for number in re.findall(pattern, printed, re.MULTILINE)]
        assert len(found) == count, (pattern, printed)
        assert all(least <= number <= most for number in found), (pattern, found, printed)


@pytest.mark.parametrize("path", EXAMPLES.values(), ids=EXAMPLES)
def test_examples_are_short_and_say_what_they_show(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert "xpect" in (ast.get_docstring(ast.parse(text)) or ""), "the docstring says what to expect"


def test_readme_names_every_example_and_no_other():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \|", readme, re.MULTILINE)) == sorted(EXAMPLES)
    assert sorted(PROMISES) == sorted(EXAMPLES)
