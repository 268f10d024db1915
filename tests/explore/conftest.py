"""Fixtures of the explorer's tests."""

from ..browser import browser, loop_of_the_browser
from .served import damaged, graph_site, page, runs_folder, site, tab

__all__ = ["browser", "damaged", "graph_site", "loop_of_the_browser", "page", "runs_folder", "site", "tab"]
