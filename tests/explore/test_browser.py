"""The explorer's page in a real browser: one node, by mouse, by keyboard, in the dark and on a phone."""

import json
import re
import urllib.request

import pytest

from .served import ARMS, LONG, NODES

# urlopen() keeps the proxies of its first use in this process, and other tests have some that do not exist.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def explained(site, query):
    with DIRECT.open(f"{site.url}/api/explain?{query}") as answer:
        return json.load(answer)


def start(site, page, query="?node=0"):
    return page.open(f"{site.url}/{query}")


def contrast(one, other):
    """WCAG's ratio of two computed colours."""

    def luminance(colour):
        channels = [float(each) / 255 for each in re.findall(r"[\d.]+", colour)[:3]]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
        return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


# ------------------------------------------------------------------------------------------------------ one node
def test_the_page_shows_what_the_server_answers(site, page):
    answer = explained(site, "node=0&limit=150")
    start(site, page)
    assert page.text("#data-name") == "wheel"
    assert f"{NODES} nodes, {NODES - 1} edges" in page.text("#run-facts")
    assert page.text("h2") == "hub"
    assert page.text(".predicted") == answer["decision"]["predicted"][0]
    assert answer["decision"]["truth"][0] in page.text(".decision")
    assert page.locator(".mark").first.is_visible()
    assert page.locator("a.node").count() == len(answer["nodes"])
    assert page.locator(".graph circle[r]").count() > len(answer["nodes"])
    shares = page.texts(".distances tbody tr td.number:nth-child(3)")
    assert len(shares) == 11  # the far ones are one row
    assert page.text(".distances tbody tr:last-child th") == f"10–{len(answer['hops']) - 1}"
    assert float(shares[0].rstrip(" %")) == pytest.approx(100 * answer["hops"][0]["share"], abs=0.51)
    strongest = max(answer["nodes"], key=lambda each: abs(each["share"]))
    assert page.text(".influential tbody th") == strongest["name"]
    assert page.title().startswith("hub: ")
    assert page.url.endswith("?run=0&graph=0&node=0")


def test_rings_are_hops_colours_are_sides_and_shapes_are_predictions(site, page):
    answer = explained(site, "node=0&limit=150")
    start(site, page)
    places, shapes = page.evaluate(
        """() => {
            const nodes = [...document.querySelectorAll("a.node")];
            const all = (tell) => Object.fromEntries(nodes.map((node) => [node.dataset.node, tell(node)]));
            const away = ({e, f}) => Math.hypot(e, f);
            const drawn = (shape) => [shape.tagName, shape.getAttribute("fill")];
            return [all((node) => away(node.transform.baseVal.consolidate().matrix)),
                all((node) => drawn(node.querySelector(".shape")))];
        }"""
    )
    assert places["0"] == 0
    nearer, farther = ([places[str(n["node"])] for n in answer["nodes"] if n["hop"] == hop] for hop in (1, 2))
    assert len(nearer) == ARMS
    assert max(nearer) < min(farther)
    assert "1 hop" in page.texts(".ring-label")

    own = answer["decision"]["predicted"]
    for each in answer["nodes"][1:]:
        tag, fill = shapes[str(each["node"])]
        red, blue = int(fill[1:3], 16), int(fill[5:7], 16)
        assert tag == ("circle" if each["predicted"] == own else "path")
        if abs(each["share"]) > 1e-3:
            assert (blue > red) == (each["share"] > 0)
    assert {tag for tag, _ in shapes.values()} == {"circle", "path"}


def test_a_click_on_a_neighbour_goes_there_and_back_returns(site, page):
    page.emulate_media(reduced_motion="no-preference")
    start(site, page)
    page.locator('a.node[data-node="2"]').click()
    page.shows("n2")
    assert "node=2" in page.url
    page.go_back()
    page.shows("hub")
    page.go_forward()
    page.shows("n2")
    assert page.title().startswith("n2: ")
    page.locator(".influential tbody a").first.click()
    page.wait_for_function("() => document.querySelector('h2').textContent !== 'n2'")


def test_pointing_at_a_node_tells_about_it(site, page):
    start(site, page)
    page.locator('a.node[data-node="2"]').hover()
    tip = page.text(".tip")
    assert "n2" in tip
    assert "1 hop away" in tip
    assert "of the influence" in tip
    assert "Predicted arm" in tip
    assert page.locator('a.node[data-node="2"]').get_attribute("aria-label").startswith("n2: 1 hop away, ")


def test_another_class_can_be_explained(site, page):
    start(site, page)
    target = int(page.locator(".facts option").nth(1).get_attribute("value"))
    page.locator(".facts select").select_option(str(target))
    page.wait_for_function(f"() => location.search.includes('target={target}')")
    page.settled()
    answer = explained(site, f"node=0&target={target}")
    page.wait_for_function(
        "name => document.querySelector('.legend').textContent.includes(`for ${name}`)", arg=f"arm {target}"
    )
    score = page.text(".facts dd:last-child").replace("−", "-")
    assert score.startswith(f"{answer['decision']['score']:+.2f}")


# --------------------------------------------------------------------------------------------------------- depth
def test_features_are_shown_when_asked_for(site, page):
    start(site, page)
    with DIRECT.open(f"{site.url}/api/features?node=0") as answer:
        wanted = json.load(answer)
    assert page.locator(".features table").count() == 0
    page.get_by_role("button", name="Which features decided").click()
    page.locator(".features table").wait_for()
    assert page.texts(".features tbody th") == [each["name"] for each in wanted["features"]]
    assert page.texts(".features thead th") == ["Feature", "Value", "Adds", "Here"]
    adds = page.texts(".features tbody td:nth-child(3)")
    assert [each[0] for each in adds] == ["+" if each["contribution"] > 0 else "−" for each in wanted["features"]]
    assert "of it unexplained" in page.text(".features p")
    page.locator('a.node[data-node="2"]').click()
    page.shows("n2")
    assert page.locator(".features table").count() == 0  # they were of another node


def test_the_slider_shows_the_prediction_forming(site, page):
    answer = explained(site, "node=0&limit=150")
    start(site, page)
    assert "∞ (" in page.text("#depth-text")
    assert "suffice: what is left out is at most" in page.text("#depth-text")
    assert page.locator("a.node.out").count() == 0
    final = page.texts(".probabilities .number")
    page.locator("#depth").fill("0")
    hops = answer["reach"][0]
    out = sum(each["hop"] > hops for each in answer["nodes"])
    assert page.locator("a.node.out").count() == out > 0
    assert page.locator("a.node.out").first.get_attribute("opacity") != "1"
    assert page.text("#depth-text").startswith("Depth 0: sees")
    assert page.text(".probabilities h3") == "Probabilities at depth 0"
    shown = page.texts(".probabilities .number")
    assert shown != final
    first = answer["by_depth"][0]["probabilities"][0]
    assert float(shown[0].strip("<> %")) == pytest.approx(100 * first, abs=0.51)
    assert answer["by_depth"][0]["predicted"][0] in page.text("#depth-text strong")
    dashes = page.eval_on_selector_all(
        ".world > g circle:not([class])", "all => all.map((each) => each.getAttribute('stroke-dasharray'))"
    )
    assert dashes == ["none"] * hops + ["3 6"] * (len(dashes) - hops)
    assert "depth=0" in page.url


def test_brackets_the_curve_and_play_move_the_slider(site, page):
    start(site, page)
    last = int(page.locator("#depth").get_attribute("max"))
    page.keyboard.press("[")
    assert page.locator("#depth").input_value() == str(last - 1)
    page.keyboard.press("]")
    assert page.locator("#depth").input_value() == str(last)
    assert "depth=" not in page.url
    page.locator(".curve").click(position={"x": 48, "y": 60})
    assert page.locator("#depth").input_value() == "0"
    page.locator("#play").click()
    page.wait_for_function("() => document.getElementById('depth').value === '1'")
    assert page.locator("#play").get_attribute("aria-label") == "Pause"
    page.locator("#play").click()
    assert page.locator("#play").get_attribute("aria-label").startswith("Play")


# -------------------------------------------------------------------------------------------------------- search
def test_search_by_typing_and_keyboard(site, page):
    start(site, page)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "query"
    assert page.locator("#hits li[role=option]").count() >= 6  # worth a look
    page.keyboard.type("n1")
    page.wait_for_function("() => document.querySelector('#hits .hit-name')?.textContent === 'n1'")
    assert page.texts("#hits .hit-name")[:3] == ["n1", "n10", "n11"]
    assert re.search(r"arm \d", page.text("#hits li"))
    assert page.locator("#query").get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator("#query").get_attribute("aria-activedescendant") == "hit-1"
    page.keyboard.press("Enter")
    page.shows("n10")
    assert page.locator("#hits").is_hidden()
    page.locator("#query").fill("class:arm 0")
    page.wait_for_function("() => document.querySelector('#hits-count').textContent.includes('found')")
    page.locator("#hits li").first.click()
    page.wait_for_function("() => document.querySelector('.predicted').textContent === 'arm 0'")


def test_a_name_that_does_not_exist_and_a_way_back(site, page):
    start(site, page)
    page.locator("#query").fill("zebra")
    page.wait_for_function("() => document.querySelector('#hits').textContent.includes('Nothing is called')")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message:visible")
    assert "wheel has no node 'zebra'" in page.text(".message")
    assert page.locator(".graph").is_hidden()
    page.get_by_role("button", name="Back").click()
    page.shows("hub")
    assert page.locator(".message").is_hidden()


def test_a_deep_link_to_an_unknown_node_shows_the_servers_sentence(site, page):
    start(site, page, "?node=99999")
    assert "wheel has no node" in page.text(".message")
    assert page.title().startswith("Nothing to show")
    page.get_by_role("button", name="Go to the start view").click()
    page.wait_for_selector("a.node")
    assert page.locator(".message").is_hidden()


def test_a_deep_link_opens_the_same_view(site, page):
    start(site, page, "?run=0&graph=0&node=7&target=1&depth=1")
    first = page.text("main"), page.text("#depth-text"), page.title()
    address = page.url
    assert page.text("h2") == "n7"
    assert page.locator("#depth").input_value() == "1"
    assert page.locator(".facts select").input_value() == "1"
    page.get_by_role("button", name="Copy link").click()
    page.wait_for_function("() => document.getElementById('copy').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == address
    page.goto("about:blank")
    page.open(address)
    seconds = re.compile(r"answered in [\d.]+ s")
    again = page.text("main"), page.text("#depth-text"), page.title()
    assert [seconds.sub("", each) for each in again] == [seconds.sub("", each) for each in first]
    start(site, page, "?name=n7")
    assert page.text("h2") == "n7"
    assert "node=7" in page.url


def test_only_the_last_of_quick_clicks_counts(site, page):
    start(site, page)
    held, dropped = [], []
    page.route("**/api/explain?*node=2&*", lambda route: held.append(route))
    page.on("requestfailed", lambda each: dropped.append(each.url))
    page.locator('a.node[data-node="2"]').click()
    assert page.locator("#panes").get_attribute("aria-busy") == "true"
    page.wait_for_selector("#panes.loading")
    page.locator('a.node[data-node="3"]').click()
    page.shows("n3")
    assert page.locator("#panes.loading").count() == 0
    assert len(held) == 1
    assert [("node=2&" in each) for each in dropped] == [True]


# ------------------------------------------------------------------------------------------------------ keyboard
def test_everything_by_keyboard(site, page):
    start(site, page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the decision"
    page.locator("a.node").last.evaluate("node => node.focus()")  # the asked one is drawn last
    assert page.evaluate("document.activeElement.dataset.node") == "0"
    visited = set()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press("Home")
        page.keyboard.press(key)
        visited.add(page.evaluate("document.activeElement.dataset.node"))
        assert page.locator(".tip").is_visible()
    assert len(visited) >= 3
    assert page.locator('a.node[tabindex="0"]').count() == 1
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('h2').textContent !== 'hub'")
    page.settled()
    assert page.evaluate("document.activeElement.classList.contains('node')")
    before = page.locator(".world").get_attribute("transform")
    page.keyboard.press("+")
    zoomed = page.locator(".world").get_attribute("transform")
    assert zoomed != before
    page.keyboard.press("0")
    assert page.locator(".world").get_attribute("transform") == before
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_every_control_has_a_name(site, page):
    start(site, page)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, select, [role]")].filter((each) => {
            const label = each.ariaLabel || each.getAttribute("aria-labelledby") || each.textContent.trim();
            return !label && !each.labels?.length && each.role !== "status" && each.role !== "alert";
        }).map((each) => each.outerHTML)"""
    )
    assert nameless == []
    assert (
        page.locator("main").count() == page.locator("header.top").count() == page.locator("search").count() == 1
    )
    assert page.locator("#depth-text[aria-live=polite]").count() == 1


# ------------------------------------------------------------------------------------------- colours and screens
def test_text_stands_out_in_both_themes(site, page):
    start(site, page)
    pages = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.drawn()
        pages.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        words, small = page.evaluate(WORDS)
        assert small == []
        assert len(words) > 60
        assert [text for ink, ground, text in words if contrast(ink, ground) < 4.5] == []
    assert contrast(*pages) > 10


WORDS = """() => {
            const ground = (each) => {
                for (let at = each; at; at = at.parentElement) {
                    const colour = getComputedStyle(at).backgroundColor;
                    if (colour !== "rgba(0, 0, 0, 0)") return colour;
                }
            };
            const pairs = [], small = [];
            for (const each of document.querySelectorAll("body *")) {
                const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
                if (!own || !each.checkVisibility() || each.closest("option, .tip")) continue;
                const style = getComputedStyle(each);
                const ink = each.closest("svg") ? style.fill : style.color;
                pairs.push([ink, ground(each), each.outerHTML.slice(0, 80)]);
                if (parseFloat(style.fontSize) < 12) small.push(each.outerHTML.slice(0, 80));
            }
            return [pairs, small];
        }"""


def test_the_button_changes_the_theme_and_it_stays(site, page):
    start(site, page)
    style = (
        "[getComputedStyle(document.body).backgroundColor, document.querySelector('.shape').getAttribute('fill')]"
    )
    light = page.evaluate(style)
    page.get_by_role("button", name="Dark colours").click()
    dark = page.evaluate(style)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    page.reload()
    page.settled()
    assert page.evaluate(style) == dark


def test_nothing_sticks_out_or_overlaps(site, page):
    page.set_viewport_size({"width": 390, "height": 844})
    start(site, page, f"?node={NODES - 1}")  # the one with the long name
    assert page.text("h2") == LONG
    for width in (390, 360, 768, 1024, 2560):
        page.set_viewport_size({"width": width, "height": 844})
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        nothing_sticks_out(page, width)


def nothing_sticks_out(page, width):
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    overlaps = page.evaluate(
        """() => {
            const boxes = [...document.querySelectorAll(
                ".about, .find, .tools, #suggestions, .pane-head, .picture-box, .side > section:not([hidden])")]
                .map((each) => [each.className || each.id, each.getBoundingClientRect()]);
            const wrong = [];
            boxes.forEach(([one, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
                const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (wide > 1 && high > 1) wrong.push([one, other]);
            }));
            return wrong;
        }"""
    )
    assert overlaps == []
    labels = page.evaluate(
        "[...document.querySelectorAll('.labels text')].map((t) => { const r = t.getBoundingClientRect();"
        " return [r.left, r.top, r.right, r.bottom]; })"
    )
    assert len(labels) > 1
    for place, one in enumerate(labels):
        for other in labels[place + 1 :]:
            wide = min(one[2], other[2]) - max(one[0], other[0])
            high = min(one[3], other[3]) - max(one[1], other[1])
            assert wide <= 1 or high <= 1
