"""The front door: lazy imports, and every Python block of the README."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pprgnn

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [README, *(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("name", pprgnn.__all__)
def test_every_public_name_is_there(name):
    assert getattr(pprgnn, name).__module__.startswith("pprgnn.")
    assert name in dir(pprgnn)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'Solve'"):
        pprgnn.Solve  # noqa: B018


def test_importing_the_package_does_not_import_torch():
    code = "import pprgnn, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_core_imports_no_pyg():
    code = "import pprgnn, sys; pprgnn.solve; print([m for m in ('torch_geometric', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", "\n".join(PAGES), re.DOTALL))
def test_python_blocks_of_the_pages_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of them write files
    names: dict[str, object] = {}
    exec(compile(block, "page.md", "exec"), names)
    assert any(value.__class__.__module__.startswith(("pprgnn", "torch")) for value in names.values())


def test_readme_names_only_make_targets_that_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)", README)) <= targets
