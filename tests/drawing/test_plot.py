"""Drawings: they are SVG in the colours of the page, and the same for the same values."""

import re
from xml.etree import ElementTree

import pytest

matplotlib = pytest.importorskip("matplotlib")

from pprgnn.drawing import canvas  # noqa: E402
from pprgnn.drawing.plot import STRONG, Line, Place, Plot  # noqa: E402

NAMES = re.compile(r'\bid="([^"]+)"')


def line(**changes):
    return Line("a", [1.0, 2.0, 3.0], [1.0, 3.0, 2.0], **changes)


def draw(plot, name="one", says=""):
    return canvas.svg(name, says, (canvas.HALF, 270), plot.fill)


def texts(drawing):
    return "|".join(each.text or "" for each in ElementTree.fromstring(drawing).iter(f"{{{canvas.SVG}}}text"))


def test_colours_are_those_of_the_page_and_text_stays_text():
    plot = Plot([line(), line(look=1)], "epoch", "loss", [Place("here", x=2.0)])
    drawing = draw(plot, says="It says so.")
    root = ElementTree.fromstring(drawing)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == "It says so."
    assert {"epoch", "loss", "here"} <= set(texts(drawing).split("|"))
    for variable in ("blue", "red", "soft", "ink"):
        assert f"var(--{variable}, {getattr(canvas, variable.upper())})" in drawing
    assert not re.search(r"(?<!, )#[0-9a-f]{6}\b", drawing.replace("xmlns", ""))  # no colour of its own
    assert "font-family" not in drawing
    assert "<style" not in drawing


def test_drawings_on_one_page_share_no_id_and_every_reference_is_theirs():
    one, other = (draw(Plot([line(marked=True)], "epoch", "loss"), name) for name in ("one", "other"))
    assert set(NAMES.findall(one)).isdisjoint(NAMES.findall(other))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', one))
    assert used == set(NAMES.findall(one))
    assert used


def test_the_same_values_give_the_same_bytes_whatever_the_users_style():
    plot = Plot([line()], "epoch", "loss")
    one = draw(plot)
    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 30.0, "axes.facecolor": "red"}):
        assert draw(plot) == one
    assert draw(Plot([line(width=STRONG)], "epoch", "loss")) != one


def test_names_of_others_are_neither_markup_nor_mathematics():
    drawing = draw(Plot([line(), Line("<b>&\x07 $x_1^", [1.0], [1.0])], "epoch", "日本"), says="<i>")
    assert "<b>&· $x_1^" in texts(drawing)
    assert "日本" in texts(drawing)
    assert "&lt;i&gt;" in drawing


@pytest.mark.parametrize("y", [[float("nan")] * 3, [None, 2.0, None], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("log", [True, False])
def test_values_that_are_not_there_are_gaps(y, log):
    drawing = draw(Plot([Line("a", [1.0, 2.0, 3.0], y), line()], "epoch", "loss", log_y=log))
    assert "nan" not in drawing.lower()


def test_one_epoch_has_one_tick():
    assert "|5|" in f"|{texts(draw(Plot([Line('a', [5.0], [1.0])], 'epoch', 'loss')))}|"
