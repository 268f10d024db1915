"""Results in files: added one by one, read back, healed, and refused when they are not ours."""

import json
import math

import pytest

from pprgnn.errors import DataError
from pprgnn.experiments.store import Store

from .tiny import tiny_cell, tiny_line


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def again(store):
    """The same folder, read anew."""
    return Store(store.folder)


def test_what_is_added_is_read_again(store):
    cells = [tiny_cell({"training.seed": seed}, at={"depth": "∞"}) for seed in range(3)]
    for cell in cells[:2]:
        store.add(tiny_line(cell, test=cell.config.training.seed / 4))
    for each in (store, again(store)):
        assert {number: line["test"] for number, line in each.answers(cells).items()} == {0: 0.0, 1: 0.25}
    assert store.path("chains").read_text(encoding="utf-8").count("\n") == 2
    assert "∞" in store.path("chains").read_text(encoding="utf-8")  # for people, too


def test_nothing_is_there_yet(store):
    assert store.lines("chains") == []
    assert store.answers([tiny_cell()]) == {}
    assert not store.folder.exists()


def test_the_newest_result_counts(store):
    for score in (0.25, 0.75):
        store.add(tiny_line(tiny_cell(), test=score))
    assert again(store).answers([tiny_cell()])[0]["test"] == 0.75
    store.add(tiny_line(tiny_cell({"training.lr": 0.5}), test=1.0))  # the recipe was changed, and changed back
    assert again(store).answers([tiny_cell()])[0]["test"] == 0.75


def test_experiments_have_files_of_their_own(store):
    store.add(tiny_line(tiny_cell()))
    store.add(tiny_line(tiny_cell(experiment="depth")))
    assert sorted(path.name for path in store.folder.iterdir()) == ["chains.jsonl", "depth.jsonl"]
    assert len(store.answers([tiny_cell(), tiny_cell(experiment="depth")])) == 2


def test_what_json_has_no_word_for_is_null(store):
    store.add(tiny_line(tiny_cell(), test=math.nan, depth=(1, math.inf)))
    line = json.loads(store.path("chains").read_text())
    assert (line["test"], line["depth"]) == (None, [1, None])
    assert store.lines("chains") == [line]


@pytest.mark.parametrize(
    "torn", [b'{"experiment": "cha', '{"at": "∞'.encode()[:-1]], ids=["text", "half a letter"]
)
def test_a_line_that_a_crash_cut_short_is_healed(store, torn):
    cells = [tiny_cell({"training.seed": seed}) for seed in range(2)]
    store.add(tiny_line(cells[0]))
    with open(store.path("chains"), "ab") as file:
        file.write(torn)
    assert list(again(store).answers(cells)) == [0]
    again(store).add(tiny_line(cells[1]))
    assert list(again(store).answers(cells)) == [0, 1]


@pytest.mark.parametrize("foreign", [b"hello", b"[1]", b'{"a": 1}', b'{"experiment": "chains"}', b"\xff"], ids=str)
def test_a_foreign_line_is_refused(store, foreign):
    store.add(tiny_line(tiny_cell()))
    with open(store.path("chains"), "ab") as file:
        file.write(foreign + b"\n")
    with pytest.raises(DataError, match=r"Line 2 of .*chains\.jsonl must be a JSON object .* remove that line\."):
        again(store).lines("chains")


def test_a_line_of_another_experiment_is_refused(store):
    store.add(tiny_line(tiny_cell()))
    store.path("chains").rename(store.path("depth"))
    with pytest.raises(DataError, match=r"must be of the experiment depth, but is of chains; move it to .*chains"):
        store.lines("depth")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(DataError, match=r"cannot be added to .* choose another folder with --results"):
        Store(tmp_path / "results").add(tiny_line(tiny_cell()))
