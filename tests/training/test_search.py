"""Search spaces: what is understood, what is refused, and that each becomes text and back."""

import pytest

from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.search import Choice, Range, as_text, default_space, read_search, search_space
from pprgnn.training.systems import SYSTEMS

from .small_data import is_sentence

CONFIG = Config()


def space(*words):
    return search_space(read_search(words), CONFIG)


@pytest.mark.parametrize(
    ("word", "key", "wanted"),
    [
        ("lr=0.001..0.1:log", "training.lr", Range(0.001, 0.1, log=True)),
        ("dropout=0..0.8", "model.dropout", Range(0.0, 0.8)),
        ("model.layers = 1..3", "model.layers", Range(1, 3)),
        ("hidden=16..256:log", "model.hidden", Range(16, 256, log=True)),
        ("weight_decay=1e-6..1e-2:log", "training.weight_decay", Range(1e-6, 1e-2, log=True)),
        ("hidden=32, 64,128,32", "model.hidden", Choice((32, 64, 128))),
        ("learn_eps=no,yes", "model.learn_eps", Choice(("no", "yes"))),
        ("residual=true,false", "model.residual", Choice((True, False))),
        ("eps=1,[1.0, 0.1],[0.5]", "model.eps", Choice((1.0, (1.0, 0.1), (0.5,)))),
        ("depth=measured,7", "model.depth", Choice(("measured", 7))),
        ("features=degree,given", "data.features", Choice(("degree", "given"))),
    ],
)
def test_understood_and_written_back(word, key, wanted):
    found = space(word)
    assert found == {key: wanted}
    assert type(found[key]) is type(wanted)
    if isinstance(wanted, Range):
        assert (type(found[key].low), found[key].whole) == (type(wanted.low), isinstance(wanted.low, int))
    assert search_space(as_text(found), CONFIG) == found


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lr", "must look like"),
        ("lrr=1..2", "did you mean 'lr'"),
        ("nonsense=1", "There is no setting 'nonsense'"),
        ("lr=0.1..", "must look like 0.001..0.1"),
        ("lr=a..b", "must look like 0.001..0.1"),
        ("lr=0.1..0.2:linear", "must look like 0.001..0.1"),
        ("lr=0.1..0.01", "must rise"),
        ("lr=0.1..0.1", "must rise"),
        ("lr=0..0.1", "training.lr must be a number above 0"),
        ("weight_decay=0..0.1:log", "must start above 0"),
        ("dropout=0..1", "of at most 0.95"),
        ("hidden=1..2.5", "model.hidden must be a whole number"),
        ("hidden=32,many", "model.hidden must be a whole number"),
        ("hidden=", "must have values"),
        ("learn_eps=0..1", "model.learn_eps must be no | yes | channel"),
        ("seed=0..9", "cannot be searched"),
        ("metric=accuracy,micro-F1", "cannot be searched"),
        ("monitor=loss,metric", "cannot be searched"),
        ("fold=0..9", "cannot be searched"),
        ("protocol=honest,paper", "cannot be searched"),
        ("split.fraction=0.1..0.2", "entry of a table"),
        ("lr.x=1..2", "is not a table"),
    ],
)
def test_refused_with_a_sentence(word, said):
    with pytest.raises(TrainingError) as caught:
        space(word)
    assert said in str(caught.value)
    assert is_sentence(str(caught.value).replace("...", ".."))


def test_twice_under_two_names():
    with pytest.raises(TrainingError, match=r"training\.lr must be searched once"):
        space("lr=0.1,0.2", "training.lr=0.1,0.2")


def test_from_python():
    found = search_space({"hidden": [8, 16], "lr": Range(0.1, 1), "eps": "0.1..1"}, CONFIG)
    assert found == {"model.hidden": Choice((8, 16)), "training.lr": Range(0.1, 1.0), "model.eps": Range(0.1, 1.0)}
    assert not found["training.lr"].whole  # a learning rate is a number, whatever its ends look like
    for wrong in ({}, {"hidden": []}, {"hidden": 8}):
        with pytest.raises(TrainingError):
            search_space(wrong, CONFIG)


def test_from_a_file(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text('lr = "0.001..0.1:log"\n[model]\nhidden = [8, 16]\n')
    assert space(str(path)) == space("lr=0.001..0.1:log", "hidden=8,16")
    assert space(str(path), "lr=1,2") == space("lr=1,2", "hidden=8,16")  # what comes later counts
    path.write_text("lr = ")
    with pytest.raises(TrainingError, match="not valid TOML"):
        space(str(path))
    with pytest.raises(TrainingError, match="cannot be read"):
        space(str(tmp_path / "absent.toml"))


def test_suggested_numbers_have_few_digits_and_stay_inside():
    wanted = Range(0.12345, 0.98765)
    assert wanted.rounded(0.4567891) == 0.457
    assert wanted.rounded(0.12346) == 0.12345
    assert wanted.rounded(0.98764) == 0.98765
    assert Range(1, 100_000).rounded(12_345) == 12_345


@pytest.mark.parametrize(
    ("changes", "without"),
    [
        ({}, ()),
        ({"system": "gcn"}, ("model.eps", "model.learn_eps", "model.layers")),
        ({"architecture": "ppi"}, ("model.dropout", "model.layers")),
        ({"architecture": "paper-graph"}, ("model.layers",)),
    ],
)
def test_the_usual_space_has_only_what_the_network_has(changes, without):
    found = default_space(CONFIG.with_values(changes))
    whole = default_space(CONFIG)
    assert set(found) == set(whole) - set(without)
    assert {"training.lr", "training.weight_decay", "model.hidden", "model.dropout", "model.eps"} <= set(whole)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_system_has_a_usual_space_or_says_why_not(system):
    config = Config.for_system(system.name)
    if system.kind in ("kernel", "labels"):
        for search in (default_space, lambda config: search_space({"model.own": "1,2"}, config)):
            with pytest.raises(TrainingError, match="chooses its settings by itself"):
                search(config)
        return
    found = default_space(config)
    assert "training.lr" in found
    for key, wanted in found.items():
        ends = wanted.values if isinstance(wanted, Choice) else (wanted.low, wanted.high)
        for value in ends:
            assert config.with_values({key: value}).value(key) == value
    if "model.hidden" in found:
        assert found["model.hidden"].holds(config.model.hidden)


GAT = Config.for_system("gat")


@pytest.mark.parametrize("key", ["heads", "own.heads", "model.heads", "model.own.heads"])
def test_settings_that_only_one_system_has(key, tmp_path):
    wanted = {"model.own.heads": Range(1, 8)}
    assert search_space({key: "1..8"}, GAT) == wanted
    assert search_space(as_text(wanted), GAT) == wanted
    path = tmp_path / "space.toml"
    path.write_text(f'{key} = "1..8"\n')
    assert search_space(read_search([str(path)]), GAT) == wanted
    with pytest.raises(TrainingError, match="must be a whole number of at least 1, but is 0"):
        search_space({key: "0..8"}, GAT)
    with pytest.raises(TrainingError, match="heads"):
        search_space({key: "1..8"}, CONFIG)


def test_systems_are_not_searched():
    refused = {"system": "with --model NAME", "own": "search its entries", "eps": "not one that GAT reads"}
    for key, said in refused.items():
        with pytest.raises(TrainingError, match=said) as caught:
            search_space({key: "1..2"}, GAT)
        assert is_sentence(str(caught.value))


def test_several_rates_are_left_alone():
    assert "model.eps" not in default_space(CONFIG.with_values({"eps": [1.0, 0.1]}))
