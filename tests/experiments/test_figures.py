"""Pictures: the same values give the same bytes, and every line can be told apart."""

import struct
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")

from pprgnn.experiments import figures  # noqa: E402
from pprgnn.experiments.figures import Panel, Pictures, Series, draw  # noqa: E402

TICKS = {0.0: "2", 1.0: "4", 2.0: "∞"}


def panel(*names: str, shift: float = 0.0) -> Panel:
    points = [(0.0, 80.0 + shift, 1.0), (1.0, 81.0, 0.0), (2.0, 82.0, 0.5)]
    return Panel("accuracy", "depth", TICKS, [Series(name, points, "ours" in name) for name in names], chance=50)


def chunks(png: bytes) -> list[bytes]:
    kinds, at = [], 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kinds.append(png[at + 4 : at + 8])
        at += 12 + size
    return kinds


def test_the_same_values_give_the_same_bytes_whatever_the_users_style(tmp_path: Path) -> None:
    draw([panel("ours", "GCN")], tmp_path / "one.png")
    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 30.0, "axes.facecolor": "red"}):
        draw([panel("ours", "GCN")], tmp_path / "again.png")
    draw([panel("ours", "GCN", shift=1.0)], tmp_path / "other.png")
    one, again, other = ((tmp_path / f"{name}.png").read_bytes() for name in ("one", "again", "other"))
    assert one == again != other
    assert {b"tEXt", b"tIME", b"iTXt"}.isdisjoint(chunks(one))  # neither date nor version
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.png", "one.png", "other.png"]


def test_each_rival_has_a_look_of_its_own_and_ours_are_thicker_but_below() -> None:
    looks = figures._looks({"ours A": True, "ours B": True, **{f"rival {number}": False for number in range(18)}})
    assert len({(str(look["color"]), str(look["linestyle"])) for look in looks.values()}) == 20
    rivals = [look for name, look in looks.items() if name.startswith("rival")]
    for name in ("ours A", "ours B"):
        assert all(looks[name]["linewidth"] > 3 * look["linewidth"] for look in rivals)
        assert all(looks[name]["zorder"] < look["zorder"] for look in rivals)
        assert looks[name]["color"] not in {look["color"] for look in rivals}


def test_a_line_looks_the_same_in_both_panels_also_when_another_is_missing_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    fill = figures._fill

    def watched(axes: object, panel: Panel, looks: object) -> None:
        fill(axes, panel, looks)  # type: ignore[arg-type]
        drawn.append({each.get_label(): each[0].get_color() for each in axes.containers})  # type: ignore[attr-defined]

    monkeypatch.setattr(figures, "_fill", watched)
    whole = panel("ours", "GCN", "GAT")
    partly = Panel("other", "depth", TICKS, [whole.series[0], Series("GCN", []), whole.series[2]])
    draw([partly, whole], tmp_path / "two.png")
    assert set(drawn[0]) == {"ours", "GAT"}
    assert set(drawn[1]) == {"ours", "GCN", "GAT"}
    assert drawn[0]["GAT"] == drawn[1]["GAT"] != drawn[1]["GCN"]


def test_a_picture_is_named_relative_to_its_page(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path / "docs" / "PAGE.md", tmp_path / "results" / "figures")
    assert pictures.add("a", [panel("GCN")], "A says") == ["![A says](../results/figures/a.png)"]
    assert (tmp_path / "results" / "figures" / "a.png").is_file()


def test_nothing_is_drawn_without_values(tmp_path: Path) -> None:
    empty = Panel("accuracy", "depth", TICKS, [Series("GCN", [])])
    assert Pictures(tmp_path / "PAGE.md", tmp_path).add("a", [empty], "A") == []
    assert list(tmp_path.iterdir()) == []
