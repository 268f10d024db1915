"""Tiny runs, the real server in a thread, and a page that nothing may go wrong on."""

import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.training.train import train

from ..browser import enter_the_loop
from ..training.small_data import divided, quick, several_graphs

LONG = "a name that is far too long to be written into any picture of a graph, however large"
NODES, ARMS = 60, 4


def wheel() -> GraphDataset:
    """Arms of a wheel around node 0, all of one class each; every name is a word but one, which is a sentence."""
    names = ["hub", *(f"n{number}" for number in range(1, NODES - 1)), LONG]
    ends = torch.arange(1, NODES)
    edges = torch.stack([torch.where(ends <= ARMS, 0, ends - ARMS), ends])
    edges = torch.cat([edges, edges.flip(0)], 1)
    y = torch.arange(NODES) % ARMS
    x = torch.randn(NODES, 6, generator=torch.Generator().manual_seed(0))
    x[:, 0] += 2.0 * (y < 2)
    x[torch.arange(NODES) < 20, 1] += y[:20].float()
    facts = Facts("wheel", "node", False, "accuracy", tuple(f"arm {number}" for number in range(ARMS)))
    dataset = GraphDataset.from_graphs([Data(edge_index=edges, x=x, y=y, num_nodes=NODES)], facts)
    dataset.node_names = names
    return dataset


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`deep` and `gcn` on one graph, `graphs` on many."""
    folder, dataset, many = tmp_path_factory.mktemp("runs"), wheel(), several_graphs()
    train(quick("epochs=15"), dataset=dataset, split=divided(dataset), folder=folder / "deep")
    train(quick("model.system=gcn", "epochs=5"), dataset=dataset, split=divided(dataset), folder=folder / "gcn")
    train(quick("epochs=5"), dataset=many, split=divided(many), folder=folder / "graphs")
    return folder


@pytest.fixture(scope="session")
def damaged(runs_folder: Path) -> Path:
    """A run whose model was cut short."""
    bad = runs_folder / "bad"
    shutil.copytree(runs_folder / "deep", bad)
    model = bad / "model.safetensors"
    model.write_bytes(model.read_bytes()[:200])
    return bad


@contextmanager
def served(*runs: Path) -> Iterator[Any]:
    """The explorer of these runs, as the command starts it; `.url` is its page, `.stop()` ends it."""
    import uvicorn

    from pprgnn.cli.explore import _opened
    from pprgnn.cli.options import NewGraph
    from pprgnn.explore.answers import Answers
    from pprgnn.explore.server import build_app, listen, url_of

    opened, problems = _opened(runs, NewGraph())
    with listen("127.0.0.1", None) as sock:
        app, _ = build_app(Answers(opened, problems, lambda _: None), [url_of(sock).split("/")[2]])
        config = uvicorn.Config(app, lifespan="off", ws="none", log_level="critical", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)

        class Site:
            url = url_of(sock).rstrip("/")

            def stop(self) -> None:
                server.should_exit = True
                thread.join(10)
                sock.close()

        site = Site()
        yield site
        site.stop()


@pytest.fixture(scope="session")
def site(runs_folder: Path) -> Iterator[Any]:
    """A server of `deep` and `gcn`."""
    with served(runs_folder / "deep", runs_folder / "gcn") as each:
        yield each


@pytest.fixture(scope="session")
def graph_site(runs_folder: Path) -> Iterator[Any]:
    """A server of `graphs`."""
    with served(runs_folder / "graphs") as each:
        yield each


class Page:
    """A page of the explorer; knows everything that went wrong on it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.wrong: list[str] = []
        self.expected = "(?!)"  # a pattern of what may go wrong
        self.heard = {"console": self._said, "pageerror": self._broke, "requestfailed": self._failed}
        for event, listener in self.heard.items():
            page.on(event, listener)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _broke(self, error: Any) -> None:
        self.wrong.append(str(error))

    def _failed(self, request: Any) -> None:
        if "ERR_ABORTED" not in (request.failure or ""):  # the page drops answers it no longer needs
            self.wrong.append(f"{request.url}: {request.failure}")

    def close(self) -> None:
        """Leave, and forget what this test did."""
        self.page.unroute_all()
        self.page.evaluate("() => { try { localStorage.clear(); } catch {} }")
        self.page.goto("about:blank")
        for event, listener in self.heard.items():
            self.page.remove_listener(event, listener)

    def open(self, url: str) -> "Page":
        self.page.goto(url)
        return self.settled()

    def settled(self) -> "Page":
        self.page.wait_for_selector("#panes[aria-busy=false]")
        return self

    def drawn(self) -> "Page":
        """Wait for the next frame: only then does a page hear that the colours of the system have changed."""
        self.page.evaluate("() => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))")
        return self

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())

    def texts(self, selector: str) -> list[str]:
        return [str(each) for each in self.page.locator(selector).all_text_contents()]

    def shows(self, name: str, pane: int = 0) -> "Page":
        """Wait until a pane is about this node or graph."""
        self.page.wait_for_function(
            "([name, pane]) => document.querySelectorAll('h2[id^=title]')[pane]?.textContent === name",
            arg=[name, pane],
        )
        return self.settled()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)


@pytest.fixture(scope="session")
def tab(browser: Any) -> Any:
    """One tab for all tests: a new one takes longer than most of them."""
    enter_the_loop()  # this comes before the fixture that does it for every test
    context = browser.new_context(reduced_motion="reduce", accept_downloads=True)
    context.set_default_timeout(10_000)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    return context.new_page()


@pytest.fixture
def page(loop_of_the_browser: None, tab: Any) -> Iterator[Page]:
    """A page without animations; fails the test if anything went wrong that was not expected."""
    tab.set_viewport_size({"width": 1280, "height": 800})
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    each = Page(tab)
    yield each
    each.close()
    assert [text for text in each.wrong if not re.search(each.expected, text)] == []
