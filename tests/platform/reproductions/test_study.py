"""Studies are read with every mistake at once, and names that are near."""

from dataclasses import replace

import pytest

from ebclab.config import compose
from ebclab.errors import ConfigError
from ebclab.reproductions.plan import plan_study
from ebclab.reproductions.study import PublishedNumber, parse_common, parse_study

from .conftest import ABOUT, refused, study_mapping, study_of


def test_a_whole_study_has_what_its_file_says():
    study = study_of()
    assert study.rows["cold"].set == ("method.temperature=0.1",)
    assert study.columns["ess"].unit == "plain"
    assert study.scales["small"].seeds == (0, 1, 2)
    assert (study.published_number("cold", "knn"), study.published_number("warm", "knn")) == (
        PublishedNumber(50.0),
        None,
    )


def test_quick_is_small_with_one_seed_unless_a_study_says_otherwise():
    small = {"seeds": [0, 1], "set": ["data.name=mnist"], "columns": {"knn": {"here": "fewer"}}}
    scales = study_of(scales={"small": small}).scales
    assert (scales["quick"].seeds, scales["small"].seeds) == ((), (0, 1))
    assert (scales["quick"].set, scales["quick"].columns) == (scales["small"].set, scales["small"].columns)
    own = study_of(scales={"small": small, "quick": {"seeds": [7]}}).scales["quick"]
    assert (own.seeds, own.set, own.columns) == ((7,), (), {})


def test_what_all_studies_share_at_quick_lies_over_what_they_share_at_small():
    small = {"set": ["a=1"], "methods": {"moco": {"set": ["b=1"]}, "byol": {"set": ["c=1"]}}, "differs": ["Few."]}
    quick = {"set": ["a=2"], "methods": {"moco": {"set": ["b=2"]}, "jem": {"set": ["d=2"]}}, "differs": ["Fewer."]}
    shared = parse_common({"scales": {"small": small, "quick": quick}}, "common.yaml")[1]["quick"]
    assert (shared.set, shared.differs) == (("a=1", "a=2"), ("Fewer.",))
    sets = {name: part.set for name, part in shared.methods.items()}
    assert sets == {"moco": ("b=1", "b=2"), "byol": ("c=1",), "jem": ("d=2",)}


def test_every_mistake_is_said_at_once_with_the_nearest_name():
    lines = refused(
        about={"titel": "x", "asks": "?", "source": "s"},
        column={},
        rows={
            "cold": {"title": "cold", "method": "simclr", "sett": [], "columns": {"kn": {}}},
            "a/b": {"title": "t", "method": "simclr"},
        },
        published={"warm": {"knn": 1.0}, "cold": {"kn": 2.0, "ess": "high"}},
        scales={
            "smok": {},
            "small": {"seeds": [-1], "columns": {"k": {}}},
            "paper": {"columns": {"kn": {"here": 3}, "ess": {"protocol": "flatnc"}}},
        },
    )
    expected = [
        "column: no such section; did you mean columns?",
        "about.titel: no such key; did you mean title?",
        "about.title: missing",
        "about.numbers: missing",
        "rows.cold.sett: no such key; did you mean set?",
        "rows.a/b: not a name",
        "rows.cold.columns.kn: no such column; did you mean knn?",
        "published.warm: no such row",
        "published.cold.kn: no such column; did you mean knn?",
        "published.cold.ess: wrong type, got 'high'",
        "scales.smok: no such section; did you mean smoke?",
        "scales.small.seeds: out of range, got [-1]",
        "scales.small.columns.k: no such column",
        "scales.paper.columns.kn: no such column; did you mean knn?",
        "scales.paper.columns.kn.here: wrong type, got 3",
        "scales.paper.columns.ess.protocol: no such protocol, got 'flatnc'; did you mean flatnce?",
    ]
    assert [start for start in expected if not any(line.startswith(start) for line in lines)] == []
    assert len(lines) == len(expected)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("lineer", "no such measure, got 'lineer'; did you mean linear?"),
        ("card/calibratoin/ece-15", "no such group of the card, got 'calibratoin'; did you mean calibration?"),
        ("card/calibration", "no such measure, got 'card/calibration'; known: knn"),
        ("log/", "no such measure, got 'log/'"),
        ("samples/noise/nearst", "no such measure, got 'samples/noise/nearst'"),
        ("samples/nose/nearest", "no such measure, got 'samples/nose/nearest'"),
        ("seconds-to/kn/0.9", "no such probe, got 'kn'; did you mean knn?"),
        ("seconds-to/knn", "not a target between 0 and 1, got ''; write 0.9 for 90 %"),
        *(
            (f"seconds-to/knn/{target}", f"not a target between 0 and 1, got '{target}'; write 0.9 for 90 %")
            for target in ("0", ".0", "1", "1.5", "90", "-0.5", "nan", "high", "0.5/2")
        ),
    ],
)
def test_a_measure_that_does_not_exist_is_refused(measure: str, expected: str):
    columns = {"knn": {"title": "kNN", "measure": measure, "unit": "plain"}, "ess": {"title": "ESS"}}
    (line,) = refused(columns=columns)
    assert line.startswith(f"columns.knn.measure: {expected}")


def test_a_study_without_published_numbers_says_why():
    (line,) = refused(published={})
    assert line.startswith("published: no number, and about.unknown does not say why")
    about = study_mapping()["about"] | {"unknown": "The plot cannot be read.", "numbers": ""}
    assert study_of(published={}, about=about).published == {}
    assert refused(published={"cold": {"knn": float("inf")}})[0].startswith("published.cold.knn: wrong type, got inf")


def test_a_row_stands_beside_a_published_row_that_exists():
    rows = study_mapping()["rows"]
    rows["warm"] = rows["warm"] | {"beside": "cold"}
    assert study_of(rows=rows).published_number("warm", "knn") == PublishedNumber(50.0)
    rows["warm"] = rows["warm"] | {"beside": "cald"}
    (line,) = refused(rows=rows)
    assert line == "rows.warm.beside: no published row of this name, got 'cald'; did you mean cold? Known: cold"


def test_what_studies_share_is_checked_like_a_study():
    with pytest.raises(ConfigError) as caught:
        parse_common({"paper": {}, "scales": {"smoke": {"sett": []}, "tiny": {}}}, "common.yaml")
    assert [line.partition("; ")[0] for line in caught.value.problems] == [
        "common.yaml: paper: no such section",
        "common.yaml: scales.tiny: no such section",
        "common.yaml: scales.smoke.sett: no such key",
    ]


def test_rows_and_columns_have_titles_of_their_own_and_repeats_an_end():
    rows = {name: {"title": "the same", "method": "simclr"} for name in ("cold", "warm")}
    assert refused(rows=rows) == ["rows.warm.title: that of rows.cold too, got 'the same'; give each its own"]
    (line,) = refused(about=ABOUT | {"numbers": "Printed.", "repeats": 3_000_000})
    assert line.startswith("about.repeats: out of range, got 3000000")


def test_a_study_in_a_file_says_itself_what_a_scale_is():
    own, usual = parse_study("own/mine", study_mapping(published={}, scales={}), "mine.yaml"), compose("simclr")
    for scale in ("quick", "small"):
        with pytest.raises(ConfigError, match=f"--scale: own/mine does not say what {scale} is; use paper, or write"):
            plan_study(own, scale)
    (run, *_) = plan_study(own, "paper").runs.values()
    assert replace(run, method=usual.method, seed=usual.seed) == usual  # but for the temperature
    assert plan_study(own, "paper").seeds_from == "one, as --seeds names none"
    own = parse_study("own/mine", study_mapping(scales={"small": {"set": ["data.name=mnist"]}}), "mine.yaml")
    usual = compose("simclr", overrides=["data.name=mnist"])
    for run in plan_study(own, "small", seeds=[0]).runs.values():
        assert replace(run, method=usual.method) == usual


def test_runs_whose_names_would_be_one_are_refused():
    columns = {
        "knn": {"title": "kNN", "measure": "knn"},
        "small": {"title": "small", "measure": "knn", "set": ["views.crop_scale_min=0.1"]},
    }
    rows = {
        "low": {"title": "low", "method": "simclr"},
        "low-small": {"title": "low, small crops", "method": "simclr", "only": ["knn"]},
    }
    with pytest.raises(ConfigError, match="a run of row low-small has the name of another; rename the row"):
        plan_study(study_of(columns=columns, rows=rows, published={}, about=ABOUT | {"unknown": "all"}), "smoke")
