"""What a resumed run is told of its last launch."""

from pathlib import Path

import pytest
import torch

from ebclab.runs.environment import ONE_BY_ONE, describe_environment, differences, read_environment

FACTS = {"torch": "2.14.1", "threads": 1}


def test_a_run_is_told_when_its_large_views_are_made_in_another_way_and_only_then():
    assert differences(FACTS, FACTS | ONE_BY_ONE) == ["large_views: in batches before, one by one, torch's crop now"]
    assert differences(FACTS | ONE_BY_ONE, FACTS) == ["large_views: one by one, torch's crop before, in batches now"]
    assert differences(FACTS, FACTS) == differences(FACTS | ONE_BY_ONE, FACTS | ONE_BY_ONE) == []
    assert differences({}, FACTS | ONE_BY_ONE) == []  # the last launch wrote nothing down


def test_what_changes_bits_is_told_and_what_does_not_is_not():
    now = FACTS | {"torch": "2.15.0", "command": ["ebclab"]}
    assert differences(FACTS | {"command": []}, now) == ["torch: 2.14.1 before, 2.15.0 now"]
    machine = FACTS | {"machine": "x86_64"}
    told = differences(machine | {"processor": "AMD EPYC"}, machine | {"processor": "Intel Xeon"})
    assert told == ["processor: AMD EPYC before, Intel Xeon now"]  # they have other instructions, and round otherwise


def test_a_run_is_told_of_variables_that_choose_other_kernels(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    before = describe_environment(torch.device("cpu"), 1, 1, ())
    assert "variables" not in before
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")  # rounds otherwise than AVX2, which is the default
    now = describe_environment(torch.device("cpu"), 1, 1, ())
    assert differences(before, now) == ["variables: none before, ATEN_CPU_CAPABILITY=default now"]
    assert differences(now, now) == []


def test_a_recorded_environment_with_a_value_of_another_type_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    path.write_text('{"torch": "2.14.1", "threads": 1, "ray": null, "command": ["ebclab", "demo"]}')
    assert read_environment(path)["threads"] == 1
    path.write_text('{"torch": {"version": 2}}')
    assert read_environment(path) == {}
