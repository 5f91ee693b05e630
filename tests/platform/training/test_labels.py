"""Methods that learn from labels: what is refused before anything starts, and how many classes they are told."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import ebclab
from ebclab.config import ExperimentConfig, compose
from ebclab.data.holdout import split_images
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.errors import ConfigError, DataError
from ebclab.sweeps.plan import make_plan
from ebclab.sweeps.preflight import require_trainable
from ebclab.sweeps.request import SweepRequest
from ebclab.sweeps.space.space import load_space
from ebclab.training.display import Listener
from ebclab.training.ray_train.streamed import require_labels
from ebclab.training.setup import classes_of, prepare
from energy_contrast.catalog import METHODS

CPU = torch.device("cpu")
COUNT = 80
LABELLED = [name for name, method in METHODS.items() if method.needs_labels]


def images(labels: Tensor, class_names: tuple[str, ...] = ()) -> ImageSet:
    pixels = torch.randint(0, 256, (COUNT, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    return ImageSet("mine", pixels, labels, torch.arange(COUNT), class_names, *channel_statistics(pixels))


def config_of(method: str, *overrides: str) -> ExperimentConfig:
    tiny = ["views.recipe=digits", "training.batch_size=16", "encoder.width=4", "resources.threads=1"]
    return compose(method, overrides=[*tiny, *overrides])


def labels_with(missing: int) -> Tensor:
    labels = torch.arange(COUNT) % 4
    labels[:missing] = -1
    return labels


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("missing", [1, COUNT])
def test_images_without_labels_are_refused_in_one_sentence_and_leave_no_folder(tmp_path, name, missing):
    config = config_of(name, "data.holdout_rate=0")
    with pytest.raises(ConfigError) as refused:
        ebclab.pretrain(config, runs=tmp_path, images=images(labels_with(missing)), display=Listener())
    assert refused.value.problems == [
        f"method.name: {name} learns from labels, got {missing} of 80 training images without; label them, or take a "
        "method that needs none (`ebclab show --methods`)"
    ]
    assert list(tmp_path.iterdir()) == []


def test_images_of_one_class_have_no_accuracy_of_which_any_probe_has_all(tmp_path: Path) -> None:
    one = images(torch.full((COUNT,), 3))
    run = ebclab.pretrain(config_of("simclr", "training.epochs=1"), runs=tmp_path, images=one, display=Listener())
    assert run.summary.scores == {}
    with pytest.raises(DataError, match="two classes are needed, got 1, about which any probe is right; choose"):
        ebclab.evaluate(run.path, images=(one, one), only=("knn",))


def test_one_class_is_refused_and_a_method_without_labels_takes_all_of_it() -> None:
    one = torch.full((COUNT,), 3)
    with pytest.raises(ConfigError, match="supervised learns to separate classes, got 1 in 80 training images"):
        classes_of(config_of("supervised"), METHODS["supervised"], one, ())
    for labels in (one, labels_with(COUNT)):
        assert classes_of(config_of("simclr"), METHODS["simclr"], labels, ()) == 0


@pytest.mark.parametrize(
    ("labels", "class_names", "expected"),
    [([0, 1, 1], (), 2), ([0, 5], (), 6), ([0, 1], ("a", "b", "c"), 3)],
    ids=["all seen", "a gap", "a class without images"],
)
def test_the_classes_are_those_with_names_or_those_that_labels_go_up_to(labels, class_names, expected):
    assert classes_of(config_of("supervised"), METHODS["supervised"], torch.tensor(labels), class_names) == expected


def test_a_sweep_is_refused_before_its_first_trial() -> None:
    config = config_of("supervised", "data.name=digits")
    space = load_space(None, "supervised").without({"training.batch_size"})
    plan = make_plan(config, SweepRequest(space=space, trials=2))
    given = (images(labels_with(missing)) for missing in (0, 1))
    labelled, other = (split_images(each, train_limit=0, holdout_rate=0.0) for each in given)
    require_trainable(plan, labelled, METHODS)
    with pytest.raises(ConfigError, match="supervised learns from labels, got 1 of 80 training images without"):
        require_trainable(plan, other, METHODS)


def test_files_without_labels_are_refused_before_ray_is_asked(tmp_path: Path) -> None:
    for folder, names in (("flat", ["1", "2", "3"]), ("classes", ["a/1", "a/2", "b/3"])):
        for name in names:
            path = tmp_path / folder / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(path)

    def check(method: str, folder: str, *overrides: str) -> None:
        named = f"data.name=folder:{tmp_path / folder}"
        config = config_of(method, named, "data.holdout_rate=0", "training.batch_size=2", *overrides)
        require_labels(config, METHODS[method], None)

    check("supervised", "classes")
    check("simclr", "flat")
    with pytest.raises(ConfigError, match="supervised learns from labels, got 3 of 3 training images without"):
        check("supervised", "flat")
    with pytest.raises(ConfigError, match="of 2 training images without"):
        check("supervised", "flat", "data.train_limit=2")


def test_supcon_takes_two_views_and_cross_entropy_one() -> None:
    split = split_images(images(labels_with(0)), train_limit=0, holdout_rate=0.0)
    for objective, views in (("cross-entropy", 1), ("supcon", 2)):
        prepared = prepare(config_of("supervised", f"method.objective={objective}"), CPU, split, METHODS["supervised"])
        assert prepared.training.data.batch(0, 0).views.shape == (views, 16, 1, 8, 8)


def test_views_without_a_draw_suit_one_view_and_not_two() -> None:
    split = split_images(images(labels_with(0)), train_limit=0, holdout_rate=0.0)
    config = config_of("supervised", "views.recipe=none", "method.objective=cross-entropy")
    prepare(config, CPU, split, METHODS["supervised"])
    two = replace(config, method=replace(config.method, objective="supcon"))
    with pytest.raises(ConfigError, match="compares 2 views of an image"):
        prepare(two, CPU, split, METHODS["supervised"])
