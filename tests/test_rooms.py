"""Who may import whom: the rooms of the package stand in an order, and nobody imports upwards, not even late."""

import ast
from pathlib import Path

import pytest

import pprgnn

ROOT = Path(pprgnn.__file__).parent
# From the ground up. Rooms of one floor do not know each other.
FLOORS = (
    ("core",),
    ("data",),
    ("drawing",),
    ("nn", "testing"),
    ("baselines", "distributed", "local"),
    ("training",),
    ("experiments",),
    ("report",),
    ("explore",),
    ("cli",),
)
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def imported(file: Path) -> set[str]:
    """Modules of the package that a file imports, in functions, too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            found |= {node.module or ""} | {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return {name for name in found if name.split(".")[0] == "pprgnn"}


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def test_every_file_is_in_a_room():
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert rooms == set(FLOOR)


@pytest.mark.parametrize("room", FLOOR)
def test_nobody_imports_upwards(room):
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files(room)
        for name in sorted(imported(file))
        for target in [name.split(".")[1] if "." in name else ""]
        if target in FLOOR and target != room and FLOOR[target] >= FLOOR[room]
    ]
    assert not wrong


PATH = (
    *(f"core/{name}.py" for name in ("decay", "activation", "bounds", "depth", "recursion", "solve")),
    "nn/ppr_conv.py",
)


def test_a_newcomer_reads_800_lines_and_meets_no_buffers():
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in PATH}
    assert sum(text.count("\n") for text in texts.values()) <= 800
    for name, text in texts.items():
        met = [word for word in ("acquire", "kernel", "handle", "permute", "dist.") if word in text]
        assert not met, f"{name} speaks of {met}"
