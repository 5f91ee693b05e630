from dataclasses import replace

import pytest

from ebclab.config import ExperimentConfig, compose, parse_experiment, parse_yaml
from ebclab.config.sections import OptimizerConfig, TrainingConfig
from ebclab.errors import ConfigError


def test_what_is_left_out_has_its_default(methods):
    config = parse_experiment({"method": {"name": "plain"}, "views": {"recipe": "none"}}, methods)
    config = replace(config, views=replace(config.views, recipe="auto"))  # the name of a recipe is always resolved
    assert config == ExperimentConfig("plain", methods["plain"].Config())


def test_what_is_given_is_taken(methods):
    config = parse_experiment(
        {"method": {"name": "plain", "temperature": 1, "bounds": [0, 1]}, "training": {"epochs": 3}, "seed": 7}, methods
    )
    assert config.method == methods["plain"].Config(temperature=1.0, bounds=(0.0, 1.0))
    assert config.training == TrainingConfig(epochs=3)
    assert config.seed == 7


def test_a_section_with_nothing_in_it_has_its_defaults(methods):
    assert parse_yaml("method: {name: plain}\noptimizer:\n", "run.yaml", methods).optimizer == OptimizerConfig()


@pytest.mark.parametrize(
    ("mapping", "line"),
    [
        ({}, "method.name: missing; write one of plain, sampled"),
        (
            {"method": {"name": "plane"}},
            "method.name: no such method, got 'plane'; did you mean plain? Known: plain, sampled",
        ),
        ({"method": {"name": 3}}, "method.name: no such method, got 3; known: plain, sampled"),
        ({"method": "plain"}, "method: not a section, got 'plain'; write method: {name: ...}"),
    ],
)
def test_a_method_that_is_none_is_one_line(methods, mapping, line):
    with pytest.raises(ConfigError) as caught:
        parse_experiment(mapping, methods)
    assert caught.value.problems == [line]


NO_CONFIRM = (
    "evaluation.scored_on: no images are kept for it, got confirm with data.confirm_rate=0; set data.confirm_rate=0.1"
)
TOO_LARGE = (
    "encoder.width: more than 9,223,372,036,854,775,807, got 100000000000000000000; must be a whole number, at least 0 "
    "(unit: channels)"
)
REFUSED = [
    ({"seed": -1}, "seed: out of range, got -1; must be a whole number, at least 0, at most 4294967295"),
    ({"data": "cifar10"}, "data: not a section, got 'cifar10'; write data: {name: ...}"),
    (
        {"optimizer": {"name": "sdg"}},
        "optimizer.name: no such choice, got 'sdg'; did you mean sgd? Known: sgd, adam, adamw, lars",
    ),
    (
        {"optimizer": {"learnin_rate": 0.1}},
        "optimizer.learnin_rate: no such setting; did you mean optimizer.learning_rate?",
    ),
    ({"trainig": {"epochs": 3}}, "trainig: no such setting; did you mean training?"),
    (
        {"views": {"crop_scale_min": 0.8, "crop_scale_max": 0.5}},
        "views.crop_scale_min: must not exceed crop_scale_max, got 0.8 > 0.5",
    ),
    (
        {"views": {"blur_rate": 1.0, "blur_kernel_size": 17, "image_size": 8}},
        "views.blur_kernel_size: must be below twice image_size, got 17 for 8 pixels; shrink it, or set blur_rate to 0",
    ),
    (
        {"optimizer": {"warmup_epochs": 10}, "training": {"epochs": 5}},
        "optimizer.warmup_epochs: must not exceed training.epochs, got 10 > 5; "
        "write optimizer.warmup_epochs=0.5, or more epochs",
    ),
    (
        {"optimizer": {"milestones": [0.8, 0.6, 0.8]}},
        "optimizer.milestones: must rise, got [0.8, 0.6, 0.8]; write [0.6, 0.8]",
    ),
    (
        {"data": {"train_limit": 100}, "training": {"batch_size": 128}},
        "training.batch_size: must not exceed data.train_limit, got 128 > 100; no batch would ever be full",
    ),
    (
        {"data": {"root": "s3://b/sets"}},
        "data.root: datasets are read from a folder on a disk, got s3://b/sets; "
        "a set that `ebclab data prepare` wrote is read from a store by data.name=parquet:s3://b/sets",
    ),
    ({"evaluation": {"scored_on": "confirm"}}, NO_CONFIRM),
    ({"encoder": {"width": 10**20}}, TOO_LARGE),
    (  # a rule across sections waits for right values
        {"optimizer": {"warmup_epochs": 20}, "training": {"epochs": "50"}},
        "training.epochs: wrong type, got '50'; must be a whole number, at least 1 (unit: epochs)",
    ),
]


@pytest.mark.parametrize(("sections", "line"), REFUSED, ids=lambda value: value[:30] if isinstance(value, str) else "")
def test_a_mistake_is_one_line(problems_of, sections, line):
    assert problems_of(**sections) == [line]


def test_values_at_the_edge_of_a_rule_across_settings_pass(methods):
    views = {"blur_rate": 1.0, "blur_kernel_size": 15, "image_size": 8}
    scored = {"data": {"confirm_rate": 0.1}, "evaluation": {"scored_on": "confirm"}}
    assert parse_experiment({"method": {"name": "plain"}, "views": views, **scored}, methods).problems() == []


def test_all_mistakes_are_reported_at_once(problems_of):
    assert problems_of(
        {"tau": 0.1, "head": "cnn", "end": 1.0},
        lr=0.1,
        data={"name": 3, "train_limit": 2},
        views={"recipe": "cifar", "hue": 0.7, "blur_kernel_size": 4},
        encoder="resnet18",
        training={"dropout": 0.1, "batch_size": True, "log_every": 0},
        seed=1.5,
    ) == [
        "encoder: not a section, got 'resnet18'; write encoder: {name: ...}",
        "views.recipe: no such view recipe, got 'cifar'; did you mean moco-cifar? Known: none, digits, fashion-mnist, "
        "ebclr-mnist, ebclr-cifar, flatclr-cifar, moco-cifar, byol-imagenet, byol-cifar, simclr-imagenet, "
        "moco-imagenet",
        "lr: no such setting; did you mean optimizer.learning_rate?",
        "method.tau: no such setting; did you mean method.temperature (tau in the paper)?",
        "method.head: no such choice, got 'cnn'; known: linear, mlp",
        "method.end: needs target, got 1.0; set both",
        "data.name: wrong type, got 3; must be text",
        "views.hue: out of range, got 0.7; must be a number, at least 0, at most 0.5 (unit: turns)",
        "views.blur_kernel_size: must be odd, got 4",
        "training.dropout: no such setting; settings of training: epochs, batch_size, accumulate, precision, "
        "average_weights, channels_last, compile, log_every, loggers, checkpoint_every, keep_every, health, "
        "extended, copied_weights",
        "training.batch_size: wrong type, got true; must be a whole number, at least 2 (unit: images)",
        "training.log_every: out of range, got 0; must be a whole number, at least 1 (unit: steps)",
        "seed: wrong type, got 1.5; must be a whole number, at least 0, at most 4294967295",
    ]


def test_the_other_sections_are_checked_when_the_method_is_unknown(methods):
    with pytest.raises(ConfigError) as caught:
        parse_experiment({"method": {"name": "x", "tau": 1}, "training": {"epochs": 0}, "tau": 1}, methods)
    assert [line.split(":")[0] for line in caught.value.problems] == ["method.name", "tau", "training.epochs"]


def test_the_mapping_given_is_left_as_it_was(methods):
    mapping = {"method": {"name": "plain", "temperature": 1}, "views": {"recipe": "digits"}}
    parse_experiment(mapping, methods)
    assert mapping == {"method": {"name": "plain", "temperature": 1}, "views": {"recipe": "digits"}}


def test_the_folder_of_datasets_is_absolute_once_read(methods, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    roots = {
        given: {"method": {"name": "plain"}, "data": {"root": given}} for given in ("images", "~/images", "/images")
    }
    read = {given: parse_experiment(mapping, methods).data.root for given, mapping in roots.items()}
    assert read == {"images": str(tmp_path / "images"), "~/images": "/home/someone/images", "/images": "/images"}


LONG = "parquet:" + "x" * 100_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LONG, "longer than 4,096 characters, got 100,008, 'parquet:xxxx"),
        ("folder:\0", r"a control character or half a character, got 'folder:\x00'; leave it out"),
        ("folder:\x1b]0;", r"a control character or half a character, got 'folder:\x1b]0;'; leave it out"),
        ("folder:\ud800", r"half a character, got 'folder:\ud800'"),
    ],
    ids=["long", "nul", "escape", "half"],
)
@pytest.mark.parametrize("key", ["data.name", "data.root", "init.weights", "encoder.name", "data.nmae"])
def test_a_text_that_no_setting_has_is_refused_in_a_short_line(key, text, said, methods):
    section, name = key.split(".")
    with pytest.raises(ConfigError) as caught:
        parse_experiment({"method": {"name": "plain"}, section: {name: text}}, methods)
    (line,) = caught.value.problems
    assert line.startswith(f"{key}: ")
    assert said in line
    assert len(line) < 200


def test_images_with_such_a_name_are_not_looked_for(methods):
    with pytest.raises(ConfigError, match=r"^data\.name: a control character"):
        compose("plain", overrides={"data.name": "folder:\0"}, methods=methods, fit=lambda _: pytest.fail("looked"))


@pytest.mark.parametrize("key", ["k" * 100_000, "data." + "k" * 100_000, f"{'k' * 50_000}.name"])
def test_a_long_key_is_shown_in_part(key, methods):
    with pytest.raises(ConfigError) as caught:
        compose("plain", overrides=[f"{key}=3"], methods=methods)
    with pytest.raises(ConfigError) as also:
        parse_experiment({"method": {"name": "plain"}, key: 3}, methods)
    assert max(len(line) for line in (*caught.value.problems, *also.value.problems)) < 500


LONGEST = "n" * 4096


@pytest.mark.parametrize(
    "overrides",
    [
        {"data.name": f"folder:{LONGEST[7:]}", "data.root": "/x"},
        {"data.name": LONGEST},
        {"data.name": f"voc{LONGEST[3:]}"},
        {"data.root": f"s3://{LONGEST[5:]}"},
        {"data.root": f"s3://a//{LONGEST[8:]}"},
        {"resources.device": LONGEST, "resources.workers": 1},
        {"resources.address": f"ray://me:secret@{LONGEST[20:]}"},
        {"views.recipe": LONGEST},
        {"evaluation.objective": LONGEST},
        {"method.name": LONGEST},
    ],
    ids=lambda overrides: " ".join(overrides),
)
def test_no_message_has_a_long_value_whole(overrides, methods):
    with pytest.raises(ConfigError) as caught:
        compose("plain", overrides=overrides, methods=methods)
    assert max(len(line) for line in caught.value.problems) < 800
    assert LONGEST[:200] not in str(caught.value)
