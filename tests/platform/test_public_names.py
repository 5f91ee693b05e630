"""What ``import ebclab`` offers: the names that type checkers see are those that are imported on first use."""

import ast
from importlib import metadata
from pathlib import Path

import ebclab

ROOT = Path(__file__).parents[2]


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(ebclab) == sorted([*ebclab.__all__, "__version__"])


def test_the_version_is_that_of_the_installed_package() -> None:
    assert ebclab.__version__ == metadata.version("ebclab")


def test_type_checkers_see_the_names_that_there_are() -> None:
    tree = ast.parse(Path(ebclab.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    exported = {name.asname for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    exported |= {ast.unparse(node.targets[0]) for node in block.body if isinstance(node, ast.Assign)}
    assert exported - {None} == set(ebclab.__all__)


def test_both_packages_say_that_they_are_typed() -> None:
    for package in (ROOT / "platform" / "ebclab", ROOT / "methods" / "energy_contrast"):
        assert (package / "py.typed").is_file()
