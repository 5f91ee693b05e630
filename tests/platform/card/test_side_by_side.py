"""Several cards side by side: which runs share a column, and how sure differences are."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ebclab.card.card import Card, Findings, GroupResult, Number, accuracy, mean_over_images
from ebclab.card.document import card_document, problems, summary
from ebclab.card.side_by_side import Cards, EncoderCell
from ebclab.card.subject import open_subject
from ebclab.document.document import Picture
from ebclab.document.html import as_page
from ebclab.evaluation.seeds_and_images import difference_interval, mean_interval
from ebclab.interval import Interval

KEYS = torch.arange(200)


def _card(label: str, number: Number, *, settings: str = "", seed: int | None = None, address: str = "") -> Card:
    result = GroupResult("classification", "key", Findings((number,)), 1.0)
    return Card(label, address or label, "made up", label, settings, seed, "d", "data", 10, 200, {}, (result,))


def _right(share: float, seed: int) -> torch.Tensor:
    return torch.rand(200, generator=torch.Generator().manual_seed(seed)) < share


def _accuracy(right: torch.Tensor, keys: torch.Tensor = KEYS) -> Number:
    return accuracy("knn", "kNN", right, keys, protocol="p")


def _runs(label: str, rows: Sequence[torch.Tensor], seeds: Sequence[int]) -> list[Card]:
    return [
        _card(label, _accuracy(row), settings=label, seed=seed, address=f"runs/{label}-{seed}")
        for row, seed in zip(rows, seeds, strict=True)
    ]


def _cells(*cards: Card) -> list[EncoderCell]:
    """Return the only metric of cards, of which every column has it."""
    (row,) = Cards(cards).rows
    return [cell for cell in row.cells if cell is not None]


def _gaps(*cards: Card) -> list[Interval]:
    """Return the differences of the only metric to the first column."""
    return [cell.against_first for cell in _cells(*cards) if cell.against_first is not None]


def _ends(gap: Interval) -> tuple[float, float]:
    assert gap.low is not None
    assert gap.high is not None
    return gap.low, gap.high


def _table(rows: Sequence[torch.Tensor]) -> np.ndarray:
    return np.stack([each.numpy().astype(float) for each in rows])


def test_what_was_not_measured_is_said_once_and_failures_apart() -> None:
    skipped = GroupResult("transfer", "k", Findings(()), 0.0, "no other dataset")
    failed = GroupResult("geometry", "k", Findings(()), 0.0, "OSError: x", failed=True)
    first, second = (_card(label, _accuracy(KEYS > 3)) for label in ("a", "b"))
    cards = [replace(first, results=(skipped, failed)), replace(second, results=(skipped,))]
    assert problems(cards, failed=False) == ["Transfer: no other dataset"]
    assert problems(cards, failed=True) == ["Geometry of the features of a: OSError: x"]


def test_pictures_of_the_first_encoder_come_before_the_tables_and_those_of_others_after_them() -> None:
    first, second = (_card(label, _accuracy(KEYS > 3)) for label in ("a", "b"))

    def drawn(card: Card) -> Card:
        pictures = GroupResult("pictures", "k", Findings((), pictures=(Picture("map", "Map", ""),)), 1.0)
        return replace(card, results=(*card.results, pictures))

    sections = card_document(Cards((drawn(first), drawn(second)))).sections
    assert [each.title for each in sections[2:]] == [
        *("Pictures", "What was measured", "Classification on frozen features", "Pictures of the others"),
    ]
    shown = [[block.title for block in each.blocks if isinstance(block, Picture)] for each in sections]
    assert (shown[2], shown[5]) == (["Map, a"], ["Map, b"])
    names = [each.name for each in sections if each.name]
    assert len(set(names)) == len(names)
    alone = card_document(Cards((drawn(first),))).sections
    assert [each.title for each in alone][2:] == ["Pictures", "What was measured", "Classification on frozen features"]


def test_runs_that_differ_in_the_seed_alone_share_a_column() -> None:
    ones = _runs("simclr", [_right(0.8, seed) for seed in range(3)], (2, 0, 1))
    (again,) = _runs("simclr", [_right(0.8, 3)], (0,))  # a repetition with the same seed is no other seed
    other = _card("simclr", _accuracy(_right(0.5, 9)), settings="other settings", seed=0, address="runs/warm")
    columns = Cards((*ones, other, replace(again, address="runs/b"))).columns
    seeds = {"simclr (simclr-0)": (0, 1, 2), "simclr (warm)": (0,), "simclr (b)": (0,)}
    assert [(column.label, column.seeds) for column in columns] == [*seeds.items()]


def test_a_run_that_has_not_finished_and_a_best_checkpoint_are_no_other_seed_of_finished_ones(tmp_path: Path) -> None:
    finished = Path(__file__).parents[2] / "folders" / "made_by_0.1" / "runs" / "finished"
    run, same, cut = (tmp_path / name for name in ("run", "same", "cut"))
    for copy in (run, same, cut):
        shutil.copytree(finished, copy)
    (cut / "result.json").unlink()
    settings = open_subject(str(run)).settings
    assert open_subject(str(same)).settings == settings
    others = {open_subject(str(cut)).settings, open_subject(str(run), "best").settings}
    assert len(others | {settings}) == 3


def test_columns_of_equal_names_are_told_apart_wherever_they_are_shown() -> None:
    cards = [_card("encoder", _accuracy(_right(0.8, place)), address=f"/{place}/encoder") for place in range(2)]
    done = Cards((*cards, _card("encoder", _accuracy(_right(0.8, 2)), address="/2/other")))
    (compared,) = done.to_mapping()["side_by_side"]
    expected = ["encoder (/0/encoder)", "encoder (/1/encoder)", "encoder (other)"]
    assert [column.label for column in done.columns] == list(compared["columns"]) == expected


def test_images_of_another_dataset_are_not_the_same_for_having_the_same_keys() -> None:
    one, other = _card("a", _accuracy(_right(0.8, 1))), _card("b", _accuracy(_right(0.5, 2)))
    machine = dict.fromkeys(("processor", "device", "torch", "ebclab", "commit"), "some")
    cards = [replace(card, environment=machine) for card in (one, replace(other, dataset="e", data="others"))]
    compared = Cards(tuple(cards))
    assert [column.label for column in compared.columns] == ["a (d)", "b (e)"]
    (gap,) = _gaps(*cards)
    assert (gap.verdict, gap.low, gap.high) == ("measured on other images", None, None)
    page = as_page(card_document(compared))
    assert "d: 10 for training, 200 for testing" in page
    assert "e: 10 for training, 200 for testing" in page


def test_several_seeds_have_the_interval_over_seeds_and_images() -> None:
    rows, others = [_right(0.8, seed) for seed in range(3)], [_right(0.6, seed) for seed in range(10, 13)]
    first, second = _cells(*_runs("a", rows, range(3)), *_runs("b", others, range(3)))
    assert _ends(first.value) == pytest.approx(mean_interval(_table(rows), 0.05))
    assert _ends(second.against_first) == pytest.approx(difference_interval(_table(others), _table(rows), 0.05))
    assert second.against_first.verdict == "beyond noise"


def test_runs_are_compared_by_seed_and_other_seeds_are_not_compared() -> None:
    rows = [_right(0.8, seed) for seed in range(2)]
    same = _runs("b", rows[::-1], (1, 0))  # the same answers at the same seeds, given in another order
    assert [gap.mean for gap in _gaps(*_runs("a", rows, (0, 1)), *same)] == [0]
    (gap,) = _gaps(*_runs("a", rows, (0, 1)), *_runs("b", rows, (5, 6)))
    assert gap.verdict == "other seeds"


def test_one_encoder_each_is_compared_over_images_as_a_paired_bootstrap_does() -> None:
    one, other = _right(0.8, 1), _right(0.7, 2)
    (gap,) = _gaps(_card("a", _accuracy(one)), _card("b", _accuracy(other)))
    draws = np.random.default_rng(0).integers(0, 200, (20_000, 200))
    means = (other.numpy().astype(float) - one.numpy().astype(float))[draws].mean(axis=1)
    assert _ends(gap) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.006)


def test_more_encoders_have_wider_intervals() -> None:
    cards = [_card(name, _accuracy(_right(0.7, place))) for place, name in enumerate("abcd")]
    (low, high), (wide_low, wide_high) = (_ends(_gaps(*cards[:count])[0]) for count in (2, 4))
    ratio = 2.413 / 1.972  # Student, 199 degrees: 5 % / 3 against 5 %
    assert (wide_high - wide_low) / (high - low) == pytest.approx(ratio, rel=1e-3)


def test_encoders_that_agree_on_every_image_are_not_certain_to_be_equal() -> None:
    (gap,) = _gaps(*(_card(name, _accuracy(_right(0.7, 1))) for name in "ab"))
    low, high = _ends(gap)
    assert low < 0 < high
    assert gap.verdict == "within noise"


def test_what_is_no_run_stands_beside_every_seed() -> None:
    rows, pixels = [_right(0.8, seed) for seed in range(3)], _right(0.4, 7)
    (gap,) = _gaps(*_runs("a", rows, range(3)), _card("raw pixels", _accuracy(pixels)))
    assert _ends(gap) == pytest.approx(difference_interval(_table([pixels] * 3), _table(rows), 0.05))


def test_other_images_and_numbers_without_contributions_have_no_interval() -> None:
    one = _card("a", _accuracy(_right(0.8, 1)))
    elsewhere = _card("b", _accuracy(_right(0.8, 2), KEYS + 1))
    plain = _card("c", Number("knn", "kNN", 0.5, "p", 200, "higher"))
    assert [gap.verdict for gap in _gaps(one, elsewhere, plain)] == ["measured on other images", "no interval"]


def test_a_number_that_only_one_encoder_has_leaves_the_other_cell_empty() -> None:
    brier = mean_over_images("brier", "Brier", torch.rand(200), KEYS, protocol="p", better="lower")
    rows = Cards((_card("a", _accuracy(_right(0.8, 1))), _card("b", brier))).rows
    assert [[cell is not None for cell in row.cells] for row in rows] == [[True, False], [False, True]]


def test_the_sentence_at_the_top_has_one_number_of_each_group_that_says_most() -> None:
    accurate = _accuracy(_right(0.8, 1))
    wrong = Number("ece-15-scaled", "ECE, 15 bins, scaled", 0.0123, "p", 200, "lower")
    unscaled = replace(wrong, name="ece-15", value=0.4)
    results = (
        GroupResult("classification", "key", Findings((accurate,)), 1.0),
        GroupResult("calibration", "key", Findings((replace(accurate, name="accuracy"), unscaled, wrong)), 1.0),
    )
    done = Cards((replace(_card("a", accurate), results=results),))
    share = 100 * accurate.value
    assert summary(done.columns, done.rows) == f"a on d, 200 test images: kNN {share:.1f}%; ECE, 15 bins, scaled 1.2%."
    assert summary(done.columns, []) == "a on d, 200 test images: no numbers."


def _with_references(encoder: int, pixels: int, untrained: int) -> list[Card]:
    """Return cards of an encoder and its references, which are right about the first so many of 200 images."""
    rows = [_accuracy(count > KEYS) for count in (encoder, pixels, untrained)]
    first = _card("a", rows[0], settings="s", seed=0)
    second = _card("untrained encoder", rows[2], settings="untrained s", seed=0, address="a")
    return [first, second, _card("raw pixels", rows[1], address="a")]


BOTH = "raw pixels and the untrained encoder"


@pytest.mark.parametrize(
    ("right", "said"),
    [
        ((180, 100, 60), f"On the test images a is above {BOTH}, beyond noise."),
        ((100, 100, 60), f"On the test images a is not above {BOTH} beyond noise: by kNN, it is within noise of raw "),
        (
            (100, 140, 60),
            f"On the test images a is not above {BOTH} beyond noise: by kNN, it is below raw pixels by 20",
        ),
        ((60, 0, 180), f"On the test images a is not above {BOTH} beyond noise: by kNN, it is below the untrained en"),
    ],
)
def test_the_first_sentence_says_whether_an_encoder_is_above_its_references(right, said):
    done = Cards(tuple(_with_references(*right)))
    (line,) = done.learnt
    assert line.startswith(said)
    head = card_document(done).sections[0].blocks
    assert [block.text for block in head[:2]] == [line, summary(done.columns, done.rows)]
    assert done.to_mapping()["learnt"] == [line]


def test_the_interval_of_that_sentence_is_the_one_of_the_table() -> None:
    done = Cards(tuple(_with_references(100, 140, 60)))
    low, high = _ends(next(gap for gap in _gaps(*done.cards) if gap.mean > 0))
    assert f"below raw pixels by 20.0 points ({100 * low:.1f} to {100 * high:.1f})" in done.learnt[0]


def test_each_encoder_is_held_against_its_own_references_and_shares_raw_pixels() -> None:
    first, second = _with_references(180, 100, 60), _with_references(60, 100, 60)
    second = [replace(card, address="b", settings=card.settings and f"{card.settings}2") for card in second]
    timm = _card("timm/x", _accuracy(KEYS < 170))
    done = Cards((*first, replace(second[0], label="b"), second[1], timm))  # equal raw pixels are kept once
    assert [line.partition(":")[0] for line in done.learnt] == [
        f"On the test images a is above {BOTH}, beyond noise.",
        f"On the test images b is not above {BOTH} beyond noise",
        "On the test images timm/x is above raw pixels, beyond noise.",
    ]
    assert Cards((first[0], timm)).learnt == []
    elsewhere = replace(first[2], dataset="e", data="others")
    assert Cards((first[0], elsewhere)).learnt == []


HALF = 12.7062 * 0.01  # of two seeds that differ by 0.02


@pytest.mark.parametrize(
    ("better", "unit", "values", "ends"),
    [
        ("higher", "share", (0.97, 0.99), (0.98 - HALF, 1.0)),
        ("higher", "share", (-0.21, -0.19), (-0.2 - HALF, -0.2 + HALF)),  # a gain, which may be negative
        ("lower", "nats", (0.09, 0.11), (0.1 * math.exp(-10 * HALF), 0.1 * math.exp(10 * HALF))),
    ],
)
def test_an_interval_over_seeds_ends_where_the_number_can_go_no_further(better, unit, values, ends):
    cards = [
        _card("a", mean_over_images("m", "M", torch.full((200,), each), KEYS, protocol="p", better=better, unit=unit))
        for each in values
    ]
    (cell,) = _cells(*(replace(card, settings="a", seed=seed) for seed, card in enumerate(cards)))
    assert _ends(cell.value) == pytest.approx(ends, abs=1e-5)
