"""What figures say is true."""

from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")

from pprgnn.drawing import canvas
from pprgnn.report.classes import DRAWN, EACH_END, classes, features
from pprgnn.report.curves import depth_over_epochs, training_curves, weight_curves
from pprgnn.report.depth import convergence, cost, layers, truncation
from pprgnn.report.distance import decay, reach, smoothing
from pprgnn.report.measured.results import Missing
from pprgnn.report.scores import against_others, folds
from pprgnn.report.shown import Section, Shown, Table
from pprgnn.report.subject import open_subjects

from ..drawing.test_plot import texts
from . import made_up


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    (found,) = open_subjects([made_up.make_run(tmp_path_factory.mktemp("runs") / "cora")], 1.0, print)
    return found


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    (found,) = open_subjects([made_up.make_study(tmp_path_factory.mktemp("studies") / "folds")], 1.0, print)
    return found


def measuring(subject, **changes):
    return replace(subject, measured=replace(subject.measured, **changes))


@pytest.fixture
def undrawn(monkeypatch):
    """What is said is there without drawing."""
    monkeypatch.setattr(canvas, "svg", lambda name, says, size, fill: f"<svg>{says}</svg>")


# ------------------------------------------------------------------------------------------------------- readings
def test_the_signature_says_what_was_measured_and_what_is_proved(subject, undrawn):
    (shown,) = convergence([subject])
    assert shown.wide
    assert shown.narrow
    assert shown.reading.startswith("Depth 14 was chosen; its measured error is 3.8·10⁻⁶, and 1.6·10⁻⁴ is proved")
    layer = made_up.convergence()
    unproved = replace(layer, certificate=[None] * len(layer.depths))
    assert "proves nothing there yet" in convergence([measuring(subject, convergence=[unproved])])[0].reading
    beyond = convergence([measuring(subject, convergence=[replace(layer, chosen=99)])])[0]
    assert "beyond the depths that were measured" in beyond.reading
    rounded = convergence([measuring(subject, convergence=[replace(layer, chosen=25)])])[0]
    assert "only rounding is left" in rounded.reading


def test_layers_stand_side_by_side(subject, undrawn):
    several = measuring(subject, convergence=[made_up.convergence(), made_up.convergence("convs.1", 12)])
    titles = [each.title for each in convergence([several])]
    assert [title.rpartition(": ")[2] for title in titles] == ["convs.0", "convs.1"]


def test_readings_of_the_other_figures_are_computed(subject, undrawn):
    said = {
        each.name: each.reading for part in (decay, reach, smoothing, truncation, cost) for each in part([subject])
    }
    assert (
        said["decay-1"]
        == "Less than 0.1 % is left after 10 hops; in APPNP there still is 34.9 % with α = 0.1 and "
        "10.7 % with α = 0.2."
    )
    assert said["reach"].startswith(
        "27.0 % of the influence comes from more than 2 hops away (GCN-2 0 % and APPNP 30 %)"
    )
    assert said["population"] == "Most nodes are 5 hops away (700 in the mean)."
    assert said["energy"].startswith("The Dirichlet energy is 0.05 at depth 64 (GCN ")
    assert (
        said["truncation-1-1"] == "5 terms trained this model: 0.5 % of the gradient of B and 0.6 % of that of W "
        "were left out; at most 23.3 % is proved for B."
    )
    assert (
        said["time"] == "At depth 16 this layer takes 10 ms; the same recursion unrolled under autograd takes "
        "27.6 ms, 2.8 times as much."
    )


def test_training_tells_its_best_epoch_and_its_depths(subject, undrawn):
    said = {each.name: each for part in (training_curves, weight_curves) for each in part([subject])}
    assert list(said) == ["loss", "metric", "rate", "weights"]
    assert "Epoch 30 of 40 was kept, at 77.0 %" in said["metric"].reading
    assert said["rate"].reading == "It stayed at 0.01."
    assert said["weights"].reading == "It went from 1 to 1.2 in layer 1."
    assert depth_over_epochs([subject]).reading == "10 to 12 hops in training, 14 for the scores."


def test_a_learned_rate_has_a_figure_of_its_own(subject, undrawn):
    learned = [record | {"eps": [0.25 - 0.005 * record["epoch"]]} for record in subject.records]
    last = weight_curves([replace(subject, records=learned)])[-1]
    assert last.reading.startswith("ε was learned: from 0.245 to")


def test_runs_from_before_the_norm_was_kept_say_so(subject, undrawn):
    old = [
        {key: value for key, value in each.items() if key not in ("weight_norm", "eps")}
        for each in subject.records
    ]
    assert "before ‖W‖₂ was kept" in weight_curves([replace(subject, records=old)])[-1].missing


def test_the_result_stands_beside_others(subject, undrawn):
    shown = against_others([subject])
    best = "the best other figure, GCN in its paper (81.5 ± 0.5 %), which is quoted"
    assert f"83.2 % accuracy on the test part; +1.7 points to {best}; +12.0 points to" in shown.reading
    assert "+12.0 points to the best measured here, label propagation (71.2 %)." in shown.reading
    assert shown.table.rows[0][0] == "PPRGNN (this run)"  # the best is on top


def test_another_run_on_the_page_counts_as_a_baseline(subject, tmp_path, undrawn):
    measured = made_up.bare(baselines=made_up.BASELINES[:2])
    folders = [
        made_up.make_run(tmp_path / name, found=measured, told=made_up.summary(score))
        for name, score in (("ours", 0.7), ("gcn", 0.8))
    ]
    shown = against_others(open_subjects(folders, 1.0, print))
    assert shown.reading == (
        "ours: 70.0 % accuracy on the test part; −10.0 points to the best other figure, gcn (80.0 %)."
    )


def test_a_bound_of_all_and_more_is_none(subject, undrawn):
    (layer,) = subject.measured.truncation
    loose = replace(layer, bound=[1.7] * len(layer.terms))
    reading = truncation([measuring(subject, truncation=[loose])])[0].reading
    assert reading.endswith("were left out; there is no useful bound for B.")
    assert "170" not in reading
    assert {row[-1] for row in truncation([measuring(subject, truncation=[loose])])[0].table.rows} == {"–"}
    (layer,) = subject.measured.convergence
    loose = replace(layer, certificate=[25.0] * len(layer.depths))
    assert "proves nothing there yet" in convergence([measuring(subject, convergence=[loose])])[0].reading
    told = made_up.summary(layers=[made_up.layer() | {"truncation_bound": 3.0}])
    (row,) = layers([replace(subject, detail=told)])[0].table.rows
    assert row[3] == "no useful bound"


def test_every_run_of_a_study_is_a_point(study):
    (shown,) = folds([study])
    assert "validation 85.7 ± 13.0 %, test 85.7 ± 13.0 %" in shown.reading
    assert "between 68.0 % and 100.0 %" in shown.reading
    assert [row[2] for row in shown.table.rows] == ["89.0 %", "68.0 %", "100.0 %"]
    assert "85.7 ± 13.0" in texts(shown.svg)


def test_few_classes_have_a_matrix_and_many_a_list(subject, undrawn):
    f1, confusion = classes([subject])
    assert f1.reading.startswith("“Probabilistic” is found best")
    assert "280 of 330 are right" in confusion.reading
    assert confusion.svg
    many = measuring(subject, classes=made_up.class_scores([f"c{i}" for i in range(50)]))
    f1, confusion = classes([many])
    assert f"the {EACH_END} best and the {EACH_END} worst are drawn" in f1.how
    assert len(f1.table.rows) == 50
    assert not confusion.svg
    assert confusion.table.note == "The 15 largest of 1,560 confusions."
    several = measuring(subject, classes=replace(made_up.class_scores(), confusion=None))
    assert "several classes" in classes([several])[1].missing


def test_features_are_bars_and_a_table_of_more(subject):
    (found,) = features([subject])
    assert found.reading == ("“age” matters most, with 50.0 % of what 30 features add, in the mean over 32 nodes.")
    assert "They miss 0.3 % of what they should add up to." in found.how
    assert [row[0] for row in found.table.rows[:3]] == ["age", "city", "word 0"]
    assert (len(found.table.rows), found.table.note) == (20, "The first 20 of 30.")
    drawn = texts(found.svg).split("|")
    assert "age" in drawn
    assert f"word {DRAWN - 3}" in drawn
    assert f"word {DRAWN - 2}" not in drawn
    (absent,) = features([measuring(subject, features=Missing("There are no features."))])
    assert absent.missing == "There are no features."


def test_long_tables_are_thinned_and_keep_their_end():
    table = Table(["epoch", "loss"], [[str(i), "1"] for i in range(1, 501)]).thinned("epochs")
    assert len(table.rows) <= 60
    assert table.rows[-1][0] == "500"
    assert table.note == "One in 9 epochs is listed."


def test_a_figure_without_one_beside_it_is_known():
    half, wide, gone = Shown("a", "A"), Shown("b", "B", wide=True), Shown("c", "C", missing="No.")
    assert Section("s", "S", "", [half, half, half, wide, half, half, half, gone]).lone == {2, 6}
    assert Section("s", "S", "", [wide, half, half]).lone == set()
