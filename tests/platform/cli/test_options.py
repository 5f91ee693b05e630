"""Options of commands are declared once, as fields of a request: the command line and the checks are made from them."""

from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from ebclab.card.request import CardRequest
from ebclab.cli.app import parser
from ebclab.cli.compare import CompareOptions
from ebclab.cli.export import ExportOptions
from ebclab.cli.options import composed, read_options
from ebclab.cli.pretrain import PretrainOptions
from ebclab.cli.sweep import SweepOptions
from ebclab.comparisons.request import ComparisonRequest
from ebclab.config import compose
from ebclab.config.options import option_problems, values_of, word_of
from ebclab.errors import ConfigError, UserError
from ebclab.reproductions.request import ReproduceRequest
from ebclab.sweeps.request import SweepRequest

REQUESTS: dict[str, Any] = {
    "evaluate": CardRequest(("run",)),
    "sweep": SweepOptions(method="simclr"),
    "pretrain": PretrainOptions("simclr"),
    "export": ExportOptions("runs/a", "out"),
    "compare": ComparisonRequest(methods=("simclr", "dcl"), batch_sizes=(64,)),
    "reproduce": ReproduceRequest("ebclr/table1"),
}
"""A valid request for each verb."""
every_verb = pytest.mark.parametrize("verb", REQUESTS)


def _given(verb: str, *arguments: str) -> dict[str, Any]:
    """Return what the command's parser makes of a command line."""
    params: dict[str, Any] = parser.commands[verb].make_context(verb, list(arguments)).params
    return params


def _changed(verb: str, entry: Field[Any], value: Any) -> Any:
    is_list = get_type_hints(type(REQUESTS[verb]))[entry.name] in (tuple[str, ...], tuple[int, ...])
    return replace(REQUESTS[verb], **{entry.name: (value,) if is_list else value})


@every_verb
def test_options_are_on_the_command_line_with_their_meaning(verb: str) -> None:
    for entry in fields(REQUESTS[verb]):
        (shown,) = (each for each in parser.commands[verb].params if each.name == entry.name)
        assert entry.metadata["doc"], entry.name
        assert shown.help == entry.metadata["doc"]
        argument = (shown.metavar or entry.name.upper()).removesuffix("...")
        assert word_of(entry).removesuffix("...") in (*shown.opts, argument)


@every_verb
def test_a_value_outside_an_options_range_is_a_sentence_with_its_name(verb: str) -> None:
    for entry in fields(REQUESTS[verb]):
        facts = entry.metadata
        step = 1 if "float" not in str(entry.type) else 1e-9
        outside = [facts[key] - step for key in ("minimum",) if key in facts]
        outside += [facts[key] + step for key in ("maximum",) if key in facts]
        outside += [facts[key] for key in ("above", "below") if key in facts]
        if facts["choices"] or str in map(type, get_args(get_type_hints(type(REQUESTS[verb]))[entry.name])):
            outside.append("nonesuch")
        for value in outside:
            (problem,) = option_problems(_changed(verb, entry, value))
            assert problem.startswith(f"{word_of(entry)}: ")
            assert "got " in problem


@every_verb
def test_ends_of_an_options_range_and_its_choices_are_allowed(verb: str) -> None:
    for entry in fields(REQUESTS[verb]):
        facts = entry.metadata
        for value in [facts[key] for key in ("minimum", "maximum") if key in facts] + list(facts["choices"]):
            assert option_problems(_changed(verb, entry, value)) == [], entry.name


def test_values_on_the_command_line_are_those_of_the_request_which_else_are_python_s():
    assert read_options(CardRequest, _given("evaluate", "run")) == REQUESTS["evaluate"]
    assert read_options(ReproduceRequest, _given("reproduce", "ebclr/table1")) == REQUESTS["reproduce"]
    assert values_of(SweepRequest, read_options(SweepOptions, _given("sweep", "simclr")), only_given=True) == {}
    assert read_options(CompareOptions, _given("compare")).given == {}
    line = ["a", "b", "--dataset", "digits", "--only", "knn, geometry", "--attacked", "7", "--autoattack"]
    asked = read_options(CardRequest, _given("evaluate", *line))
    assert asked == CardRequest(("a", "b"), ("digits",), only=("knn", "geometry"), attacked_images=7, autoattack=True)
    given = read_options(CompareOptions, _given("compare", "simclr", "--batch-size", "64", "--practice", "2m")).given
    assert given == {"methods": ("simclr",), "batch_sizes": (64,), "practice_seconds": 120.0}
    assert read_options(SweepOptions, _given("sweep", "simclr", "--no-baseline")).baseline is False
    with pytest.raises(UserError, match="--practice: not a duration, got 'soon'"):
        read_options(CompareOptions, _given("compare", "--practice", "soon"))


def test_options_that_are_settings_may_be_set_too_to_the_same_value() -> None:
    line = ["simclr", "--epochs", "3", "--dataset", "mnist", "--workers", "1:4", "--set", "seed=4", "--seed", "4"]
    assert read_options(PretrainOptions, _given("pretrain", *line)).settings(look=False) == compose(
        "simclr",
        overrides=["data.name=mnist", "training.epochs=3", "resources.workers=1", "resources.max_workers=4", "seed=4"],
    )
    settings = ['data.root="y"', 'init.weights="z"', 'evaluation.objective="x"']
    assert SweepOptions(method="simclr", objective="x", data_root="y", init="z").overrides() == settings


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        (PretrainOptions("simclr", epochs=5, seed=1), {"--epochs": "training.epochs=3", "--seed": "seed=2"}),
        (PretrainOptions("simclr", workers="2"), {"--workers": "resources={workers: 4}"}),
        (SweepOptions(method="simclr", objective="a"), {"--objective": "evaluation.objective=b"}),
        (
            SweepOptions(method="simclr", dataset="a", init="a"),
            {"--dataset": "data.name=b", "--init": "init.weights=b"},
        ),
        (replace(REQUESTS["compare"], epochs=5), {"--epochs": "simclr:training.epochs=3"}),
        (replace(REQUESTS["compare"], data_root="a"), {"--data-root": "data.root=b"}),
        (replace(REQUESTS["reproduce"], data_root="a"), {"--data-root": "data.root=b"}),
    ],
)
def test_an_option_and_set_that_differ_are_refused(given: Any, settings: dict[str, str]) -> None:
    asked = replace(given, assignments=tuple(settings.values()))
    if isinstance(asked, ComparisonRequest | ReproduceRequest):
        problems = asked.problems()
    else:
        with pytest.raises(UserError) as refused:
            asked.settings(look=False) if isinstance(asked, PretrainOptions) else asked.overrides()
        problems = str(refused.value).splitlines()
    assert [line.partition(": gives ")[0] for line in problems] == list(settings)
    assert all(" as --set does, got " in line and line.endswith("; leave one out") for line in problems)


def test_a_class_in_another_spelling_is_told_the_form_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hardest.py").touch()
    forms = {
        "losses.hardest.Hardest": "losses.hardest:Hardest",
        "losses/hardest.py:Hardest": "losses.hardest:Hardest",
        "./hardest.py": "hardest:Class",
        "hardest": "hardest:Class",
    }
    for name, form in forms.items():
        with pytest.raises(ConfigError, match=rf"one of your own is written package\.module:Class, here {form}$"):
            composed(name, None, None, [])
    for name in ("sim.clr", "[simclr, byol]", "losses/hard-est:Hardest"):
        with pytest.raises(ConfigError, match=r"method\.name: no such method") as refused:
            composed(name, None, None, [])
        assert "one of your own" not in str(refused.value)
