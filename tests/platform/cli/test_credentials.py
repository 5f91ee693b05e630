"""Credentials in addresses: no command shows them, logs them or writes them into a file, whatever else is wrong."""

import json
import logging
import random
import re
import sys
import time
from pathlib import Path

import pytest
import torch

import ebclab as library
from ebclab.cli import main
from ebclab.config.addresses import without_credentials
from ebclab.errors import ConfigError, UserError
from ebclab.runs.environment import describe_environment

from .conftest import Ebclab

SECRET = "hu/sh+4=="
PLACE = f"s3://AKIAME:{SECRET}@bucket/place"
TOKEN_PLACE = f"s3://bucket/place?region=us-east-1&secret_access_key={SECRET}"

COMMANDS = [
    ["runs", "list", "--runs", PLACE],
    ["runs", "list", f"--sweeps={PLACE}"],
    ["runs", "delete", "name", "--runs", PLACE],
    ["show", "simclr", "--set", f"data.name=parquet:{PLACE}"],
    ["show", PLACE],
    ["pretrain", "simclr", "--runs", PLACE, "--resume"],
    ["pretrain", "simclr", "--dataset", f"parquet:{PLACE}"],
    ["pretrain", "simclr", "--set", f"init.weigths={PLACE}"],
    ["pretrain", "simclr", "--set", PLACE],
    ["pretrain", "simclr", "--epochs", PLACE],
    ["pretrain", "simclr", "--runs", TOKEN_PLACE],
    ["data", "show", "digits", "--views", f"{PLACE}/views.png"],
    ["submit", "--address", f"http://me:{SECRET}@127.0.0.1:1", "--list"],
    ["submit", "--", "pretrain", "simclr", "--runs", PLACE],
]
"""Each form that credentials may have in a command line; all commands are checked in one place."""


def _written(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:40])
def test_no_command_shows_or_writes_credentials(ebclab: Ebclab, tmp_path: Path, command: list[str]) -> None:
    outcome = ebclab(*command)
    assert "must hold no credentials, got " in outcome.refusal
    assert "***" in outcome.err
    for hidden in (SECRET, "hu/sh", "AKIAME"):
        assert hidden not in outcome.out + outcome.err + _written(tmp_path)


FILES = [
    f"data: {{name: 'parquet:{PLACE}'}}",
    f"init: {{weights: '{PLACE}'}}",
    f"resources: {{address: 'ray://me:{SECRET}@head:10001'}}",
    f"encoder: {{name: '{PLACE}'}}",
    f"encoder: {{nmae: '{PLACE}'}}",
    f"training: {{epochs: '{PLACE}'}}",
    f"{PLACE}: 3",
    f"'{PLACE}",
]


@pytest.mark.parametrize(
    ("verb", "text"), [*(("show", text) for text in FILES), ("pretrain", FILES[0]), ("sweep", FILES[0])]
)
def test_a_file_of_settings_with_credentials_is_refused_without_them(ebclab, tmp_path, verb, text):
    (tmp_path / "mine.yaml").write_text(text)
    outcome = ebclab(verb, "simclr", "--config", "mine.yaml")
    assert "hu/sh" not in outcome.out + outcome.refusal
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("variable", "value", "command"),
    [
        ("EBCLAB_DATA", PLACE, ["data", "list"]),
        ("RAY_ADDRESS", f"ray://me:{SECRET}@head:10001", ["pretrain", "simclr", "--workers", "1"]),
        ("RAY_ADDRESS", f"http://me:{SECRET}@head:8265", ["submit", "--list"]),
    ],
)
def test_a_variable_with_credentials_is_not_shown(ebclab, monkeypatch, variable, value, command):
    monkeypatch.setenv(variable, value)
    outcome = ebclab(*command)
    assert "***" in outcome.refusal
    assert "hu/sh" not in outcome.out + outcome.err


def test_a_log_line_hides_credentials(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(**_: object) -> None:
        logging.getLogger("ebclab").warning("%s does not answer", PLACE)

    monkeypatch.setattr("ebclab.cli.app.parser", warn)
    assert main([]) == 0
    assert capsys.readouterr().err == "WARNING: s3://***@bucket/place does not answer\n"


def test_python_gets_no_credentials_into_files_or_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        library.pretrain(library.compose("simclr"), runs=PLACE)
    assert "must hold no credentials, got s3://***@bucket/place" in str(refused.value)
    with pytest.raises(ConfigError) as wrong:
        library.compose("simclr", overrides=[f"training.epochs={PLACE}", f"encoder.nmae={PLACE}"])
    assert "hu/sh" not in str(wrong.value)
    monkeypatch.setattr(sys, "argv", ["mine.py", PLACE, "--fast"])
    recorded = describe_environment(torch.device("cpu"), 1, 1, sys.argv)["command"]
    assert recorded == ["mine.py", "s3://***@bucket/place", "--fast"]
    assert "hu/sh" not in json.dumps(_written(tmp_path))


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"{PLACE}: no such bucket", "s3://***@bucket/place: no such bucket"),
        (f"got '{PLACE}', {PLACE}", "got 's3://***@bucket/place'"),
        ("s3://me:a?b@bucket", "s3://***@bucket"),
        ("s3://me:a@b@bucket", "s3://***@bucket"),
        ("s3://b/c?access_key=a&region=x", "s3://b/c?access_key=***&region=x"),
        ("https://h/f?X-Amz-Signature=ab12&X-Amz-Date=3", "https://h/f?X-Amz-Signature=***&X-Amz-Date=3"),
        ("http://127.0.0.1:8265: nobody answers me@home", "http://127.0.0.1:8265: nobody answers me@home"),
        ("s3://b/s?endpoint_override=http://h:1&scheme=http", "s3://b/s?endpoint_override=http://h:1&scheme=http"),
        ("gs://anonymous@bucket/set", "gs://anonymous@bucket/set"),
        ("folder:/a:b@c", "folder:/a:b@c"),
    ],
)
def test_credentials_alone_are_hidden(text: str, hidden: str) -> None:
    shown = without_credentials(text)
    assert shown.startswith(hidden)
    assert "hu/sh" not in shown


_PASSWORD = re.compile(r"(?<=://)[^?@\s]*:[^?\s]*@|(?<=://)[^/?@\s]*:[^@\s]*@")
_SECRET = re.compile(r"(?i)(?<=[?&])([^=&?\s]*(?:key|secret|token|password|signature|credential)[^=&?\s]*)=[^&\s'\"]+")
"""What is a secret, as patterns: short, and too slow for long texts."""


def test_what_is_hidden_is_what_two_slow_patterns_find() -> None:
    source, masked = random.Random(0), 0
    pieces = ["://", "://", "@", "@", ":", ":", "/", "?", "&", "=", " ", "\n", "a", "'", "?key=", "&Token=x", "secret"]
    for _ in range(20_000):
        text = "".join(source.choices(pieces, k=source.randrange(1, 20)))
        expected = _SECRET.sub(r"\1=***", _PASSWORD.sub("***@", text))
        assert without_credentials(text) == expected
        masked += expected != text
    assert masked > 2000


@pytest.mark.parametrize(
    "unit", ["://", "://:", "://@", "://a:", "://?", "://a/?:@", "?key", "?key=", "&token=", ":@", " "]
)
def test_a_long_text_is_masked_at_once(unit: str) -> None:
    began = time.process_time()
    for end in ("", "@", "?x@", "=x"):
        without_credentials(unit * (100_000 // len(unit)) + end)
    assert time.process_time() - began < 5
