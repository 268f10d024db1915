"""What the explorer takes on com-DBLP: start-up, answers, memory. Writes results/explore.md and .json.

`python -m benchmarks.explore --run RUN` starts `pprgnn explore RUN` as a user would, and asks over HTTP: the page
and all of its files, random nodes, the largest hubs, searches; then it opens the page in Chromium and clicks.
Several runs are asked one after the other. Without `--run` it first trains one of its own.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from benchmarks import machine
from benchmarks.report import table
from pprgnn.data import load
from pprgnn.errors import DataError
from pprgnn.explore.server import _files
from pprgnn.training.config import Config
from pprgnn.training.train import train

CLICKS = 5
WHOLE = 3  # explanations through all nodes
SETTLED = """before => location.href !== before && document.querySelector('#panes[aria-busy=false] h2') !== null"""
SEARCHES = ("1", "4217", "class:community 3", "nobody")


class Server:
    """`pprgnn explore` in a process of its own."""

    def __init__(self, run: Path) -> None:
        start = time.perf_counter()
        command = [sys.executable, "-u", "-m", "pprgnn", "explore", str(run)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            print(f"{time.perf_counter() - start:6.1f} s  {line}", end="", flush=True)
            if found := re.match(r"The page is at http://([\d.:]+)/", line):
                break
        else:
            raise SystemExit("The explorer did not start.")
        self.start_up = time.perf_counter() - start
        self.address = found[1]
        self.connection = http.client.HTTPConnection(found[1], timeout=600)

    def get(self, path: str) -> tuple[float, bytes]:
        """Seconds until all of the answer is there, and the answer."""
        start = time.perf_counter()
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:200])
        return time.perf_counter() - start, body

    def memory(self, what: str) -> float:
        """In GiB, as Linux counts it: ``VmRSS`` now or ``VmHWM`` at its peak."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{what}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 2**20

    def stop(self) -> float:
        start = time.perf_counter()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        return time.perf_counter() - start


def first_view(server: Server) -> float:
    """What a browser loads one after the other: the page, its files, the runs and the first explanation."""
    seconds = sum(server.get(address)[0] for address, _ in _files())
    took, runs = server.get("/api/runs")
    first = json.loads(runs)["suggestions"][0]
    return seconds + took + server.get(f"/api/explain?graph={first['graph']}&node={first['node']}")[0]


def in_browser(address: str) -> dict | None:
    """Seconds until the first view stands in Chromium, and until each of some clicked nodes does."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        return None
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return None
    clicks = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        start = time.perf_counter()
        page.goto(f"http://{address}/")
        page.wait_for_function(SETTLED, arg="")  # looks at every frame
        first = time.perf_counter() - start
        for place in range(1, CLICKS + 1):  # always another one, lest the page goes back to what it has
            page.wait_for_timeout(1000)  # a reader looks; the picture has come to rest
            before = page.url
            start = time.perf_counter()
            page.locator(".influential tbody a").nth(place).click()
            page.wait_for_function(SETTLED, arg=before)
            clicks.append(time.perf_counter() - start)
        browser.close()
    return {"first_view_s": first, "clicks_s": clicks}


def measure(run: Path, asked: int, hubs: int, data: str) -> dict:
    dataset = load(data)
    degree = dataset[0].edge_index[1].bincount(minlength=dataset.num_nodes)
    largest = degree.topk(hubs).indices.tolist()
    nodes = random.Random(0).sample(range(dataset.num_nodes), asked)
    server = Server(run)
    try:
        opened = first_view(server)
        answers = {kind: [explained(server, node) for node in some] for kind, some in
                   (("random nodes", nodes), ("hubs", largest))}  # fmt: skip
        if not all(each["exact"] for each in answers["random nodes"]):
            answers["all nodes followed"] = [explained(server, node, "&all=1") for node in nodes[:WHOLE]]
        searches = [server.get(f"/api/search?q={quote(text)}")[0] for text in SEARCHES]
        browser = in_browser(server.address)
        memory = {"now_gib": server.memory("VmRSS"), "peak_gib": server.memory("VmHWM")}
    finally:
        stopped = server.stop()
    return {
        "start_up_s": server.start_up,
        "first_view_s": opened,
        "answers": answers,
        "searches_s": searches,
        "browser": browser,
        "stopped_s": stopped,
        "exit_code": server.process.returncode,
        **memory,
    }


def explained(server: Server, node: int, more: str = "") -> dict:
    seconds, body = server.get(f"/api/explain?node={node}{more}")
    answer = json.loads(body)
    decision = answer["decision"]
    unexplained = abs(decision["rest"]) / max(abs(decision["score"]), 1e-30)
    return {
        "node": node,
        "seconds": seconds,
        "exact": answer["exact"],
        "unexplained": unexplained,
        "kb": len(body) / 1e3,
    }


def markdown(data: dict) -> str:
    rows = []
    for kind, answers in data["answers"].items():
        seconds = [each["seconds"] for each in answers]
        exact = sum(each["exact"] for each in answers)
        rows.append(
            [
                f"an explanation, {kind}",
                str(len(answers)),
                f"{statistics.median(seconds):.2f}",
                f"{max(seconds):.2f}",
                f"{exact} of {len(answers)}",
                f"{max(each['unexplained'] for each in answers):.2%}",
            ]
        )
    searches = data["searches_s"]
    rows.append(
        ["a search", str(len(searches)), f"{statistics.median(searches):.2f}", f"{max(searches):.2f}", "", ""]
    )
    if data["browser"] is not None:
        clicks = data["browser"]["clicks_s"]
        rows.append(
            [
                "a click in Chromium",
                str(len(clicks)),
                f"{statistics.median(clicks):.2f}",
                f"{max(clicks):.2f}",
                "",
                "",
            ]
        )
    header = ["question", "asked", "median, s", "worst, s", "exact", "unexplained, at most"]
    return f"""## {data["model"]}

The server was ready after {data["start_up_s"]:.1f} s; then the page with its files, the runs and
the first explanation took {data["first_view_s"]:.2f} s over HTTP{_drawn(data["browser"])}. Memory
{data["now_gib"]:.1f} GiB, at its peak {data["peak_gib"]:.1f} GiB. Ctrl-C ended it after
{data["stopped_s"]:.1f} s with exit code {data["exit_code"]}.

{table(header, rows)}
"""


def _drawn(browser: dict | None) -> str:
    return "" if browser is None else f", and {browser['first_view_s']:.2f} s until it stood in Chromium"


def whole(data: dict) -> str:
    m, edited = data["machine"], " (edited since)" if data["edited"] else ""
    parts = "\n".join(markdown(each) for each in data["runs"])
    return f"""# The explorer on {data["data"]}

`{data["command"]}` at commit `{data["commit"][:12]}`{edited}, {data["date"]}, {m["cpu"]},
{m["threads"]} threads, load at the start {m["load_average"]:.1f}.

{parts}
*unexplained*: what inputs and biases leave of the score, because not all nodes were followed; otherwise rounding.
"""


def described(run: Path) -> str:
    summary, model = json.loads((run / "summary.json").read_text()), Config.from_toml(run / "config.toml").model
    depths = ", ".join(str(layer["depth"]) for layer in summary["layers"])
    trained = summary.get("command") or "trained by the benchmark"
    return f"{model.activation}, width {model.hidden}, ε = {model.eps}, depth {depths} (`{trained}`)"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, action="append", help="folder of a trained run; several can be named")
    parser.add_argument("--set", action="append", default=[], help="setting of the run that is trained otherwise")
    parser.add_argument("--data", default="com-DBLP")
    parser.add_argument("--asked", type=int, default=20, help="random nodes")
    parser.add_argument("--hubs", type=int, default=5)
    parser.add_argument("--output", type=Path, default=machine.ROOT / "results" / "explore.md")
    arguments = parser.parse_args(given)
    try:
        load(arguments.data)
    except DataError as error:
        print(f"not run: {error}")
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = arguments.run or [Path(folder) / "run"]
        if not arguments.run:
            settings = [
                f"data.name={arguments.data}",
                "epochs=5",
                "eps=0.06",
                "activation=identity",
                *arguments.set,
            ]
            train(Config().with_settings(settings), folder=runs[0])
        named = [f"--run {run.name}" for run in arguments.run or ()]
        data = {
            "command": " ".join(["python -m benchmarks.explore", *named]),
            **machine.commit(),
            "date": machine.now(),
            "machine": machine.describe(),
            "data": arguments.data,
            "runs": [
                {"model": described(run), **measure(run, arguments.asked, arguments.hubs, arguments.data)}
                for run in runs
            ],
        }
    arguments.output.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    arguments.output.write_text(whole(data))
    print(whole(data))


if __name__ == "__main__":
    main()
