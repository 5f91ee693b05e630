"""``ebclab reproduce``: what it lists, shows, runs and refuses."""

import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from ebclab.reproductions import plan as plans
from ebclab.reproductions import study as studies
from ebclab.reproductions.request import SCALES

from .conftest import Ebclab


def test_a_study_is_run_and_set_beside_the_paper_and_a_second_command_trains_nothing(ebclab: Ebclab) -> None:
    first = ebclab("reproduce", "flatnce/figure5").ok
    assert "run 1 of 2: simclr-start-seed0" in first.err
    assert "not run" not in first.out
    assert "say nothing about the paper" in " ".join(first.out.split())
    assert all(len(line) <= 80 for line in first.out.splitlines() if not line.startswith("wrote "))
    folder = Path("reproductions/flatnce-figure5-smoke")
    files = {"plan.json", "runs", "measured", "table.json", "table.md", "table.html", "table.csv", "table.tex"}
    assert files <= {p.name for p in folder.iterdir()}
    table = json.loads((folder / "table.json").read_text())
    cells = {(cell["row"], cell["column"]): cell for cell in table["cells"]}
    assert cells["flatclr", "end"]["published"] == {"value": 0.35, "spread": None}
    assert cells["flatclr", "end"]["difference"] == pytest.approx(cells["flatclr", "end"]["ours"] - 0.35)
    assert [(claim["answer"], claim["in_print"], claim["scale"]) for claim in table["claims"]] == [
        *[("cannot be told", "holds", "smoke")] * 3,
        ("cannot be told", "cannot be told", "smoke"),  # of accuracies that are not printed
    ]
    assert "claim: SimCLR's falls during training. cannot be told: SimCLR, " in " ".join(first.out.split())
    assert "(one seed)" in " ".join(first.out.split())
    assert 0 < cells["simclr", "linear"]["ours"] < 100
    logs = {path: path.read_bytes() for path in folder.glob("runs/*/metrics.jsonl")}
    again = ebclab("reproduce", "flatnce/figure5", "--json").ok
    assert json.loads(again.out)["cells"] == table["cells"]
    assert {path: path.read_bytes() for path in folder.glob("runs/*/metrics.jsonl")} == logs


def test_a_race_is_timed_by_the_log_and_says_on_which_machine(ebclab: Ebclab) -> None:
    out = ebclab("reproduce", "speedrun/cifar10-90", "--set", "training.log_every=7").ok.out
    assert "training until kNN is at 90 %: here at 40 % of digits." in out
    folder = Path("reproductions/speedrun-cifar10-90-smoke")
    table = json.loads((folder / "table.json").read_text())
    cells = {(cell["row"], cell["column"]): cell for cell in table["cells"]}
    for row in ("simclr", "flatclr", "byol"):
        numbers = json.loads((folder / "measured" / f"{row}-seed0.json").read_text())["numbers"]
        knn = {each["epoch"] or 3: each["value"] for each in numbers if each["measure"] == "knn"}
        assert sorted(knn) == [1, 2, 3]
        epoch = 1 + max((epoch for epoch in knn if knn[epoch] < 0.4), default=0)
        log = (folder / "runs" / f"{row}-seed0" / "metrics.jsonl").read_text().splitlines()
        seconds = {each["step"]: each["seconds"] for each in map(json.loads, log) if each["kind"] == "train"}
        assert cells[row, "seconds"]["ours"] == seconds[4 * epoch]  # 64 images in batches of 16
        assert 100 * knn[3] == pytest.approx(cells[row, "knn"]["ours"])
    page = (folder / "table.md").read_text()
    for fact in (f"torch {version('torch')}", "cores, ", "- **Precision:** float32, training.compile=false"):
        assert fact in page


def test_show_prints_runs_and_cost_and_trains_nothing(ebclab: Ebclab) -> None:
    shown = ebclab("reproduce", "ebclr/table1", "--scale", "paper", "--show").ok
    text = " ".join(shown.out.split())
    assert 'ebclr-cifar10: ebclr on cifar10, resnet18, 100 epochs, batch 128; for "CIFAR-10' in text
    assert "40 runs" in text
    assert "1 seed (0): as in the paper" in text
    assert "GPU h on GPU, estimated: operations of the passes" in text
    assert "ebclr on digits, small, 1 epoch, batch 16;" in ebclab("reproduce", "ebclr/table1", "--show").out
    repeated = ebclab("reproduce", "vem/table12", "--scale", "paper", "--show").out
    assert "2 seeds (0, 1): as in the paper" in repeated
    assert "; 2 runs\n" in repeated, "a line for each seed"
    assert not Path("reproductions").exists()


def test_the_list_has_studies_with_their_costs_and_what_is_not_known(ebclab, monkeypatch):
    some = ["ebclr/figure4b", "flatnce/table2", "flatnce/table3", "vem/table14"]
    monkeypatch.setattr(studies, "list_studies", lambda: some)
    listed = ebclab("reproduce", "--list").ok
    lines = listed.out.splitlines()
    assert [name for line in lines if (name := line.partition(":")[0]) in some] == some
    assert lines[0] == "ebclr/figure4b: Where chains start (1 claim)"
    assert lines[1:5] == [
        "  smoke  5 s, 2 runs, digits",
        "  quick  8 min, 2 runs, fashion-mnist",
        "  small  60 min, 6 runs, fashion-mnist",
        "  paper  9.0 GPU h, 2 runs, cifar10",
    ]
    assert "  paper  not run: needs images of your own; give --images imagenet=PATH" in lines
    assert listed.out.count("images of your own") == 2  # once for each study
    assert all(len(line) <= 80 for line in lines)
    assert "  ebclr/figure2: a diagram of the method" in listed.out


def test_reasons_in_the_list_are_whole_and_images_that_several_cells_lack_are_named_together(ebclab, monkeypatch):
    reasons = ["no seeds -- not yet; use --scale paper", "no seeds -- not yet; use --scale small"]
    lacks = [("imagenet",), ("imagenet", "cars")]
    cells = [*(SimpleNamespace(not_run=why, lacks=()) for why in reasons * 2)]
    cells += [SimpleNamespace(not_run="needs images", lacks=kinds) for kinds in lacks]
    monkeypatch.setattr(studies, "list_studies", lambda: ["ebclr/table1"])
    monkeypatch.setattr(plans, "plan_study", lambda *_: SimpleNamespace(runs={}, cells=cells))
    text = " ".join(ebclab("reproduce", "--list").ok.out.split())
    images = "needs images of your own; give --images imagenet=PATH --images cars=PATH"
    assert text.count(f"not run: {reasons[0]}; {reasons[1]}; {images}") == len(SCALES)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "reproduce: name a study, such as ebclr/table1"),
        (["ebclr/tabel1"], "reproduce: no such study, got 'ebclr/tabel1'; did you mean ebclr/table1?"),
        (["ebclr/figure2"], "ebclr/figure2: no study, since a diagram of the method, without a result"),
        (["vem/table9", "--images", "imagenet100"], "--images: must be NAME=PATH, got 'imagenet100'"),
        (
            ["vem/table9", "--images", "imagenet=/x"],
            "--images: vem/table9 has none, got imagenet; did you mean imagenet100",
        ),
        (["ebclr/table1", "--scale", "smal"], "--scale: no such choice, got 'smal'; did you mean small?"),
        (
            ["ebclr/table1", "--rows", "simclrr"],
            "--rows: not in ebclr/table1 at scale smoke, got simclrr; did you mean",
        ),
        (
            ["ebclr/table1", "--datasets", "mnist"],
            "--datasets: not in ebclr/table1 at scale smoke, got mnist; known: digits",
        ),
        (["ebclr/table1", "--seeds", "0"], "--seeds: must be at least 1, below 1000, got 0"),
        (["ebclr/table1", "--seeds", "20261129"], "--seeds: must be at least 1, below 1000, got 20261129"),
        (["ebclr/table1", "--to", "s3://"], "s3://: an address without a bucket"),
        (["ebclr/table1", "--set", "method.temprature=1"], "method.temprature: no such setting; did you mean"),
        (
            ["speedrun/cifar10-90", "--set", "training.keep_every=0"],
            "training.keep_every: a time to a target is read off kept checkpoints, got 0; set training.keep_every=1",
        ),
        (
            ["speedrun/cifar10-90", "--set", "evaluation.knn_every=2"],
            "evaluation.knn_every: scores would count as training time, got 2; set evaluation.knn_every=0",
        ),
        (["ebclr/table1", "--set", "data.name=mnsit"], "data.name: no such dataset, got 'mnsit'; did you mean mnist?"),
        (["ebclr/table1", "--name", "mine"], "--name: no such option; did you mean --to?"),
        (["none.yaml"], "none.yaml: cannot be read, got No such file or directory; give the path of a YAML file"),
        (["mine/my?study.yaml"], "mine/my?study.yaml: not the name of a study, got 'my?study'; use letters"),
        (["mine/thesis.yaml"], "mine/thesis.yaml: thesis: no such section; known: about, columns"),
        (["ebclr/table1", "--to", "mine"], "mine: the folder holds something that is not a reproduction"),
        (["ebclr/table1", "--scale", "small", "--data-root", "empty"], "ebclr/table1: mnist is needed at scale small"),
    ],
)
def test_a_users_mistake_is_a_sentence(ebclab: Ebclab, arguments: list[str], expected: str) -> None:
    Path("mine").mkdir()
    for name in ("thesis.txt", "thesis.yaml", "my?study.yaml"):
        Path("mine", name).write_text("thesis: mine")
    refused = ebclab("reproduce", *arguments)
    assert expected in refused.refusal
    assert "Traceback" not in refused.err
    assert sorted(path.name for path in Path().iterdir()) == ["mine"]


OWN = """
about: {title: Temperatures, asks: "Does the temperature matter?"}
columns:
  knn: {title: kNN, measure: knn}
rows:
  cold: {title: cold, method: simclr, recipe: digits-demo, set: [method.temperature=0.1]}
  warm: {title: warm, method: METHOD, recipe: digits-demo, set: [method.temperature=0.5]}
claims:
  - {says: Cold is better., above: cold, below: warm}
"""


def test_a_study_of_ones_own_runs_from_its_file_and_is_of_no_paper(ebclab: Ebclab) -> None:
    Path("my-question.yaml").write_text(OWN.replace("METHOD", "dcl"))
    out = ebclab("reproduce", "my-question.yaml").ok.out
    assert "claim: Cold is better. cannot be told" in out
    page = Path("reproductions/own-my-question-smoke/table.md").read_text()
    results, origin = page.split("## Where the numbers come from")
    assert "paper" not in results
    assert "**Source" not in origin
    rows = [line.split("|")[1:3] for line in results.splitlines() if line.startswith(("| cold", "| warm"))]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["cold (simclr, digits-demo)", "kNN, %"],
        ["warm (dcl, digits-demo)", "kNN, %"],
    ]
    assert "\n1 run, " in ebclab("reproduce", "my-question.yaml", "--rows", "cold").ok.out
    Path("reproductions/own-my-question-smoke/runs/cold-seed0/config.yaml").write_text("seed: 0")
    refused = ebclab("reproduce", "my-question.yaml").refusal
    assert "own-my-question-smoke/runs/cold-seed0/config.yaml: method.name: missing; " in refused
    listed = " ".join(ebclab("reproduce", "my-question.yaml", "--scale", "paper", "--show").ok.out.split())
    assert "cold: simclr on digits, small, 200 epochs" in listed
    assert "1 seed (0): one, as --seeds names none" in listed


def test_a_study_of_images_without_a_test_part_is_refused_before_it_trains(ebclab: Ebclab) -> None:
    for number in range(4):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(Path(f"{number}.png"))
    photos = ["--set", "data.name=folder:.", "--scale", "paper"]
    Path("my-question.yaml").write_text(OWN.replace("METHOD", "dcl"))
    refused = ebclab("reproduce", "my-question.yaml", *photos).refusal
    assert f"own/my-question: numbers are measured on test images, got folder:{Path.cwd()}, which has none" in refused
    assert not Path("reproductions").exists()


def test_a_study_by_probes_of_images_without_labels_is_refused_before_it_trains(ebclab: Ebclab) -> None:
    for part in ("train", "test"):
        Path("photos", part).mkdir(parents=True)
        for number in range(9):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(Path("photos", part, f"{number}.png"))
    Path("my-question.yaml").write_text(OWN.replace("METHOD", "dcl"))
    refused = ebclab("reproduce", "my-question.yaml", "--set", "data.name=folder:photos").refusal
    assert (
        f"kNN and linear probes need labels, got 9 of 9 test images of folder:{Path.cwd() / 'photos'} without"
        in refused
    )
    assert not Path("reproductions").exists()


def test_a_file_of_a_study_decides_nothing_that_is_imported(ebclab: Ebclab) -> None:
    Path("harm.py").write_text("open('harmed', 'w')")
    Path("study.yaml").write_text(OWN.replace("METHOD", "harm:Method"))
    refused = ebclab("reproduce", "study.yaml").refusal
    assert "study.yaml: rows.warm.method: no method of the catalogue, got 'harm:Method'; " in refused
    assert not Path("harmed").exists()
