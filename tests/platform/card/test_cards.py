"""``ebclab evaluate`` on real runs: cards, pages and refusals, as a user sees them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebclab.card.evaluate import measure_cards
from ebclab.card.request import CardRequest
from ebclab.card.side_by_side import Cards
from ebclab.cli import main
from ebclab.data.sources import stored_files
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError, RunError, UserError

TINY = ["--set", "data.train_limit=96", "--set", "training.batch_size=32", "--set", "resources.threads=1"]


@pytest.fixture(scope="module", autouse=True)
def _few_digits() -> Iterator[None]:
    """Let digits have 500 images, a fifth of them for testing."""
    table = stored_files._read_table()[:500]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_files, "_read_table", lambda: table)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on digits that differ in the seed alone, and an export of the first."""
    folder = tmp_path_factory.mktemp("card")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("EBCLAB_DATA", raising=False)
        for seed in (0, 1):
            words = ["pretrain", "flatclr", "--epochs", "1", "--name", f"s{seed}", "--set", f"seed={seed}", *TINY]
            assert main(words) == 0
        assert main(["export", "runs/s0", "--to", "encoder"]) == 0
    return folder


@pytest.fixture
def copies(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of them."""
    monkeypatch.chdir(shutil.copytree(runs, tmp_path / "work"))
    monkeypatch.setenv("COLUMNS", "80")
    return Path.cwd()


def _measure(*encoders: str, **asked: Any) -> Cards:
    return measure_cards(CardRequest(encoders, only=("geometry",), **asked))


def test_a_run_gets_a_card_beside_it_and_keeps_its_scores(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "runs/s0", "--only", "classification,geometry", "--references"]) == 0
    shown = capsys.readouterr()
    assert max(len(line) for line in shown.out.splitlines() if not line.startswith("wrote ")) <= 80
    for text in ("kNN", "uniformity", "raw pixels", "untrained encoder", "beyond noise against flatclr", "card.html"):
        assert text in shown.out
    facts = json.loads(Path("runs/s0/card/card.json").read_text())
    assert [card["label"] for card in facts["cards"]] == ["flatclr", "untrained encoder", "raw pixels"]
    knn = facts["cards"][0]["groups"][0]["findings"]["numbers"][0]
    kept = json.loads(Path("runs/s0/evaluation.json").read_text())["rows"]
    assert kept["flatclr"]["knn"]["value"] == knn["value"]
    assert kept.keys() == {"flatclr", "untrained encoder", "raw pixels"}
    page = Path("runs/s0/card/card.md").read_text()
    assert "| kNN ↑ |" in page
    (line,) = facts["learnt"]
    assert "raw pixels and the untrained encoder" in line
    assert line in page
    assert " ".join(shown.out.split()).startswith(line)


def test_a_page_keeps_groups_that_were_measured_before_with_equal_options(copies: Path) -> None:
    for asked, shown in (
        ({"only": ("geometry",)}, ["geometry"]),
        ({"only": ("pictures",)}, ["geometry", "pictures"]),
        ({"only": ("pictures",), "test_limit": 50}, ["pictures"]),  # of other images
    ):
        done = measure_cards(CardRequest(("runs/s0",), **{"train_limit": 99, "test_limit": 60} | asked))
        (card,) = json.loads(Path("runs/s0/card/card.json").read_text())["cards"]
        assert sorted(each["group"] for each in card["groups"]) == shown
        assert [each.group for each in done.cards[0].results] == list(asked["only"])
        assert ("uniformity" in Path("runs/s0/card/card.html").read_text()) == ("geometry" in shown)


def test_the_card_has_the_scores_of_the_single_probes(copies: Path) -> None:
    scores = []
    for only in ("knn,linear,top5", "classification"):
        assert main(["evaluate", "runs/s0", "--only", only]) == 0
        scores.append(json.loads(Path("runs/s0/evaluation.json").read_text())["rows"])
    assert scores[0] == scores[1]


def test_scores_on_a_part_of_the_images_are_measured_anew_and_not_those_of_the_run(copies: Path) -> None:
    part, other = (
        measure_cards(CardRequest(("runs/s0",), only=("classification",), **limit)).cards[0]  # type: ignore[arg-type]
        for limit in ({"train_limit": 200}, {"test_limit": 60})
    )
    assert not Path("runs/s0/evaluation.json").exists()
    whole = measure_cards(CardRequest(("runs/s0",), only=("classification",))).cards[0]
    assert (part.num_train, other.num_test, whole.num_train) == (200, 60, len(load_split("digits", None, "train")))
    assert len({card.data for card in (part, other, whole)}) == 3
    assert len({card.results[0].key for card in (part, other, whole)}) == 3


def test_seeds_share_a_column_and_an_export_is_the_encoder_of_its_run(copies: Path) -> None:
    done = _measure("runs/s0", "runs/s1", "encoder", datasets=("digits",), to="page")
    compared = {each["number"]: each["columns"] for each in done.to_mapping()["side_by_side"]}
    assert compared["alignment"].keys() == {"flatclr", "encoder"}
    assert compared["alignment"]["flatclr"]["runs"] == 2
    papers = [line for line in Path("page/card.md").read_text().splitlines() if line.startswith("- **Paper")]
    assert len(papers) == 1  # of two runs of a method, once
    assert "FlatNCE, 2021, arXiv:2107.01152" in papers[0]
    assert done.cards[2].encoder == done.cards[0].encoder
    alone = _measure("encoder", datasets=("digits",), to="page2").cards[0].numbers("geometry")
    run = done.cards[0].numbers("geometry")
    assert [number.value for number in alone] == pytest.approx([number.value for number in run], rel=1e-6)
    assert Path(done.page) == copies / "page" / "card.html"
    assert Path("runs/s1/card/groups/geometry.json").exists()


def test_exports_of_one_name_keep_what_was_measured_of_each(copies: Path) -> None:
    encoders = []
    for seed in (0, 1):
        encoders.append(str(copies / f"{seed}" / "encoder"))
        assert main(["export", f"runs/s{seed}", "--to", encoders[-1]]) == 0
    first, again = (_measure(*encoders, datasets=("digits",), to="page") for _ in range(2))
    assert [card.results for card in first.cards] == [card.results for card in again.cards]  # seconds, too
    assert first.cards[0].encoder != first.cards[1].encoder


@pytest.mark.parametrize(
    ("encoders", "asked", "error", "sentence"),
    [
        (("encoder",), {}, UserError, "--dataset: must be given for .*encoder, which is not an ebclab run"),
        (("runs/s0", "encoder"), {}, UserError, "--dataset: must be given for .*encoder, which is not an ebclab run"),
        (("runs/s2",), {}, RunError, "no run here"),
        (("runs/s0",), {"datasets": ("digit",)}, DataError, "did you mean digits?"),
        (("runs/s0",), {"outside": ("middle=digits",)}, UserError, "must be NAME, near=NAME or far=NAME"),
        (("runs/s0",), {"outside": ("digits",)}, DataError, "has the images that the card is measured on"),
        (("runs/s0",), {"outside": ("far=mnst",)}, DataError, "did you mean mnist?"),
        (("runs/s0",), {"to": "s3://bucket/x"}, UserError, "--to: a folder on a disk is needed"),
        (
            ("timm/resnet18x",),
            {"datasets": ("digits",)},
            UserError,
            "has no weights of this name, .*; did you mean timm/resnet18 ",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(copies, encoders, asked, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        _measure(*encoders, **asked)
    assert "\n" not in str(caught.value)
    assert not [*Path("runs/s0/card").glob("groups/*.json")]  # nothing was measured before
