"""Fixtures of the explorer's tests."""

from .served import damaged, graph_site, page, runs_folder, site, tab

__all__ = ["damaged", "graph_site", "page", "runs_folder", "site", "tab"]
