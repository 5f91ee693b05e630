"""What goes to a cluster with a command line, and that the head node's shell reads it as it was meant."""

import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ebclab
import energy_contrast
from ebclab.errors import UserError
from ebclab.submission import (
    FILES,
    as_recorded,
    entrypoint,
    new_id,
    require_id,
    require_verb,
    stage_code,
    stage_files,
    submitted_part,
    with_sent_files,
)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to submit; write `ebclab submit -- VERB"),
        (["pretrian", "simclr"], "no such verb, got 'pretrian'; did you mean pretrain?"),
        (["show", "--methods"], "show needs no cluster; run `ebclab show` here"),
        (["submit", "--list"], "submit needs no cluster"),
        (["--name", "x"], "no such verb, got '--name'"),
        (["reproduce", "ebclr/table1"], "submit: reproduce cannot be submitted; run `ebclab reproduce` here"),
    ],
)
def test_a_wrong_verb_is_answered_with_the_right_one(arguments: list[str], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        require_verb(arguments)
    assert sentence in str(caught.value)


def test_files_go_along_and_are_with_sent_files_under_any_folder(tmp_path: Path) -> None:
    space, config = tmp_path / "space.yaml", tmp_path / "with blank.yaml"
    space.write_text("the space")
    config.write_text("the config")
    sent = tmp_path / "sent" / FILES
    line = ["sweep", "simclr", "--space", str(space), f"--config={config}", "--set", "seed=1", "--name", "space"]
    there = with_sent_files(stage_files(line, sent), [tmp_path / "elsewhere", tmp_path / "sent"])
    assert [*there[:2], *there[5:]] == ["sweep", "simclr", "--set", "seed=1", "--name", "space"]
    assert Path(there[3]).read_text() == "the space"
    assert there[4].startswith("--config=")
    assert Path(there[4].removeprefix("--config=")).read_text() == "the config"
    assert Path(there[3]).parent == sent
    said = [*line[:3], "space.yaml", "--config=with blank.yaml", *line[5:]]
    assert as_recorded(stage_files(line, tmp_path / "again" / FILES)) == said


def test_only_options_that_name_files_are_rewritten_and_no_shipped_space(tmp_path):
    (tmp_path / "a.yaml").write_text("")
    for line in (
        ["evaluate", str(tmp_path / "a.yaml"), "--only", "knn"],
        ["sweep", "simclr", "--space", "simclr", "--trials", "3"],
    ):
        assert stage_files(line, tmp_path / FILES) == line
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]  # nothing is made for them
    assert with_sent_files(["pretrain", "--name", "submitted:x"], [tmp_path]) == ["pretrain", "--name", "submitted:x"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("absent.yaml", r"absent.yaml \(No such file"), ("pipe", r"/pipe \(.* is a named pipe\); give the path")],
)
def test_a_file_that_cannot_be_read_or_is_a_pipe_is_named(name, said, tmp_path):
    os.mkfifo(tmp_path / "pipe")  # as the shell's <(command) is
    with pytest.raises(UserError, match=f"^--config: cannot be read, got .*{said}"):
        stage_files(["pretrain", "simclr", "--config", str(tmp_path / name)], tmp_path / "sent")


def test_the_shell_of_the_head_node_hands_over_each_argument_as_it_was_written(tmp_path: Path) -> None:
    awkward = ["pretrain", "a b", "$HOME", "'", '"', "`id`", "*", "--set", "views.crop=[0.1, 0.2]", "", "c;d"]
    command = entrypoint(awkward).replace("python -m ebclab.cli.arrival", f"{sys.executable} -c {shlex.quote(ECHO)}")
    done = subprocess.run(command, shell=True, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}\n{awkward!r}\n"
    assert submitted_part(entrypoint(["pretrain", "simclr"])) == "pretrain simclr"
    sent = entrypoint(["sweep", "simclr", "--space", "submitted:0-my space.yaml"])
    assert submitted_part(sent) == "sweep simclr --space 'my space.yaml'"
    assert submitted_part("python other.py") == "python other.py"


ECHO = "import os, sys; print(os.getcwd()); print(sys.argv[1:])"


def test_names_of_jobs_are_names_of_files_and_made_up_ones_differ() -> None:
    for name in ("a", "sweep-1", "x.y_z"):
        assert require_id(name) == name
    assert require_id(new_id("sweep")) != new_id("sweep")
    for name in ("", "a b", "../a", "-a", "a/b", "ä", "a" * 101):
        with pytest.raises(UserError, match="--name: cannot name a job"):
            require_id(name)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_packages_of_this_process_are_staged_with_their_data_and_without_caches(tmp_path: Path) -> None:
    staged = stage_code(tmp_path)
    assert {"ebclab", "energy_contrast"} <= {path.name for path in staged}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    here = Path(ebclab.__path__[0])
    homes = here.parent, Path(energy_contrast.__path__[0]).parent
    expected = {
        path.relative_to(home).as_posix()
        for home, package in zip(homes, ("ebclab", "energy_contrast"), strict=True)
        for path in (home / package).rglob("*.py")
    }
    data = {f"ebclab/search_spaces/{path.name}" for path in (here / "search_spaces").glob("*.yaml")}
    found = _files(tmp_path)
    assert data
    assert expected | data <= found
    assert not any(name.endswith(".pyc") for name in found)
    assert not list(tmp_path.rglob("__pycache__"))


def test_staged_code_runs_before_an_older_one_that_is_installed(tmp_path, in_new_process):
    def files() -> list[str | None]:
        from importlib.util import find_spec

        import ebclab

        return [ebclab.__file__, getattr(find_spec("energy_contrast.catalog"), "origin", None)]

    (tmp_path / "new").mkdir()
    stage_code(tmp_path / "new")
    (tmp_path / "old" / "ebclab").mkdir(parents=True)
    (tmp_path / "old" / "ebclab" / "__init__.py").write_text("raise ImportError('older')")
    found = in_new_process(files, PYTHONPATH=f"{tmp_path / 'new'}:{tmp_path / 'old'}")
    assert found == [str(tmp_path / "new" / name) for name in ("ebclab/__init__.py", "energy_contrast/catalog.py")]


def test_a_wheel_is_sent_as_what_it_holds(tmp_path: Path) -> None:
    wheel = tmp_path / "ebclab-9.9-py3-none-any.whl"
    inside = {"ebclab/__init__.py": "x = 1", "energy_contrast/__init__.py": "", "ebclab-9.9.dist-info/METADATA": "Name"}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in inside.items():
            archive.writestr(name, text)
    (tmp_path / "stage").mkdir()
    staged = stage_code(tmp_path / "stage", wheel)
    assert [path.name for path in staged] == ["ebclab", "ebclab-9.9.dist-info", "energy_contrast"]
    assert (tmp_path / "stage/ebclab/__init__.py").read_text() == "x = 1"


def test_what_is_no_wheel_of_ebclab_is_refused(tmp_path: Path) -> None:
    text, other, bomb, damaged = (tmp_path / f"{name}.whl" for name in ("text", "other", "bomb", "damaged"))
    text.write_text("no archive")
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("ebclab", "energy_contrast"):
            archive.writestr(f"{package}/__init__.py", "#" * 1000)
    content = bytearray(bomb.read_bytes())
    content[30 + len("ebclab/__init__.py")] ^= 0xFF  # the first byte of the compressed content
    damaged.write_bytes(content)
    with zipfile.ZipFile(bomb, "a") as archive:
        archive.filelist[0].file_size = 1 << 31
        archive.writestr("more", "")
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("ebclab/__init__.py", "")
    stage = tmp_path / "stage"
    stage.mkdir()
    for wheel, sentence in (
        (tmp_path / "absent.whl", "--wheel: cannot be read as a wheel, .*No such file"),
        (text, "--wheel: cannot be read as a wheel, .*not a zip file"),
        (other, "--wheel: holds no energy_contrast, got"),
        (bomb, "--wheel: files of 268,435,456 bytes at most are sent, got 2,147,484,648 in .*bomb.whl"),
        (damaged, "--wheel: cannot be read as a wheel, .*decompressing"),
    ):
        with pytest.raises(UserError, match=sentence):
            stage_code(stage, wheel)
    assert [path for path in stage.rglob("*") if path.is_file() and path.stat().st_size] == []
