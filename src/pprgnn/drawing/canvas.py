"""A figure as inline SVG or as PNG, in one style, whatever the user's own is. The same values give the same bytes.

The SVG has the colours of the page: matplotlib draws with those of the light one, and each of them becomes a CSS
variable with itself to fall back on. Text stays text.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from pprgnn.data.atomic_io import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, GRID, GROUND = "#1c2127", "#5a636e", "#e2e5e9", "#ffffff"
# Okabe and Ito's colours, which the colour-blind can tell apart; the light ones darkened to be seen on white.
BLUE, RED, GREEN, PINK, ORANGE, SKY = "#0072b2", "#c95400", "#00845f", "#b4558b", "#a56f00", "#2f8cc2"
SERIES = (BLUE, RED, GREEN, PINK, ORANGE, SKY)
NAMES = ("ink", "soft", "grid", "paper", "blue", "red", "green", "pink", "orange", "sky")
VARIABLES = dict(zip((INK, SOFT, GRID, GROUND, *SERIES), NAMES, strict=True))
HALF, WIDE = 420, 860  # pixels
SMALL, LARGE = 12.0, 14.0  # of text in them: at 700 pixels still more than 11
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
THEMED = re.compile("|".join(VARIABLES))
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REFERENCE = re.compile(r"url\(#([^)]+)\)")


def svg(name: str, says: str, size: tuple[float, float], fill: Callable[[Figure], None]) -> str:
    """What ``fill`` draws into a figure of ``size`` pixels, as SVG in the colours of the page.

    Other names lead to other ids, lest two drawings on a page meet; ``says`` is for those who cannot see it.
    """
    written = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with _figure(size, fill, {"svg.fonttype": "none", "svg.hashsalt": name}) as figure:
        figure.savefig(written, format="svg", metadata=nothing, transparent=True)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(NOT_XML.sub("", written.getvalue()))
    _drop_styles(root)
    _own_ids(root)
    for element in root.iter():
        _theme(element)
    for side in ("width", "height"):
        root.set(side, root.attrib[side].removesuffix("pt"))
    root.attrib |= {"role": "img", "aria-label": NOT_XML.sub("", says)}
    return ElementTree.tostring(root, encoding="unicode")


def png(path: Path, size: tuple[float, float], fill: Callable[[Figure], None], dpi: float = 130) -> None:
    """The same as a file, whole or not at all; ``size`` is that of an SVG of the same look."""
    with _figure(size, fill, {}) as figure, replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=dpi, metadata={"Software": None})


@contextmanager
def _figure(size: tuple[float, float], fill: Callable[[Figure], None], more: dict[str, Any]) -> Iterator[Figure]:
    """A figure that has been filled; to be written before the context ends."""
    from matplotlib import style
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    with warnings.catch_warnings(), style.context(["default", _style(size[0]) | more]):
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # the reader's fonts have it
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout="constrained")
        fill(figure)
        yield figure


def _style(width: float) -> dict[str, Any]:
    sizes = "font.size axes.titlesize axes.labelsize xtick.labelsize ytick.labelsize legend.fontsize"
    return dict.fromkeys(sizes.split(), LARGE if width > HALF else SMALL) | {
        "text.parse_math": False,
        "text.color": INK,
        "axes.titlecolor": SOFT,
        "axes.labelcolor": SOFT,
        "axes.edgecolor": SOFT,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "lines.solid_capstyle": "round",
        "figure.constrained_layout.h_pad": 0.06,
        "figure.constrained_layout.w_pad": 0.04,
    }


# ----------------------------------------------------------------------------------------------------- into a page
def _drop_styles(root: ElementTree.Element) -> None:
    """Style sheets and metadata of the drawing would hold for the whole page."""
    for parent in list(root.iter()):
        for child in [each for each in parent if each.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata")]:
            parent.remove(child)


def _own_ids(root: ElementTree.Element) -> None:
    """Keep the ids that the drawing itself uses, which no other one has."""
    link = f"{{{XLINK}}}href"
    used = {value[1:] for element in root.iter() for key, value in element.attrib.items() if key == link}
    for element in root.iter():
        used |= {name for value in element.attrib.values() for name in REFERENCE.findall(value)}
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        if link in element.attrib:
            element.set("href", element.attrib.pop(link))


def _theme(element: ElementTree.Element) -> None:
    style = element.attrib.get("style")
    if style is None:
        return
    kept = [part.strip() for part in style.split(";") if not part.strip().startswith("font-family")]
    element.set("style", THEMED.sub(lambda colour: f"var(--{VARIABLES[colour[0]]}, {colour[0]})", "; ".join(kept)))
