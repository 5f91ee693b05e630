from pathlib import Path

import pytest

from ebclab.config.names import did_you_mean, is_folder_name, nearest, other_folder, require_folder_name
from ebclab.errors import UserError

NAMES = ["digits", "mnist", "fashion-mnist", "cifar10"]


@pytest.mark.parametrize(
    ("written", "known", "found"),
    [
        ("cifar-10", NAMES, "cifar10"),
        ("fashion_mnist", NAMES, "fashion-mnist"),
        ("CIFAR10", NAMES, "cifar10"),
        ("simclr", ["SimCLR"], "SimCLR"),
        ("imagenet22k", ["digits", "mnist"], None),
    ],
)
def test_a_misspelt_name_finds_the_right_one_as_it_is_spelt(written, known, found):
    assert nearest(written, known) == found


def test_the_sentence_asks_and_lists_or_only_lists_when_nothing_is_close():
    assert did_you_mean("minst", ["digits", "mnist"]) == "did you mean mnist? Known: digits, mnist"
    assert did_you_mean("xyz", ["digits", "mnist"]) == "known: digits, mnist"
    assert did_you_mean("xyz", []) == "known: none"


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "../out", "a/b", "a\\b", "a?b", "a\nb", "a\ud800"])
def test_what_leads_elsewhere_or_cannot_be_printed_is_no_name_of_a_folder(name):
    assert not is_folder_name(name)
    with pytest.raises(UserError, match="--name: not the name of a folder, got "):
        require_folder_name(name)


@pytest.mark.parametrize("name", ["run", "a b", "lr=0.1", "v1.2", "größer", "-x"])
def test_other_names_are_left_as_they_are(name: str):
    assert require_folder_name(name) == name


@pytest.mark.parametrize(
    ("name", "length"), [("x" * 200, None), ("x" * 5000, 5000), ("x" * 201, 201), ("ü" * 100, None), ("ü" * 101, 202)]
)
def test_a_name_is_at_most_200_bytes_long(name: str, length: int | None):
    if length is None:
        assert require_folder_name(name) == name
    else:
        with pytest.raises(UserError, match=f"^--name: longer than 200 bytes, got {length} ") as caught:
            require_folder_name(name)
        assert len(str(caught.value)) < 200


def test_a_folder_in_the_one_that_was_named_or_like_it_is_offered(tmp_path: Path):
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.yaml").touch()
    (tmp_path / "runs" / "second").mkdir()
    asked = {"holds": "config.yaml", "otherwise": "make one"}
    assert other_folder(f"{tmp_path}/runs", **asked) == f"name one of those in it, such as {tmp_path}/runs/first"
    assert other_folder(f"{tmp_path}/runs/frist", **asked) == f"did you mean {tmp_path}/runs/first?"
    assert other_folder(f"{tmp_path}/runs/secnd", **asked) == "make one"
    assert other_folder("s3://bucket/runs", **asked) == "make one"
