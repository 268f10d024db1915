"""Pictures: the same values give the same bytes, and every line can be told apart."""

import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("matplotlib.figure")

from pprgnn.drawing import plot as drawing  # noqa: E402
from pprgnn.drawing.plot import Line, Place, Plot  # noqa: E402
from pprgnn.experiments.figures import Pictures  # noqa: E402
from pprgnn.experiments.page_curves import lines  # noqa: E402
from pprgnn.experiments.summary import Entry  # noqa: E402

TICKS = {0.0: "2", 1.0: "4", 2.0: "∞"}


def plot(*names: str, shift: float = 0.0) -> Plot:
    y, bars = [80.0 + shift, 81.0, 82.0], [1.0, 0.0, 0.5]
    found = [Line(name, list(TICKS), y, look, bars=bars) for look, name in enumerate(names)]
    return Plot(found, "depth", "accuracy", [Place("chance", y=50)], ticks=TICKS)


def draw(plots: list[Plot], path: Path) -> None:
    Pictures(path.parent / "PAGE.md", path.parent).add(path.stem, plots, "")


def chunks(png: bytes) -> list[bytes]:
    kinds, at = [], 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kinds.append(png[at + 4 : at + 8])
        at += 12 + size
    return kinds


def test_the_same_values_give_the_same_bytes_whatever_the_users_style(tmp_path: Path) -> None:
    draw([plot("ours", "GCN")], tmp_path / "one.png")
    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 30.0, "axes.facecolor": "red"}):
        draw([plot("ours", "GCN")], tmp_path / "again.png")
    draw([plot("ours", "GCN", shift=1.0)], tmp_path / "other.png")
    one, again, other = ((tmp_path / f"{name}.png").read_bytes() for name in ("one", "again", "other"))
    assert one == again != other
    assert {b"tEXt", b"tIME", b"iTXt"}.isdisjoint(chunks(one))  # neither date nor version
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.png", "one.png", "other.png"]


def test_each_rival_has_a_look_of_its_own_and_ours_are_thicker_but_below() -> None:
    names = ["A (ours)", "B (ours)", *(f"rival {number}" for number in range(18))]
    found = {line.name: line for line in lines({name: {0.0: entry(80.0)} for name in names})}
    axes = matplotlib.figure.Figure().subplots()
    for line in found.values():
        drawing._draw_line(axes, line, Plot([line], "depth", "accuracy"))
    drawn = {each.get_label(): each[0] for each in axes.containers}
    looks = {(line.get_color(), *map(str, line._unscaled_dash_pattern)) for line in drawn.values()}
    assert len(looks) == 20
    rivals = [line for name, line in drawn.items() if name.startswith("rival")]
    for name in names[:2]:
        assert all(drawn[name].get_linewidth() > 3 * line.get_linewidth() for line in rivals)
        assert all(drawn[name].get_zorder() < line.get_zorder() for line in rivals)
        assert drawn[name].get_color() not in {line.get_color() for line in rivals}


def entry(mean: float) -> Entry:
    return SimpleNamespace(mean=mean, std=1.0)  # type: ignore[return-value]


def test_a_line_looks_the_same_in_both_panels_also_when_another_is_missing_in_one() -> None:
    whole = plot("ours", "GCN", "GAT")
    partly = Plot([whole.lines[0], Line("GCN", [], [], 1), replace(whole.lines[2], look=1)], "depth", "other")
    figure = matplotlib.figure.Figure()
    drawing.side_by_side(figure, [whole, partly])
    drawn = [{each.get_label(): each[0].get_color() for each in axes.containers} for axes in figure.axes]
    assert set(drawn[0]) == {"ours", "GCN", "GAT"}
    assert set(drawn[1]) == {"ours", "GAT"}
    assert drawn[1]["GAT"] == drawn[0]["GAT"] != drawn[0]["GCN"]


def test_a_picture_is_named_relative_to_its_page(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path / "docs" / "PAGE.md", tmp_path / "results" / "figures")
    assert pictures.add("a", [plot("GCN")], "A says") == ["![A says](../results/figures/a.png)"]
    assert (tmp_path / "results" / "figures" / "a.png").is_file()


def test_nothing_is_drawn_without_values(tmp_path: Path) -> None:
    empty = Plot([Line("GCN", [], [])], "depth", "accuracy", ticks=TICKS)
    assert Pictures(tmp_path / "PAGE.md", tmp_path).add("a", [empty], "A") == []
    assert list(tmp_path.iterdir()) == []
