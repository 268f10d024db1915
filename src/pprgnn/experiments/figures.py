"""Pictures for the page of results, beside it as files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from pprgnn.drawing import canvas
from pprgnn.drawing.plot import Plot, side_by_side
from pprgnn.wording import known

LEGEND, PLOT, HEIGHT = 260, 390, 350  # pixels; PNGs have 1.8 times as many


class Pictures:
    """Draws pictures for a page.

    Args:
        page: The page that shows them.
        folder: Where they are written.
    """

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder, self.can_draw = page, folder, find_spec("matplotlib") is not None

    def add(self, name: str, plots: Sequence[Plot], says: str) -> list[str]:
        """Draw one; the Markdown that shows it. Nothing without values, or without matplotlib."""
        if not self.can_draw or not any(known(y) for plot in plots for line in plot.lines for y in line.y):
            return []
        canvas.png(self.folder / f"{name}.png", size(plots), lambda figure: side_by_side(figure, plots))
        link = self.link(name)
        return [f"![{says}](<{link}>)" if " " in link else f"![{says}]({link})"]

    def link(self, name: str) -> str:
        """How the page names a picture."""
        path = self.folder / f"{name}.png"
        return Path(os.path.relpath(path.absolute(), self.page.absolute().parent)).as_posix()


def size(plots: Sequence[Plot]) -> tuple[float, float]:
    """Width and height of so many side by side."""
    return LEGEND + PLOT * len(plots), HEIGHT
