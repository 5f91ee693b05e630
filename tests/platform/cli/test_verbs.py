"""Each verb does its work and says what comes next, also of a folder of images of which only its name is said."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from ebclab.card.evaluate import measure_cards
from ebclab.card.request import CardRequest
from ebclab.cli.pretrain import PretrainOptions
from ebclab.config import load_yaml_file
from ebclab.errors import DataError, UserError
from ebclab.export import load_encoder
from ebclab.runs import checkpoint

from .conftest import TINY, Ebclab


def test_a_run_folder_holds_what_the_run_was_and_found(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"config.yaml", "environment.json", "metrics.jsonl", "tensorboard", "checkpoints", "result.json"} <= names
    result = json.loads((finished / "result.json").read_text())
    assert (result["method"], result["epochs"], result["steps"]) == ("flatclr", 2, 4)
    assert result["images_per_second"]["mean"] > 0
    assert 0 < result["holdout_images"] < 96
    assert result["train_images"] + result["holdout_images"] == 96
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["threads"] == 1
    assert torch.__version__.startswith(environment["torch"])
    records = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["kind"] == "train"] == [1, 2, 4]
    assert [r["step"] for r in records if r["kind"] == "epoch"] == [2, 4]
    assert all("info_nce" in r for r in records if r["kind"] == "train")


def test_a_finished_run_is_not_touched_by_other_settings(ebclab, finished):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    colder = ("flatclr", "--epochs", "2", *TINY, "--set", "method.temperature=0.5")
    for command, difference in (
        (("flatclr", "--resume", "--recipe", "digits-demo"), "in the run,"),
        (("flatclr", *TINY), "in the run,"),
        (("flatclr", "--epochs", "3", *TINY), "in the run,"),
        (("flatclr", "--epochs", "1", *TINY), "in the run,"),
        (("flatclr", "--resume", "--epochs", "3"), "in the run,"),
        (("flatclr", "--resume", "--set", "evaluation.knn_neighbours=5"), "in the run,"),
        (colder, "method.temperature: 0.2 in the run, 0.5 now"),
        ((*colder, "--resume"), "method.temperature: 0.2 in the run, 0.5 now"),
        (("simclr", "--epochs", "2", *TINY), "method.name: flatclr in the run, simclr now"),
    ):
        refused = ebclab("pretrain", *command, "--name", "done")
        assert difference in refused.refusal
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("settings", [(), ("--epochs", "2", *TINY)])
def test_an_extended_run_says_so_wherever_it_is_shown(ebclab, finished, settings):
    longer = ebclab("pretrain", "flatclr", "--name", "done", "--extend", "3", *settings).ok
    assert "resuming at step 4 of 6" in longer.err
    jump = "extended from 2 to 3 epochs: at step 4 the learning rate went from"
    assert jump in longer.err
    assert jump in longer.out
    result = json.loads((finished / "result.json").read_text())
    assert (result["steps"], result["epochs"]) == (6, 3)
    assert [(each["before"], each["epochs"], each["step"]) for each in result["extensions"]] == [(2, 3, 4)]
    assert yaml.safe_load((finished / "config.yaml").read_text())["training"]["extended"] == [2]
    again = ebclab("pretrain", "flatclr", "--name", "done", "--extend", "3", *settings)
    assert "already finished; nothing was trained" in again.out, again.err
    assert "3/3 epochs (extended from 2)" in ebclab("runs", "list").out
    assert ebclab("export", finished, "--to", "encoder").code == 0
    assert jump in Path("encoder/README.md").read_text()


def test_resume_needs_no_settings_on_the_command_line(ebclab: Ebclab, finished: Path) -> None:
    (finished / "result.json").unlink()
    assert ebclab("pretrain", "flatclr", "--name", "done", "--resume").ok
    assert yaml.safe_load((finished / "config.yaml").read_text())["data"]["train_limit"] == 96
    assert json.loads((finished / "result.json").read_text())["steps"] == 4


def test_the_settings_that_show_prints_make_the_same_run(ebclab: Ebclab, finished: Path) -> None:
    shown = ebclab("show", "flatclr", "--config", finished / "config.yaml").ok
    assert shown.out == (finished / "config.yaml").read_text()
    Path("again.yaml").write_text(shown.out)
    assert ebclab("pretrain", "flatclr", "--config", "again.yaml", "--name", "copy").code == 0
    models = [checkpoint.load(path / "checkpoints") for path in (finished, finished.with_name("copy"))]
    for name, tensor in models[0].model.items():
        assert torch.equal(tensor, models[1].model[name]), name


def test_evaluate_prints_single_probes_with_references_and_keeps_the_scores(ebclab: Ebclab, finished: Path) -> None:
    outcome = ebclab("evaluate", finished, "--references", "--only", "knn,linear").ok
    for text in ("flatclr", "untrained encoder", "raw pixels", "knn", "linear", "355 images"):
        assert text in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 80
    kept = json.loads((finished / "evaluation.json").read_text())
    assert kept["rows"]["raw pixels"]["knn"]["value"] > 0.9  # digits are easy: pixels alone reach 97 %


def test_the_groups_of_a_card_are_counted_to_the_last(finished: Path) -> None:
    seen = []
    request = CardRequest(encoders=(str(finished),), only=("geometry", "transfer"))
    measure_cards(request, lambda done, total, what: seen.append((done, total, what)))
    assert [place for *place, what in seen if what == "groups of flatclr"] == [[0, 2], [1, 2], [2, 2]]


def test_scores_of_a_run_of_a_machine_with_more_cores_are_json_that_a_program_can_read(ebclab, finished):
    config = finished / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("threads: 1\n", "threads: 4096\n"))
    assert config.read_text() != text
    try:
        outcome = ebclab("evaluate", finished, "--only", "knn", "--json").ok
    finally:
        torch.set_num_threads(1)
    scores = json.loads(outcome.out)["rows"]["flatclr"]
    assert list(scores) == ["knn"]
    assert 0 <= scores["knn"]["low"] <= scores["knn"]["value"] <= scores["knn"]["high"] <= 1


def test_export_gives_the_encoder_of_the_run_with_a_warning_if_it_is_unfinished(ebclab, finished):
    assert ebclab("evaluate", finished, "--only", "knn").code == 0
    outcome = ebclab("export", finished, "--to", "encoder")
    assert (outcome.code, outcome.err) == (0, "")
    loaded = load_encoder("encoder")
    saved = checkpoint.load(finished / "checkpoints")
    for name, tensor in loaded.encoder.state_dict().items():
        assert torch.equal(tensor, saved.model[f"encoder.{name}"])
    card = Path("encoder/README.md").read_text()
    assert "| knn |" in card
    assert "2 epochs, 4 optimizer steps" in card
    (finished / "result.json").unlink()
    outcome = ebclab("export", finished, "--to", "unfinished").ok
    assert "warning: exported from an unfinished run, after 2 of 2 epochs" in outcome.err
    assert load_encoder("unfinished").encoder is not None


@pytest.mark.parametrize(
    ("flag", "expected"),
    [("--methods", "flatclr"), ("--recipes", "digits-demo"), ("--views", "moco-cifar"), ("--protocols", "lbfgs")],
)
def test_lists_name_what_there_is(ebclab, flag, expected):
    outcome = ebclab("show", flag).ok
    assert expected in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("recipe", "settings", "told"),
    [
        (
            "digits-demo",
            ["training.batch_size=32"],
            "has 0.006 for batches of 128 images, and this run keeps it for batches of 32;",
        ),
        ("digits-demo", ["training.batch_size=33"], ""),
        ("digits-demo", ["training.batch_size=512"], "this run keeps it for batches of 512;"),
        ("digits-demo", ["training.batch_size=32", "optimizer.learning_rate=0.003"], ""),
        ("digits-demo", ["training.batch_size=32", "optimizer.scaling=sqrt"], ""),
        ("cifar10-resnet18", ["training.batch_size=32", "data.name=digits"], ""),  # its rate is scaled by the batch
        (None, ["training.batch_size=32"], ""),
    ],
)
def test_a_recipes_learning_rate_at_a_batch_far_from_its_own_is_said_before_training(
    ebclab: Ebclab, monkeypatch: pytest.MonkeyPatch, recipe: str | None, settings: list[str], told: str
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise UserError("nothing is trained here")

    monkeypatch.setattr("ebclab.training.pretrain.pretrain", refused)
    words = [word for setting in settings for word in ("--set", setting)]
    first, *_ = ebclab("pretrain", "simclr", *(["--recipe", recipe] if recipe else []), *words).err.splitlines()
    assert told in first
    assert first.startswith("optimizer.learning_rate: recipe " if told else "error: nothing is trained here")


def test_a_run_that_is_not_there_is_answered_with_one_that_is(ebclab: Ebclab, finished: Path) -> None:
    assert f"name one of those in it, such as {finished}" in ebclab("evaluate", "runs").err
    assert f"did you mean {finished}?" in ebclab("evaluate", "runs/dome").err
    assert "`ebclab pretrain` makes runs" in ebclab("evaluate", "elsewhere/done").err


def test_data_show_draws_images_that_are_read_as_the_settings_say(ebclab: Ebclab) -> None:
    for number, (size, colour) in enumerate([((20, 10), "white"), ((10, 30), "black")]):
        Path("pets [old] #1/cats").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, colour).save(f"pets [old] #1/cats/{number}.png")
    show = ["data", "show", "folder:pets [old] #1", "--view-recipe", "none"]
    refused = ebclab(*show, "--set", "data.resize=0")
    assert "data.resize" in refused.refusal
    assert "chosen" not in ebclab(*show, "--set", "data.resize=8", "--views", "eight.png").err
    assert "chosen for them: data.resize=10;" in ebclab(*show).err
    for name in ("eight.png", "views.png"):
        assert Path(name).read_bytes().startswith(b"\x89PNG")


def test_a_network_of_timm_goes_all_the_way_and_its_export_starts_another_run(ebclab: Ebclab) -> None:
    timms = ["--set", "encoder.name=timm/test_resnet", *TINY]
    assert ebclab("pretrain", "simclr", "--epochs", "1", "--name", "one", *timms).code == 0
    assert ebclab("evaluate", "runs/one", "--only", "knn").code == 0
    assert ebclab("export", "runs/one", "--to", "out", "--format", "torch-export").code == 0
    assert "| knn |" in Path("out/README.md").read_text()
    assert ebclab("pretrain", "simclr", "--epochs", "1", "--name", "two", "--init", "out", *timms).ok
    assert f"weights: {Path('out').absolute()}" in Path("runs/two/config.yaml").read_text()
    assert ebclab("export", "runs/two", "--to", "second").code == 0
    assert "- the encoder started from " in Path("second/README.md").read_text()


def test_energies_of_single_images_are_warned_of_timms_batch_norm_only(ebclab: Ebclab) -> None:
    shared = ["--epochs", "1", "--set", "method.buffer_size=64", "--set", "method.num_steps=1", *TINY]
    for name, warned in (("test_resnet", True), ("test_nfnet", False)):
        outcome = ebclab("pretrain", "ebclr", "--name", name, "--set", f"encoder.name=timm/{name}", *shared).ok
        assert ("the encoder has batch norm" in outcome.err) is warned


@pytest.mark.parametrize("method", ["simclr", "byol", "ebclr"])
def test_views_that_are_all_the_same_are_refused_before_anything_is_written(ebclab: Ebclab, method: str) -> None:
    outcome = ebclab("pretrain", method, "--name", "same", "--set", "views.recipe=none", *TINY)
    assert outcome.code == 2
    said = " ".join(outcome.err.split())
    assert f"views.recipe: {method} compares 2 views of an image, and with these settings they are all the same" in said
    assert not Path("runs/same").exists()


def test_the_command_that_prepare_suggests_trains(ebclab: Ebclab) -> None:
    generator = torch.Generator().manual_seed(0)
    for number in range(48):
        pixels = torch.randint(256, (20, 30, 3), dtype=torch.uint8, generator=generator)
        folder = Path("photos", "cats" if number % 2 else "dogs")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.numpy()).save(folder / f"{number}.png")
    prepared = ebclab("data", "prepare", "folder:photos", "--to", "set", "--resize", "16").ok
    (line,) = [line for line in prepared.out.splitlines() if line.startswith("next: ")]
    assert "--set views.recipe=flatclr-cifar" in line
    words = shlex.split(line.removeprefix("next: ebclab "))
    few = ["--epochs", "1", "--set", "training.batch_size=16", "--set", "encoder.width=4"]
    assert ebclab(*words, *few, "--set", "evaluation.knn_every=0", "--set", "resources.threads=1").ok


def test_a_folder_is_trained_on_with_what_suits_it_which_is_said_and_recorded(ebclab: Ebclab) -> None:
    random = np.random.default_rng(0)
    for number in range(24):
        place = Path("photos", "ab"[number % 2])
        place.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (14 + number % 3, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    command = ["pretrain", "simclr", "--dataset", "folder:photos", "--epochs", "1", "--set", "encoder.width=4"]
    done = ebclab(*command, "--set", "optimizer.warmup_epochs=0").ok
    first, _, images, *_ = done.err.splitlines()
    assert first == (
        "24 images of 12 pixels on their shorter side; chosen for them: data.resize=12, views.recipe=flatclr-cifar, "
        "encoder.name=small, training.batch_size=8, evaluation.knn_neighbours=12; --set changes any of it"
    )
    assert images.startswith("folder-photos: 24 images of 2 classes, ")
    assert "are left out of each epoch" in images
    run = Path("runs/simclr-folder-photos-seed0")
    recorded = load_yaml_file(run / "config.yaml")
    assert (recorded["data"]["resize"], recorded["views"]["recipe"]) == (12, "flatclr-cifar")
    assert "next: ebclab evaluate" in done.out
    assert "held-out images" in ebclab("evaluate", run, "--only", "knn").ok.out
    unscored = ebclab(*command, "--set", "evaluation.knn_every=0", "--name", "unscored").ok
    assert "next: ebclab evaluate" in unscored.out
    assert "held-out images" in ebclab("evaluate", "runs/unscored", "--only", "knn").ok.out
    whole = ebclab(*command, "--set", "data.holdout_rate=0", "--set", "evaluation.knn_every=0", "--name", "whole").ok
    assert "next: ebclab export" in whole.out
    assert "no test part, and none were held out" in whole.out.replace("\n", " ")
    for again in ([*command, "--set", "optimizer.warmup_epochs=0"], [*command[:-2], "--resume"]):
        repeated = ebclab(*again).ok
        assert "nothing was trained" in repeated.out


def test_a_command_for_a_cluster_is_checked_without_the_images() -> None:
    options = PretrainOptions("simclr", dataset="folder:/on/the/cluster")
    assert options.settings(look=False).views.recipe == "none"
    with pytest.raises(DataError, match="no such folder"):
        options.settings()
