"""The groups of a card, one after the other: what is kept, what is left out, what one failure may cost."""

import base64
import importlib
import io
import json
import math
import pkgutil
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from ebclab.card import groups as files_of_groups
from ebclab.card.card import Card, CardFolder, Findings, Number, mean_over_images
from ebclab.card.document import about_images, summary
from ebclab.card.groups import GROUPS, fine_tuning, pictures, robustness
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.measure import CardTask, chosen_groups, groups_of, measure_card, measure_group
from ebclab.card.measuring import LABELS, OTHER_DATASET, OUTSIDE, Group, Measuring
from ebclab.card.request import CardRequest, GroupOptions
from ebclab.card.side_by_side import Cards
from ebclab.card.subject import Subject
from ebclab.data import image_grid
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.sources.load import load_both
from ebclab.document.document import Picture, Plot, Table
from ebclab.errors import DataError, UserError
from ebclab.storage import atomic
from ebclab.storage.reading import with_checksum

from .conftest import Cosines

ENVIRONMENT = {"ebclab": "1", "torch": "2"}


class Counted:
    """A group that counts how often it is measured, and may fail."""

    def __init__(self, error: Exception | None = None, value: float = 0.5) -> None:
        self.times, self.error, self.value = 0, error, value

    def __call__(self, measuring: Measuring) -> Findings:
        self.times += 1
        if self.error is not None:
            raise self.error
        keys = measuring.measured.test.keys
        number = mean_over_images(
            "share", "share", torch.full((len(keys),), self.value), keys, protocol="as it is", better="higher"
        )
        return Findings(
            (number,),
            (Table("T", ("a", "b"), (("x", 1.5), (None, 2))),),
            (Plot("P", "how to read it", {"data": [{"x": [1, 2]}], "layout": {}}, 300),),
            (Picture("dots", "Dots", "what is seen", b"\x89PNG"),),
            ("a remark",),
        )


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes these groups the catalogue."""

    def put(**measures: Any) -> None:
        for name in reversed(list(GROUPS)):  # monkeypatch puts them back from the last on
            monkeypatch.delitem(GROUPS, name)
        for name, each in measures.items():
            needs = each.needs if hasattr(each, "needs") else ()
            monkeypatch.setitem(GROUPS, name, Group(name, name.title(), "doc", "source", each, needs))

    return put


def _card(measuring: Measuring, folder: Path, **environment: str) -> Card:
    return measure_card(CardTask(measuring, tuple(GROUPS), CardFolder(folder)), ENVIRONMENT | environment)


def test_what_is_kept_is_read_back_whole(make: Any, groups: Any, tmp_path: Path) -> None:
    group = Counted(value=0.25)
    groups(one=group)
    first, second = (_card(make(), tmp_path) for _ in range(2))
    assert group.times == 1
    assert first.results == second.results
    before, after = (each.results[0].findings.numbers[0].contributions for each in (first, second))
    assert torch.equal(before, after)


def test_one_failure_loses_no_other_group_and_is_told(make: Any, groups: Any, tmp_path: Path) -> None:
    groups(one=Counted(), two=Counted(DataError("no such thing, got 3")), three=Counted(KeyError("x")), four=Counted())
    results = {each.group: each for each in _card(make(), tmp_path).results}
    assert [name for name, each in results.items() if not each.problem] == ["one", "four"]
    assert (results["two"].problem, results["two"].failed) == ("no such thing, got 3", False)
    assert (results["three"].problem, results["three"].failed) == ("KeyError: 'x'", True)


def test_held_out_images_are_no_test_images_to_what_is_kept_nor_to_a_reader(
    make: Any, groups: Any, tmp_path: Path
) -> None:
    group = Counted()
    groups(one=group)
    held = replace(make().measured, tests_held_out=True)
    _card(make(others=(make().measured,)), tmp_path)
    card = _card(make(measured=held, others=(make().measured,)), tmp_path)
    _card(make(measured=held, others=(held,)), tmp_path)
    assert group.times == 3
    (line,) = about_images([card, card])
    assert line.startswith("stripes has no test part: measured on 90 images held out by hash of what probes")
    done = Cards((card,))
    assert ", 90 held-out images: " in summary(done.columns, done.rows)


def test_test_images_that_are_training_images_too_are_counted(make: Any, groups: Any, tmp_path: Path) -> None:
    groups(one=Counted())
    own = make().measured
    assert about_images([_card(make(), tmp_path / "none")]) == []
    images = own.test.images.clone()
    images[[4, 7, 80]] = own.train.images[[9, 9, 200]]  # one of them twice
    images[5, 0, 0, 0] ^= 1  # no longer its own self, and still no training image
    data = MeasuredSet("stripes", own.train, replace(own.test, images=images))
    card = _card(make(measured=data), tmp_path / "some")
    assert about_images([card, card]) == ["stripes: 3 of 90 test images are also training images"]


def test_an_interrupted_card_resumes_and_measures_failed_groups_again(make: Any, groups: Any, tmp_path: Path) -> None:
    one, two, three = Counted(), Counted(KeyboardInterrupt()), Counted()  # type: ignore[arg-type]
    failed = Counted(DataError("not yet"))
    groups(failed=failed, one=one, two=two, three=three)
    with pytest.raises(KeyboardInterrupt):
        _card(make(), tmp_path)
    two.error = failed.error = None
    card = _card(make(), tmp_path)
    assert (failed.times, one.times, two.times, three.times) == (2, 1, 2, 1)
    assert not any(each.problem for each in card.results)


def test_every_option_and_setting_is_part_of_the_key(make: Any) -> None:
    options = make().options
    changed = [replace(options, settings=replace(options.settings, linear_l2=0.5))]
    for entry in fields(GroupOptions):
        value = getattr(options, entry.name)
        other = f"{value} too" if isinstance(value, str) else not value if isinstance(value, bool) else value + 1
        changed.append(replace(options, **{entry.name: other}))
    keys = {CardTask(make(options=each), (), None).key("one", "1") for each in (options, *changed)}
    assert len(keys) == 1 + len(changed)


@pytest.mark.parametrize("what", ["encoder", "images", "labels", "name", "version"])
def test_whatever_changes_a_number_measures_it_anew(make, groups, tmp_path, subject, measured, what):
    group = Counted()
    groups(one=group)
    _card(make(), tmp_path)
    changed = make()
    test = measured.test
    if what == "encoder":
        changed = make(subject=replace(subject, digest="another"))
    elif what == "images":
        changed = make(measured=replace(measured, test=replace(test, images=test.images ^ 1)))
    elif what == "labels":
        changed = make(measured=replace(measured, test=replace(test, labels=(test.labels + 1) % 3)))
    elif what == "name":  # by which fine-tuning knows the usual views, and which the protocols say
        changed = make(measured=replace(measured, name="others"))
    _card(changed, tmp_path, **({"ebclab": "2"} if what == "version" else {}))
    assert group.times == 2


@pytest.mark.parametrize("file", ["groups/one.json", "groups/one.safetensors", "pictures/one-dots.png"])
def test_what_was_damaged_or_lost_is_measured_again(make: Any, groups: Any, tmp_path: Path, file: str) -> None:
    group = Counted()
    groups(one=group)
    _card(make(), tmp_path)
    path = tmp_path / file
    if path.suffix == ".png":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"0.5", b"0.6").replace(b"share", b"shore"))
    _card(make(), tmp_path)
    assert group.times == 2


def test_results_under_the_name_of_another_group_are_measured_again(make: Any, groups: Any, tmp_path: Path) -> None:
    one, two = Counted(), Counted()
    groups(one=one, two=two)
    _card(make(), tmp_path)
    path = tmp_path / "groups" / "one.json"
    atomic.write_json(path, with_checksum(json.loads(path.read_text()) | {"group": "two"}))
    assert [each.group for each in _card(make(), tmp_path).results] == ["one", "two"]
    assert (one.times, two.times) == (2, 1)


def test_a_number_that_is_none_fails_its_group(make: Any, groups: Any, tmp_path: Path) -> None:
    groups(one=Counted(value=float("nan")))
    (result,) = _card(make(), tmp_path).results
    assert (result.problem, result.failed) == ("gave NaN or infinity for share", True)
    assert not (tmp_path / "groups").exists()


def test_a_group_whose_need_is_missing_is_left_out_with_a_sentence(make, groups, tmp_path, measured):
    labelled, beyond, other, plain = Counted(), Counted(), Counted(), Counted()
    labelled.needs, beyond.needs, other.needs = (LABELS,), (OUTSIDE,), (OTHER_DATASET,)  # type: ignore[attr-defined]
    groups(labelled=labelled, beyond=beyond, other=other, plain=plain)
    test = replace(measured.test, labels=measured.test.labels.clone().index_fill_(0, torch.tensor([4, 7]), -1))
    unlabelled = replace(measured, test=test)
    problems = {each.group: each.problem for each in _card(make(measured=unlabelled), tmp_path).results}
    assert problems == {
        "labelled": "stripes: 2 images have no label; choose a labelled dataset",
        "beyond": "no images from outside were named; add --ood NAME, such as --ood rotated",
        "other": "no other dataset was named; add a second --dataset",
        "plain": "",
    }
    outside = OutsideSet("far", "far", measured.test, measured.test)
    problems = {
        each.group: each.problem for each in _card(make(outside=(outside,), others=(measured,)), tmp_path).results
    }
    assert not any(problems.values())


@pytest.mark.parametrize("file", [each.name for each in pkgutil.iter_modules(files_of_groups.__path__)])
def test_every_group_that_a_file_declares_is_one_of_the_card_and_of_its_docs(file: str) -> None:
    module = importlib.import_module(f"{files_of_groups.__name__}.{file}")
    declared = [each for each in vars(module).values() if isinstance(each, Group)]
    assert declared, f"card/groups/{file}.py: declares no Group"
    docs = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    for each in declared:
        assert GROUPS.get(each.name) is each, f"{each.name}: add it to card/groups/__init__.py"
        assert f"`{each.name}`" in docs, f"{each.name}: docs/evaluation.md must name it, and have its numbers"


def test_names_of_groups_are_checked_all_at_once() -> None:
    assert chosen_groups(["all"]) == list(GROUPS)
    assert set(chosen_groups([])) == {name for name, group in GROUPS.items() if group.is_quick}
    with pytest.raises(UserError) as caught:
        chosen_groups(["geometri", "calibratoin", "geometry"])
    assert str(caught.value).count("--only: no such group") == 2
    assert "did you mean geometry?" in str(caught.value)
    with pytest.raises(UserError, match="got both, knn among groups"):
        chosen_groups(["knn", "geometry"])


def test_all_mistakes_of_a_request_are_told_at_once() -> None:
    wrong: dict[str, Any] = {"only": ("geometri",), "seeds": 0, "protocol": "lbfg", "train_limit": -1, "workers": -2}
    wrong |= {"bins": 10**9, "size": 10**6, "resampling": "bicubc", "fine_tuning": "x"}
    with pytest.raises(UserError) as caught:
        groups_of(CardRequest(("x",), **wrong))
    named = [line.partition(":")[0] for line in str(caught.value).splitlines()]
    assert sorted(named) == sorted(f"--{name.replace('_', '-')}" for name in wrong)


def test_every_group_measures_a_made_up_encoder_and_leaves_it_as_it_was(make, tmp_path, subject, measured, monkeypatch):
    monkeypatch.setattr(fine_tuning, "LEAST_STEPS", 4)
    monkeypatch.setattr(robustness, "_QUERIES", 20)
    options = replace(make().options, fine_tuning_epochs=1, attacked_images=8)
    before = {name: tensor.clone() for name, tensor in subject.encoder.state_dict().items()}
    half = torch.arange(len(measured.test)) < 45
    outside = OutsideSet("half", "near", measured.test.rows(half), measured.test.rows(~half))
    other = replace(measured, name="other stripes", test=measured.test.rows(half))
    results = []
    for name, group in GROUPS.items():
        measuring = make(tmp_path, outside=(outside,), others=(other,), options=options)
        measuring.__dict__["method"] = Cosines(subject.encoder)  # of no run
        announced = {each for part in group.looks_at for each in measuring.images_of(part)}
        asked: set[str] = set()
        measuring.store.known = _noting(measuring.store.known, asked)
        results.append(measure_group(name, "key", measuring))
        assert asked == announced, name  # workers compute these before, and nothing in vain
    card = CardTask(measuring, tuple(GROUPS), None).card({each.group: each for each in results}, ENVIRONMENT)
    assert {each.group: each.problem for each in card.results} == dict.fromkeys(GROUPS, "")
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.encoder.state_dict().items())
    assert not subject.encoder.training
    for result in card.results:
        for number in result.findings.numbers:
            _check(number)
    json.dumps(card.to_mapping(), allow_nan=False)


def _noting(known: Callable[[str, int], Any], asked: set[str]) -> Callable[[str, int], Any]:
    """Return ``known`` of a store that also notes which features are asked for."""

    def noting(name: str, count: int) -> Any:
        asked.add(name)
        return known(name, count)

    return noting


def _check(number: Number) -> None:
    """Every number says how it was measured, lies in its interval, and is the mean of its contributions."""
    assert number.protocol
    assert number.num_images > 0
    if number.low is not None:
        assert number.high is not None
        assert number.low <= number.value <= number.high
    if number.contributions is not None:
        assert float(number.contributions.mean()) == pytest.approx(number.value, abs=1e-9), number.name
        assert number.images


@pytest.mark.parametrize("share", [0.0, 1e-12])
def test_an_encoder_that_gives_all_images_the_same_features_has_no_map_or_one_of_numbers(make, measured, share):
    """Begun at components of features that are the same in float32, scikit-learn's t-SNE ends the process."""
    measuring = make()
    for images in (measured.train, measured.test):
        features = torch.full((len(images), 4), 3.0, dtype=torch.float64)
        features[::2, 0] += share
        measuring.store.keep(measuring.store.name(measuring.subject, images), features)
    result = measure_group("pictures", "key", measuring)
    if not share:
        assert result.problem == "stripes: features of 90 test images are all the same, which makes no map"
        assert not result.failed
        return
    assert not result.problem
    for plot in result.findings.plots:
        assert all(math.isfinite(x) for trace in plot.figure["data"] for x in (*trace["x"], *trace["y"]))


def test_features_that_are_nearly_equal_have_as_many_clusters_as_were_found(make: Any, measured: MeasuredSet) -> None:
    """Four values that differ in the last bits alone: k-means finds fewer clusters than there are values."""
    measuring = make()
    for images in (measured.train, measured.test):
        features = torch.ones(len(images), 4, dtype=torch.float64)
        features[:, 0] += torch.arange(len(images)) % 4 * 2.0**-52
        measuring.store.keep(measuring.store.name(measuring.subject, images), features)
    result = measure_group("pictures", "key", measuring)
    assert not result.problem
    assert [picture.name for picture in result.findings.pictures] == ["neighbours", "clusters"]


def test_each_image_on_the_map_is_that_of_the_point_it_is_drawn_at(make: Any, measured: MeasuredSet) -> None:
    drawn, plain = measure_group("pictures", "key", make()).findings.plots
    assert not plain.figure["layout"].get("images")
    points = {
        (x, y): trace["name"] for trace in drawn.figure["data"] for x, y in zip(trace["x"], trace["y"], strict=True)
    }
    width, height = (max(each) - min(each) for each in zip(*points, strict=True))
    left, bottom = (min(each) for each in zip(*points, strict=True))
    by_pixels = {
        bytes(image.flatten().tolist()): label
        for image, label in zip(measured.test.images, measured.test.labels.tolist(), strict=True)
    }
    cells = set()
    for each in drawn.figure["layout"]["images"]:
        png = Image.open(io.BytesIO(base64.b64decode(each["source"].removeprefix("data:image/png;base64,"))))
        label = by_pixels[png.convert("L").tobytes()]
        assert points[each["x"], each["y"]] == measured.test.class_names[label]
        assert (each["sizex"], each["sizey"]) == pytest.approx((0.6 * width / 8, 0.6 * height / 6), rel=1e-2)
        cells.add((min(7, (each["x"] - left) // (width / 8)), min(5, (each["y"] - bottom) // (height / 6))))
    taken = {(min(7, (x - left) // (width / 8)), min(5, (y - bottom) // (height / 6))) for x, y in points}
    assert len(drawn.figure["layout"]["images"]) == len(taken) == len(cells)


def test_an_encoder_with_a_single_feature_has_a_map(make: Any, measured: MeasuredSet) -> None:
    measuring = make()
    for images in (measured.train, measured.test):
        features = images.images[:, 0, 2, 0].float()[:, None] - 100
        measuring.store.keep(measuring.store.name(measuring.subject, images), features)
    assert not measure_group("pictures", "key", measuring).problem


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("is_there", [True, False])
def test_points_of_a_map_name_the_files_of_their_images(make: Any, is_there: bool) -> None:
    train, test = load_both("folder:photos", None)
    if not is_there:
        shutil.rmtree("photos")
    flat = Subject("flat", "flat", nn.Flatten(), Preprocessing(6, (0.5,) * 3, (0.5,) * 3), 3, "made up", "flat")
    measuring = make(subject=flat, measured=MeasuredSet("folder:photos", train, test))
    for plot in measure_group("pictures", "key", measuring).findings.plots:
        named = {trace["name"]: sorted(trace.get("text", ())) for trace in plot.figure["data"]}
        files = {kind: [f"test/{kind}/{number}.png" for number in range(3)] for kind in ("cat", "dog")}
        assert named == (files if is_there else {"cat": [], "dog": []})


def test_clusters_are_those_of_the_features_and_name_their_most_frequent_class(make, measured, monkeypatch):
    """Three groups of features far apart, whose sizes and classes are known; the rows have the largest first."""
    drawn: dict[str, Any] = {}

    def draw_grid(rows: Any, *, names: Any = (), **others: Any) -> Any:
        drawn.update({name: [tile.pixels for tile in row] for name, row in zip(names, rows, strict=False)})
        return image_grid.draw_grid(rows, names=names, **others)

    monkeypatch.setattr(pictures, "draw_grid", draw_grid)
    measuring, test = make(), measured.test
    place = torch.arange(len(test)) % 9
    group = (place >= 5).long() + (place == 8)  # five, three and one of nine
    features = 10 * functional.one_hot(group, 4).double()
    features[1] += torch.tensor([0.0, 0.0, 0.0, 0.5])  # the farthest of its cluster
    for images, found in ((test, features), (measured.train, torch.ones(len(measured.train), 4).double())):
        measuring.store.keep(measuring.store.name(measuring.subject, images), found)
    monkeypatch.setattr(pictures, "_CLUSTERS", 3)
    result = measure_group("pictures", "key", measuring)
    assert [picture.name for picture in result.findings.pictures] == ["neighbours", "clusters"]
    expected = []
    for each in range(3):
        labels = test.labels[group == each].tolist()
        label, times = max(Counter(labels).items(), key=lambda pair: (pair[1], -pair[0]))
        expected.append(f"{len(labels)} images, {test.class_names[label]}: {100 * times / len(labels):.0f} %")
    assert list(drawn) == expected
    assert not any(bool((pixels == test.images[1]).all()) for pixels in drawn[expected[0]])
