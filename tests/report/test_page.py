"""The page: complete, self-contained, honest about what is missing or not comparable, and safe to open."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from pprgnn.report import write_report

from . import made_up

EVIL = '<script>alert("x")</script>&"\''
VOID = {"meta", "br", "link", "img", "input"}


class Page(HTMLParser):
    """Text, ids, links and whether every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.words, self.loads = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href"):
                self.links.append(value)
            if name in ("src", "srcset", "poster", "data", "action"):
                self.loads.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Pages that show all there is: one run, and three of different kinds side by side."""
    folder = tmp_path_factory.mktemp("pages")
    made_up.make_run(folder / "cora")
    made_up.make_run(folder / "ours", found=made_up.bare(convergence=[made_up.convergence()]))
    made_up.make_run(
        folder / "gcn",
        system="gcn",
        found=made_up.bare(convergence=made_up.NO_LAYER),
        told=made_up.summary(0.812, layers=[]),
        epochs=made_up.records(layers=0),
        changes=["hidden=16"],
    )
    made_up.make_study(folder / "folds", found=made_up.bare(), epochs=[])
    write_report([folder / "cora"], folder / "one.html")
    write_report([folder / "ours", folder / "gcn", folder / "folds"], folder / "several.html")
    return folder


@pytest.fixture(scope="module")
def one(home):
    return (home / "one.html").read_text()


@pytest.fixture(scope="module")
def several(home):
    return (home / "several.html").read_text()


def bare_page(folder, **made):
    """A page without figures but the first, in a moment."""
    run = made_up.make_run(folder / "run", **{"found": made_up.bare(), "epochs": []} | made)
    return write_report([run], folder / "page.html").read_text()


@pytest.mark.parametrize("name", ["one", "several"])
def test_it_is_whole_and_needs_nothing_else(home, name):
    text = (home / f"{name}.html").read_text()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert page.loads == []
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert not re.search(r"@import|url\((?!#)|https?://(?!www\.w3\.org/)", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "default-src 'none'" in policy.replace("&#39;", "'")
    assert text.count("<script>") == 1


def test_the_first_view_has_answers_and_no_jargon(tmp_path):
    told = made_up.summary(predicted=dict.fromkeys(made_up.STATES, 100), trivial={"majority": {"accuracy": 0.3}})
    found = made_up.bare(classes=made_up.class_scores(), baselines=made_up.BASELINES)
    text = Page(bare_page(tmp_path, found=found, told=told)).text
    first, order = text.partition("Beside simple baselines")[0], []
    for says in (
        "83.2 %test accuracy",
        "It predicts one of 7 classes (Case_Based,",
        "points to the best other figure, GCN in its paper",
        "“Probabilistic” is found best",
        "The largest confusion:",
        "How sure: 700 test labels fit a true accuracy of 80.2 to 85.7 % (95 % interval).",
        "majority",
    ):
        assert says in first, says
        order.append(first.index(says))
    assert order == sorted(order)
    for jargon in ("NodeNet", "convs.0", "‖W‖", "ε"):
        assert jargon not in first
    assert "convs.0" in text.partition("Depth and error of each layer")[2]  # nothing is lost


def test_every_drawing_is_well_formed_and_can_be_heard(one):
    drawings = re.findall(r"<svg.*?</svg>", one, re.DOTALL)
    assert len(drawings) > 15
    for drawing in drawings:
        assert ElementTree.fromstring(drawing).attrib["aria-label"]


def test_it_opens_with_the_answer(one):
    text = Page(one).text
    for words in (
        "PPRGNN on Cora",
        "83.2 %test accuracy",
        "honest protocol",
        "The validation part chose epoch 30 of 40.",
        "convs.0 14 4·10⁻⁶ 5·10⁻⁶ 2·10⁻⁷ 1.2 0.25 measured against a deeper pass, and proved in exact arithmetic",
    ):
        assert words in text.replace("  ", " ") or words.replace(" ", "") in text.replace(" ", ""), words


def test_it_tells_where_it_comes_from(one, home):
    text = Page(one).text
    assert "pprgnn train cora -o cora" in text
    assert f"pprgnn report {home / 'cora'} -o {home / 'one.html'}" in text
    assert "fingerprint f7d412b9e9cba34c" in text
    assert "model.grad_terms" in text
    assert "Measured on 2026-11-16 in 12 seconds on a processor, 2 threads, commit 0123456789ab." in text
    assert re.search(r"digest [0-9a-f]{16}", text)


def test_the_same_input_gives_the_same_bytes(tmp_path):
    run = made_up.make_run(tmp_path / "run", found=made_up.bare(baselines=made_up.BASELINES), epochs=[])
    pages = [write_report([run], tmp_path / "page.html").read_bytes() for _ in range(2)]
    assert pages[0] == pages[1]


def test_names_and_commands_are_text_not_markup(tmp_path):
    names = [EVIL, *made_up.STATES]
    found = made_up.bare(
        classes=made_up.class_scores(names),
        baselines=[made_up.Baseline(EVIL, 0.5, None, EVIL, True)],
        machine=EVIL,
    )
    told = made_up.summary(data=EVIL, note=EVIL, warnings=[EVIL])
    text = bare_page(tmp_path, found=found, told=told)
    assert text.count("<script") == 1
    assert Page(text).text.count("alert(") > 5


def test_what_is_missing_says_why_once(tmp_path):
    page = Page(bare_page(tmp_path))
    assert page.text.count("There was no time for it.") == 5  # once in each section
    assert "No epochs were kept" in page.text
    assert "Error against depth, and what is proved · Error of a gradient of few terms" in page.text


def test_commands_in_a_sentence_are_code_and_still_text(tmp_path):
    told = made_up.summary(warnings=["Run `pprgnn report <b>` again."])
    assert "Run <code>pprgnn report &lt;b&gt;</code> again." in bare_page(tmp_path, told=told)


def test_an_optimistic_protocol_is_marked(tmp_path):
    told = made_up.summary(protocol="paper", test_chose_the_epoch=True)
    page = Page(bare_page(tmp_path, told=told, split={"val": [], "protocol": "paper"}))
    assert "optimistic protocol" in page.text
    assert "The test part itself chose epoch 30 of 40." in page.text
    assert "honest protocol" not in page.text


def test_undefined_scores_and_warnings_are_shown(tmp_path):
    told = made_up.summary(float("nan"), warnings=["The loss is not finite."])
    page = Page(bare_page(tmp_path, told=told, epochs=[]))
    assert "–" in page.text
    assert "nan" not in page.text.lower().replace("provenance", "")
    assert "The accuracy of the test part is not defined." in page.text
    assert "The loss is not finite." in page.text


# ----------------------------------------------------------------------------------------------------- comparison
def test_runs_stand_side_by_side_with_their_differences(several):
    text = Page(several).text
    assert "Comparison of 3 runs" in text
    assert re.search(r"gcn\s*GCN\s*Cora\s*79.2 %\s*81.2 %\s*−2.0", text)
    assert re.search(r"model.hidden\s*64\s*16\s*64", text)
    assert "training.seed" not in text.partition("Settings that differ")[2].partition("How good it is")[0]
    assert "gcn: GCN has no layer of infinite depth" in text
    assert "Depth 14 was chosen" in text


def test_other_splits_are_not_compared_silently(several):
    assert "Scores are not comparable. The splits differ" in Page(several).text


@pytest.mark.parametrize(
    ("told", "split", "words"),
    [
        ({"data": "Citeseer"}, None, "The data differ (Citeseer and Cora)."),
        ({"protocol": "paper"}, None, "The protocols differ (honest and paper)."),
        ({"metric": "macro-F1"}, None, "The metrics differ (accuracy and macro-F1)."),
        ({"test_chose_the_epoch": True}, None, "The test part chose the epoch of b: optimistic"),
        ({}, {"fingerprint": "0" * 16}, "The data have the same name, but other labels"),
        ({}, {"test": [8, 9]}, "The splits differ"),
        ({}, None, None),
    ],
)
def test_what_cannot_be_compared_is_told(tmp_path, told, split, words):
    plain = {"found": made_up.bare(), "epochs": []}
    one = made_up.make_run(tmp_path / "a", **plain)
    other = made_up.make_run(tmp_path / "b", told=made_up.summary(**told), split=split, **plain)
    text = Page(write_report([one, other], tmp_path / "page.html").read_text()).text
    assert ("Scores are not comparable." in text) is (words is not None)
    assert words is None or words in text
    assert "None: these runs have the same settings." in text


# ---------------------------------------------------------------------------------------------------------- study
def test_a_study_shows_its_mean_and_says_whose_figures_follow(tmp_path):
    study = made_up.make_study(tmp_path / "folds", found=made_up.bare(), epochs=[])
    text = Page(write_report([study], tmp_path / "page.html").read_text()).text
    assert re.search(r"85.7\s*± 13.0\s*%\s*test accuracy", text)
    assert "Mean ± standard deviation over 3 runs; in each, its validation part chose the epoch." in text
    assert "measurements below are of fold-0-seed-0" in text
    assert "--folds 3" in text


def test_an_unfinished_study_says_so(tmp_path):
    study = made_up.make_study(tmp_path / "folds", found=made_up.bare(), epochs=[])
    told = json.loads((study / "summary.json").read_text())
    (study / "summary.json").write_text(json.dumps(told | {"finished": False}))
    assert "The study is not finished" in Page(write_report([study], tmp_path / "page.html").read_text()).text


def test_four_right_answers_of_four_prove_little(tmp_path):
    told = made_up.summary(1.0, predicted={"a": 2, "b": 2})
    text = Page(bare_page(tmp_path, told=told)).text
    assert "4 test labels fit a true accuracy of 51.0 to 100.0 % (95 % interval)." in text
