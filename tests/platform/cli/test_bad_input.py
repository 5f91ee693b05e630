"""What a user can get wrong: one clear sentence, exit code 2, no traceback, nothing lost."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ebclab.runs import checkpoint

from .conftest import TINY, Outcome

Ebclab = Callable[..., Outcome]

WRONG_SETTINGS = [
    (["pretrain", "simlcr"], "method.name: no such method, got 'simlcr'; did you mean simclr?"),
    (["pretrain", "simclr", "--dataset", "fashion-mnst"], "got 'fashion-mnst'; did you mean fashion-mnist?"),
    (["pretrain", "simclr", "--recipe", "digit-demo"], "--recipe: no such recipe, got 'digit-demo'; did you mean"),
    (["pretrain", "simclr", "--set", "trainig.epochs=3"], "trainig: no such setting; did you mean training?"),
    (["pretrain", "simclr", "--set", "method.tau=0.1"], "did you mean method.temperature (tau in the paper)?"),
    (["pretrain", "simclr", "--set", "training.epochs=ten"], "training.epochs: wrong type, got 'ten'; must be a whole"),
    (["pretrain", "simclr", "--set", "method.temperature=0"], "method.temperature: out of range, got 0; must be"),
    (
        ["pretrain", "simclr", "--set", "views.crop_scale_min=0.9", "--set", "views.crop_scale_max=0.5"],
        "views.crop_scale_min: must not exceed crop_scale_max, got 0.9 > 0.5",
    ),
    (["pretrain", "simclr", "--set", "seed"], "--set: no = found, got 'seed'; write seed=VALUE"),
    (["pretrain", "simclr", "--config", "absent.yaml"], "absent.yaml: cannot be read, got No such file or directory"),
    (["pretrain", "simclr", "--set", "training.batch_size=5000"], "training.batch_size: larger than the training set"),
    (["pretrain", "simclr", "--resume", "--name", "ghost"], "nothing to resume, no run of this name"),
    (["pretrain", "simclr", "--dataset", "mnist", "--data-root", "empty"], "ebclab data fetch mnist --data-root"),
    *(
        (
            [*verb, "--data-root", "s3://bucket/sets"],
            "data.root: datasets are read from a folder on a disk, got s3://bucket/sets; a set that "
            "`ebclab data prepare` wrote is read from a store by data.name=parquet:s3://bucket/sets",
        )
        for verb in (
            ["pretrain", "simclr"],
            ["sweep", "simclr"],
            ["data", "list"],
            ["data", "fetch", "mnist"],
            ["data", "prepare", "mnist", "--to", "there"],
            ["data", "show", "mnist"],
        )
    ),
    (["data", "show", "digits", "--views", "s3://bucket/one.png"], "s3://bucket/one.png: pictures are written to a"),
    (["data", "list", "--data-root", "s3://me:secret@bucket/sets"], "must hold no credentials, got s3://***@bucket"),
    *(
        ([verb, "simclr", "--name", name], f"--name: not the name of a folder, got {name!r}; leave out")
        for verb in ("pretrain", "sweep")
        for name in ("../out", "a/b", "", ".hidden")
    ),
    (["pretrain", "simclr", "--recipe", ""], "--recipe: no such recipe, got ''; Known: cifar10-resnet18"),
    (["pretrain", "simclr", "--config", ""], ": cannot be read, got Is a directory"),
    (["sweep", "simclr", "--space", ""], ": cannot be read, got Is a directory"),
    (["pretrain", "simclr", "--dataset", ""], "data.name: no dataset with usual views, got ''; Known: digits"),
    (["pretrain", "simclr", "--runs", "s3://"], "s3://: an address without a bucket; write s3://BUCKET/FOLDER"),
    (
        ["pretrain", "ebclr", "--set", "method.buffer_size=10"],
        "method.buffer_size: must hold the global batch of 256 images, got 10; use at least 256",
    ),
    (
        ["pretrain", "ebclr", "--set", "method.buffer_size=1000000000000"],
        "method.buffer_size: 1000000000000 images of 1x8x8 as float32 do not fit on cpu, got 260,000.00 GB needed",
    ),
    (
        ["pretrain", "ebclr", "--set", "method.sigma_min=0.2"],
        "method.sigma_min: must not exceed sigma_max, got 0.2 > 0.05",
    ),
    (
        ["pretrain", "ebclr", "--set", "method.lambda=-1"],
        "did you mean method.generative_weight (lambda in the paper)?",
    ),
    (["pretrain", "ebclr", "--set", "method.generative_weight=-1"], "method.generative_weight: out of range, got -1"),
    (["pretrain", "ebclr", "--set", "method.reinit_rate=1.2"], "method.reinit_rate: out of range, got 1.2; must be"),
    (["pretrain", "ebclr", "--set", "method.noise_decay_count=0"], "method.noise_decay_count: out of range, got 0"),
    (["evaluate", "nowhere"], "no run here, config.yaml is missing"),
    (["export", "nowhere", "--to", "encoder"], "no run here, config.yaml is missing"),
    (
        ["data", "show", "digits", "--views", "."],
        "--views: not the name of a PNG, got '.'; write one such as views.png",
    ),
    (["data", "show", "digits", "--views", "a.jpg"], "--views: not the name of a PNG, got 'a.jpg'"),
    (["data", "prepare", "digits", "--to", "there", "--resize", "4"], "data.resize: digits is read as it is stored"),
    (["evaluate", "nowhere", "--only", "knn,chains"], "--only: chains is a picture and no probe, got knn,chains"),
    (
        ["sweep", "flatclr", "--epochs", "11"],
        "--epochs: a search must not train longer than the runs that confirm it, got 11 > 10; set training.epochs=11",
    ),
    (["data", "show", "cifar"], "got 'cifar'; did you mean cifar10?"),
    (["data", "fetch", "cifar"], "got 'cifar'; did you mean cifar10?"),
    (["show", "simclr", "--recipe", "nope"], "--recipe: no such recipe, got 'nope'"),
    (["show"], "show: nothing to show"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG_SETTINGS, ids=lambda value: " ".join(value)[:60])
def test_a_wrong_setting_is_named_with_what_would_be_right(ebclab: Ebclab, arguments: list[str], sentence: str) -> None:
    outcome = ebclab(*arguments)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err
    assert not Path("runs").exists()


def test_all_mistakes_are_reported_at_once(ebclab: Ebclab) -> None:
    wrong = ["method.tau=1", "optimizer.learning_rate=-1", "training.epochs=ten", "views.recipe=nope"]
    outcome = ebclab("pretrain", "simclr", *(part for text in wrong for part in ("--set", text)))
    assert outcome.code == 2
    for key in ("method.tau", "optimizer.learning_rate", "training.epochs", "views.recipe"):
        assert f"{key}:" in outcome.err


def test_a_missing_argument_or_verb_is_a_usage_error(ebclab: Ebclab) -> None:
    assert ebclab("pretrain").code == 2
    assert ebclab("pretran", "simclr").code == 2


def test_a_damaged_data_file_is_named(ebclab: Ebclab) -> None:
    raw = Path("data/MNIST/raw")
    raw.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (raw / f"{name}-ubyte").write_bytes(b"not an IDX file")
    outcome = ebclab("pretrain", "simclr", "--dataset", "mnist", "--data-root", "data")
    assert outcome.code == 2
    assert "train-images-idx3-ubyte" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_name_in_use_with_other_settings_is_refused_and_the_run_untouched(ebclab: Ebclab, finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    arguments = ["pretrain", "flatclr", "--epochs", "2", "--name", "done", *TINY, "--set", "method.temperature=0.5"]
    for extra in ([], ["--resume"]):
        outcome = ebclab(*arguments, *extra)
        assert outcome.code == 2
        assert "method.temperature: 0.2 in the run, 0.5 now" in outcome.err
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_another_method_under_the_same_name_is_refused(ebclab: Ebclab, finished: Path) -> None:
    outcome = ebclab("pretrain", "simclr", "--epochs", "2", "--name", "done", *TINY)
    assert outcome.code == 2
    assert "method.name: flatclr in the run, simclr now" in outcome.err


def test_images_that_changed_under_a_run_are_noticed(ebclab: Ebclab, finished: Path) -> None:
    manifest = next((finished / "checkpoints").glob("last-*4")) / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["facts"]["data_digest"] = "0" * 16
    manifest.write_text(json.dumps(facts))
    outcome = ebclab("pretrain", "flatclr", "--epochs", "3", "--name", "done", *TINY)
    assert outcome.code == 2
    assert "the training images are not those the run began with" in outcome.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named_as_a_user(ebclab: Ebclab) -> None:
    Path("locked").mkdir(mode=0o500)
    outcome = ebclab("pretrain", "flatclr", "--runs", "locked", *TINY)
    assert outcome.code == 2
    assert "cannot be written" in outcome.err


def test_a_folder_that_cannot_be_written_is_named(ebclab: Ebclab) -> None:
    Path("file").write_text("a file where a folder should be")
    outcome = ebclab("pretrain", "flatclr", "--runs", "file", *TINY)
    assert outcome.code == 2
    assert "cannot be written, got Not a directory; choose another folder with --runs" in outcome.err


def test_a_full_disk_keeps_the_checkpoint_before_and_the_run_goes_on_later(
    ebclab: Ebclab, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    arguments = ["pretrain", "flatclr", "--epochs", "3", "--name", "done", *TINY]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        outcome = ebclab(*arguments)
    assert outcome.code == 2
    assert "the disk is full; the checkpoint before it, last-0000000004, is kept" in outcome.err
    assert checkpoint.load(finished / "checkpoints") is not None
    assert ebclab(*arguments).code == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(ebclab: Ebclab) -> None:
    outcome = ebclab("pretrain", "simclr", "--set", "resources.device=cuda", *TINY)
    assert outcome.code == 2
    assert "no CUDA GPU is visible to torch here, got cuda; use auto or cpu" in outcome.err
    assert not Path("runs").exists()


def test_a_checkpoint_from_a_newer_version_is_refused(ebclab: Ebclab, finished: Path) -> None:
    for manifest in (finished / "checkpoints").glob("last-*/manifest.json"):
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    outcome = ebclab("evaluate", finished)
    assert outcome.code == 2
    assert "written by a newer ebclab, got format 99" in outcome.err


def test_numbers_that_stop_being_finite_end_the_run_with_code_1_and_advice(ebclab: Ebclab) -> None:
    outcome = ebclab(
        "pretrain", "simclr", "--epochs", "3", *TINY, "--set", "optimizer.learning_rate=1e30", "--name", "diverged"
    )
    assert outcome.code == 1
    assert "step " in outcome.err
    assert "optimizer.learning_rate (too high)" in outcome.err
    assert "Traceback" not in outcome.err
    assert not Path("runs/diverged/result.json").exists()


def test_an_unknown_probe_protocol_or_checkpoint_names_the_right_ones(ebclab: Ebclab, finished: Path) -> None:
    for arguments, known in (
        (["--only", "kn"], "knn"),
        (["--protocol", "lbfg"], "lbfgs"),
        (["--checkpoint", "lst"], "last"),
    ):
        outcome = ebclab("evaluate", finished, *arguments)
        assert outcome.code == 2, outcome.err
        assert f"did you mean {known}?" in outcome.err


def test_an_export_never_overwrites_a_foreign_folder(ebclab: Ebclab, finished: Path) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    for extra in ([], ["--overwrite"]):
        assert ebclab("export", finished, "--to", "mine", *extra).code == 2
    assert Path("mine/thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--set", "encoder.name=timm/resnet1"], "encoder.name: no such network in timm"),
        (["--set", "encoder.name=timm/test_vit"], "timm/test_vit cannot be built for images of 1 x 8 x 8"),
        (
            ["--set", "encoder.name=timm/test_resnet", "--set", "encoder.batch_norm=none"],
            "encoder: batch_norm: timm/test_resnet has batch norm, which cannot be left out, got none",
        ),
        (["--init", "nowhere"], "init.weights: neither an exported encoder nor a run, got "),
        (["--init", "timm/resnet1"], "init.weights: timm "),
        (["--set", "init.digest=abc"], "init.digest: says nothing without init.weights, got abc"),
    ],
)
def test_wrong_networks_and_starts_are_sentences_and_leave_no_run(
    ebclab: Ebclab, arguments: list[str], problem: str
) -> None:
    outcome = ebclab("pretrain", "simclr", *TINY, *arguments)
    assert outcome.code == 2
    assert problem in outcome.err
    assert "Traceback" not in outcome.err
    assert not Path("runs").exists() or not any(Path("runs").iterdir())


def test_chains_through_a_first_layer_that_timm_does_not_have_are_refused(ebclab: Ebclab) -> None:
    first = ["--set", "method.chain_gradient=first-layer", "--set", "method.buffer_size=64"]
    outcome = ebclab("pretrain", "ebclr", *TINY, *first, "--set", "encoder.name=timm/test_nfnet")
    assert outcome.code == 2
    assert "method.chain_gradient: first-layer needs an encoder with stem and trunk, got NormFreeNet" in outcome.err
