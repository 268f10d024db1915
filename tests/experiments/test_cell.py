"""A cell: its place in the tables, and which results are its own."""

import json
from dataclasses import replace

import pytest

from pprgnn.experiments.cell import group_of, settings_of

from .tiny import tiny_cell, tiny_line


def test_coordinates_come_from_the_settings():
    cell = tiny_cell({"data.fold": 3, "training.seed": 7}, variant="v", at={"length": 4})
    assert cell.coordinates == {
        "experiment": "chains",
        "data": "chains",
        "system": "gcn",
        "variant": "v",
        "protocol": "honest",
        "at": {"length": 4},
        "fold": 3,
        "seed": 7,
    }
    assert cell.label == "chains chains gcn v honest length 4 fold 3 seed 7"
    assert replace(cell, data="other").coordinates["data"] == "other"


def test_fold_and_seed_do_not_part_a_group():
    one, other = tiny_cell(), tiny_cell({"data.fold": 3, "training.seed": 7})
    assert one.group == other.group == group_of(tiny_line(one))
    assert one.group != tiny_cell({"data.protocol": "paper"}).group
    assert one.group != tiny_cell(at={"length": 5}).group


def test_a_line_answers_the_cell_it_was_made_for_after_json():
    cell = tiny_cell({"model.eps": (1.0, 0.1)}, system="pprgnn", at={"depth": "∞"})
    assert cell.is_answered_by(json.loads(json.dumps(tiny_line(cell))))


@pytest.mark.parametrize(
    "change",
    [{"training.lr": 0.5}, {"model.hidden": 5}, {"data.options": {"length": 5}}, {"training.epochs": 4}],
    ids=str,
)
def test_other_settings_make_it_missing_again(change):
    assert not tiny_cell(change).is_answered_by(tiny_line(tiny_cell()))
    assert tiny_cell(change).folder_name != tiny_cell().folder_name


def test_a_setting_of_the_system_alone_counts():
    line = tiny_line(tiny_cell(system="appnp"))
    assert not tiny_cell({"own.hops": 3}, system="appnp").is_answered_by(line)


@pytest.mark.parametrize(
    "change", [{"training.threads": 2}, {"training.memory": "keep"}, {"training.device": "cpu"}]
)
def test_where_it_computes_does_not_matter(change):
    assert tiny_cell(change).is_answered_by(tiny_line(tiny_cell()))
    assert tiny_cell(change).folder_name == tiny_cell().folder_name


def test_a_setting_that_was_invented_later_has_its_usual_value():
    old = tiny_line(tiny_cell(system="appnp"))
    del old["config"]["training.clip"]
    hops = old["config"]["model.own"].pop("hops")
    assert tiny_cell(system="appnp").is_answered_by(old)
    assert not tiny_cell({"training.clip": 1.0}, system="appnp").is_answered_by(old)
    assert not tiny_cell({"own.hops": hops + 1}, system="appnp").is_answered_by(old)


def test_settings_have_their_sections():
    settings = settings_of(tiny_cell().config)
    assert (settings["model.hidden"], settings["data.name"]) == (4, "chains")
    assert "training.threads" not in settings
