"""The explorer's page in a real browser: comparing, files, whole graphs, and what can go wrong."""

import struct
import xml.etree.ElementTree as ElementTree

import pytest

from pprgnn.explore import run_view as graph_view
from pprgnn.explore.local import LocalGraph

from .served import served
from .test_browser import nothing_sticks_out

SVG = "{http://www.w3.org/2000/svg}"


def start(site, page, query="?node=0"):
    return page.open(f"{site.url}/{query}")


def saved(page, button):
    """The file that a button of the export menu makes."""
    page.locator("#export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return download.value


# ----------------------------------------------------------------------------------------------------- comparing
def test_two_nodes_side_by_side(site, page):
    start(site, page)
    page.get_by_role("button", name="Pin", exact=True).click()
    page.wait_for_selector(".pin[aria-pressed=true]")
    assert page.locator(".pane").count() == 1
    page.locator('a.node[data-node="2"]').click()
    page.shows("n2", 0).shows("hub", 1)
    assert (
        page.locator(".predicted").count() == page.locator(".graph").count() == page.locator(".curve").count() == 2
    )
    assert "with=0.0.0" in page.url
    # Both bar charts have one scale: the same share has the same length.
    rows = page.evaluate(
        """() => [...document.querySelectorAll(".distances tbody tr")].map((row) => [
            parseFloat(row.querySelector("td.number").textContent),
            [...row.querySelectorAll(".bar")].reduce((sum, bar) => sum + bar.getBoundingClientRect().width, 0)])"""
    )
    lengths = [length / share for share, length in rows if share > 10]
    assert len(lengths) >= 4
    assert max(lengths) / min(lengths) < 1.1
    # Sections stand side by side.
    tops = page.eval_on_selector_all(".distances", "all => all.map((each) => each.getBoundingClientRect().top)")
    assert tops[0] == pytest.approx(tops[1], abs=1)
    page.locator("#depth").fill("0")
    assert page.texts(".probabilities h3") == ["Probabilities at depth 0"] * 2
    # A pane moves alone, and the address opens the same two again.
    page.locator(".pane").nth(1).locator('a.node[data-node="3"]').click()
    page.shows("n3", 1).shows("n2", 0)
    address = page.url
    page.goto("about:blank")
    page.open(address)
    page.shows("n2", 0).shows("n3", 1)
    page.get_by_role("button", name="Close this side").first.click()
    page.shows("n3", 0)
    assert page.locator(".pane").count() == 1


def test_one_node_under_two_runs_stays_together(site, page):
    start(site, page)
    page.get_by_label("Compare with another run").select_option("1")
    page.shows("hub", 1)
    assert "deep" in page.texts(".pane-head p")[0]
    assert "gcn" in page.texts(".pane-head p")[1]
    assert "fixed depth" in page.locator(".forming").nth(1).inner_text()
    page.locator(".pane").nth(0).locator('a.node[data-node="1"]').click()
    page.shows("n1", 0).shows("n1", 1)
    nothing_sticks_out(page, 1280)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = page.eval_on_selector_all(".pane", "all => all.map((each) => each.getBoundingClientRect().toJSON())")
    assert boxes[1]["top"] >= boxes[0]["bottom"]


def test_the_other_run_alone(site, page):
    start(site, page)
    page.locator("#run").select_option("1")
    page.wait_for_function("() => document.getElementById('run-facts').textContent.includes('GCN')")
    page.settled()
    assert page.locator("#transport").is_hidden()
    assert page.locator(".forming").is_hidden()
    assert "run=1" in page.url


# -------------------------------------------------------------------------------------------------------- files
def test_the_svg_file_is_the_picture(site, page):
    start(site, page, "?node=0&depth=1")
    download = saved(page, "Picture as SVG")
    assert download.suggested_filename == "wheel-hub.svg"
    root = ElementTree.parse(download.path()).getroot()
    assert root.tag == f"{SVG}svg"
    nodes = [each for each in root.iter(f"{SVG}g") if each.get("class") == "node"]
    assert {each.get("data-node") for each in nodes} == set(
        page.eval_on_selector_all("a.node", "all => all.map((each) => each.dataset.node)")
    )
    assert next(nodes[0].iter(f"{SVG}title")).text
    words = "".join(root.itertext())
    assert "wheel, hub: arm" in words
    assert "1 hop" in words
    assert "predicted alike" in words
    text = download.path().read_text()
    assert "href=" not in text
    assert "var(" not in text  # a file has no style sheet


def test_the_png_file_has_twice_the_pixels(site, page):
    start(site, page)
    download = saved(page, "Picture as PNG")
    data = download.path().read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    box = page.locator(".graph").bounding_box()
    assert 2 * box["width"] < width < 2 * box["width"] + 100
    assert 2 * box["height"] < height < 2 * box["height"] + 250
    assert len(data) > 20_000


def test_printing_is_light_and_has_no_controls(site, page):
    page.emulate_media(color_scheme="dark")
    start(site, page)
    assert page.pdf()[:5] == b"%PDF-"
    page.emulate_media(media="print", color_scheme="dark")
    for control in ("#query", "#transport", ".zoom", "#suggestions"):
        assert page.locator(control).is_hidden()
    assert page.locator(".influential").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")


# ------------------------------------------------------------------------------------------------- large graphs
def test_all_nodes_can_be_followed(runs_folder, page, monkeypatch):
    monkeypatch.setattr(graph_view, "AT_ONCE", 0)
    monkeypatch.setattr(graph_view, "LocalGraph", lambda *given: LocalGraph(*given[:-1], 5))
    with served(runs_folder / "deep") as site:
        start(site, page)
        assert page.text(".decision .note").startswith("Followed were the 5 nodes with the largest possible")
        assert "not explained" in page.text(".facts dd:last-child")
        page.get_by_role("button", name="Follow all nodes").click()
        page.wait_for_function("() => location.search.includes('all=1')")
        page.settled()
        assert page.locator(".decision .note").count() == 0
        assert "not explained" not in page.text(".facts dd:last-child")
        page.get_by_role("button", name="Pin", exact=True).click()
        page.locator('a.node[data-node="2"]').click()
        page.shows("n2", 0).shows("hub", 1)
        assert "with=0.0.0..1" in page.url
        assert "all=" not in page.url
        assert page.locator(".decision .note").count() == 1
        page.go_back()
        page.shows("hub")


# ------------------------------------------------------------------------------------------------- whole graphs
def test_whole_graphs(graph_site, page):
    start(graph_site, page, "?graph=6")
    assert page.text("h2") == "Graph 6"
    assert page.locator("a.node").count() == 7
    assert page.locator(".ring-label").count() == 0
    assert page.locator(".distances").is_hidden()
    page.locator("#depth").fill("0")
    assert page.locator("a.node.out").count() == 0
    page.locator("#graph").fill("5")
    page.keyboard.press("Enter")
    page.shows("Graph 5")
    page.locator("#query").fill("13")
    page.wait_for_function("() => document.querySelector('#hits .hit-name')?.textContent === 'graph 13'")
    page.keyboard.press("Enter")
    page.shows("Graph 13")
    assert "graph=13" in page.url
    assert "node=" not in page.url


# --------------------------------------------------------------------------------------------- what can go wrong
def test_a_damaged_run_is_told_and_the_other_works(runs_folder, damaged, page):
    with served(runs_folder / "deep", damaged) as site:
        page.open(site.url)
        assert "One run could not be opened." in page.text("#banner")
        assert "bad" in page.text("#banner")
        assert page.locator("a.node").count() > 1
        assert page.locator("#run-choice").is_hidden()
        page.get_by_role("button", name="Close this message").click()
        assert page.locator("#banner").is_hidden()


def test_the_server_is_gone(runs_folder, page):
    page.expected = "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE"
    with served(runs_folder / "gcn") as site:
        start(site, page)
        site.stop()
        page.locator('a.node[data-node="2"]').click()
        page.wait_for_selector(".message:visible")
        assert "The explorer was stopped; start it again with pprgnn explore RUN." in page.text(".message")
        assert page.get_by_role("button", name="Try again").is_visible()
        page.go_back()  # what was seen before is still there
        page.shows("hub")
        page.locator("#query").fill("n3")
        page.wait_for_function("() => document.querySelector('#hits').textContent.includes('was stopped')")


def test_values_that_cannot_be_read_are_refused_in_a_sentence(site, page):
    for query in ("?node=abc", "?run=9&node=0", "?name=%3Cb%3E"):
        start(site, page, query)
        sentence = page.text(".message p")
        assert sentence.endswith(".")
        assert len(sentence.split()) > 4
        assert page.locator(".message b").count() == 0
