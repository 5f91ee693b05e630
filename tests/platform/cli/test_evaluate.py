"""``ebclab evaluate``: scores that cannot be written are printed; energies of a run are those of its export."""

import errno
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits

from ebclab.errors import NoTestPartError, StoreError, UnsavedError
from ebclab.runs.evaluate import Evaluation, evaluate_run
from ebclab.runs.folder import RunFolder
from ebclab.runs.measured_references import measure_references
from ebclab.runs.references import REFERENCES, Protocol
from ebclab.runs.trained_encoder import load_trained_encoder

from .conftest import TINY, Ebclab


@pytest.fixture
def on_a_read_only_disk(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose folder refuses every file that is opened to be written, also to root."""
    plain = io.open

    def refusing(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        path = None if isinstance(file, int) else Path(os.fsdecode(file)).absolute()
        if path is not None and path.is_relative_to(finished) and set(mode) & set("wax+"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return plain(file, mode, *more, **options)

    monkeypatch.setattr(io, "open", refusing)
    monkeypatch.setattr("builtins.open", refusing)
    return finished


def test_scores_of_a_run_that_cannot_be_written_to_are_printed(ebclab, on_a_read_only_disk, tmp_path):
    shutil.copytree(on_a_read_only_disk, tmp_path / "copy", copy_function=_copied)
    expected = json.loads(ebclab("evaluate", tmp_path / "copy", "--only", "knn", "--json").out)
    outcome = ebclab("evaluate", on_a_read_only_disk, "--only", "knn", "--json")
    assert json.loads(outcome.out) == expected
    assert outcome.refusal == (
        f"error: {on_a_read_only_disk / 'evaluation.json'}: the scores were measured and cannot be written, "
        "got Read-only file system\n"
    )
    shown = ebclab("evaluate", on_a_read_only_disk, "--only", "knn")
    assert f"{100 * expected['rows']['flatclr']['knn']['value']:.1f}%" in shown.out
    assert shown.code == 2


def test_images_without_a_test_part_are_measured_on_a_tenth_and_every_result_says_so(ebclab, finished, tmp_path):
    """Sub-folders of classes alone, the first layout that the README names."""
    images, labels = load_digits(return_X_y=True)
    images = pa.FixedShapeTensorArray.from_numpy_ndarray((images[:300] * 15).astype("uint8").reshape(-1, 1, 8, 8))
    pq.write_table(pa.table({"image": images, "label": labels[:300]}), tmp_path / "digits.parquet")
    name = f"parquet:{tmp_path}/digits.parquet"
    shown = ebclab("evaluate", finished, "--dataset", name, "--only", "knn").ok.out
    (count,) = re.findall(rf"{name}, (\d+) held-out images \(last checkpoint", shown.replace("\n", ""))
    assert 20 <= int(count) <= 40
    (saved,) = finished.glob("evaluation-*.json")
    assert json.loads(saved.read_text())["held_out"] is True
    shown = ebclab("evaluate", finished, "--dataset", name, "--only", "classification", "--seeds", "1").ok.out
    assert f"no test part: measured on {count} images held out by hash of what probes" in shown.replace("\n", " ")
    with pytest.raises(NoTestPartError):
        evaluate_run(finished, dataset=name, only=["knn"], must_have_test=True)


def test_a_card_elsewhere_is_written_though_nothing_can_be_kept_in_the_run(ebclab, finished, tmp_path):
    (finished / "card").write_text("a file where the folder would be")
    (finished / "evaluation.json").mkdir()
    outcome = ebclab("evaluate", finished, "--only", "classification", "--seeds", "1", "--to", tmp_path / "cards")
    card = tmp_path / "cards" / "card.html"
    assert outcome.err.splitlines()[-1] == (
        f"error: {finished / 'evaluation.json'}: the scores were measured and cannot be written, got "
        f"Is a directory; the card with them is in {card}"
    )
    assert outcome.code == 2
    assert card.exists()
    assert "kNN" in outcome.out


def _copied(source: str, target: str) -> None:
    Path(target).write_bytes(Path(source).read_bytes())


def test_a_store_that_refuses_keeps_no_score_from_python(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: RunFolder, *names: str) -> None:
        raise StoreError("s3://b/run/evaluation.json: the store refuses, got 403; check credentials and permissions")

    monkeypatch.setattr(RunFolder, "send", refuse)
    with pytest.raises(UnsavedError, match="the store refuses, got 403") as unsaved:
        evaluate_run(finished, only=["knn"])
    assert isinstance(unsaved.value.result, Evaluation)
    assert 0 < unsaved.value.result.rows["flatclr"]["knn"].value <= 1


def test_references_of_a_run_are_those_that_comparisons_measure(finished: Path, tmp_path: Path) -> None:
    """Beside the run, with 100 labelled images, and without any run."""
    config = load_trained_encoder(RunFolder(finished)).config
    found = evaluate_run(finished, only=["knn"], train_limit=100, references=True)
    assert found.num_train == 100
    protocol = Protocol(config, 100, "knn")
    apart = measure_references(tmp_path / "references.json", protocol, [config.seed])
    for name in REFERENCES:
        measured = apart.scores(name, protocol, [config.seed])
        assert measured.answers[config.seed] == found.rows[name]["knn"].answers


ABLE = "jem, ebclr, vem-langevin, vem-svgd, vem-image"


def test_energies_of_a_run_are_those_of_its_export(ebclab: Ebclab) -> None:
    small = ["--set", "method.buffer_size=64", "--set", "method.num_steps=1"]
    assert ebclab("pretrain", "ebclr", "--epochs", "1", "--name", "run", *TINY, *small).code == 0
    assert ebclab("export", "runs/run", "--to", "out/export").code == 0
    found = []
    for place, more in (("runs/run", []), ("out/export", ["--dataset", "digits"])):
        limits = ["--test-limit", "60", "--pairs", "2"]
        words = ["--only", "energies", "--ood", "rotated", *limits, "--to", "card", "--json"]
        measured = ebclab("evaluate", place, *more, *words).ok
        (group,) = json.loads(measured.out)["cards"][0]["groups"]
        found.append({each["name"]: each["value"] for each in group["findings"]["numbers"]})
        assert {each["name"] for each in group["findings"]["pictures"]} == {"images", "pairs-same", "pairs-other"}
    assert found[0].keys() >= {"test-mean", "train-q50", "near-rotated-q95", "pair-same", "pair-found-energy"}
    assert found[1] == pytest.approx(found[0], abs=1e-5)
    page = Path("card/card.html").read_text(encoding="utf-8")
    assert "The likeliest and the unlikeliest" in page
    few = ebclab("evaluate", "runs/run", "--only", "energies", "--test-limit", "4", "--pairs", "5")
    assert (few.code, few.err.strip()) == (2, "error: --pairs: 5 pairs need as many test images, got 4; show fewer")


def test_encoders_without_energies_are_refused_all_at_once(ebclab: Ebclab, finished: Path) -> None:
    assert ebclab("export", finished, "--to", "encoder").code == 0
    refused = ebclab("evaluate", finished, "encoder", "--only", "energies,geometry", "--dataset", "digits")
    place = Path("encoder").absolute()
    assert refused.refusal.splitlines() == [
        f"error: --only: energies are defined for {ABLE}, got a run of flatclr",
        "--only: energies need energies.json and energies.safetensors beside an encoder, got "
        f"{place}, exported encoder; name a run, or export one with energies",
    ]
