"""What a user can get wrong: one clear sentence, exit code 2, no traceback, nothing lost."""

import contextlib
import errno
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ebclab.inventory import listing
from ebclab.runs import checkpoint
from ebclab.training.recorder import Recorder

from .conftest import TINY, Ebclab, Outcome

ERROR_PATHS = [
    *(
        (["sweep", "simclr", option, value], f"{option}: {wanted}, got {value}")
        for option, wanted, values in (
            ("--gpus-per-trial", "must be a number", ("nan", "inf")),
            ("--gpus-per-trial", "a share of one GPU or a whole number", ("1.5", "-0.5")),
            ("--price-per-hour", "must be at least 0", ("-2", "nan")),
        )
        for value in values
    ),
    (["data", "prepare", "digits", "--to", "there", "--quality", "50"],
     "--quality: of --store jpeg, got 50 with --store pixels; leave it out"),
    (["data", "fetch", "folder:photos"], "images that are named by their place are yours, got folder:photos"),
    (["pretrain", "simclr", "--batch-size", "32"],
     "did you mean --set training.batch_size=... or --set evaluation.batch_size=...?"),
    (["sweep", "simclr", "--lr", "0.1"], "did you mean --set optimizer.learning_rate=...?"),
    (["pretrain", "ebclr", "--rho", "0.2"], "did you mean --set method.reinit_rate=...?"),
    (["runs", "list", "--lr", "3"], "--lr: no such option; see `ebclab runs list --help`"),
    # what is written: --set, a name that should be known, options that exclude each other
    (["show", "simclr", "--recipe", "nope"], "--recipe: no such recipe, got 'nope'"),
    (["show"], "show: nothing to show"),
    (["pretrain"], "error: METHOD: missing; see `ebclab pretrain --help`"),
    (["data", "prepare", "digits"], "error: --to: missing; see `ebclab data prepare --help`"),
    # what the parser of options refuses
    (["pretrain", "simclr", "--epochs", "x"], "error: --epochs: not a whole number, got 'x'"),
    (["report", "there", "--price-per-gpu-hour", "x"], "error: --price-per-gpu-hour: not a number, got 'x'"),
    (["compare", "dcl", "--batch-size", "8", "--batch-size", "y"], "--batch-size: not a whole number, got 'y'"),
    (["data", "prepare", "digits", "--to", "there", "--shards", "-1"], "--shards: must be at least 0, got '-1'"),
    (["submit", "--", "pretrain", "simclr", "--epochs", "x"], "--epochs: not a whole number, got 'x'"),
    (["pretrain", "simclr", "--epochs"], "error: --epochs: a value must follow it"),
    (["pretrain", "simclr", "--resume=3"], "error: --resume: takes no value"),
    (["pretrain", "simclr", "--recipes", "a"], "error: --recipes: no such option; did you mean --recipe?"),
    (["pretrain", "simclr", "-z", "3"], "error: -z: no such option; see `ebclab pretrain --help`"),
    (["pretran", "simclr"], "error: pretran: no such command; did you mean pretrain? Known: "),
    (["runs", "shw", "one"], "error: shw: no such command; did you mean show? Known: "),
    # an argument that was to be the value of an option
    (["pretrain", "simclr", "digits"], "pretrain: too many arguments, got digits; did you mean --dataset digits?"),
    (["sweep", "simclr", "digits-demo"], "got digits-demo; did you mean --recipe digits-demo?"),
    (["pretrain", "simclr", "--set", "seed", "3"], "got 3; did you mean --set seed=3?"),
    (["pretrain", "simclr", "seed=3"], "got seed=3; did you mean --set seed=3?"),
    # hydra#514, hydra#2947: settings as other tools write them
    (["pretrain", "simclr", "--set", "seed", "=", "3"], "got = 3; did you mean --set seed=3?"),
    (["pretrain", "simclr", "--set", "seed=", "3"], "got 3; did you mean --set seed=3?"),
    (["pretrain", "simclr", "--set", "training.epochs:3"], "got 'training.epochs:3'; write training.epochs=3"),
    (["pretrain", "simclr", "--optimizer.learning_rate=1"], "did you mean --set optimizer.learning_rate=...?"),
    (["pretrain", "simclr", "--logger", "wandb"], "did you mean --set training.loggers=...?"),
    (["pretrain", "--method", "simclr"], "--method: no such option; write its value without it, `ebclab pretrain M"),
    (["pretrain", "simclr", "--resume", "first"], "got first; did you mean --name first?"),
    (["pretrain", "simclr", "--output_dir", "x"], "--output_dir: no such option; did you mean --runs?"),
    (["sweep", "simclr", "--num-samples", "3"], "--num-samples: no such option; did you mean --trials?"),
    (["pretrain", "simclr", "dcl"], "too many arguments, got dcl; see `ebclab pretrain --help`"),
    (["data", "list", "digits"], "ebclab data list: too many arguments, got digits; see `ebclab data list --help`"),
    # an empty text is a wrong value, not an option that was left out
    (["pretrain", "simclr", "--recipe", ""], "--recipe: no such recipe, got ''; known: cifar10-resnet18"),
    (["pretrain", "simclr", "--config", ""], ": cannot be read, got Is a directory"),
    (["pretrain", "simclr", "--dataset", ""], "data.name: no such dataset, got ''; known are digits, mnist"),
    (["pretrain", "simclr", "--name", ""], "--name: not the name of a folder, got ''; leave out"),
    (["sweep", "simclr", "--name", ""], "--name: not the name of a folder, got ''; leave out"),
    (["sweep", "simclr", "--space", ""], ": cannot be read, got Is a directory"),
    # several values at once, where an option takes one and is repeated
    (["reproduce", "ebclr/table1", "--rows", "simclr,byol"], "got simclr,byol; write --rows simclr --rows byol"),
    (["compare", "simclr, vicreg"], "METHOD: no such method, got simclr, vicreg; write simclr vicreg"),
    (["compare", "simclr", "dcl", "--batch-size", "16,32"], "got '16,32'; write --batch-size 16 --batch-size 32"),
    (["pretrain", "simclr", "--dataset", "digits,mnist"], "got 'digits,mnist'; name one at a time: digits, mnist"),
    (["compare", "simclr", "dcl", "--batch-size", "16", "--may-differ", "views.recipe,encoder.name"],
     "got views.recipe,encoder.name; write --may-differ views.recipe --may-differ encoder.name"),
    # where images are, and what is asked of them
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
    *(
        (["data", "show", "digits", "--views", name], f"--views: not the name of a PNG, got '{name}'; write one such")
        for name in (".", "a.jpg")
    ),
    (["data", "show", "mnist", "--views", "/dev/null/x/a.png"], "/dev/null/x: cannot be written, got Not a directory"),
    (["data", "prepare", "digits", "--to", "there", "--resize", "4"], "data.resize: digits is not resized on reading"),
    (["data", "show", "digits", "--set", "data.decoding=reduced"],
     "data.decoding: reduced needs a size that images are scaled to, got data.resize 0"),
    # more than the machine has
    (["pretrain", "simclr", "--set", "resources.threads=100000"], "cores of this machine, got 100000; use at most "),
    (
        ["pretrain", "simclr", "--set", "views.image_size=100000"],
        "views.image_size: a batch of views does not fit on cpu, got 100000 pixels: 256 images x 2 views x "
        "1x100000x100000 pixels x 4 bytes = 20.5 TB, ",
    ),
    (["pretrain", "simclr", "--set", "evaluation.knn_bank_limit=10"],
     "evaluation.knn_neighbours: more than the 10 training images that vote, got 20; use at most 10, or"),
    (["pretrain", "simclr", "--set", "data.holdout_rate=0.9999"], "data: at least 2 training images are needed, got 0"),
    (["data", "prepare", "digits", "--to", "x", "--resize", "100000"], "--resize: must be at most 11585, got '100000'"),
    # what a method refuses
    (["pretrain", "ebclr", "--set", "method.buffer_size=10"],
     "method.buffer_size: must hold the global batch of 256 images, got 10; use at least 256"),
    (["pretrain", "simclr", "--workers", "\N{SUPERSCRIPT TWO}"],
     "--workers: not a number of workers, got '\N{SUPERSCRIPT TWO}'"),
    (["sweep", "simclr", "--concurrent", "\N{SUPERSCRIPT TWO}"],
     "--concurrent: not a number of trials, got '\N{SUPERSCRIPT TWO}'"),
    (["report", "x", "--price-per-gpu-hour", "-1"], "--price-per-gpu-hour: must be at least 0, got -1"),
    (["sweep", "simclr", "--dataset", "digits", "--price-per-hour", "2"], "--price-per-hour: is for --show, got 2.0"),
    (["reproduce", "ebclr/table1", "--show", "--json"], "--json: is for results, and --show measures none"),
    # a run that is not there
    (["pretrain", "simclr", "--resume", "--name", "ghost"], "nothing to resume, no run of this name"),
    (["evaluate", "nowhere"], "no run here, config.yaml is missing"),
]  # fmt: skip


def _refusal(outcome: Outcome) -> str:
    """The one line of an error that a user can mend."""
    assert outcome.code == 2, outcome.err
    assert "Traceback" not in outcome.err
    (error,) = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    return error


@pytest.mark.parametrize(("arguments", "sentence"), ERROR_PATHS, ids=[" ".join(words) for words, _ in ERROR_PATHS])
def test_each_way_to_the_terminal_ends_in_a_sentence_and_exit_code_2(ebclab, arguments, sentence):
    """What the sentences say is tested where they are made; here is one for each way that an error takes."""
    assert sentence in _refusal(ebclab(*arguments))
    assert not Path("runs").exists()


def test_all_mistakes_are_reported_at_once(ebclab: Ebclab) -> None:
    wrong = ["method.tau=1", "optimizer.learning_rate=-1", "training.epochs=ten", "views.recipe=nope"]
    outcome = ebclab("pretrain", "simclr", *(part for text in wrong for part in ("--set", text)))
    assert outcome.code == 2
    for key in ("method.tau", "optimizer.learning_rate", "training.epochs", "views.recipe"):
        assert f"{key}:" in outcome.err
    assert ebclab("evaluate", "nowhere", "there").err.count(": no run here, config.yaml is missing") == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
def test_an_output_that_is_full_is_a_sentence(ebclab: Ebclab, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        outcome = ebclab("show", "--recipes")
    assert outcome.refusal == "error: the output: cannot be written, got No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["runs", "list", "--runs=~/there"], "{home}/there"),
        (["evaluate", "~/there/one"], "{home}/there/one"),
        (["pretrain", "simclr", "--runs=~/there", "--name", "one", "--resume"], "{home}/there/one"),
        (["pretrain", "simclr", "--config=~/one.yaml"], "{home}/one.yaml"),
    ],
)
def test_a_home_that_the_shell_has_left_as_it_is_is_found(arguments, place, ebclab, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert place.format(home=tmp_path / "home") in ebclab(*arguments).refusal


OF_ANOTHER = [
    ["runs", "list", "--runs", "theirs"],
    ["runs", "show", "theirs/one"],
    ["runs", "delete", "one", "--runs", "theirs", "--yes"],
    ["evaluate", "theirs/one"],
    ["export", "theirs/one", "--to", "mine"],
    ["report", "theirs/one"],
    ["pretrain", "simclr", "--runs", "theirs"],
    ["pretrain", "simclr", "--init", "theirs/one"],
]


@pytest.mark.parametrize("arguments", OF_ANOTHER, ids=" ".join)
def test_a_folder_that_another_user_keeps_private_is_a_sentence(arguments, ebclab, monkeypatch):
    asked = os.stat

    def refused(path: Any, **options: Any) -> os.stat_result:
        if "theirs" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return asked(path, **options)

    monkeypatch.setattr(os, "stat", refused)  # root, as which tests may run, is never refused
    refusal = ebclab(*arguments).refusal
    assert "theirs" in refusal
    assert ": cannot be used, got Permission denied; check its permissions\n" in refusal


def test_ctrl_c_while_the_verbs_are_imported_is_no_traceback(ebclab: Ebclab, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "ebclab.cli.app", Interrupted())  # type: ignore[arg-type]
    assert ebclab("--version") == (130, "", "error: stopped before it was done\n")


def test_ctrl_c_while_a_command_works_is_a_sentence(ebclab: Ebclab, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*asked: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "inventory", interrupted)
    assert ebclab("runs", "list") == (130, "", "error: stopped before it was done\n")


def test_ctrl_c_at_a_question_stops_with_its_own_code(ebclab, finished, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, *_: Any) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert ebclab("runs", "delete", "done").code == 130
    assert finished.exists()


@pytest.mark.parametrize("option", [("--resume",), ("--extend", "3")])
def test_going_on_with_a_run_of_another_method_names_the_right_one(ebclab, finished, option):
    outcome = ebclab("pretrain", "simclr", "--name", "done", *option)
    assert outcome.refusal == f"error: {finished}: a run of flatclr, got simclr; write `ebclab pretrain flatclr`\n"


def test_images_that_changed_under_a_run_are_noticed(ebclab: Ebclab, finished: Path) -> None:
    manifest = next((finished / "checkpoints").glob("last-*4")) / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["facts"]["data_digest"] = "0" * 16
    del facts["digest"]  # as an older version wrote it
    manifest.write_text(json.dumps(facts))
    outcome = ebclab("pretrain", "flatclr", "--epochs", "2", "--extend", "3", "--name", "done", *TINY)
    assert "the training images are not those the run began with" in _refusal(outcome)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["pretrain", "simclr", "--dataset", "mnist"], "--runs"),
        (["sweep", "simclr", "--dataset", "mnist"], "--sweeps"),
        (["data", "prepare", "mnist"], "--to"),
    ],
)
def test_a_folder_that_cannot_be_written_is_named_before_images_are_read(ebclab, command, option):
    Path("file").write_text("a file where a folder should be")
    Path("locked").mkdir(mode=0o500)
    places = {"file": "got Not a directory"} | ({"locked": "got "} if os.geteuid() else {})  # root may write everywhere
    for place, said in places.items():
        refusal = _refusal(ebclab(*command, option, f"{place}/set"))
        assert f"cannot be written, {said}" in refusal
        assert f"choose another folder with {option}" in refusal
    assert sorted(each.name for each in Path().iterdir()) == ["file", "locked"]


def test_a_full_disk_keeps_the_checkpoint_before_and_the_run_goes_on_later(ebclab, finished, monkeypatch):
    def full(self: Path, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    arguments = ["pretrain", "flatclr", "--epochs", "2", "--extend", "3", "--name", "done", *TINY]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        outcome = ebclab(*arguments)
    assert "the disk is full; the checkpoint before it, last-0000000004, is kept" in outcome.refusal
    assert checkpoint.load(finished / "checkpoints") is not None
    assert ebclab(*arguments).code == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(ebclab):
    refusal = _refusal(ebclab("pretrain", "simclr", "--set", "resources.device=cuda", *TINY))
    assert "torch has no such device here, got cuda; it has cpu; use one of these, or auto" in refusal
    assert not Path("runs").exists()


def test_single_probes_refuse_options_that_they_do_not_read(ebclab, finished):
    """Each option is refused before anything is read, so one copy of the run serves all."""
    of_cards = {"--train-limit": "100", "--test-limit": "100", "--seeds": "5", "--ood": "rotated", "--to": "there"}
    of_cards |= {"--attacked": "0", "--autoattack": "", "--fine-tuning-epochs": "5", "--workers": "2"}
    for option, value in of_cards.items():
        refusal = _refusal(ebclab("evaluate", finished, "--only", "knn", option, *([value] if value else [])))
        assert f"{option}: is for groups of the card, got " in refusal
    assert not (finished / "evaluation.json").exists()


def test_single_probes_of_what_is_no_run_are_refused_with_what_is_possible(ebclab: Ebclab, finished: Path) -> None:
    assert ebclab("export", finished, "--to", "exported").code == 0
    for encoder in ("exported", "timm/resnet18"):
        refusal = _refusal(ebclab("evaluate", encoder, "--only", "knn"))
        assert f"--only: single probes are of runs, got {encoder}; --only classification has them" in refusal


def test_a_sweep_that_is_taken_for_a_run_is_named(ebclab: Ebclab, finished: Path) -> None:
    Path("sweeps/mine/trials").mkdir(parents=True)
    Path("sweeps/mine/sweep.yaml").touch()
    finished.rename("sweeps/mine/trials/0003")
    place = Path("sweeps/mine").absolute()
    refusal = _refusal(ebclab("evaluate", "sweeps/mine"))
    assert f"it is a sweep, whose runs are in {place / 'trials'}, such as 0003" in refusal


def test_an_unknown_name_in_options_of_evaluate_brings_the_right_one(ebclab, finished):
    for arguments, known in (
        (["--only", "kn"], "knn"),
        (["--protocol", "lbfg"], "lbfgs"),
        (["--checkpoint", "lst"], "last"),
        (["--ood", "rotatd", "--only", "out-of-distribution"], "rotated"),
    ):
        refusal = _refusal(ebclab("evaluate", finished, *arguments))
        assert f"got {arguments[1]}; did you mean {known}?" in refusal.replace("'", "")


def test_numbers_that_stop_being_finite_end_the_run_with_code_1_and_advice(ebclab: Ebclab) -> None:
    outcome = ebclab(
        "pretrain", "simclr", "--epochs", "3", *TINY, "--set", "optimizer.learning_rate=1e30", "--name", "diverged"
    )
    assert outcome.code == 1
    assert "step " in outcome.err
    assert "optimizer.learning_rate (too high)" in outcome.err
    assert "Traceback" not in outcome.err
    assert not Path("runs/diverged/result.json").exists()


def test_a_run_that_was_asked_to_stop_ends_with_the_code_of_ctrl_c(ebclab, monkeypatch):
    monkeypatch.setattr(Recorder, "should_stop", lambda recorder: True)
    outcome = ebclab("pretrain", "simclr", "--epochs", "2", "--name", "stopped", *TINY)
    assert outcome.code == 130
    assert "stopped at step 1 of 4; everything is saved in " in outcome.err
    assert "Traceback" not in outcome.err
    assert checkpoint.newest_step(Path("runs/stopped/checkpoints")) == 1


def test_a_network_that_does_not_fit_is_a_sentence_and_leaves_no_run(ebclab: Ebclab) -> None:
    refusal = _refusal(ebclab("pretrain", "simclr", "--set", "encoder.name=timm/test_vit", *TINY))
    assert "encoder: timm/test_vit cannot be built for images of 1 x 8 x 8" in refusal
    assert not Path("runs").exists() or not any(Path("runs").iterdir())
