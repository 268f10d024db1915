"""The same settings as dataclass, dictionary, TOML and key=value; and every wrong value in a sentence."""

import math
import subprocess
import sys
from dataclasses import asdict, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pprgnn.training.config import Config, DataConfig, ModelConfig, Setting, TrainingConfig, settings
from pprgnn.training.errors import TrainingError
from pprgnn.training.option import parse, toml
from pprgnn.training.systems import SYSTEMS
from tests.training.small_data import is_sentence

SECTIONS = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig}
EVERY = [(section, each.name) for section, part in SECTIONS.items() for each in fields(part)]


# -------------------------------------------------------------------------------------------- any valid settings
def numbers(limits: Any, whole: bool) -> st.SearchStrategy[Any]:
    low, above, high = limits["least"], limits["above"], limits["most"]
    if whole:
        return st.integers(low, high)
    return st.floats(
        low if above is None else above,
        high,
        exclude_min=above is not None,
        allow_nan=False,
        allow_infinity=False,
    )


PLAIN = st.recursive(
    st.text() | st.booleans() | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def values(hint: Any, limits: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.lists(numbers(limits, whole=False), min_size=1, max_size=4).map(tuple)
    if get_origin(hint) is dict:
        return st.dictionaries(st.text(), PLAIN, max_size=3)
    if hint in (int, float):
        return numbers(limits, whole=hint is int)
    if hint in (bool, str):
        return st.booleans() if hint is bool else st.text()
    return st.one_of([values(each, limits) for each in get_args(hint)])


def some(part: type[Any], names: Any = None, **given: Any) -> st.SearchStrategy[Any]:
    """Any valid values for all fields, or those of these names."""
    hints = get_type_hints(part)
    chosen = [each for each in fields(part) if names is None or each.name in names]
    return st.builds(part, **{each.name: values(hints[each.name], each.metadata) for each in chosen}, **given)


@st.composite
def some_model(draw: Any) -> ModelConfig:
    """What some system reads, and some of its own settings."""
    system = draw(st.sampled_from(SYSTEMS))
    own = {key: value for key, value in asdict(draw(some(system.own))).items() if draw(st.booleans())}
    return draw(some(ModelConfig, system.reads, system=st.just(system.name), own=st.just(own)))


CONFIGS = st.builds(Config, data=some(DataConfig), model=some_model(), training=some(TrainingConfig))


@given(CONFIGS)
def test_round_trip_through_toml_and_dictionary(tmp_path_factory, config):
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert Config.from_toml(path) == config
    assert Config.from_dict(config.to_dict()) == config


@given(CONFIGS)
def test_round_trip_through_key_value(config):
    said = [
        f"{section.name}.{each.name}={toml(getattr(getattr(config, section.name), each.name))}"
        for section in fields(config)
        for each in fields(getattr(config, section.name))
    ]
    assert Config().with_settings(said) == config


@given(PLAIN)
def test_a_value_survives_toml(value):
    assert parse(toml(value)) == value


# ------------------------------------------------------------------------------------------------------ defaults
def test_defaults_are_valid_and_written_out():
    assert Config.from_dict(Config().to_dict()) == Config() == Config.from_dict({})
    text = Config().to_toml()
    for section, name in EVERY:
        assert f"\n{name} = " in text.split(f"[{section}]")[1]


def test_every_setting_has_help():
    listed = list(settings())
    assert [(each.section, each.name) for each in listed] == EVERY
    for each in listed:
        assert isinstance(each, Setting)
        assert len(each.text) > 4
        assert each.kind
        assert getattr(getattr(Config(), each.section), each.name) == each.default


def test_no_name_occurs_in_two_sections():
    names = [name for _, name in EVERY]
    assert len(names) == len(set(names))
    assert not set(names) & set(SECTIONS)


def test_no_torch_is_imported():
    code = (
        "import sys, pprgnn.training.config as c; c.Config().with_settings(['lr=1']).to_toml(); "
        "print([m for m in ('torch', 'numpy', 'torch_geometric', 'safetensors') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------- key=value
def test_keys_with_and_without_their_section():
    config = Config().with_settings(["lr=0.5", "model.hidden = 8", "name=Cora", 'protocol="paper"', "bias=false"])
    assert (config.training.lr, config.model.hidden, config.data.name) == (0.5, 8, "Cora")
    assert (config.data.protocol, config.model.bias) == ("paper", False)


def test_later_settings_win_and_the_first_config_stays():
    first = Config()
    assert first.with_settings(["lr=1", "lr=2"]).training.lr == 2
    assert first == Config()


def test_entries_of_tables():
    config = Config().with_settings(["split.fraction=0.05", "data.split.seed=3", "options.length=20"])
    assert config.data.split == {"fraction": 0.05, "seed": 3}
    assert config.data.options == {"length": 20}
    assert Config().data.split == {}
    assert config.with_settings(["split={}"]).data.split == {}
    assert config.with_settings(["split.fraction=0.1"]).data.split == {"fraction": 0.1, "seed": 3}


def test_numbers_take_the_type_of_their_field():
    config = Config().with_settings(["lr=1", "eps=[1, 0.5]", "clip=2"])
    assert type(config.training.lr) is float
    assert config.model.eps == (1.0, 0.5)
    assert all(type(each) is float for each in (*config.model.eps, config.training.clip))
    assert Config().with_settings(["eps=2"]).model.eps == 2.0
    assert Config().with_settings(["depth=7"]).model.depth == 7
    assert Config().with_settings(["depth=influence"]).model.depth == "influence"


def test_text_with_equals_and_dots():
    assert Config().with_settings(["name=/a/b=c.d.safetensors"]).data.name == "/a/b=c.d.safetensors"


# --------------------------------------------------------------------------------------------- wrong, one sentence
def refused(call) -> str:
    with pytest.raises(TrainingError) as caught:
        call()
    text = str(caught.value)
    assert is_sentence(text), text
    return text


WRONG = [
    ("lr=-1", ["training.lr", "above 0", "-1"]),
    ("lr=0", ["training.lr", "above 0"]),
    ("lr=nan", ["training.lr", "nan"]),
    ("lr=inf", ["training.lr", "inf"]),
    ("lr=fast", ["training.lr", "a number", "'fast'"]),
    ("lr=true", ["training.lr", "True"]),
    ("lr=1" + 400 * "0", ["training.lr"]),
    ("lr=", ["training.lr", "''"]),
    ("epochs=0", ["training.epochs", "at least 1"]),
    ("epochs=1.5", ["training.epochs", "a whole number", "1.5"]),
    ("epochs=[1]", ["training.epochs", "[1]"]),
    ("seed=1" + 400 * "0", ["training.seed", "at most"]),
    ("seed=-1", ["training.seed"]),
    ("dropout=0.96", ["model.dropout", "at least 0 and of at most 0.95"]),
    ("eps=0", ["model.eps", "above 0"]),
    ("eps=[1, 0]", ["model.eps", "[1, 0]"]),
    ("eps=[]", ["model.eps"]),
    ('eps=[1, "a"]', ["model.eps"]),
    ("depth=-1", ["model.depth"]),
    ("depth=deep", ["model.depth", "measured | certificate | influence"]),
    ("bias=1", ["model.bias", "true | false"]),
    ("bias=yes", ["model.bias", "'yes'"]),
    ("optimizer=sgd", ["training.optimizer", "adam | adamw", "'sgd'"]),
    ("split=3", ["data.split", "a table"]),
    ("options.when=2020-01-01", ["data.options", "a table"]),
    ("name=7", ["data.name", "text"]),
    ("lr.x=3", ["lr.x", "not a table"]),
    ("training.lr.x=3", ["training.lr", "not a table"]),
    ("learning_rate=3", ["learning_rate"]),
    ("hiden=3", ["'hiden'", "did you mean 'hidden'?"]),
    ("model.hiden=3", ["did you mean 'hidden'?"]),
    ("model.lr=3", ["model.lr"]),
    ("model=3", ["'model'"]),
    ("=3", ["''"]),
    ("lr", ["key=value", "'lr'"]),
]


@pytest.mark.parametrize(("setting", "words"), WRONG, ids=[setting[:24] for setting, _ in WRONG])
def test_wrong_settings(setting, words):
    text = refused(lambda: Config().with_settings([setting]))
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"training": {"lr": 0}}, ["training.lr", "above 0"]),
        ({"training": {"lrr": 1}}, ["[training]", "'lrr'", "did you mean 'lr'?"]),
        ({"trainig": {}}, ["data, model and training", "'trainig'"]),
        ({"training": 3}, ["[training]", "3"]),
        ({"data": {"split": {"x": None}}}, ["data.split"]),
        ({"data": {"split": {1: 2}}}, ["data.split"]),
        ({"data": {"options": {"x": {"y": object}}}}, ["data.options"]),
        ({"model": {"hidden": None}}, ["model.hidden", "None"]),
    ],
)
def test_wrong_dictionaries(values, words):
    text = refused(lambda: Config.from_dict(values))
    for word in words:
        assert word in text


def test_with_values_checks_too():
    assert Config().with_values({"lr": 1, "data.split": {"fraction": 0.1}}).data.split == {"fraction": 0.1}
    assert "training.lr" in refused(lambda: Config().with_values({"lr": "x"}))
    assert Config().with_values({"split.fraction": 1}).data.split == {"fraction": 1}  # as --set takes it
    assert "training.lr is not a table" in refused(lambda: Config().with_values({"lr.fraction": 1}))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"[training]\nlr = ", "TOML"),
        (b"\xff\xfe", "cannot be read"),
        (b"lr = 1\n", "sections"),
        (b"[model]\nx=1", "'x'"),
    ],
)
def test_wrong_recipes_name_the_file(tmp_path, content, word):
    path = tmp_path / "recipe.toml"
    path.write_bytes(content)
    text = refused(lambda: Config.from_toml(path))
    assert word in text
    assert "recipe.toml" in text


def test_a_recipe_that_is_not_there(tmp_path):
    assert "absent.toml" in refused(lambda: Config.from_toml(tmp_path / "absent.toml"))
    assert "cannot be read" in refused(lambda: Config.from_toml(tmp_path))


def outcome(call) -> Config | str:
    """The config, or the sentence that refuses it; any other error is one."""
    try:
        return call()
    except TrainingError as error:
        return str(error)


@given(st.sampled_from(EVERY), PLAIN)
def test_any_value_is_taken_or_refused_in_a_sentence(which, value):
    section, name = which
    config = outcome(lambda: Config.from_dict({section: {name: value}}))
    if isinstance(config, str):
        unknown = {"system": "There is no model ", "own": "PPRGNN has no setting "}.get(name, "?")
        assert f"{section}.{name} must be " in config or unknown in config
        assert config[-1] in ".?"
    else:
        found = getattr(getattr(config, section), name)
        assert found == (tuple(value) if isinstance(value, list) else value)
        assert not (isinstance(found, float) and not math.isfinite(found))
        assert Config.from_dict(config.to_dict()) == config


@given(st.text(), st.text())
def test_any_text_is_taken_or_refused(key, value):
    found = outcome(lambda: Config().with_settings([f"{key}={value}"]))
    assert isinstance(found, Config) or found[-1] in ".?"


# ------------------------------------------------------------------------------------------------------- systems
def test_a_system_brings_its_usual_settings_and_keeps_the_data():
    config = Config().with_settings(["name=Cora", "lr=0.5", "hidden=7"]).with_values({"system": "GAT"})
    assert config == Config.for_system("gat", DataConfig(name="Cora"))
    assert (config.model.system, config.model.hidden, config.training.lr) == ("gat", 8, 0.005)
    assert config.model.own == {"heads": 8, "output_heads": 1, "attention_dropout": 0.6, "skip": False}
    again = config.with_values({"system": "gat", "hidden": 9})
    assert again.with_values({"system": "gat"}) == again  # the same system changes nothing
    assert again.with_values({"system": "pprgnn"}) == Config(DataConfig(name="Cora"))


def test_a_system_comes_first_wherever_it_stands():
    wanted = Config.for_system("gat").with_values({"lr": 0.5, "heads": 4})
    for said in (["system=gat", "lr=0.5", "heads=4"], ["heads=4", "lr=0.5", "model.system=gat"]):
        assert Config().with_settings(said) == wanted
    assert Config().with_values({"heads": 4, "lr": 0.5, "system": "gat"}) == wanted


@pytest.mark.parametrize("key", ["heads", "own.heads", "model.heads", "model.own.heads"])
def test_settings_that_only_one_system_has(key):
    config = Config.for_system("gat")
    changed = config.with_settings([f"{key}=4"])
    assert changed == config.with_values({key: 4})
    assert changed.model.own == config.model.own | {"heads": 4}
    assert changed.value(key) == 4
    assert config.model.own["heads"] == 8
    assert changed.with_values({"own": {}}) == config
    assert "model.own.heads must be a whole number of at least 1" in refused(
        lambda: config.with_settings([f"{key}=0"])
    )
    assert "PPRGNN" in refused(lambda: Config().with_settings([f"{key}=4"]))


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_the_usual_settings_of_a_system_survive_a_file(system, tmp_path):
    config = Config.for_system(system.name)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert Config.from_toml(path) == config
    path.write_text(f'[model]\nsystem = "{system.name.upper()}"\n')
    assert Config.from_toml(path) == config
    said = [f"{each.key}={toml(config.value(each.key))}" for each in settings(system.name)]
    assert Config().with_settings(said) == config


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_settings_of_a_system_are_those_that_it_reads(system):
    listed = list(settings(system.name))
    assert [each.name for each in listed if each.section == "model.own"] == list(system.own_names)
    assert {each.name for each in listed if each.section == "model"} == {"system", *system.reads}
    assert {each.name for each in listed if each.section == "training"} == {
        each.name for each in fields(TrainingConfig)
    }
    config = Config.for_system(system.name)
    assert all(config.value(each.key) == each.default for each in listed)
    unread = {each.name for each in fields(ModelConfig)} - {"system", "own", *system.reads}
    for name in unread & {"eps", "grad_terms", "layers", "norm"}:
        other = {"eps": 0.3, "grad_terms": 3, "layers": 5, "norm": "layer"}[name]
        text = refused(lambda name=name, other=other: config.with_values({name: other}))
        assert f"model.{name} = {other!r} is not one that {system.title} reads" in text


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"system": "gaat"}, ["no model 'gaat'", "did you mean 'gat'?"]),
        ({"system": ""}, ["no model ''", "`pprgnn models` lists them"]),
        ({"system": 3}, ["model.system", "text"]),
        ({"system": "gat", "own": {"head": 1}}, ["GAT has no setting 'head' of its own", "heads"]),
        ({"system": "gat", "own": {"heads": "many"}}, ["model.own.heads", "'many'"]),
        ({"system": "gat", "own": 3}, ["model.own", "a table"]),
        ({"system": "gat", "eps": 0.3}, ["model.eps = 0.3", "GAT reads"]),
        ({"own": {"heads": 1}}, ["PPRGNN has no setting 'heads' of its own: it has none"]),
    ],
)
def test_wrong_systems_name_their_file(model, words, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text("[model]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in model.items()))
    text = refused(lambda: Config.from_toml(path))
    assert text.startswith(f"[model] of {path}: ")
    for word in words:
        assert word in text


def test_a_setting_of_another_system_is_said_to_be_one():
    assert "it is one of gat" in refused(lambda: Config().with_settings(["attention_dropout=0.1"]))
    assert "did you mean 'heads'?" in refused(lambda: Config.for_system("gat").with_settings(["head=1"]))


def test_configs_do_not_share_their_tables():
    one, other = Config(), Config()
    one.data.split["x"] = 1
    assert other.data.split == {} == Config().data.split
    assert replace(other, data=DataConfig(name="a")).data.split == {}
