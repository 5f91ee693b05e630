import dataclasses

import pytest

from ebclab.config import compose, list_recipes, load_recipe, load_yaml_file, recipe_text, to_yaml
from ebclab.config import recipes as recipes_module
from ebclab.config.experiment import SECTIONS
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


def test_the_cifar_recipe_is_mocos_demonstration():
    config = compose("simclr", "cifar10-resnet18")
    scaled = config.optimizer.learning_rate * config.training.batch_size / 256
    assert (config.optimizer.scaling, scaled) == ("linear", pytest.approx(0.06))
    assert (config.optimizer.name, config.optimizer.momentum, config.optimizer.weight_decay) == ("sgd", 0.9, 5e-4)
    assert (config.training.batch_size, config.training.epochs) == (512, 200)
    assert (config.evaluation.knn_neighbours, config.evaluation.knn_temperature) == (200, 0.1)
    assert compose("flatclr", "cifar10-resnet18").method.temperature == config.method.temperature == 0.2


@pytest.mark.parametrize(
    ("dataset", "reinit_rate", "views"),
    [
        ("cifar10", 0.2, "ebclr-cifar"),
        ("cifar100", 0.2, "ebclr-cifar"),
        ("mnist", 0.4, "ebclr-mnist"),
        ("fashion-mnist", 0.6, "ebclr-mnist"),
    ],
)
@pytest.mark.parametrize("recipe", ["ebclr-as-released", "ebclr-per-image"])
def test_ebclr_recipes_have_the_released_constants_of_each_dataset(recipe, dataset, reinit_rate, views):
    config = compose("ebclr", recipe, overrides=[f"data.name={dataset}"])
    method, optimizer = config.method, config.optimizer
    assert (method.reinit_rate, config.views.recipe) == (reinit_rate, views)
    assert (config.views.noise_std, config.views.normalisation) == (0.03, "half")
    assert (method.temperature, method.generative_weight, method.num_steps) == (0.1, 0.1, 10)
    assert (method.step_size, method.gradient_clamp) == (0.05, 1.0)
    assert (method.sigma_min, method.sigma_max, method.noise_decay_count) == (0.01, 0.05, 3)
    assert (method.buffer_size, method.output_penalty, method.output_penalty_weight) == (50_000, "sum", 1e-3)
    assert (optimizer.name, optimizer.learning_rate, optimizer.schedule) == ("adam", 2e-4, "constant")
    assert (optimizer.weight_decay, optimizer.warmup_epochs, optimizer.scaling) == (0.0, 0.0, "none")
    assert (config.training.batch_size, config.encoder.name, config.encoder.stem) == (128, "resnet18", "cifar")
    assert (config.encoder.batch_norm, config.encoder.activation) == ("none", "leaky_relu")
    released = recipe == "ebclr-as-released"
    assert (config.training.epochs, config.data.holdout_rate) == ((200, 0.0) if released else (100, 0.1))
    assert config.views.shared_by == ("chunk" if released else "image")


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "mnist", "fashion-mnist"])
@pytest.mark.parametrize("method", ["simclr", "moco"])
def test_the_released_baselines_share_a_draw_by_batch_and_have_no_pixel_noise(method, dataset):
    views = compose(method, "ebclr-as-released", overrides=[f"data.name={dataset}"]).views
    assert (views.shared_by, views.noise_std) == ("batch", 0.0)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "mnist", "fashion-mnist"])
@pytest.mark.parametrize("method", catalogue())
def test_as_released_means_torchs_first_weights_decay_of_everything_and_no_hand_in_the_training(method, dataset):
    config = compose(method, "ebclr-as-released", overrides=[f"data.name={dataset}"])
    assert config.encoder.initialisation == "torch"
    assert config.optimizer.decay_norm_and_bias is True
    assert config.training.health == "watch"


@pytest.mark.parametrize(
    ("method", "name", "released", "elsewhere"),
    [
        ("byol", "directions", "mean", "sum"),
        ("byol", "target_start", "own", "copy"),
        ("simsiam", "projection_scale", True, False),
    ],
)
def test_byol_and_simsiam_are_as_released_in_that_recipe_alone(method, name, released, elsewhere):
    recipes = ("ebclr-as-released", "cifar10-resnet18")
    assert [getattr(compose(method, recipe).method, name) for recipe in recipes] == [released, elsewhere]
    byol = compose("byol", "ebclr-as-released").method
    assert (byol.momentum, byol.momentum_schedule) == (0.9, "constant")


@pytest.mark.parametrize("recipe", ["cifar10-resnet18", "ebclr-per-image"])
def test_recipes_after_mocos_demonstration_decay_everything_as_it_does(recipe):
    config = compose("simclr", recipe)
    assert (config.optimizer.weight_decay, config.optimizer.decay_norm_and_bias) == (5e-4, True)
    assert config.encoder.initialisation == "kaiming"


def test_ebclr_per_image_is_ebclr_as_released_but_for_views_epochs_and_held_out_images():
    released, fair = (compose("ebclr", recipe) for recipe in ("ebclr-as-released", "ebclr-per-image"))
    assert (fair.method, fair.encoder, fair.training.health) == (released.method, released.encoder, "watch")
    moved_by = dataclasses.asdict(released.optimizer)
    moved_by.pop("decay_norm_and_bias")
    assert moved_by.items() <= dataclasses.asdict(fair.optimizer).items()


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


def test_what_show_prints_is_taken_back_from_a_file(tmp_path, methods):
    config = compose("plain", overrides=["views.recipe=digits", "views.noise_std=0"], methods=methods)
    (tmp_path / "run.yaml").write_text(to_yaml(config))
    assert compose("plain", config=load_yaml_file(tmp_path / "run.yaml"), methods=methods) == config


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


def test_the_imagenet_100_recipe_has_solo_learns_settings_of_moco():
    """scripts/pretrain/imagenet-100/mocov2plus.yaml of solo-learn; its batch is that of one of two GPUs."""
    config = compose("moco", "imagenet100-resnet18", overrides=["data.name=imagenet100:/data/imagenet"])
    method, optimizer, views = config.method, config.optimizer, config.views
    assert (config.encoder.name, config.encoder.stem) == ("resnet18", "imagenet")
    assert (config.training.batch_size, config.training.epochs) == (2 * 128, 400)
    assert (optimizer.name, optimizer.learning_rate, optimizer.scaling) == ("sgd", 0.3, "linear")
    assert (optimizer.weight_decay, optimizer.schedule, optimizer.warmup_epochs) == (1e-4, "cosine", 10)
    assert (method.queue_size, method.temperature, method.momentum, method.symmetric) == (65536, 0.2, 0.99, True)
    assert (method.projection_hidden_size, method.projection_size, method.projection_num_layers) == (2048, 256, 2)
    assert (views.crop_scale_min, views.brightness, views.hue, views.blur_rate) == (0.08, 0.4, 0.1, 0.5)
    assert views.image_size == 224
    assert config.data.resize > views.image_size
    assert compose("byol", "imagenet100-resnet18").views.second_solarise_rate == 0.2


@pytest.mark.parametrize("encoder", ["resnet18", "resnet50"])
@pytest.mark.parametrize("method", ["vem-langevin", "vem-svgd"])
@pytest.mark.parametrize(
    ("dataset", "rate", "epochs", "stem", "image_size"),
    [
        (None, 0.15, 1000, "cifar", 0),
        ("cifar10", 0.15, 1000, "cifar", 0),
        ("tiny-imagenet:/data/tiny", 0.15, 1000, "cifar", 0),
        ("imagenet100:/data/imagenet", 0.1, 400, "imagenet", 224),
    ],
)
def test_the_vem_recipe_has_appendices_d_and_h(method, encoder, dataset, rate, epochs, stem, image_size):
    own = [f"encoder.name={encoder}"] + ([f"data.name={dataset}"] if dataset else [])
    config = compose(method, "vem-paper", overrides=own)
    assert config.data.name == (dataset or "cifar100")
    optimizer, training, settings = config.optimizer, config.training, config.method
    assert (optimizer.name, optimizer.learning_rate, optimizer.scaling) == ("sgd", rate, "none")
    assert (optimizer.momentum, optimizer.weight_decay, optimizer.schedule) == (0.9, 1e-4, "cosine")
    assert (training.batch_size, training.epochs, config.evaluation.linear_protocol) == (256, epochs, "vem-sgd")
    assert (settings.bank_size, settings.projection_size, settings.num_steps) == (4096, 128, 10)
    assert (settings.temperature, settings.bank_temperature) == (0.12, 0.02)
    assert (config.encoder.stem, config.views.image_size) == (stem, image_size)


@pytest.mark.parametrize("dataset", ["cifar100", "imagenet100:/data/imagenet"])
@pytest.mark.parametrize(("method", "rate"), [("ebclr", 2e-4), ("jem", 1e-4)])
def test_the_energies_of_the_vem_recipe_keep_their_own_rates_on_every_dataset(method, rate, dataset):
    assert compose(method, "vem-paper", overrides=[f"data.name={dataset}"]).optimizer.learning_rate == rate


@pytest.mark.parametrize("method", ["simclr", "flatclr"])
def test_the_flatclr_recipe_has_flatnces_and_simclrs_numbers_for_imagenet(method):
    config = compose(method, "flatclr-imagenet", overrides=["data.name=imagenet:/data/imagenet"])
    optimizer, training = config.optimizer, config.training
    assert (config.encoder.name, training.batch_size, training.epochs) == ("resnet50", 512, 100)
    assert (config.method.projection_size, config.method.temperature) == (256, 0.1)
    assert (optimizer.name, optimizer.learning_rate, optimizer.scaling) == ("lars", 0.3, "linear")
    assert (optimizer.weight_decay, optimizer.schedule, optimizer.warmup_epochs) == (1e-6, "cosine", 10)
    assert (config.views.recipe, config.views.image_size) == ("simclr-imagenet", 224)


def test_a_recipe_of_images_that_are_yours_wants_their_place():
    with pytest.raises(DataError, match=r"imagenet100 needs a path, got 'imagenet100:'; write imagenet100:PATH"):
        location_of(compose("moco", "imagenet100-resnet18").data.name)
