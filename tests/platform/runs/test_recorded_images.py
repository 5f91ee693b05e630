"""A run knows its images: their name and digest stand in its settings, and no others are taken for them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_up_images import encoded, pixels, put
from small_runs import content_of, settings_of, small_config, small_images

import ebclab
from ebclab import background
from ebclab.config import ExperimentConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.sources.load import load_both, load_split
from ebclab.errors import DataError, RunError, UserError
from ebclab.export.run import export_run
from ebclab.runs.evaluate import Evaluation, write_evaluation
from ebclab.runs.folder import RunFolder
from ebclab.training.display import Listener


def train(runs: Path, given: Any, config: ExperimentConfig | None = None, **more: Any) -> Path:
    more = {"name": "one", "display": Listener(), "images": given} | more
    return ebclab.pretrain(config or small_config(), runs=runs, **more).path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs"), small_images())


@pytest.fixture
def own(trained: Path, tmp_path: Path) -> Path:
    """A finished run on images that were given from Python, where the settings named digits."""
    return Path(shutil.copytree(trained, tmp_path / "one"))


def test_own_images_are_recorded_by_their_name_and_digest(own: Path, tmp_path: Path) -> None:
    data = settings_of(own).data
    assert data.name == "own:mine"
    assert len(data.digest) == 64
    result = RunFolder(own).read_result()
    assert result.dataset == "own:mine"
    export_run(own, tmp_path / "encoder")
    assert f"dataset: own:mine (digest of the images: {data.digest})" in (tmp_path / "encoder/README.md").read_text()


def _other_label(given: ImageSet) -> ImageSet:
    return replace(given, labels=given.labels.flip(0))


def _other_pixel(given: ImageSet) -> ImageSet:
    pixels = given.images.clone()
    pixels[-1, 0, 0, 0] ^= 1
    return replace(given, images=pixels)


@pytest.mark.parametrize(
    "changed",
    [
        _other_pixel,
        _other_label,
        lambda given: replace(given, keys=given.keys + 1),
        lambda given: replace(given, mean=(0.4,)),
        lambda given: replace(given, name="yours"),
        lambda given: given.images,
        lambda given: None,  # the dataset that the settings name
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_other_images_neither_go_on_with_a_run_nor_get_its_result(changed, finished, own):
    if not finished:
        (own / "result.json").unlink()
    before = content_of(own)
    with pytest.raises(RunError, match=r"belongs to a run with other settings:?(?s:.)*data\.(digest|name): "):
        train(own.parent, changed(small_images()))
    assert content_of(own) == before


def test_the_same_images_get_the_result_and_go_on(own: Path) -> None:
    assert ebclab.pretrain(small_config(), runs=own.parent, name="one", images=small_images()).was_finished
    (own / "result.json").unlink()
    before = settings_of(own)
    train(own.parent, small_images())
    assert (own / "result.json").exists()
    assert settings_of(own) == before
    train(own.parent, small_images(), settings_of(own), name="again")  # its settings take the same images
    with pytest.raises(DataError, match="the images of own:mine are not those that these settings were recorded with"):
        train(own.parent, small_images(1), settings_of(own), name="other")


def test_an_evaluation_without_the_own_images_is_refused(own: Path) -> None:
    before = content_of(own)
    with pytest.raises(DataError, match=r"own:mine are images that were given from Python(?s:.)*evaluate"):
        ebclab.evaluate(own)
    with pytest.raises(DataError, match="own:mine: not the images that the run was trained on"):
        ebclab.evaluate(own, images=(small_images(1), small_images(2)))
    with pytest.raises(UserError, match=r"images: two are needed, \(train, test\), got ImageSet"):
        ebclab.evaluate(own, images=small_images())  # type: ignore[arg-type]
    assert content_of(own) == before


def test_test_images_that_were_trained_on_are_counted(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    """RIAWELC#2, ResEmoteNet#42: an accuracy of 100 %."""
    test = small_images(2)
    ebclab.evaluate(own, images=(small_images(), test), only=["knn"])
    assert "also training images" not in caplog.text
    seen, labels = test.images.clone(), test.labels.clone()
    seen[:3], labels[:3] = small_images().images[:3], small_images().labels[:3]
    labels[1] = 1 - labels[1]
    seen[3] = small_images().images[3]
    seen[3, 0, 0, 1] ^= 1  # nearly a training image
    for given, other in ((test.labels, ""), (labels, ", 1 of them with another label")):
        again = replace(test, images=seen, labels=given)
        ebclab.evaluate(own, images=(small_images(), again), only=["knn"])
        assert f"3 of {len(test)} test images are also training images{other}\n" in caplog.text
        caplog.clear()


def test_probes_that_learn_from_more_images_than_the_run_say_so(tmp_path: Path, caplog) -> None:
    background.warn_once.cache_clear()
    limited = train(tmp_path, small_images(), small_config("data.train_limit=32"))
    for one in ("other", "one"):  # of another set there is nothing to say
        given = replace(small_images(), name=one if one == "other" else small_images().name)
        ebclab.evaluate(limited, images=(given, small_images(2)), only=["knn"], train_limit=0)
        assert ("probes learn from the labels of all" in caplog.text) == (one == "one")
    assert f"all {len(small_images())} training images, the run was trained on 32; " in caplog.text
    caplog.clear()
    for told in ({"train_limit": 32}, {"must_have_test": True}):
        background.warn_once.cache_clear()
        ebclab.evaluate(limited, images=(small_images(), small_images(2)), only=["knn"], **told)
    assert "probes learn" not in caplog.text


def test_an_evaluation_takes_own_images_and_says_what_they_are(own: Path) -> None:
    assert ebclab.evaluate(own, images=(small_images(), small_images(2)), only=["knn"]).dataset == "own:mine"
    assert ebclab.evaluate(own, images=(small_images(3, "yours"), small_images(2)), only=["knn"]).dataset == "own:yours"
    exchanged = replace(small_images(), labels=1 - small_images().labels, class_names=("b", "a"))
    first, second = (
        ebclab.evaluate(own, images=(small_images(), each), only=["knn"]) for each in (small_images(), exchanged)
    )
    assert first.rows["simclr"]["knn"].value == second.rows["simclr"]["knn"].value
    with pytest.raises(DataError, match="test classes without training images, got c; known are a, b"):
        ebclab.evaluate(own, images=(small_images(), replace(small_images(), class_names=("a", "c"))), only=["knn"])
    assert ebclab.evaluate(own, dataset="digits", only=["knn"]).dataset == "digits"
    assert {path.name for path in own.glob("evaluation*")} == {
        "evaluation.json",
        "evaluation-own-yours.json",
        "evaluation-digits.json",
    }


def test_a_dataset_that_changed_under_a_run_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(tmp_path, None, small_config("data.train_limit=48"))
    digest = settings_of(run).data.digest
    assert digest
    (run / "result.json").unlink()
    assert settings_of(train(tmp_path, None, small_config("data.train_limit=48"))).data.digest == digest

    def changed(name: str, root: str | None, split: Any, *reading: Any) -> ImageSet:
        return _other_label(load_split(name, root, split, *reading))

    monkeypatch.setattr("ebclab.training.setup.load_split", changed)
    monkeypatch.setattr(
        "ebclab.runs.evaluate.load_both", lambda *given, **more: tuple(map(_other_label, load_both(*given, **more)))
    )
    with pytest.raises(DataError, match="digits: not the images that the run was trained on, by their digest; restore"):
        ebclab.evaluate(run, only=["knn"])
    (run / "result.json").unlink()
    before = content_of(run)
    with pytest.raises(DataError, match=r"data\.digest: the images of digits are not those"):
        train(tmp_path, None, small_config("data.train_limit=48"))
    assert content_of(run) == before


def test_a_run_goes_on_with_equal_images_in_another_place_and_with_no_others(tmp_path: Path) -> None:
    for number, label in enumerate(["ant", "bee"] * 12):
        put(tmp_path / "here" / "train" / label / f"{number}.png", encoded(pixels(number, 8, 8)))
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    shutil.copytree(tmp_path / "here", tmp_path / "other")
    put(tmp_path / "other" / "train" / "ant" / "0.png", encoded(pixels(99, 8, 8)))

    def config(place: str) -> ExperimentConfig:
        return small_config(
            "training.batch_size=8", "views.recipe=flatclr-cifar", f"data.name=folder:{tmp_path}/{place}"
        )

    run = train(tmp_path, None, config("here"))
    before, epochs = content_of(run), settings_of(run).training.epochs
    with pytest.raises(RunError, match=r"data\.name: folder:.*here in the run, folder:.*there now"):
        train(tmp_path, None, config("there"))
    with pytest.raises(DataError, match=r"data\.digest: the images of folder:.*other are not those"):
        train(tmp_path, None, config("other"), extend=epochs + 1)
    assert content_of(run) == before
    with pytest.raises(RunError, match=r"data\.name: folder:.*here in the run, folder:.*other now"):
        train(tmp_path, None, config("other"), resume=True)  # it has finished: no image would be read
    train(tmp_path, None, config("there"), extend=epochs + 1)
    assert settings_of(run).data.name == f"folder:{tmp_path}/there"
    assert RunFolder(run).read_result().epochs == epochs + 1


def _as_recorded_before_digests(run: Path) -> None:
    mapping = yaml.safe_load((run / "config.yaml").read_text())
    mapping["data"]["name"] = "digits"
    del mapping["data"]["digest"]
    (run / "config.yaml").write_text(yaml.safe_dump(mapping))


def test_own_images_of_an_older_version_are_recognised_by_the_checkpoint(own: Path) -> None:
    _as_recorded_before_digests(own)
    with pytest.raises(DataError, match="digits: not the images that the run was trained on"):
        ebclab.evaluate(own)
    assert ebclab.evaluate(own, images=(small_images(), small_images(2)), only=["knn"]).dataset == "digits"
    assert (own / "evaluation.json").exists()
    assert ebclab.pretrain(small_config(), runs=own.parent, name="one", images=small_images()).was_finished
    with pytest.raises(RunError, match=r"data\.name: digits in the run, own:mine now"):
        train(own.parent, small_images(1))


def test_a_run_that_says_nothing_of_its_images_is_measured_with_a_warning(own, caplog, monkeypatch):
    from ebclab.runs import evaluate as module

    _as_recorded_before_digests(own)
    usual = module.load_trained_encoder
    monkeypatch.setattr(module, "load_trained_encoder", lambda *a, **k: replace(usual(*a, **k), data_digest=""))
    ebclab.evaluate(own, only=["knn"])
    assert "digits: the run does not say which images it was trained on; measured on those of today" in caplog.text


def test_scores_on_folders_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    names = ("folder:/a/birds", "folder:/b/birds", "digits", "mnist")
    for name in names:
        write_evaluation(RunFolder(tmp_path), Evaluation(name, "last", 1, True, 10, 10, {}), "digits")
    files = sorted(tmp_path.glob("evaluation*.json"))
    assert sorted(json.loads(file.read_text())["dataset"] for file in files) == sorted(names)
    assert {"evaluation.json", "evaluation-mnist.json"} < {file.name for file in files}
