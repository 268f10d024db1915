"""Processes with other code, settings or data refuse to start, all of them, and say which one differs."""

import pytest

from pprgnn.distributed import alike
from pprgnn.distributed.team import Team
from pprgnn.errors import DataError
from tests.distributed.processes import run_team


def said(kind: str) -> str:
    team = Team()
    code, alike.code_digest = alike.code_digest, lambda: f"code {team.rank if kind == 'code' else 0}"
    try:
        alike.check_alike(team, {"data": f"edges {team.rank // 2 if kind == 'data' else 0}"})
    except DataError as error:
        return str(error)
    finally:
        alike.code_digest = code
    return "all are alike"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("nothing", "all are alike"),
        ("code", "All processes must have the same code, but that of process 1 (on "),
        ("data", "All processes must have the same data, but that of process 2 (on "),
    ],
)
def test_who_differs_is_named_by_all(kind, sentence):
    answers = run_team(said, 3, kind)
    assert len(set(answers)) == 1
    assert answers[0].startswith(sentence)


def test_the_digest_is_that_of_the_code(tmp_path, monkeypatch):
    (tmp_path / "nn").mkdir()
    (tmp_path / "__init__.py").write_text("a = 1\n")
    (tmp_path / "nn" / "layer.py").write_text("b = 1\n")
    monkeypatch.setattr(alike.pprgnn, "__file__", str(tmp_path / "__init__.py"))
    first = alike.code_digest.__wrapped__()
    assert alike.code_digest.__wrapped__() == first
    (tmp_path / "nn" / "layer.py").write_text("b = 2\n")
    changed = alike.code_digest.__wrapped__()
    (tmp_path / "nn" / "layer.py").write_text("b = 1\n")
    (tmp_path / "nn" / "layer.py").rename(tmp_path / "nn" / "other.py")
    assert len({first, changed, alike.code_digest.__wrapped__()}) == 3


def test_alone_there_is_nothing_to_compare():
    alike.check_alike(Team.alone(), {"data": "any"})
