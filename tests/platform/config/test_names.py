"""A name that does not exist brings the right one; names of folders lead nowhere else."""

from pathlib import Path

import pytest

from ebclab.config import parse_experiment
from ebclab.config.check import settings_of
from ebclab.config.experiment import SECTIONS
from ebclab.config.names import (
    JARGON,
    SYMBOLS,
    did_you_mean,
    is_folder_name,
    nearest,
    other_folder,
    require_folder_name,
)
from ebclab.errors import ConfigError, UserError

NAMES = ["digits", "mnist", "fashion-mnist", "cifar10"]


@pytest.mark.parametrize(
    ("written", "known", "found"),
    [
        ("cifar-10", NAMES, "cifar10"),
        ("fashion_mnist", NAMES, "fashion-mnist"),
        ("CIFAR10", NAMES, "cifar10"),
        ("simclr", ["SimCLR"], "SimCLR"),
        ("imagenet22k", ["digits", "mnist"], None),
    ],
)
def test_a_misspelt_name_finds_the_right_one_as_it_is_spelt(written, known, found):
    assert nearest(written, known) == found


def test_the_sentence_asks_and_lists_or_only_lists_when_nothing_is_close():
    assert did_you_mean("minst", ["digits", "mnist"]) == "did you mean mnist? Known: digits, mnist"
    assert did_you_mean("xyz", ["digits", "mnist"]) == "known: digits, mnist"
    assert did_you_mean("xyz", []) == "known: none"


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "../out", "a/b", "a\\b", "a?b", "a\nb", "a\ud800"])
def test_what_leads_elsewhere_or_cannot_be_printed_is_no_name_of_a_folder(name):
    assert not is_folder_name(name)
    with pytest.raises(UserError, match="--name: not the name of a folder, got "):
        require_folder_name(name)


@pytest.mark.parametrize("name", ["run", "a b", "lr=0.1", "v1.2", "größer", "-x", "x" * 200, "ü" * 100])
def test_other_names_are_left_as_they_are(name: str):
    assert require_folder_name(name) == name


@pytest.mark.parametrize(("name", "length"), [("x" * 5000, 5000), ("x" * 201, 201), ("ü" * 101, 202)])
def test_a_name_is_at_most_200_bytes_long(name: str, length: int):
    with pytest.raises(UserError, match=f"^--name: longer than 200 bytes, got {length} ") as caught:
        require_folder_name(name)
    assert len(str(caught.value)) < 200


def test_a_folder_in_the_one_that_was_named_or_like_it_is_offered(tmp_path: Path):
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.yaml").touch()
    (tmp_path / "runs" / "second").mkdir()
    asked = {"holds": "config.yaml", "otherwise": "make one"}
    assert other_folder(f"{tmp_path}/runs", **asked) == f"name one of those in it, such as {tmp_path}/runs/first"
    assert other_folder(f"{tmp_path}/runs/frist", **asked) == f"did you mean {tmp_path}/runs/first?"
    assert other_folder(f"{tmp_path}/runs/secnd", **asked) == "make one"
    assert other_folder("s3://bucket/runs", **asked) == "make one"


@pytest.mark.parametrize(
    ("symbol", "keys"),
    [
        ("lambda", "method.generative_weight"),
        ("rho", "method.reinit_rate"),
        ("sigma", "method.sigma_min or method.sigma_max"),
        ("K", "method.noise_decay_count"),
        ("alpha", "method.step_size"),
        ("delta", "method.gradient_clamp"),
        ("T", "method.num_steps"),
        ("tau", "method.temperature"),
        ("M", "method.buffer_size"),
        ("ESS", "method.ess_target"),
    ],
)
def test_the_papers_symbols_are_known(methods, symbol, keys):
    method = {"name": "sampled"}
    for written, mapping in (
        (f"method.{symbol}", {"method": {**method, symbol: 0.1}}),
        (symbol, {"method": method, symbol: 0.1}),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_experiment(mapping, methods)
        assert caught.value.problems == [f"{written}: no such setting; did you mean {keys} ({symbol} in the paper)?"]


ENCODER = "settings of encoder: name, stem, width, batch_norm, activation, initialisation, pooling"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"method": {"rho": 0.2}},
            "method.rho: no such setting; rho in the papers is method.reinit_rate, which plain does not have; "
            "settings of method: temperature, head, bounds, target, end, gain",
        ),
        ({"encoder": {"zzz": 1}}, f"encoder.zzz: no such setting; {ENCODER}"),
        ({"encoder": {3: 1}}, f"encoder.3: no such setting; {ENCODER}"),
        (
            {"zzz": 1},
            "zzz: no such setting; settings at the top: "
            "method, data, views, encoder, init, optimizer, training, evaluation, resources, seed",
        ),
        (
            {"method.temperature": 0.2},
            "method.temperature: a dotted key, got 0.2; write it nested: method: {temperature: 0.2}",
        ),
    ],
)
def test_a_name_like_no_other_gets_the_list_or_the_way_to_write_it(problems_of, given, line):
    assert problems_of(**given) == [line]


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("training.lr", "optimizer.learning_rate"),
        ("optimizer.lr", "optimizer.learning_rate"),
        ("optimizer.wd", "optimizer.weight_decay"),
        ("optimizer.betas", "optimizer.beta1 or optimizer.beta2"),
        ("training.bs", "training.batch_size"),
        ("data.dataset", "data.name"),
        ("training.AMP", "training.precision"),
        ("training.random_seed", "seed"),
        ("training.momentum", "optimizer.momentum"),
        ("learning_rate", "optimizer.learning_rate"),
        ("batch_size", "training.batch_size or evaluation.batch_size"),
        ("temperature", "method.temperature"),
        ("optimiser", "optimizer"),
        ("sed", "seed"),
        ("learning-rate", "optimizer.learning_rate"),
        ("method.gamma", "method.gain (gamma in the paper)"),  # a symbol that the method declares itself
    ],
)
def test_jargon_and_names_in_the_wrong_place_find_their_setting(problems_of, key, keys):
    section, _, name = key.rpartition(".")
    given = {section: {name: 1}} if section else {name: 1}
    assert problems_of(**given) == [f"{key}: no such setting; did you mean {keys}?"]


def test_jargon_leads_to_settings_that_exist():
    for target in " ".join(JARGON.values()).split():
        section, _, name = target.partition(".")
        assert section == "method" or target == "seed" or name in settings_of(SECTIONS[section]), target


def test_no_jargon_word_is_a_setting_itself():
    names = {name for section in SECTIONS.values() for name in settings_of(section)}
    assert not names & (JARGON.keys() | SYMBOLS.keys())
