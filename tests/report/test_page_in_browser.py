"""The page in a real browser: light, dark, narrow and on paper; it asks nobody for anything."""

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from pprgnn.report import write_report

from . import made_up

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
INK = "getComputedStyle(document.body).color"


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    """One with long names, and a figure of each kind that differs by width."""
    folder = tmp_path_factory.mktemp("pages")
    names = [f"A class with a very long name, number {i}" for i in range(40)]
    parts = {
        "convergence": [made_up.convergence()],
        "classes": made_up.class_scores(names),
        "reach": made_up.reach(),
    }
    run = made_up.make_run(
        folder / "a-run-with-a-name-that-is-longer-than-any-screen-of-a-telephone-is-wide",
        found=made_up.bare(**parts, baselines=made_up.BASELINES),
        epochs=made_up.records(5),
    )
    return write_report([run], folder / "page.html")


@pytest.fixture
def opened(browser, page_path):
    """Opens the page; what went wrong is collected."""
    contexts, wrong = [], []

    def open_page(width, scheme):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda request: wrong.append(request.url) if request.url != page_path.as_uri() else None
        )
        page.goto(page_path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800, 360])
def test_it_fits_and_asks_nobody(opened, width, scheme):
    page = opened(width, scheme)
    assert page.evaluate(OVERFLOW) <= 0
    assert page.locator("nav").is_visible() is (width > 1179)
    assert page.locator(".broad").first.is_visible() is (width > 640)
    assert page.locator(".slim").first.is_visible() is (width <= 640)


WIDER = """() => [...document.querySelectorAll('.scroll')].map(box => {
  const [style, edge] = [getComputedStyle(box), box.getBoundingClientRect().right];
  const fits = edge <= document.documentElement.clientWidth;
  const shadow = style.backgroundAttachment.includes('local');
  return [fits, box.scrollWidth > box.clientWidth, style.overflowX === 'auto' && shadow && box.tabIndex === 0];
})"""


@pytest.mark.parametrize("width", [1280, 400])
def test_tables_scroll_in_their_own_box(browser, tmp_path, width):
    found = made_up.bare(classes=made_up.class_scores(), baselines=made_up.BASELINES)
    runs = [made_up.make_run(tmp_path / f"a-run-with-a-long-name-{i}", found=found) for i in range(6)]
    path = write_report(runs, tmp_path / "page.html")
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    boxes = page.evaluate(WIDER)
    page.close()
    assert all(fits for fits, _, _ in boxes)
    assert any(wider for _, wider, _ in boxes)
    assert all(scrolls for _, wider, scrolls in boxes if wider)  # and a shadow says that there is more


def test_drawings_follow_the_theme_and_the_button_changes_it(opened):
    stroke = "getComputedStyle(document.querySelector('.broad svg text')).fill"
    page = opened(1280, "light")
    light = page.evaluate(INK), page.evaluate(stroke)
    page.get_by_role("button", name="Change between light and dark").click()
    dark = page.evaluate(INK), page.evaluate(stroke)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert opened(1280, "dark").evaluate(INK) == dark[0]


def test_values_open_with_the_keyboard(opened):
    page = opened(1280, "light")
    summary = page.locator("figure summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("figure details table").first.is_visible()


def test_paper_is_light_and_without_buttons(opened):
    page = opened(1280, "dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#theme").is_visible()
    assert not page.locator("nav").is_visible()
