"""Layers of settings: recipes with the numbers of their sources, files, and overrides over all."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from ebclab.background import warn_once
from ebclab.config import compose, list_recipes, load_recipe
from ebclab.config import recipes as recipes_module
from ebclab.config.experiment import SECTIONS
from ebclab.config.recipes import apply_overrides, merge, recipe_text
from ebclab.data.sources.location import location_of
from ebclab.errors import ConfigError, DataError
from ebclab.methods_by_name import catalogue

RECIPES = list_recipes()
FAKE_RECIPE = {
    "training": {"epochs": 2, "batch_size": 32, "log_every": 5},
    "optimizer": {"learning_rate": 0.2},
    "methods": {"plain": {"training": {"batch_size": 64}, "method": {"temperature": 0.2}}, "sampled": {"seed": 5}},
}


@pytest.fixture
def fake_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes_module, "load_recipe", lambda name: FAKE_RECIPE)


@pytest.mark.parametrize(
    ("overrides", "warmup"),
    [
        ([], 2.0),
        (["training.epochs=2"], 2.0),  # as long as the training: the user sees a warm-up throughout
        (["training.epochs=1"], 0.2),
        (["training.epochs=1", "optimizer.warmup_epochs=0.5"], 0.5),
    ],
)
def test_the_warmup_of_a_recipe_is_never_longer_than_fewer_epochs(monkeypatch, caplog, overrides, warmup):
    recipe = {"training": {"epochs": 10}, "optimizer": {"warmup_epochs": 2}}
    monkeypatch.setattr(recipes_module, "load_recipe", lambda name: recipe)
    warn_once.cache_clear()
    assert compose("simclr", recipe="any", overrides=overrides).optimizer.warmup_epochs == warmup
    said = "optimizer.warmup_epochs: 0.2 instead of the recipe's 2, since training.epochs is 1 instead of 10"
    assert caplog.messages == [said] * (warmup == 0.2)
    with pytest.raises(ConfigError, match=r"must not exceed training\.epochs, got 2 > 1"):
        compose("simclr", recipe="any", overrides=["training.epochs=1", "optimizer.warmup_epochs=2"])


def test_the_recipes_shipped_are_listed():
    assert {"digits-demo", "fashion-mnist-first", "fashion-mnist-small", "cifar10-resnet18"} <= set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_has_settings_of_a_method_only_under_methods(recipe):
    whole = load_recipe(recipe)
    for layer in [whole, *(whole.pop("datasets", None) or {}).values()]:
        assert layer.keys() <= {*SECTIONS, "seed", "methods"}
        assert (layer.get("methods") or {}).keys() <= catalogue().keys()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_tells_its_source_and_command(recipe):
    text = recipe_text(recipe)
    assert text.startswith(f"# {recipe}: ")
    assert "\n# Source: " in text
    assert f"--recipe {recipe}\n" in text


EBCLR = """
    method.temperature=0.1 method.generative_weight=0.1 method.num_steps=10 method.step_size=0.05
    method.gradient_clamp=1.0 method.sigma_min=0.01 method.sigma_max=0.05 method.noise_decay_count=3
    method.buffer_size=50000 method.output_penalty=sum method.output_penalty_weight=1e-3
    optimizer.name=adam optimizer.learning_rate=2e-4 optimizer.schedule=constant optimizer.weight_decay=0
    optimizer.warmup_epochs=0 optimizer.scaling=none training.batch_size=128 training.health=watch
    encoder.name=resnet18 encoder.stem=cifar encoder.batch_norm=none encoder.activation=leaky_relu
    encoder.initialisation=torch views.noise_std=0.03 views.normalisation=half
"""
RELEASED = "training.epochs=200 data.holdout_rate=0 views.shared_by=chunk optimizer.decay_norm_and_bias=true"
FAIR = "training.epochs=100 data.holdout_rate=0.1 views.shared_by=image"
VEM = """
    optimizer.name=sgd optimizer.scaling=none optimizer.momentum=0.9 optimizer.weight_decay=1e-4
    optimizer.schedule=cosine training.batch_size=256 evaluation.linear_protocol=vem-sgd method.bank_size=4096
    method.projection_size=128 method.num_steps=10 method.temperature=0.12 method.bank_temperature=0.02
"""
SMALL = "optimizer.learning_rate=0.15 training.epochs=1000 encoder.stem=cifar views.image_size=0"
LARGE = "optimizer.learning_rate=0.1 training.epochs=400 encoder.stem=imagenet views.image_size=224"
NUMBERS = [
    # MoCo's demonstration: a rate of 0.06 at its batch of 512
    (
        "cifar10-resnet18",
        ["simclr", "flatclr"],
        [""],
        """
        optimizer.name=sgd optimizer.momentum=0.9 optimizer.weight_decay=5e-4 optimizer.decay_norm_and_bias=true
        optimizer.scaling=linear optimizer.learning_rate=0.03 training.batch_size=512 training.epochs=200
        evaluation.knn_neighbours=200 evaluation.knn_temperature=0.1 method.temperature=0.2
        encoder.initialisation=kaiming
        """,
    ),
    (
        "ebclr-per-image",
        ["simclr"],
        [""],
        "optimizer.weight_decay=5e-4 optimizer.decay_norm_and_bias=true encoder.initialisation=kaiming",
    ),
    *(
        (recipe, ["ebclr"], sets, f"{EBCLR} {numbers} method.reinit_rate={rate}")
        for recipe, numbers in (("ebclr-as-released", RELEASED), ("ebclr-per-image", FAIR))
        for rate, sets in ((0.2, ["cifar10", "cifar100"]), (0.4, ["mnist"]), (0.6, ["fashion-mnist"]))
    ),
    # torch's first weights, decay of everything and no hand in the training, whatever the method
    (
        "ebclr-as-released",
        [*catalogue()],
        ["cifar10", "cifar100", "mnist", "fashion-mnist"],
        "encoder.initialisation=torch optimizer.decay_norm_and_bias=true training.health=watch",
    ),
    (
        "ebclr-as-released",
        ["simclr", "moco"],
        ["cifar10", "cifar100", "mnist", "fashion-mnist"],
        "views.shared_by=batch views.noise_std=0",
    ),
    (
        "ebclr-as-released",
        ["byol"],
        [""],
        "method.directions=mean method.target_start=own method.momentum=0.9 method.momentum_schedule=constant",
    ),
    ("cifar10-resnet18", ["byol"], [""], "method.directions=sum method.target_start=copy"),
    ("ebclr-as-released", ["simsiam"], [""], "method.projection_scale=true"),
    ("cifar10-resnet18", ["simsiam"], [""], "method.projection_scale=false"),
    # scripts/pretrain/imagenet-100/mocov2plus.yaml of solo-learn; the batch is that of its two GPUs
    (
        "imagenet100-resnet18",
        ["moco"],
        ["imagenet100:/data/imagenet"],
        """
        encoder.name=resnet18 encoder.stem=imagenet training.batch_size=256 training.epochs=400 optimizer.name=sgd
        optimizer.learning_rate=0.3 optimizer.scaling=linear optimizer.weight_decay=1e-4 optimizer.schedule=cosine
        optimizer.warmup_epochs=10 method.queue_size=65536 method.temperature=0.2 method.momentum=0.99
        method.symmetric=true method.projection_hidden_size=2048 method.projection_size=256
        method.projection_num_layers=2 views.crop_scale_min=0.08 views.brightness=0.4 views.hue=0.1
        views.blur_rate=0.5 views.image_size=224
        """,
    ),
    ("imagenet100-resnet18", ["byol"], ["imagenet100:/data/imagenet"], "views.second_solarise_rate=0.2"),
    # appendices D and H of VEM
    ("vem-paper", ["vem-langevin", "vem-svgd"], ["cifar100", "cifar10", "tiny-imagenet:/data/t"], f"{VEM} {SMALL}"),
    ("vem-paper", ["vem-langevin", "vem-svgd"], ["imagenet100:/data/imagenet"], f"{VEM} {LARGE}"),
    ("vem-paper", ["ebclr"], ["cifar100", "imagenet100:/data/imagenet"], "optimizer.learning_rate=2e-4"),
    ("vem-paper", ["jem"], ["cifar100", "imagenet100:/data/imagenet"], "optimizer.learning_rate=1e-4"),
    # FlatNCE's and SimCLR's for ImageNet
    (
        "flatclr-imagenet",
        ["simclr", "flatclr"],
        ["imagenet:/data/imagenet"],
        """
        encoder.name=resnet50 training.batch_size=512 training.epochs=100 method.projection_size=256
        method.temperature=0.1 optimizer.name=lars optimizer.learning_rate=0.3 optimizer.scaling=linear
        optimizer.weight_decay=1e-6 optimizer.schedule=cosine optimizer.warmup_epochs=10 views.image_size=224
        """,
    ),
]


@pytest.mark.parametrize(("recipe", "methods_", "datasets", "numbers"), NUMBERS)
def test_a_recipe_has_the_numbers_of_its_source(recipe, methods_, datasets, numbers):
    for method, dataset in itertools.product(methods_, datasets):
        named = [f"data.name={dataset}"] if dataset else []
        config = compose(method, recipe, overrides=named)
        assert compose(method, recipe, overrides=[*named, *numbers.split()]) == config


@pytest.mark.parametrize(
    ("method", "recipe", "dataset", "views"),
    [
        ("flatclr", "flatclr-imagenet", "imagenet:/data/imagenet", "simclr-imagenet"),
        *(
            ("ebclr", recipe, dataset, f"ebclr-{views}")
            for recipe in ("ebclr-as-released", "ebclr-per-image")
            for dataset, views in (
                *(("cifar10", "cifar"), ("cifar100", "cifar")),
                *(("mnist", "mnist"), ("fashion-mnist", "mnist")),
            )
        ),
    ],
)
def test_a_recipe_has_the_views_of_its_source(method, recipe, dataset, views):
    assert compose(method, recipe, overrides=[f"data.name={dataset}"]).views.recipe == views


def test_the_images_of_a_recipe_fit_its_views_and_may_be_others():
    assert compose("vem-svgd", "vem-paper", overrides=["encoder.name=resnet50"]).data.name == "cifar100"
    config = compose("moco", "imagenet100-resnet18", overrides=["data.name=imagenet100:/data/imagenet"])
    assert config.data.resize > config.views.image_size
    released, fair = (compose("ebclr", recipe) for recipe in ("ebclr-as-released", "ebclr-per-image"))
    assert fair.method == released.method


def test_a_recipes_dataset_section_lies_over_the_recipe_and_under_the_users_file(monkeypatch, methods):
    recipe = {
        "data": {"name": "mnist"},
        "training": {"epochs": 2},
        "methods": {"plain": {"method": {"temperature": 0.2}}},
        "datasets": {
            "mnist": {"seed": 1},
            "digits": {"training": {"epochs": 3}, "methods": {"plain": {"method": {"temperature": 0.3}}}},
        },
    }
    monkeypatch.setattr(recipes_module, "load_recipe", lambda name: recipe)

    def composed(file=None, overrides=()):
        config = compose("plain", "fake", file, overrides, methods)
        return config.training.epochs, config.method.temperature, config.seed

    assert composed() == (2, 0.2, 1)
    assert composed(overrides=["data.name=digits"]) == composed({"data": {"name": "digits"}}) == (3, 0.3, 0)
    assert composed({"data": {"name": "digits"}}, ["data.name=mnist"]) == (2, 0.2, 1)
    assert composed({"data": {"name": "digits"}, "training": {"epochs": 7}}) == (7, 0.3, 0)


def test_an_unknown_recipe_gets_the_nearest_and_all_and_a_path_is_none():
    known = f"did you mean digits-demo? Known: {', '.join(RECIPES)}"
    with pytest.raises(ConfigError) as caught:
        compose("simclr", "digit-demo")
    assert caught.value.problems == [f"--recipe: no such recipe, got 'digit-demo'; {known}"]
    with pytest.raises(ConfigError, match="no such recipe"):
        recipe_text("../recipes/digits-demo")


@pytest.mark.usefixtures("fake_recipe")
def test_each_layer_overrides_those_before_it(methods):
    file = {"training": {"epochs": 3}, "methods": {"plain": {"evaluation": {"knn_neighbours": 5}}}}
    config = compose("plain", "fake", file, ["training.log_every=7"], methods)
    assert config.optimizer.momentum == 0.9  # default
    assert config.optimizer.learning_rate == 0.2  # recipe
    assert config.training.batch_size == 64  # recipe's section of the method, over the recipe
    assert config.method.temperature == 0.2  # the same, over the default
    assert config.training.epochs == 3  # file, over the recipe
    assert config.evaluation.knn_neighbours == 5  # file's section of the method
    assert config.training.log_every == 7  # --set, over the recipe
    assert config.seed == 0  # the other method's section does not count
    file = {"training": {"batch_size": 16}}  # over the recipe's section of the method, and --set over both
    for overrides, size in (((), 16), (["training.batch_size=8"], 8)):
        assert compose("plain", "fake", file, overrides, methods).training.batch_size == size


@pytest.mark.parametrize(
    ("file", "overrides", "problems"),
    [
        (
            {"method": {"name": "sampled", "num_steps": 3}},
            [],
            ["method.name: not the method asked for, got 'sampled'; ask for sampled, or write plain here"],
        ),
        (
            {"methods": {"plan": {}}},
            ["x", "training.epochs=0"],
            [
                "--set: no = found, got 'x'; write x=VALUE",
                "methods.plan: no such method; did you mean plain? Known: plain, sampled",
                "training.epochs: out of range, got 0; must be a whole number, at least 1 (unit: epochs)",
            ],
        ),
        ({"methods": [1]}, [], ["methods: not a section, got [1]; write methods: {plain: {...}}"]),
        (
            {"methods": {"plain": 3}},
            [],
            ["methods.plain: not a section, got 3; write sections in it, such as optimizer: {...}"],
        ),
    ],
)
def test_what_is_wrong_in_file_and_overrides_is_reported_together(methods, file, overrides, problems):
    with pytest.raises(ConfigError) as caught:
        compose("plain", config=file, overrides=overrides, methods=methods)
    assert caught.value.problems == problems


def test_a_recipe_of_images_that_are_yours_wants_their_place():
    with pytest.raises(DataError, match=r"imagenet100 needs a path, got 'imagenet100:'; write imagenet100:PATH"):
        location_of(compose("moco", "imagenet100-resnet18").data.name)


def test_an_override_sets_one_value_and_keeps_the_rest():
    mapping = {"method": {"name": "simclr", "temperature": 0.5}, "seed": 1}
    assert apply_overrides(mapping, ["method.temperature=0.2"]) == {
        "method": {"name": "simclr", "temperature": 0.2},
        "seed": 1,
    }
    assert mapping["method"]["temperature"] == 0.5


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("3", 3), ("true", True), ("null", None), ("", None), ("a=b", "a=b"), ("[1, 2]", [1, 2])],
)
def test_values_are_yaml_and_the_last_of_a_key_counts(text, value):
    assert apply_overrides({}, ["data.root=before", f"data.root={text}"]) == {"data": {"root": value}}


@pytest.mark.parametrize(
    "rate",
    [np.float32(0.25), np.float64(0.25), np.array(0.25), torch.tensor(0.25)],
    ids=lambda rate: type(rate).__name__,
)
def test_numbers_of_numpy_and_torch_are_settings_and_become_those_of_python(rate: Any) -> None:
    """omegaconf#805, tensorboard#3057: values of np.logspace and np.arange in a notebook's loop."""
    given = {"optimizer.learning_rate": rate, "training.epochs": np.int64(3), "data.skip_corrupt": np.bool_(True)}
    nested = {
        "optimizer": {"learning_rate": rate},
        "training": {"epochs": np.int64(3)},
        "data": {"skip_corrupt": np.True_},
    }
    for config in (compose("simclr", overrides=given), compose("simclr", config=nested)):
        found = (config.optimizer.learning_rate, config.training.epochs, config.data.skip_corrupt)
        assert found == (0.25, 3, True)
        assert [*map(type, found)] == [float, int, bool]
    pair = NamedTuple("pair", [("low", float), ("high", float)])(np.float32(0.25), np.float32(0.5))
    assert compose("simclr", overrides={"optimizer.milestones": pair}).optimizer.milestones == (0.25, 0.5)
    with pytest.raises(ConfigError, match=r"training\.epochs: wrong type, got 3\.0; must be a whole number"):
        compose("simclr", overrides={"training.epochs": np.float32(3)})


def test_a_text_is_never_cut_at_a_comment() -> None:
    """hydra#2705, hydra#266: a folder's name with a #, of which another folder would be read in silence."""
    with pytest.raises(
        ConfigError, match=r"--set data.name: in YAML, # first or after a space begins a comment, got 'folder:a #2'"
    ):
        apply_overrides({}, ["data.name=folder:a #2"])
    read = apply_overrides({}, ['data.name="folder:a #2"', "data.root=/b#3", "seed=1 # first"])
    with pytest.raises(ConfigError, match="begins a comment"):
        apply_overrides({}, ["data.name=folder:a#1 #2"])
    for text in ("data.root=#archive", "data.root= #archive"):
        with pytest.raises(ConfigError, match=r"--set data.root: in YAML, # first .*'data.root=\"...\"'"):
            apply_overrides({}, [text])
    assert apply_overrides({}, ["resources.address=null # none"]) == {"resources": {"address": None}}
    assert read == {"data": {"name": "folder:a #2", "root": "/b#3"}, "seed": 1}


def test_a_key_and_a_value_without_an_equals_sign_are_written_with_one() -> None:
    with pytest.raises(ConfigError, match=r"got 'training.epochs 5'; write training.epochs=5$"):
        apply_overrides({}, ["training.epochs 5"])


def test_all_unreadable_overrides_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        apply_overrides({}, ["training.epochs", "=3", "method..tau=1", "data.name=[", "seed=1"])
    assert caught.value.problems[:3] == [
        "--set: no = found, got 'training.epochs'; write training.epochs=VALUE",
        "--set: no key before =, got '=3'; write SECTION.NAME=VALUE, such as training.epochs=5",
        "--set: no key before =, got 'method..tau=1'; write SECTION.NAME=VALUE, such as training.epochs=5",
    ]
    assert caught.value.problems[3].startswith("--set data.name, line 1, column 2: not valid YAML, ")
    assert len(caught.value.problems) == 4


def test_an_empty_section_above_changes_nothing_below_and_null_replaces_a_value():
    assert merge({"training": {"epochs": 3}}, {"training": None}) == {"training": {"epochs": 3}}
    assert merge({"data": {"root": "/images"}}, {"data": {"root": None}}) == {"data": {"root": None}}


@pytest.mark.parametrize(
    ("named", "digest"), [({"name": "mnist"}, {}), ({"name": "digits", "root": None}, {"digest": "a"})]
)
def test_naming_other_images_forgets_the_digest_of_those_below(named, digest):
    """Settings that a run recorded are taken for another dataset, and checked against the same one."""
    below = {"data": {"name": "digits", "digest": "a", "resize": 8}}
    assert merge(below, {"data": named}) == {"data": {"resize": 8, **digest, **named}}


def test_naming_a_view_recipe_forgets_the_views_below():
    below = {"views": {"recipe": "digits", "noise_std": 0.5}, "seed": 1}
    named = {"recipe": "none", "flip_rate": 1.0}
    assert merge(below, {"views": named}) == {"views": named, "seed": 1}
    assert merge(below, {"views": {"flip_rate": 1.0}})["views"] == {**below["views"], "flip_rate": 1.0}
    overrides = ["views.flip_rate=0.5", "views.recipe=none"]
    for given in (overrides, overrides[::-1]):
        assert apply_overrides({"views": {"hue": 0.1}}, given)["views"] == {"flip_rate": 0.5, "recipe": "none"}


def test_from_python_settings_may_be_values_by_key():
    given = {"training.epochs": 5, "views.recipe": "digits", "seed": 3}
    assert compose("simclr", overrides=given) == compose("simclr", overrides=[f"{k}={v}" for k, v in given.items()])
    with pytest.raises(ConfigError, match=r"training\.epoch: no such setting; did you mean training\.epochs"):
        compose("simclr", overrides={"training.epoch": 5})
