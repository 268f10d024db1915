"""Takes the pictures of the report and the explorer: `python docs/screenshots.py CORA_RUN OTHER_RUN DBLP_RUN`.

The runs are those of `pprgnn train cora -o CORA_RUN`, `pprgnn train cora --model gcn -o OTHER_RUN` and
`pprgnn train dblp -o DBLP_RUN`. Needs Playwright and Chromium (see CONTRIBUTING.md).
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
CHROMIUM = "/usr/bin/chromium"
WINDOW = {"width": 1360, "height": 820}


@contextmanager
def explorer(*runs: str) -> Iterator[str]:
    """The address of an explorer, which is stopped in the end."""
    command = [sys.executable, "-m", "pprgnn", "explore", *runs, "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(word for line in process.stdout for word in line.split() if word.startswith("http"))
        finally:
            process.terminate()


def picture_of_explorer(page: Page, address: str, name: str) -> None:
    """A view, once it stands still."""
    page.goto(address)
    page.wait_for_selector("svg [data-node]")
    page.wait_for_timeout(1500)  # the layout settles
    page.screenshot(path=IMAGES / name)


def picture_of_report(page: Page, run: str) -> None:
    """The method's signature picture out of the page of a run."""
    page.goto((Path(run) / "report.html").resolve().as_uri())
    page.locator("figure", has_text="Error against depth").first.screenshot(path=IMAGES / "report.png")


if __name__ == "__main__":
    cora, other, dblp = sys.argv[1:]
    subprocess.run([sys.executable, "-m", "pprgnn", "report", cora], check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=WINDOW, device_scale_factor=1)
        picture_of_report(page, cora)
        with explorer(cora, other) as address:
            picture_of_explorer(page, f"{address}?node=2077", "explorer.png")
        with explorer(dblp) as address:
            picture_of_explorer(page, address, "explorer-large.png")
        browser.close()
