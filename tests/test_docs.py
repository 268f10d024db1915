"""The documentation: it builds without a warning, is complete, and points to what exists."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sphinx", reason="the documentation needs the extra 'docs': pip install 'pprgnn[docs]'")
pytest.importorskip("furo", reason="the documentation needs the extra 'docs': pip install 'pprgnn[docs]'")
pytest.importorskip("myst_parser", reason="the documentation needs the extra 'docs': pip install 'pprgnn[docs]'")

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
FULLY_DESCRIBED = (
    "pprgnn",
    "pprgnn.nn",
    "pprgnn.testing",
    "pprgnn.data",
    "pprgnn.training",
    "pprgnn.baselines",
    "pprgnn.distributed",
    "pprgnn.report",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(out)]
    # A proxy that does not exist: whatever tries to download something fails.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    one_thread = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        command, env=os.environ | nowhere | one_thread, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_can_be_reached_from_the_first(site):
    seen, waiting = set(), [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        links = re.findall(r'href="([^"#:]+\.html)', page.read_text(encoding="utf-8"))
        waiting += [(page.parent / link).resolve() for link in links]
    for page in PAGES:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").resolve() in seen


@pytest.mark.parametrize("module", FULLY_DESCRIBED)
def test_every_public_name_is_described(site, module):
    described = set()
    for page in (site / "api").glob("*.html"):
        described |= set(re.findall(r'<dt class="[^"]*" id="([\w.]+)"', page.read_text(encoding="utf-8")))
    home = {"pprgnn.training": ("pprgnn", "pprgnn.training")}.get(module, (module,))  # the classifiers are in both
    for name in importlib.import_module(module).__all__:
        assert any(f"{place}.{name}" in described for place in home), f"{module}.{name} is in no page of docs/api"


def test_equations_and_figures_are_there(site):
    text = (site / "paper-to-code.html").read_text(encoding="utf-8")
    assert text.count('class="math notranslate nohighlight"') > 30
    assert "$" not in re.sub(r"<(pre|script|style).*?</\1>", "", text, flags=re.DOTALL)  # no formula left as text
    assert (site / "_images" / "depth.png").exists()


@EVERY_PAGE
def test_relative_links_point_to_something(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(page)):
        if not re.match(r"[a-z]+:", link):
            target = page.parent / link.split("#")[0]
            assert target.exists(), f"{page.name} links to {link}"
            assert DOCS in target.resolve().parents, f"{page.name} links to {link}, which the site does not have"


@EVERY_PAGE
def test_code_that_is_named_exists(page):
    """`src/pprgnn/core/decay.py:decay` and the like: the file, and in it the function, class or method."""
    place = r"`((?:src|tests|docs|examples|benchmarks)/[\w/.-]+)(?::([\w.]+))?`"
    for path, name in re.findall(place, page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), f"{page.name} names {path}"
        if name:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            assert _defines(tree, name), f"{page.name} names {path}:{name}"


def test_every_deviation_is_described():
    text = (DOCS / "deviations.md").read_text(encoding="utf-8")
    marked = [path for path in (ROOT / "src").rglob("*.py") if "PAPER:" in path.read_text(encoding="utf-8")]
    assert sum(path.read_text(encoding="utf-8").count("PAPER:") for path in marked) >= 15
    for path in marked:
        assert str(path.relative_to(ROOT)) in text, f"deviations.md does not name {path.relative_to(ROOT)}"


def test_every_status_and_rule_is_explained():
    from pprgnn import Certificate, Fixed, Influence, Measured, Status

    text = (DOCS / "depth.md").read_text(encoding="utf-8")
    for status in Status:
        assert f"| `{status.name}` |" in text
    for rule in (Certificate, Fixed, Influence, Measured):
        assert f"{rule.__name__}(" in text


def test_every_system_and_experiment_is_listed():
    from pprgnn.experiments import EXPERIMENTS
    from pprgnn.training.systems import SYSTEMS

    systems = [system.name for system in SYSTEMS]
    for page, names in (("models.md", systems), ("reproduce.md", EXPERIMENTS)):
        text = (DOCS / page).read_text(encoding="utf-8")
        assert [name for name in names if f"`{name}`" not in text] == []


def test_the_table_of_reach_is_what_its_code_computes():
    text = (DOCS / "depth.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], names)
    asked = [(0.5, 1.0), (0.1, 1.0), (1e-3, 1.0), (1e-5, 1.0), (1e-3, 2.0)]  # share and norm of W, by column
    rows = re.findall(r"^\| ([\d.]+) \|((?: \d+ \|){5})", text, re.MULTILINE)
    assert len(rows) == 8
    for eps, hops in rows:
        computed = [names["reach"](float(eps), share, norm) for share, norm in asked]
        assert [int(hop) for hop in re.findall(r"\d+", hops)] == computed


def test_every_argument_of_the_layer_is_in_the_table_for_gcn_users():
    from torch_geometric.nn import GCNConv

    from pprgnn.nn import PPRConv

    text = (DOCS / "migrate.md").read_text(encoding="utf-8")
    table = text[text.index("| `GCNConv` | `PPRConv` |") :]
    for kind in (GCNConv, PPRConv):
        for name in inspect.signature(kind.__init__).parameters:
            assert name in ("self", "kwargs") or re.search(rf"`{name}\b", table), f"{kind.__name__}: {name}"


def _without_code(page: Path) -> str:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "``", text)


def _defines(tree: ast.AST, dotted: str) -> bool:
    first, _, rest = dotted.partition(".")
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == first:
            return _defines(node, rest) if rest else True
    return False
