"""A real browser for tests, started once."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WITHOUT_SANDBOX = ["--no-sandbox"]  # in containers there is none; the pages are our own


def _executable() -> str | None:
    """The first Chromium that is there; None leaves it to Playwright."""
    wanted = os.environ.get("PPRGNN_CHROMIUM")
    if wanted:
        if not Path(wanted).is_file():
            pytest.fail(f"PPRGNN_CHROMIUM must be the file of a browser, but {wanted} is none.")
        return wanted
    return next(filter(None, map(shutil.which, ("/usr/bin/chromium", "chromium", "google-chrome"))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, by Playwright; without one of them, what needs it is skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    with playwright.sync_playwright() as running:
        try:
            chromium = running.chromium.launch(executable_path=_executable(), args=WITHOUT_SANDBOX)
        except playwright.Error as error:
            pytest.skip(
                f"needs a browser: install Chromium, name one in PPRGNN_CHROMIUM, or run `playwright install "
                f"chromium` ({str(error).splitlines()[0]})"
            )
        loop = asyncio._get_running_loop()
        browser_loop.append(loop)
        yield chromium
        asyncio._set_running_loop(loop)
        browser_loop.clear()
        chromium.close()


browser_loop: list[Any] = []


def enter_the_loop() -> None:
    """Before Playwright is asked for anything."""
    asyncio._set_running_loop(browser_loop[0])


@pytest.fixture(autouse=True)
def loop_of_the_browser(request: pytest.FixtureRequest) -> Iterator[None]:
    """Playwright's event loop looks as if it ran all the time: no other test could use asyncio in this process."""
    if "browser" in request.fixturenames:
        request.getfixturevalue("browser")
        enter_the_loop()
    yield
    asyncio._set_running_loop(None)
