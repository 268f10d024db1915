"""The page is made of the lines that answer today's grid, and says what is missing, failed or better."""

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_rel

from pprgnn.errors import DataError
from pprgnn.experiments import EXPERIMENTS, figures, paper
from pprgnn.experiments.cell import Cell, settings_of
from pprgnn.experiments.experiment import IMPROVED, OURS, Extent
from pprgnn.experiments.page import SECTIONS, _commits, write_page
from pprgnn.experiments.page_timing import best_epoch, implementation_ratio, seconds_per_epoch, shared_level, until
from pprgnn.experiments.standing import p_value, paired
from pprgnn.experiments.store import Line, Store
from pprgnn.experiments.summary import Entry, Results
from pprgnn.experiments.tables import (
    depth_text,
    difference,
    duration,
    failures,
    percent,
    points,
    table,
    title,
    verdict,
    with_best_in_bold,
    without_empty_rows,
)


@pytest.fixture(scope="module", autouse=True)
def only_stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The same grid everywhere, whichever data sets are at hand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PPRGNN_DATA", str(tmp_path_factory.mktemp("no data")))
        yield


def line_of(cell: Cell, test: float | None = 0.8, **more: Any) -> Line:
    """As a worker writes it."""
    metric = cell.config.training.metric
    scores = {metric: test, metric.replace("micro", "macro"): None if test is None else test - 0.1}
    facts = {"test": test, "scores": {"test": scores}, "seconds": 2.0, "total_seconds": 36.0, "depth": []}
    facts |= {"commit": "0123456789" * 4, "cpu": "A CPU", "threads": 1, "date": "2026-01-02T03:04:05+0000"}
    return {**cell.coordinates, "config": settings_of(cell.config), "warnings": [], **facts, **more}


def broken(cell: Cell, reason: str = "The loss is not a number.") -> Line:
    line = line_of(cell)
    return {key: line[key] for key in line if key not in ("test", "scores", "depth", "seconds")} | {
        "error": reason
    }


def entry(*values: float | None, cells: int = 0, usual: int = 0) -> Entry:
    """An entry of these fractions; None: that cell failed."""
    lines = [
        {"fold": fold, "seed": 0} | ({"error": "No."} if value is None else {"test": value})
        for fold, value in enumerate(values)
    ]
    return Entry(lines, cells or len(lines), usual or cells or len(lines))


def chosen(cell: Cell) -> Line:
    """As a worker writes it after trials: the first candidate is the best."""
    line = {key: value for key, value in line_of(cell).items() if key not in ("test", "scores")}
    trials = [{"settings": dict(each), "val": 0.5} for each in cell.candidates]
    return line | {"trials": trials, "inner": cell.inner, "chosen": dict(cell.candidates[0])}


def grid_of(name: str, folder: Path) -> list[Cell]:
    """The cells of an experiment, after all trials; those are in the folder then."""
    store = Store(folder)
    for cell in EXPERIMENTS[name].cells(Extent(store=store)):
        if cell.waits is False and cell.candidates and store.answer(cell) is None:
            store.add(chosen(cell))
    return [cell for cell in EXPERIMENTS[name].cells(Extent(store=store)) if not cell.candidates]


def read(name: str, lines: Sequence[Line], folder: Path) -> Results:
    store = Store(folder)
    for line in lines:
        store.add(line)
    return Results.read(EXPERIMENTS[name], Store(folder))


def section(results: Results, folder: Path) -> str:
    pictures = figures.Pictures(folder / "PAGE.md", folder)
    return "\n\n".join(SECTIONS[results.experiment.name](results, pictures))


def row(text: str, start: str) -> list[str]:
    """The cells of the first row of a table that starts so."""
    found = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in found.split(" | ")[1:]]


# -------------------------------------------------------------------------------------------------------- values
@pytest.mark.parametrize(
    ("given", "text"),
    [
        (entry(0.8, 0.9), "85.0 ± 5.0"),  # the population's: the sample's would be 7.1
        (entry(0.8), "80.0"),
        (entry(0.8, 0.9, cells=10), "85.0 ± 5.0 (2 of 10)"),
        (entry(0.8, 0.9, None, cells=3), "85.0 ± 5.0 (2 of 3, 1 failed)"),
        (entry(None, None, cells=10), "failed"),
        (entry(cells=10), "not run"),
        (Entry(), "–"),
        (entry(0.8, 0.9, usual=1), "85.0 ± 5.0 (2 runs)"),
        (Entry([{"fold": 0, "seed": 0, "test": None}], 1, 1), "failed"),  # a score that is not a number
    ],
)
def test_a_value_says_how_many_cells_stand_behind_it(given: Entry, text: str) -> None:
    assert percent(given) == text


@pytest.mark.parametrize(
    ("ours", "known", "word"),
    [
        (entry(0.8501), (85.0, 3.0), "within σ"),  # both are printed as 85.0
        (entry(0.8506), (85.0, 3.0), "above"),
        (entry(0.82), (85.0, 3.0), "within σ"),
        (entry(0.8194), (85.0, 3.0), "below"),
        (entry(0.80, 0.84), (84.0, None), "within σ"),  # our own deviation is 2.0
        (entry(0.80, 0.84), (84.1, None), "below"),
        (entry(0.80), (80.1, None), "below"),  # nobody's deviation
        (entry(0.80, 0.84), (84.0, 1.0), "below"),  # the paper's deviation goes before ours
        (entry(0.86, cells=10), (85.0, 3.0), "above so far"),
        (entry(0.86), None, "–"),
        (entry(cells=10), (85.0, 3.0), "not run"),
        (entry(None), (85.0, 3.0), "failed"),
    ],
)
def test_verdicts_at_their_borders(ours: Entry, known: paper.Value | None, word: str) -> None:
    assert verdict(ours, known) == word


def test_only_whole_entries_can_be_the_best_and_equal_ones_share_it() -> None:
    column = {"a": entry(0.8), "b": entry(0.8004), "c": entry(0.7), "d": entry(0.9, cells=10), "e": entry(cells=3)}
    texts = with_best_in_bold(column)
    assert texts == {"a": "**80.0**", "b": "**80.0**", "c": "70.0", "d": "90.0 (1 of 10)", "e": "not run"}
    assert with_best_in_bold({"e": entry(cells=3)}) == {"e": "not run"}


def test_differences_are_of_the_splits_that_both_have() -> None:
    assert difference(entry(0.8, 0.9, 0.1), entry(0.7, 0.7)) == pytest.approx(15.0)
    assert difference(entry(0.8, None), entry(None, 0.9)) is None


def test_depths_of_as_many_layers_are_told_one_by_one_and_of_others_as_their_sum() -> None:
    def with_depths(*depths: list[float]) -> Entry:
        whole = entry(*(80.0 for _ in depths))
        return replace(whole, lines=[line | {"depth": d} for line, d in zip(whole.lines, depths, strict=True)])

    assert depth_text(with_depths([3, 5], [5, 7])) == "10.0 = 4.0 + 6.0"
    assert depth_text(with_depths([3, 5], [4, 4, 4])) == "10.0"


def test_words() -> None:
    assert title("gpr-gnn") == "GPR-GNN"
    assert title(OURS, IMPROVED) == "**PPRGNN (ours)**, improved recipe"
    assert title("not-a-system", "x") == "not-a-system, x"
    assert [points(each) for each in (1.26, -0.34, -0.04)] == ["+1.3", "−0.3", "0.0"]
    assert [duration(each) for each in (2.04, 42, 300, 3000, 7200)] == [
        "2.0 s",
        "42 s",
        "5.0 min",
        "50 min",
        "2.0 h",
    ]
    assert table(["a", "b"], [["x|y", "z\nz"]]).splitlines()[2] == r"| x\|y | z z |"


# ----------------------------------------------------------------------------------------------- lines that count
def test_lines_of_other_settings_are_counted_and_not_shown(tmp_path: Path) -> None:
    first, second, third = grid_of("chains", tmp_path)[:3]
    old = line_of(first, 0.1)
    old["config"]["training.lr"] = 123.0
    unknown = line_of(second, 0.2, system="not-a-system")
    results = read("chains", [old, unknown, line_of(third, 0.7), line_of(third, 0.9)], tmp_path)
    assert [line["test"] for line in results.lines] == [0.9]  # the newest; the one before it is not stale
    assert len(results.earlier) == 2
    found = results.entry("chains", OURS, at={"length": 100})
    assert percent(found) == "90.0 (1 of 3)"


def test_further_seeds_count_where_they_were_run_and_are_missing_nowhere(tmp_path: Path) -> None:
    cells = EXPERIMENTS["ablations"].cells()
    same = [cell for cell in cells if cell.variant == "as it is"]
    mutag, cora = ([cell for cell in same if cell.coordinates["data"] == name] for name in ("MUTAG", "Cora"))
    another = replace(cora[0], config=replace(cora[0].config, training=replace(cora[0].config.training, seed=9)))
    lines = [line_of(cell, 0.5) for cell in (*mutag, *cora)] + [line_of(another, 0.9)]
    results = read("ablations", lines, tmp_path)
    assert (
        percent(results.entry("MUTAG", OURS, "as it is")) == "50.0 ± 0.0"
    )  # Cora's seeds 1 and 2 are not MUTAG's
    assert percent(results.entry("Cora", OURS, "as it is")) == "60.0 ± 17.3 (4 runs)"
    assert percent(results.entry("Cora", OURS, "eps = 1")) == "not run"
    assert (len(results.cells), results.earlier) == (len(cells) + 1, [])


def test_failures_have_their_reasons_below_the_table(tmp_path: Path) -> None:
    cells = [cell for cell in grid_of("graphs", tmp_path) if cell.config.model.system == "gk"]
    protocol = {
        name: [cell for cell in cells if cell.config.data.protocol == name] for name in ("paper", "honest")
    }
    lines = [broken(cell, "It takes\n30 h.") for cell in protocol["paper"][:2]]
    lines += [line_of(protocol["honest"][0], None)]
    results = read("graphs", lines, tmp_path)
    assert failures(results, "paper") == "- failed: GK on MUTAG, folds 0, 1: It takes 30 h."
    assert failures(results, "honest") == "- failed: GK on MUTAG, fold 0: the score is not a number."
    assert results.failed == 3
    assert "| GK | failed<br>paper: 81.4 ± 1.7 | not run<br>" in section(results, tmp_path)


# ------------------------------------------------------------------------------------------------------- sections
def test_graphs_are_compared_with_the_paper_and_with_each_other(tmp_path: Path) -> None:
    lines = []
    for cell in grid_of("graphs", tmp_path):
        data, system, protocol = cell.config.data.name, cell.config.model.system, cell.config.data.protocol
        fold = cell.config.data.fold
        if data == "NCI1" and system == OURS and not cell.variant:
            test = 0.85 if protocol == "paper" else 0.77 + 0.001 * fold
            lines.append(line_of(cell, test, depth=[20, 10 + fold], trivial={"majority": 0.5}))
        elif data in ("NCI1", "COX2") and system == "gin":
            lines.append(line_of(cell, 0.8))
    text = section(read("graphs", lines, tmp_path), tmp_path)
    optimistic, honest, deep = re.split(r"### Honest|### Effective", text)
    ours = title(OURS)
    assert "optimistic: the test part chose the epoch" in optimistic
    assert row(optimistic, ours)[4] == "85.0 ± 0.0<br>paper: 83.5 ± 1.5, above |"
    assert row(optimistic, ours)[0] == "not run<br>paper: 90.4 ± 7.2"
    assert row(optimistic, "GIN")[2] == "80.0 ± 0.0<br>paper: –"
    assert row(honest, ours)[4] == "77.5 ± 0.3<br>−2.5 to GIN, loses so far |"
    assert row(honest, "GIN")[4] == "**80.0 ± 0.0** |"
    assert row(honest, "*trivial*")[4] == "50.0 majority |"
    assert row(deep, f"{ours}, honest")[4] == "34.5 = 20.0 + 14.5 |"
    assert "22 to 41" in deep


def test_ppi_shows_what_a_training_cost_and_the_trivial_level(tmp_path: Path) -> None:
    level, trivial = {OURS: 0.98, "gat": 0.97}, {"all positive": 0.46}
    cells = [cell for cell in grid_of("ppi", tmp_path) if cell.config.model.system in level]
    lines = [
        line_of(each, level[each.config.model.system], depth=[50, 40], cpu_seconds=1200.0, trivial=trivial)
        for each in cells
    ]
    text = section(read("ppi", lines, tmp_path), tmp_path)
    ours = title(OURS)
    assert row(text, ours)[:3] == ["98.9", "98.0 ± 0.0<br>20 min", "98.0<br>20 min"]
    assert row(text, "GCNII")[:2] == ["–", "not run"]
    assert row(text, "*trivial*")[1] == "46.0 all positive"
    assert row(text, f"{ours}: difference")[1] == "+1.0 to GAT, wins so far"
    assert row(text, f"{ours}: difference")[2] == "+1.0 to GAT, ties so far"  # a single training decides nothing
    assert row(text.split("Hops of ours")[1], ours)[:2] == ["82", "90.0 = 50.0 + 40.0"]


def test_amazon_shows_the_metric_of_the_protocol_and_who_is_ahead(tmp_path: Path) -> None:
    level = {OURS: 0.70, "gcn": 0.69, "ignn": 0.695, "label-propagation": 0.71}
    cells = [cell for cell in grid_of("amazon", tmp_path) if cell.config.model.system in level]
    results = read("amazon", [line_of(cell, level[cell.config.model.system]) for cell in cells], tmp_path)
    text = section(results, tmp_path)
    first, honest = text.split("### com-DBLP. Honest protocol")
    micro, macro = first.split("**oracle macro-F1**")
    assert row(micro, "GCN, labels as input")[0] == "69.0"  # one seed
    assert row(macro, "GCN, labels as input")[0] == "59.0"  # not the score that counts, but another one
    assert row(honest, "structure2vec, learned rows")[0] == "not run"
    beside = row(honest, f"{title(OURS)}: difference")[0]
    assert beside == "−1.0 to Label propagation, loses so far"  # it has no seeds
    assert row(honest, f"{title(OURS, 'labels as input')}")[0] == "70.0 ± 0.0"
    assert row(honest.split("against hops**")[1], r"system \ hops") == ["1", "2", "4", "10", "20", "∞ |"]
    assert text.count("](com-dblp-") == 2


def curve(scores: Sequence[float | None], seconds: Sequence[float]) -> list[dict[str, Any]]:
    pairs = zip(scores, seconds, strict=True)
    return [{"epoch": epoch, "seconds": took, "val": val} for epoch, (val, took) in enumerate(pairs, start=1)]


def test_reading_curves() -> None:
    given = curve([0.5, None, 0.7, 0.7, 0.6], [9.0, 2.0, 4.0, 3.0, 5.0])
    assert best_epoch(given) == (3, 70.0)  # the first of two
    assert best_epoch([]) is None
    assert until(given, 50.0) == (pace := until(given, 40.0))  # as good is enough
    assert pace is not None
    assert (pace.epochs, pace.seconds) == (1, 9.0)
    later = until(given, 60.0)
    assert later is not None
    assert (later.epochs, later.seconds, later.per_epoch) == (3, 15.0, 5.0)  # all that was measured until then
    assert until(given, 70.1) is None
    assert until(given, None) is None
    assert shared_level(given, curve([0.6, 0.65], [1.0, 1.0])) == 65.0
    assert shared_level(given, []) is None
    assert shared_level(given, curve([None], [1.0])) is None
    assert seconds_per_epoch(given) == 3.5  # without the first
    assert seconds_per_epoch(given[:1]) == 9.0
    deeper = curve([None] * 5, [30.0, 6.0, 1.0, 1.0, 1.0])
    assert implementation_ratio(deeper[:2], given) == 3.0  # 6 s against 2 s, both in epoch 2
    assert implementation_ratio([], given) is None


def test_timing_compares_until_both_have_the_lower_of_the_best_scores(tmp_path: Path) -> None:
    def lines(own: Sequence[float]) -> list[Line]:
        curves = {
            ("pprgnn", ""): curve(own, [30.0] * 5),
            ("ignn", ""): curve([0.5, 0.6, 0.7, 0.8, 0.75], [120.0, *[60.0] * 4]),
            ("ignn", "direct"): curve([0.5, 0.6], [500.0, 180.0]),
        }
        cells = [cell for cell in EXPERIMENTS["timing"].cells() if cell.at["case"] == "Amazon"]
        return [line_of(cell, curve=curves[cell.config.model.system, cell.variant]) for cell in cells]

    text = section(read("timing", lines([0.5, 0.81, 0.8, 0.8, 0.8]), tmp_path / "above"), tmp_path)
    assert row(text, title(OURS))[:5] == ["2", "30.00", "1.00", "175", "11"]
    assert row(text, "IGNN, on our core") == ["4", "75.00", "5.0", "872", "14", "201 |"]
    assert row(text, "IGNN, direct (calculated)")[:3] == ["4", "225.00", "15.0"]
    assert row(text, "method: IGNN on our core / ours") == ["5.0 ×", "6.3 × |"]
    assert row(text, "implementation: IGNN direct / on our core")[0] == "3.0 ×"
    assert row(text, "both: IGNN direct / ours")[0] == "15.0 ×"
    assert "ours 81.00 in epoch 2 of 5, IGNN 80.00 in epoch 4 of 5; both reach 80.00." in text
    assert row(text.split("### PPI")[1], "IGNN, on our core")[0] == "not run"

    text = section(read("timing", lines([0.5, 0.6, 0.7, 0.7, 0.7]), tmp_path / "below"), tmp_path)
    assert row(text, title(OURS))[:3] == ["3", "30.00", "1.5"]
    assert row(text, "IGNN, on our core")[:3] == ["3", "80.00", "4.0"]
    assert "both reach 70.00." in text


def test_times_of_two_machines_are_never_compared(tmp_path: Path) -> None:
    cells = [cell for cell in EXPERIMENTS["timing"].cells() if cell.at["case"] == "Amazon"]
    lines = [line_of(cell, curve=curve([0.5, 0.8], [30.0, 30.0])) for cell in cells]
    lines[2] |= {"cpu": "Another CPU", "date": "2026-05-02T03:04:05+0000"}  # the direct one, and newer
    text = section(read("timing", lines, tmp_path), tmp_path)
    assert row(text, "method: IGNN on our core / ours")[0] == "1.0 ×"
    assert row(text, "IGNN, direct (calculated)")[0] == "not run"
    assert row(text, "both: IGNN direct / ours")[0] == "–"
    assert "Measured on A CPU; left out, because times of two machines do not compare: Another CPU." in text


def test_timing_without_ignn_does_not_judge(tmp_path: Path) -> None:
    cells = [cell for cell in EXPERIMENTS["timing"].cells() if cell.config.model.system == OURS]
    text = section(
        read("timing", [line_of(each, curve=curve([0.5], [7.0])) for each in cells], tmp_path), tmp_path
    )
    assert row(text, title(OURS))[:3] == ["–", "7.00", "–"]
    assert row(text, "IGNN, on our core")[0] == "not run"


def test_the_exact_pagerank_is_appnp_of_infinite_depth(tmp_path: Path) -> None:
    cells = [cell for cell in EXPERIMENTS["depth"].cells() if cell.config.model.system in ("appnp", "ppnp")]
    level = {"appnp": 0.8, "ppnp": 0.82}
    text = section(
        read("depth", [line_of(each, level[each.config.model.system]) for each in cells], tmp_path), tmp_path
    )
    assert row(text, r"system \ depth") == ["2", "4", "8", "16", "32", "64", "∞ |"]
    assert row(text, "APPNP") == [*["80.0 ± 0.0"] * 6, "82.0 ± 0.0 |"]
    assert row(text, "GCN") == [*["not run"] * 6, "– |"]
    assert "PPNP |" not in text.replace("APPNP |", "")


def test_ablations_show_the_difference_to_the_recipe(tmp_path: Path) -> None:
    level = {"as it is": 0.8, "eps = 1": 0.75}
    cells = [cell for cell in EXPERIMENTS["ablations"].cells() if cell.variant in level]
    lines = [line_of(cell, level[cell.variant], depth=[7, 5]) for cell in cells]
    text = section(read("ablations", lines, tmp_path), tmp_path)
    assert row(text, "as it is")[0] == "80.0 ± 0.0<br>depth 12, 2.0 s"
    assert row(text, "eps = 1")[0] == "75.0 ± 0.0<br>−5.0, depth 12, 2.0 s"
    assert row(text, "self-loops")[0] == "not run"
    kinds = re.findall(r"^\| \*\*(.+?)\*\* \|", text, flags=re.MULTILINE)
    assert kinds == ["decay rate", "terms of the gradient", "rule of depth", "self-loops"]


# ------------------------------------------------------------------------------------------------------- standing
def test_paired_tests() -> None:
    assert p_value([1.0, 1.1], folds=True) == 1.0  # too few
    assert p_value([0.0, 0.0, 0.0], folds=True) == 1.0
    given = [1.0, 2.0, 0.5, 1.5, -0.5]
    assert p_value(given, folds=False) == pytest.approx(float(ttest_rel(given, [0.0] * 5).pvalue))
    assert p_value(given, folds=True) > p_value(given, folds=False)
    assert p_value([-each for each in given], folds=True) == p_value(given, folds=True)


def test_folds_are_compared_by_their_means_over_seeds() -> None:
    splits = [(0, 0), (0, 2), (1, 0), (1, 2)]
    lines = [{"fold": fold, "seed": seed, "test": 0.5 + 0.1 * fold + 0.01 * seed} for fold, seed in splits]
    both, single = Entry(lines, 4, 4), Entry(lines[:2], 2, 2)
    other = Entry([line | {"test": 0.5} for line in lines], 4, 4)
    assert paired(both, other) == pytest.approx([1.0, 11.0])
    assert paired(single, Entry(other.lines[:2], 2, 2)) == pytest.approx([0.0, 2.0])


# ------------------------------------------------------------------------------------------------------- the page
@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of which a few cells of each experiment were run."""
    store = Store(tmp_path_factory.mktemp("some") / "results")
    for experiment in EXPERIMENTS.values():
        for number, cell in enumerate(grid_of(experiment.name, store.folder)[:40:2]):
            more = {"curve": curve([0.5, 0.6], [1.0, 1.0])} if cell.keep_curve else {}
            store.add(line_of(cell, 0.7 + 0.1 * math.sin(number), depth=[3], **more))
    return store.folder


def test_the_same_lines_give_the_same_bytes_in_another_process_and_without_torch(
    some: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    one, other = tmp_path / "one", tmp_path / "other"
    write_page(Store(some), one / "RESULTS.md", one / "figures")
    code = (
        "import sys; from pathlib import Path; from pprgnn.experiments.page import write_page\n"
        "from pprgnn.experiments.store import Store\n"
        f"store, folder = Store({str(some)!r}), Path({str(other)!r})\n"
        "write_page(store, folder / 'RESULTS.md', folder / 'figures')\n"
        "print(sorted({'torch', 'torch_geometric', 'matplotlib.pyplot'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    found = [
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (one, other)
    ]
    assert found[0] == found[1]
    links = set(re.findall(r"!\[.+?\]\((.+?)\)", found[0]["RESULTS.md"].decode()))
    assert links == found[0].keys() - {"RESULTS.md"} != set()


def test_the_page_says_what_is_done_and_how_to_do_it_again(
    some: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    store = Store(shutil.copytree(some, tmp_path / "results"))
    old = line_of(grid_of("graphs", tmp_path / "results")[0])
    old["config"]["model.hidden"] = 5
    store.add(old)
    write_page(store, tmp_path / "RESULTS.md", tmp_path / "figures")
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    total = len(grid_of("graphs", tmp_path / "results"))
    assert row(text, "[graphs](#graph-classification)") == ["20", f"{total:,}", f"{total - 20:,}", "0", "0.2 |"]
    assert "Machines: A CPU (1 thread). Commits (\\*: with changes): 0123456. Dates: 2026-01-02." in text
    assert "<summary>1 line of earlier settings, compared with nothing</summary>" in text
    for name, experiment in EXPERIMENTS.items():
        assert f"## {experiment.title}\n\n{experiment.about}\n\n`pprgnn reproduce {name}` · " in text
    assert "`pprgnn reproduce report`" in text
    assert "pip install 'pprgnn[report]'" in text
    assert "![" not in text
    assert not (tmp_path / "figures").exists()


def test_commits_are_short_and_say_whether_files_were_changed() -> None:
    lines = [{"commit": "b" * 40}, {"commit": "a" * 40 + "-dirty"}, {"commit": None, "version": "0.1.0"}]
    assert _commits(lines) == r"aaaaaaa\*, bbbbbbb, version 0.1.0"


def test_a_page_without_any_line_is_a_page(tmp_path: Path) -> None:
    write_page(Store(tmp_path), tmp_path / "RESULTS.md", tmp_path / "figures")
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert "not run" in text
    assert "![" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["RESULTS.md"]


def test_a_page_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match=r"The page .*file/RESULTS.md .* cannot be written"):
        write_page(Store(tmp_path), tmp_path / "file" / "RESULTS.md", tmp_path / "figures")


def test_every_experiment_has_a_section() -> None:
    assert SECTIONS.keys() == EXPERIMENTS.keys()


def test_rows_without_anything_are_named_in_a_sentence():
    rows = [["**A**", "not run", "1.0"], ["B", "not run", "not run"], ["C", "not run<br>paper: –", "not run"]]
    kept, sentence = without_empty_rows(rows)
    assert kept == rows[:1]
    assert sentence == "Not run at all: B, C."
    assert without_empty_rows(rows[:1]) == (rows[:1], "")
    assert without_empty_rows([["D", "not run<br>paper: 71.4 ± 0.3"]])[1] == ""  # the paper's value is something
