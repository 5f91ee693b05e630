"""Names of timm's networks and weights: right ones pass, wrong ones bring the nearest."""

import re

import pytest
import timm

from ebclab.config import timm_names
from ebclab.config.timm_names import architecture_problem, weights_problem


def test_networks_of_timm_and_weights_by_network_or_tag_are_no_problem():
    assert [architecture_problem(name) for name in ("resnet18", "test_vit", "convnext_atto")] == [None] * 3
    assert [weights_problem(name) for name in ("resnet18", "resnet18.a1_in1k")] == [None] * 2


@pytest.mark.parametrize("wrong", ["resnet19", "vit_tiny_patch16_244", "convnxt_atto", "Resnet18"])
def test_a_wrong_name_brings_right_ones(wrong: str) -> None:
    problem = architecture_problem(wrong)
    assert problem is not None
    head, _, tail = problem.partition("; did you mean ")
    assert head == f"no such network in timm {timm.__version__}, got timm/{wrong}"
    suggested = re.findall(r"timm/(\S+?)(?: or |\?)", tail)
    assert 1 <= len(suggested) <= 3
    assert all(timm.is_model(name) for name in suggested)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vit_tiny_patch16_244", "did you mean timm/vit_tiny_patch16_224 or"),  # the nearest first
        ("zzzqqq", "; timm.list_models() prints them"),
        (
            "resnet18.a1_in1k",
            "an architecture is wanted, got timm/resnet18.a1_in1k, which names weights too; "
            "write timm/resnet18, and init.weights=timm/resnet18.a1_in1k to start from them",
        ),
    ],
)
def test_what_is_no_architecture_is_answered_with_what_to_write(name, said):
    assert said in (architecture_problem(name) or "")


@pytest.mark.parametrize(("wrong", "right"), [("resnet18.a1_in2k", "resnet18.a1_in1k"), ("resnet19", "resnet18")])
def test_wrong_weights_bring_right_ones(wrong: str, right: str) -> None:
    problem = weights_problem(wrong) or ""
    assert problem.startswith(f"timm {timm.__version__} has no weights of this name, got timm/{wrong}; did you mean ")
    assert f"timm/{right}" in problem


def test_a_network_without_weights_is_told() -> None:
    without = next(name for name in timm.list_models() if not timm.models.is_model_pretrained(name))
    assert architecture_problem(without) is None
    assert "has no weights of this name" in (weights_problem(without) or "")


@pytest.mark.parametrize("problem_of", [architecture_problem, weights_problem])
def test_without_timm_the_command_to_install_it_is_named(problem_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm_names, "find_spec", lambda name: None)
    assert problem_of("resnet18") == ("timm is not installed here; run `pip install 'timm>=1.0.12'`, got timm/resnet18")


def test_a_long_name_is_shown_in_part() -> None:
    assert max(len(problem(4000 * "n") or "") for problem in (architecture_problem, weights_problem)) < 200
