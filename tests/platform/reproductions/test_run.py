"""Runs of a study are trained and measured once, and a command that was killed goes on."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from run_files import summary_of

from ebclab.card.card import Card, Findings, GroupResult, Number
from ebclab.card.groups import fine_tuning
from ebclab.card.groups.classification import HELD_OUT
from ebclab.card.request import CardRequest
from ebclab.card.side_by_side import Cards
from ebclab.config import ExperimentConfig
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError, DivergedError, RunError, UnmeasuredError
from ebclab.evaluation import progress
from ebclab.evaluation.evaluate import evaluate_encoder
from ebclab.evaluation.protocols import FINE_TUNING, PROTOCOLS, EpochProtocol
from ebclab.evaluation.samples import SampleMeasures
from ebclab.reproductions import measure as measure_module
from ebclab.reproductions import reproduce as run_module
from ebclab.reproductions.document import write_table
from ebclab.reproductions.measure import Found, Wanted, measure_run
from ebclab.reproductions.plan import ReproductionFolder, StudyPlan, plan_study
from ebclab.reproductions.reproduce import run_plan
from ebclab.reproductions.study import Study, list_studies, load_study, parse_study
from ebclab.reproductions.table import table_of_plan
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import load_trained_encoder
from ebclab.storage.kinds import REPRODUCTION
from ebclab.storage.lease import leased
from ebclab.storage.object_store import COPIES
from ebclab.training.pretrain import RunResult, pretrain
from ebclab.training.sample_request import SampleRequest
from ebclab.training.samples import Samples

from .conftest import study_mapping


@pytest.fixture
def plan(study: Study) -> StudyPlan:
    return plan_study(study, "smoke")


@pytest.fixture
def folder(tmp_path: Path) -> ReproductionFolder:
    return ReproductionFolder(tmp_path / "here")


def _enter(folder: ReproductionFolder, plan: StudyPlan) -> None:
    with folder.enter(plan):
        pass


def _measured(run: RunResult, wanted: list[Wanted]) -> dict[Wanted, Found]:
    return {each: found for part in measure_run(run, wanted) for each, found in part.items()}


def _files(path: Path) -> dict[str, bytes]:
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_study_is_trained_and_measured_and_what_is_done_is_not_done_again(plan, folder, monkeypatch):
    outcomes = run_plan(plan, folder)
    (cold, warm) = (outcomes[name] for name in ("cold-seed0", "warm-seed0"))
    knn, ess = (cell.wanted for cell in plan.cells_of("cold-seed0"))
    assert 0 < cold.numbers[knn].value < 1
    assert cold.numbers[knn].answers is not None
    assert 1 / 30 <= warm.numbers[ess].value <= 1  # of 2 x 16 - 2 negatives
    assert cold.numbers[ess].value < warm.numbers[ess].value  # a lower temperature gives fewer negatives the weight
    result = json.loads((folder.path / "runs" / "cold-seed0" / "result.json").read_text())
    assert cold.seconds == result["seconds"]

    run = pretrain(plan.runs["cold-seed0"], runs=folder.inside, name="cold-seed0", resume=True)
    wanted = [replace(knn, protocol=protocol) for protocol in ("", "here")]
    monkeypatch.setitem(
        measure_module.PAPER_OPTIONS, "here", {"protocol": "lbfgs", "size": 12, "resampling": "bicubic"}
    )
    kept = _files(folder.path)
    usual, scaled = _measured(run, wanted).values()
    assert usual.value == cold.numbers[knn].value
    assert "scaled to 12 pixels, bicubic" in scaled.detail
    trained = load_trained_encoder(RunFolder.at(run.path), "last")
    larger = [load_split("digits", None, part) for part in ("train", "test")]
    for place, images in enumerate(larger):
        pixels = [
            numpy.array(Image.fromarray(each[0]).resize((12, 12), 3)) for each in images.images.numpy()
        ]  # bicubic
        larger[place] = replace(images, images=torch.from_numpy(numpy.stack(pixels))[:, None])
    seen = replace(trained.preprocessing, image_size=12)
    by_hand = evaluate_encoder(trained.encoder, *larger, seen, trained.config.evaluation, device="cpu", only=["knn"])
    assert scaled.value == by_hand["knn"].value != usual.value
    assert _files(folder.path) == kept

    before = _files(folder.path)
    monkeypatch.setattr(run_module, "measure_run", None)
    again = run_plan(plan, folder)
    assert again == outcomes
    assert _files(folder.path) == before


def test_a_reproduction_in_a_store_is_resumed_from_there_and_held_meanwhile(plan, tmp_path, monkeypatch):
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    there = ReproductionFolder.of_plan(plan, f"file://{tmp_path}/store/mine")
    outcomes = run_plan(plan, there)
    write_table(table_of_plan(plan, outcomes), there)
    names = {"plan.json", "measured/cold-seed0.json", "runs/cold-seed0/evaluation.json", "table.html"}
    assert names <= _files(tmp_path / "store" / "mine").keys()
    shutil.rmtree(tmp_path / "copies")
    monkeypatch.setattr(run_module, "measure_run", None)
    assert run_plan(plan, there) == outcomes
    with (
        leased(there.remote, REPRODUCTION.busy),
        pytest.raises(RunError, match=r"mine: another process .*works on this reproduction"),
    ):
        run_plan(plan, there)


class Killed(BaseException):
    """As if the process had gone."""


def test_a_command_that_was_killed_goes_on_where_it_was(plan, folder, monkeypatch):
    asked: list[tuple[str, int]] = []

    def dies_in_the_second(run: RunResult, wanted: list[Wanted], *arguments: Any) -> Iterator[dict[Wanted, Found]]:
        asked.append((run.path.name, len(wanted)))
        for found in measure_run(run, wanted, *arguments):
            yield found
            if len(asked) == 2:
                raise Killed

    monkeypatch.setattr(run_module, "measure_run", dies_in_the_second)
    with pytest.raises(Killed):
        run_plan(plan, folder)
    logs = {name: (folder.path / "runs" / name / "metrics.jsonl").read_bytes() for name in ("cold-seed0", "warm-seed0")}
    outcomes = run_plan(plan, folder)
    assert asked == [("cold-seed0", 2), ("warm-seed0", 2), ("warm-seed0", 1)]  # of the second, one was saved
    assert {name: (folder.path / "runs" / name / "metrics.jsonl").read_bytes() for name in logs} == logs
    assert all(len(outcome.numbers) == 2 for outcome in outcomes.values())


def test_measuring_says_how_far_it_is(plan, folder, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    said: list[str] = []
    run_plan(plan, folder, note=said.append)
    of_cold = said[said.index("run 1 of 2: cold-seed0") : said.index("run 2 of 2: warm-seed0")]
    assert {line.partition(":")[0] for line in of_cold[1:]} == {
        "features of training images",
        "features of test images",
        "knn",
    }


def test_a_run_that_diverges_costs_its_own_cells(plan, folder, monkeypatch):
    def cold_diverges(config: Any, **arguments: Any) -> RunResult:
        if arguments["name"] == "cold-seed0":
            raise DivergedError("the loss is nan at step 3")
        return pretrain(config, **arguments)

    monkeypatch.setattr(run_module, "pretrain", cold_diverges)
    table = table_of_plan(plan, run_plan(plan, folder))
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    assert (cells["cold", "knn"].ours, cells["cold", "knn"].problem) == (None, "the loss is nan at step 3")
    assert cells["warm", "knn"].ours is not None
    assert table.failures == ("cold-seed0: the loss is nan at step 3",)


def test_a_run_that_is_trained_anew_or_whose_numbers_are_damaged_is_measured_anew(folder: ReproductionFolder):
    file = folder.path / "measured" / "a.json"
    found = {Wanted("knn", ""): Found(0.5, "kNN")}
    folder.write_numbers("a", "2026-01-01", found)
    assert folder.read_numbers("a", "2026-01-01") == found
    assert folder.read_numbers("a", "2026-01-02") == {}
    (folder.path / "measured" / "b.json").write_bytes(file.read_bytes())
    assert folder.read_numbers("b", "2026-01-01") == {}
    file.write_text(file.read_text().replace("0.5", "0.9"))
    assert folder.read_numbers("a", "2026-01-01") == {}


def test_a_folder_with_another_study_scale_or_settings_is_refused(study, plan, folder):
    _enter(folder, plan)
    _enter(folder, plan_study(study, "smoke", seeds=[0, 1]))  # more seeds may come
    _enter(folder, plan)
    other = parse_study("own/table8", study_mapping(), "x")
    with pytest.raises(
        RunError, match=r"holds some/table9 at scale smoke, not own/table8 at smoke; choose another --to"
    ):
        _enter(folder, plan_study(other, "smoke"))
    with pytest.raises(RunError, match="holds some/table9 at scale smoke, not some/table9 at small"):
        _enter(folder, plan_study(study, "small"))
    with pytest.raises(RunError) as caught:
        _enter(folder, plan_study(study, "smoke", assignments=["training.epochs=2"]))
    assert "cold-seed0, training.epochs: 1 in the folder, 2 now" in str(caught.value)
    (folder.path / "plan.json").write_text("[1")
    with pytest.raises(RunError, match="not the plan of a reproduction"):
        _enter(folder, plan)


def test_missing_images_are_named_before_anything_is_trained(tmp_path: Path, folder: ReproductionFolder):
    plan = plan_study(load_study("ebclr/table1"), "small", data_root=str(tmp_path))
    with pytest.raises(DataError) as caught:
        run_plan(plan, folder)
    lines = str(caught.value).splitlines()
    assert [line.partition(" is needed")[0] for line in lines] == [
        f"ebclr/table1: {name}" for name in ("mnist", "fashion-mnist", "cifar10")
    ]
    assert lines[0].endswith(f"run `ebclab data fetch mnist --data-root {tmp_path}`")
    assert not folder.path.exists()


def test_a_number_that_a_run_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scores, metrics = {"holdout_information": 3.5}, {"ess": 0.25, "loss": float("nan")}
    summary = summary_of(epochs=4, seconds=6.0, scores=scores, metrics=metrics)
    run = RunResult(tmp_path, summary, was_finished=True, address="runs/a")
    times = _measured(
        run, [Wanted("seconds-per-epoch", ""), Wanted("log/ess", ""), Wanted("log/holdout_information", "")]
    )
    assert [found.value for found in times.values()] == [1.5, 0.25, 3.5]
    with pytest.raises(UnmeasuredError, match=r"runs/a: no metric es in its log; did you mean ess\?"):
        _measured(run, [Wanted("log/es", "")])
    with pytest.raises(UnmeasuredError, match="the metric loss is nan"):
        _measured(run, [Wanted("log/loss", "")])
    card = Card("", "", "", "", "", 0, "digits", "", 32, 10, {})
    asked: list[CardRequest] = []
    monkeypatch.setattr(
        measure_module, "measure_cards", lambda request, on_progress: asked.append(request) or Cards((card,), "")
    )
    with pytest.raises(UnmeasuredError, match="runs/a: the card's calibration has no number mce-21; known: none"):
        _measured(run, [Wanted("card/calibration/mce-21", "")])
    for measure in ("calibration/ece-20-own", "calibration/nll", "robustness/fgsm-4"):
        with pytest.raises(UnmeasuredError):
            _measured(run, [Wanted(f"card/{measure}", "", attacked=0)])
    assert [(each.bins, each.attacked_images) for each in asked] == [(21, 1_000), (20, 0), (15, 0), (15, 0)]
    whole = card
    card = replace(whole, tests_held_out=True)
    with pytest.raises(UnmeasuredError, match="runs/a: digits has no test images, got 10 held-out ones; name"):
        _measured(run, [Wanted("card/robustness/fgsm-4", "")])
    card = whole
    elsewhere = Number("voc-map-11-point", "", 0.75, "as usual", 10, "higher")
    card = replace(card, results=(GroupResult("transfer", "", Findings((elsewhere,)), 1.0),))
    wanted = Wanted("card/transfer/map-11-point", "voc:/x", protocol="flatnce")
    assert _measured(run, [wanted])[wanted].value == 0.75
    assert asked[-1].datasets == ("digits", "voc:/x")
    elsewhere = replace(elsewhere, protocol=f"as usual; {HELD_OUT}")
    card = replace(card, results=(GroupResult("transfer", "", Findings((elsewhere,)), 1.0),))
    with pytest.raises(UnmeasuredError, match="voc:/x has no test images, got 10 held-out ones"):
        _measured(run, [wanted])
    last = asked[-1]
    assert (last.protocol, last.scaling, last.fine_tuning) == ("flatnce-adam", (224, "bicubic"), "flatnce")


def test_samples_are_drawn_once_a_source_and_measured_after_the_last_step(tmp_path, monkeypatch):
    unknown = dict.fromkeys(("energy_std", "entropy", "class_shares"))
    first, last, real = (
        SampleMeasures(saturation=x, energy=10 * x, diversity=2 * x, nearest=3 * x, **unknown)
        for x in (0.5, 0.25, 0.125)
    )
    asked: list[str] = []

    def sampled(
        where: str, request: SampleRequest, *, data_root: str | None, on_progress: progress.OnProgress
    ) -> Samples:
        asked.append(request.source)
        on_progress(1, 2, request.source)
        return Samples("ebclr", "last", 8, request, None, {0: first, request.num_steps: last}, real)

    monkeypatch.setattr(measure_module, "sample_chains", sampled)
    run = RunResult(tmp_path, None, was_finished=True, address="runs/a")  # type: ignore[arg-type]
    names = {"saturation": 0.25, "energy-gap": 1.25, "diversity": 0.5, "nearest": 0.75}
    wanted = [Wanted(f"samples/{source}/{name}", "") for source in ("noise", "data") for name in names]
    told: list[str] = []
    parts = measure_run(run, wanted, None, lambda done, total, what: told.append(what))
    found = {each: value for part in parts for each, value in part.items()}
    assert told == ["noise", "data"]
    assert [found[each].value for each in wanted] == [*names.values()] * 2
    assert asked == ["noise", "data"]
    assert found[wanted[3]].detail == "64 chains from noise after 500 steps without restarts; test images 0.375"
    with pytest.raises(UnmeasuredError, match="runs/a: samples have no entropy"):
        _measured(run, [Wanted("samples/noise/entropy", "")])


def _kind(value: Any) -> Any:
    """Return settings without their numbers, of which only the signs are kept: 0 most often switches something off."""
    if isinstance(value, dict):
        return tuple((name, _kind(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_kind, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return (value > 0) - (value < 0)


class _Once:
    """Trains one run of each kind for all studies, and measures of it what was not measured for another study."""

    def __init__(self) -> None:
        self.trained: dict[Any, RunResult] = {}
        self.measured: dict[tuple[Path, Wanted], Found] = {}

    def pretrain(self, config: ExperimentConfig, **options: Any) -> RunResult:
        settings = asdict(config)
        kind = repr(settings.pop("training")), _kind(settings)
        if kind not in self.trained:
            self.trained[kind] = pretrain(config, **options)
        return self.trained[kind]

    def measure(self, run: RunResult, wanted: list[Wanted], *arguments: Any) -> Iterator[dict[Wanted, Found]]:
        missing = [each for each in wanted if (run.path, each) not in self.measured]
        for part in measure_run(run, missing, *arguments):
            self.measured |= {(run.path, each): found for each, found in part.items()}
        yield {each: self.measured[run.path, each] for each in wanted}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_study_runs_from_images_to_page_at_scale_smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs whose settings differ in the sizes of numbers alone are one run: 84 in place of 196."""
    monkeypatch.setattr(fine_tuning, "LEAST_STEPS", 20)  # most of this test's time otherwise, with the next three
    for key, protocol in PROTOCOLS.items():
        if isinstance(protocol, EpochProtocol):
            monkeypatch.setitem(PROTOCOLS, key, replace(protocol, epochs=5))
    for key, fine in FINE_TUNING.items():
        monkeypatch.setitem(FINE_TUNING, key, replace(fine, epochs=1, rates=fine.rates[:2]))
    small = {name: options | {"size": 16} for name, options in measure_module.PAPER_OPTIONS.items() if options}
    monkeypatch.setattr(measure_module, "PAPER_OPTIONS", {**measure_module.PAPER_OPTIONS, **small})
    once = _Once()
    monkeypatch.setattr(run_module, "pretrain", once.pretrain)
    monkeypatch.setattr(run_module, "measure_run", once.measure)
    for name in list_studies():
        plan = plan_study(load_study(name), "smoke")
        folder = ReproductionFolder(tmp_path / name.replace("/", "-"))
        table = table_of_plan(plan, run_plan(plan, folder))
        write_table(table, folder)
        assert table.failures == (), name
        assert all(cell.ours is not None or cell.not_reached for cell in table.cells if not cell.not_run), name
        assert folder.page.stat().st_size > 5_000, name
