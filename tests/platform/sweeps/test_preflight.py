"""What is refused before a sweep starts: images that give no objective, and ends of the space that nobody can train."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from ebclab.config import compose
from ebclab.data.holdout import Split
from ebclab.data.image_set import ImageSet
from ebclab.encoders.build import new_encoder
from ebclab.errors import ConfigError, UserError
from ebclab.runs.initial_weights import InitialWeights
from ebclab.sweeps.plan import SweepPlan, make_plan
from ebclab.sweeps.preflight import require_judgeable, require_trainable
from ebclab.sweeps.request import SweepRequest
from ebclab.sweeps.space.space import parse_space
from energy_contrast.catalog import METHODS
from energy_contrast.contrastive.simclr import Simclr

Plans = Callable[..., SweepPlan]
TOO_FEW = "training images are too few for a batch and the method's proposals, got"


def split(count: int = 100, *, held: int = 20, classes: int = 2, kept: int = 0, unlabelled: int = 0) -> Split:
    """Images to train on, ``held`` of them held out and ``kept`` to confirm; the first scored ones have no label."""
    images = torch.zeros(count + kept, 1, 8, 8, dtype=torch.uint8)
    labels = torch.arange(count + kept) % classes if classes else torch.full((count + kept,), -1)
    start = count if kept else count - held
    labels[start : start + unlabelled] = -1
    rows = torch.arange(count + kept)
    whole = ImageSet("mine", images, labels, rows, ("a",), (0.5,), (0.5,))
    parts = (whole.rows(part) for part in (rows[: count - held], rows[count - held : count]))
    return Split(*parts, "digest", "content", whole.rows(rows[count:]) if kept else None)


def problems(plan: SweepPlan, images: Split, methods: Any = METHODS) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        require_trainable(plan, images, methods)
    return caught.value.problems


@pytest.mark.parametrize(
    ("asked", "images", "problem"),
    [
        *(
            ([f"evaluation.objective={name}"], {"classes": classes}, problem)
            for names, classes, problem in (
                (("holdout_knn", "holdout_linear"), 2, None),
                (("holdout_knn", "holdout_linear"), 1, "needs labels of two classes, got 100 images without"),
                (("holdout_knn", "holdout_linear"), 0, "needs labels of two classes, got 100 images without"),
                (("effective_rank", "alignment_uniformity"), 0, None),
            )
            for name in names
        ),
        ([], {"unlabelled": 1}, "got 1 images without"),
        (["evaluation.monitor=[few-labels]"], {"classes": 9}, r"monitor few-labels.* 80 images .* one for each of 9"),
        ([], {"held": 0}, r"data\.holdout_rate: a sweep chooses by held-out images, got none of 100"),
        (["data.confirm_rate=0.1"], {}, r"data\.confirm_rate: confirming runs have no images .* got none of 80"),
        (["data.confirm_rate=0.1"], {"kept": 20}, None),
        (["data.confirm_rate=0.1"], {"kept": 20, "unlabelled": 3}, "needs labels of two classes, got 3 images without"),
    ],
    ids=str,
)
def test_images_must_be_there_and_have_the_labels_that_the_objective_needs(sweep_plan, asked, images, problem):
    with nullcontext() if problem is None else pytest.raises(UserError, match=problem):
        require_judgeable(sweep_plan(*asked), split(**images))


def test_batches_larger_than_the_images_are_one_line_that_says_which_sizes_to_keep(sweep_plan: Plans) -> None:
    space = {"training.batch_size": {"choice": [32, 64, 80, 81, 128]}, "method.temperature": {"uniform": [0.1, 1.0]}}
    (found,) = problems(sweep_plan(space=space), split())
    assert found.startswith(
        f"test: training.batch_size: the 80 {TOO_FEW} 81, 128; in a space of your own, named by --space ("
    )
    assert found.endswith("), write training.batch_size: {choice: [32, 64, 80]}")
    kept = {**space, "training.batch_size": {"choice": [32, 64, 80]}}
    require_trainable(sweep_plan(space=kept), split(), METHODS)


def test_batches_of_which_one_size_or_none_is_small_enough_are_not_searched(sweep_plan: Plans) -> None:
    sizes = {"training.batch_size": {"choice": [32, 64]}}
    (found,) = problems(sweep_plan(space=sizes), split(60))  # the run's own is 64, of 40 images
    assert found.startswith(
        f"test: training.batch_size: the 40 {TOO_FEW} 64; in a space of your own, named by --space ("
    )
    assert found.endswith("), leave training.batch_size out and add --set training.batch_size=8")
    (found,) = problems(sweep_plan(), split(60))
    assert found == f"test: training.batch_size: the 40 {TOO_FEW} 64; add --set training.batch_size=8"
    require_trainable(sweep_plan("training.batch_size=8"), split(60), METHODS)


def test_images_that_leave_none_for_proposals_are_refused(sweep_plan: Plans) -> None:
    class Greedy(Simclr):
        def num_proposals(self, batch_size: int) -> int:
            return batch_size // 2

    require_trainable(sweep_plan(), split(116), {"simclr": Greedy})  # 96 = 64 + 32
    (found,) = problems(sweep_plan(), split(115), {"simclr": Greedy})
    assert found == f"test: training.batch_size: the 95 {TOO_FEW} 64; add --set training.batch_size=16"
    require_trainable(sweep_plan("training.batch_size=16"), split(115), {"simclr": Greedy})


def test_groups_of_batch_norm_must_divide_every_batch_and_be_shared_out_to_the_workers() -> None:
    small = ["training.batch_size=64", "method.batch_norm_groups=8", "method.queue_size=128", "encoder.width=4"]
    space = parse_space({"parameters": {"training.batch_size": {"choice": [20, 64]}}}, "test")
    plan = make_plan(compose("moco", overrides=small), SweepRequest(space=space))
    (found,) = problems(plan, split())
    assert found.startswith(
        "test, training.batch_size=20: method.batch_norm_groups: must divide the global batch of 20 images"
    )
    workers = replace(plan.config, resources=replace(plan.config.resources, workers=3))
    assert (
        "must be a multiple of the number of workers, 3, got 8" in problems(replace(plan, config=workers), split())[0]
    )


def test_a_warmup_longer_than_a_trial_is_shortened_which_is_said_once(sweep_plan: Plans) -> None:
    plan = sweep_plan("optimizer.warmup_epochs=3")
    assert require_trainable(replace(plan, epochs=3), split(), METHODS) == []
    said = "optimizer.warmup_epochs: 1 instead of 3 in the search, since --epochs is 2 instead of the run's 6"
    assert require_trainable(replace(plan, epochs=2), split(), METHODS) == [said]


def test_all_problems_come_at_once_and_each_line_once(sweep_plan: Plans) -> None:
    space = {"training.batch_size": {"choice": [64, 96, 128]}, "optimizer.warmup_epochs": {"uniform": [0.0, 6.0]}}
    found = problems(sweep_plan(space=space, epochs=4), split())
    assert [line.split(": ")[0] for line in found] == ["test, optimizer.warmup_epochs=6.0", "test"]
    assert f"{TOO_FEW} 96, 128; " in found[1]


def test_weights_that_do_not_fit_an_end_of_the_space_are_named_with_it(sweep_plan: Plans) -> None:
    plan = sweep_plan(space={"encoder.width": {"choice": [4, 8]}})
    fitting = InitialWeights("there", new_encoder(plan.config.encoder, 1, 8).state_dict())
    own = plan.config.encoder.width
    with pytest.raises(ConfigError) as caught:
        require_trainable(plan, split(), METHODS, fitting)
    (problem,) = caught.value.problems
    assert problem.startswith(f"test, encoder.width={12 - own}: init.weights: weights of there do not fit small")


def test_a_network_of_timm_that_does_not_take_the_images_is_named(sweep_plan: Plans) -> None:
    space = {"encoder.name": {"choice": ["small", "timm/test_resnet", "timm/test_vit"]}}
    (problem,) = problems(sweep_plan("encoder.width=0", space=space), split())
    assert problem.startswith(
        "test, encoder.name=timm/test_vit: encoder: timm/test_vit cannot be built for images of 1 x 8 x 8"
    )


NEIGHBOURS = "ebclr: an image's energy depends on its neighbours in the batch"


def test_chains_through_batch_norm_are_a_warning_of_the_plan(sweep_plan: Plans) -> None:
    def warnings(*overrides: str, space: Any = None) -> list[str]:
        small = ["encoder.width=4", "data.train_limit=128", "training.batch_size=32", "method.buffer_size=64"]
        config = compose("ebclr", overrides=[*small, *overrides])
        plan = make_plan(
            config, SweepRequest(space=parse_space({"parameters": space or SEARCHED}, "test"), trials=2, top=1)
        )
        return require_trainable(plan, split(), METHODS)

    (said,) = warnings()
    assert said.startswith(NEIGHBOURS)
    assert warnings("encoder.batch_norm=none") == []
    (said,) = warnings(
        "encoder.batch_norm=none", space=SEARCHED | {"encoder.batch_norm": {"choice": ["none", "global"]}}
    )
    assert said.startswith(f"test, encoder.batch_norm=global: {NEIGHBOURS}")
    assert require_trainable(sweep_plan(), split(), METHODS) == []


SEARCHED = {"method.temperature": {"uniform": [0.05, 0.5]}}
