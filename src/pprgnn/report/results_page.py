"""RESULTS.md as one HTML file: the same text and tables, its pictures drawn in the colours of the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pprgnn
from pprgnn.drawing import canvas
from pprgnn.drawing.plot import Plot, side_by_side
from pprgnn.experiments import EXPERIMENTS
from pprgnn.experiments.figures import Pictures, size
from pprgnn.experiments.page import SECTIONS
from pprgnn.experiments.summary import Results
from pprgnn.report.page import fill

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from pprgnn.experiments.store import Store

NOT_IN_AN_ANCHOR = re.compile(r"[^\w\- ]")


class Collected(Pictures):
    """Remembers what a picture shows instead of drawing it."""

    def __init__(self, page: Path, folder: Path) -> None:
        super().__init__(page, folder)
        self.plots: dict[str, Sequence[Plot]] = {}

    def add(self, name: str, plots: Sequence[Plot], says: str) -> list[str]:
        self.plots[self.link(name)] = plots
        return []


def render_results(store: Store, page: Path) -> str:
    """The page as HTML."""
    pictures = Collected(page, store.folder / "figures")
    for experiment in EXPERIMENTS.values():
        SECTIONS[experiment.name](Results.read(experiment, store), pictures)
    markdown = _markdown(pictures)
    tokens = markdown.parse(page.read_text(encoding="utf-8"))
    contents = []
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = NOT_IN_AN_ANCHOR.sub("", text.content.lower()).replace(" ", "-")  # what GitHub calls it
            opening.attrSet("id", anchor)
            if opening.tag == "h2":
                contents.append((anchor, text.content))
    # Markup in the text is shown as it was typed; only the line breaks in cells of tables are taken as such.
    body = markdown.renderer.render(tokens, markdown.options, {}).replace("&lt;br&gt;", "<br>")
    return fill("results.html.j2", title="Results", contents=contents, body=body, version=pprgnn.__version__)


def _markdown(pictures: Collected) -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markupsafe import escape

    def image(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
        says, link = tokens[place].content, unquote(str(tokens[place].attrGet("src")))
        if link not in pictures.plots:
            return f"<em>{escape(says)}</em>"
        plots = pictures.plots[link]
        drawing = canvas.svg(Path(link).stem, says, size(plots), lambda figure: side_by_side(figure, plots))
        return f'<span class="drawing">{drawing}</span>'

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("image", image)
    markdown.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>')
    markdown.add_render_rule("table_close", lambda *_: "</table></div>")
    return markdown
