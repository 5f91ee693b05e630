from pathlib import Path

from ebclab.cli.show import cost_rows, listing
from ebclab.config import VIEW_RECIPES, list_recipes
from energy_contrast.catalog import METHODS


def test_every_name_has_a_line():
    lists = {kind: listing(kind) for kind in ("methods", "recipes", "views")}
    assert [list(lists[kind]) for kind in lists] == [list(METHODS), list_recipes(), list(VIEW_RECIPES)]
    assert all(text and "\n" not in text for entries in lists.values() for text in entries.values())


def test_a_method_is_described_by_the_first_line_of_its_file():
    assert listing("methods")["simclr"].startswith("SimCLR: two views of an image")


def test_a_recipe_is_described_by_its_headline_without_the_name():
    assert listing("recipes")["digits-demo"].startswith("the first run")


def test_a_method_says_that_it_needs_labels_and_the_paper_that_the_docs_name():
    page = (Path(__file__).parents[3] / "docs" / "methods.md").read_text(encoding="utf-8")
    sections = {title: text for title, _, text in (part.partition("\n") for part in page.split("\n## "))}
    lines = listing("methods")
    for name, method in METHODS.items():
        (section,) = [text for title, text in sections.items() if f"`{name}`" in title]
        assert method.paper in section
        assert lines[name].endswith(f"{method.paper})") or not method.paper
        assert ("(needs labels" in lines[name]) == method.needs_labels


def test_methods_that_share_a_file_are_told_apart():
    lines = listing("methods")
    assert "Langevin" in lines["vem-langevin"]
    assert "Stein" in lines["vem-svgd"]
    assert len(set(lines.values())) == len(lines)


def test_every_method_has_a_row_of_costs():
    heading, *rows = cost_rows()
    assert [name for name, *_ in rows] == list(METHODS)
    assert all(len(row) == len(heading) for row in rows)
    assert ("byol", "4", "2", "1", "0 B") in rows
    assert cost_rows({"simclr": METHODS["simclr"]})[1:] == [("simclr", "2", "2", "0", "0 B")]
