"""Methods by name: those of the catalogue, and user-defined classes given as ``package.module:Class``.

A user-defined class is imported only if the user gives its name, in a command or in Python, and never because a file
contains the name: importing a module executes it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from inspect import isabstract
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

from ebclab.errors import ConfigError, EbclabError, MethodError

if TYPE_CHECKING:
    from energy_contrast.method import Method

Methods = Mapping[str, "type[Method]"]
"""Methods by name."""

_FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_OURS = ("name", "digest")
"""Keys of the section ``method`` that are not settings of the method class."""


class _Catalogue(Mapping[str, "type[Method]"]):
    """The methods of energy_contrast; their names and settings are known without torch, which a class imports."""

    def __init__(self) -> None:
        from energy_contrast.method_settings import SETTINGS  # imported here: 30 ms, which `--help` does without

        self.settings = SETTINGS

    def __getitem__(self, name: str) -> type[Method]:
        from energy_contrast.catalog import METHODS

        return METHODS[name]

    def __contains__(self, name: object) -> bool:
        return name in self.settings

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)


def catalogue() -> Methods:
    """Return the methods of energy_contrast; imports torch only when a class is looked up."""
    return _Catalogue()


def settings_class(name: str, methods: Methods) -> type:
    """Return the class of a method's settings, of the catalogue's without torch."""
    return methods.settings[name] if isinstance(methods, _Catalogue) else methods[name].Config


def is_import_name(name: str) -> bool:
    """Return whether ``name`` has the form ``package.module:Class``; no name of the catalogue has a colon."""
    return _FORM.fullmatch(name) is not None


def as_file_name(name: str) -> str:
    """Return a method's name in a form for folder names: ``package.module.Class``."""
    return name.replace(":", ".")


def with_imported(name: str, methods: Methods | None = None) -> Methods:
    """Return ``methods`` and, if ``name`` has the form ``package.module:Class``, the class that it imports.

    Args:
        name: Name given by the user; any other unknown name is not added, so that the caller can reject it.
        methods: Methods already known; None means the catalogue.
    """
    known = catalogue() if methods is None else methods
    return {**known, name: import_method(name)} if is_import_name(name) and name not in known else known


def known_name(name: str, methods: Methods) -> str:
    """Return the nearest method of the catalogue that a user-defined class extends; ``name`` if there is none."""
    if not is_import_name(name):
        return name
    names = {method: known for known, method in methods.items() if not is_import_name(known)}
    return next((names[each] for each in methods[name].__mro__ if each in names), name)


def import_method(name: str) -> type[Method]:
    """Import a user-defined method class; its module is searched on the import path, then in the current folder."""
    module_name, _, class_name = name.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)  # last: the user's files must not shadow libraries imported later
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ConfigError([f"METHOD: {_why_not_imported(module_name, here, error)}"]) from error
    found, where = getattr(module, class_name, None), getattr(module, "__file__", None) or module_name
    if not isinstance(found, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise ConfigError([f"METHOD: no class {class_name} in {where}{_did_you_mean(class_name, classes)}"])
    if problem := _problem_with(found):
        raise ConfigError([f"METHOD: {class_name} in {where} {problem}"])
    return found


def source_digest(method: type[Method]) -> str:
    """Return the SHA-256 of the file that defines a method class.

    Files that it imports are not included.
    """
    file = getattr(sys.modules.get(method.__module__), "__file__", None)
    try:
        return hashlib.sha256(Path(file or "").read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            [f"METHOD: {method.__name__} must be in a readable file, got {file or 'none'}; write it into one"]
        ) from error


def code_of(name: str) -> Path:
    """Return what another machine needs to import ``package.module:Class``: the path of its top package or module."""
    outermost = name.partition(":")[0].partition(".")[0]
    spec = find_spec(outermost)
    places = list(spec.submodule_search_locations or []) if spec else []
    if len(places) == 1:
        return Path(places[0])
    if spec is not None and spec.origin and not places and spec.origin.endswith(".py"):
        return Path(spec.origin)
    raise ConfigError([f"METHOD: {outermost} is neither one folder nor one file, got {name}; move the class into one"])


@contextmanager
def method_problems(method: type[Method]) -> Iterator[None]:
    """Turn what a method raises before its first step into an error for the user.

    A ValueError that begins with a setting's name and a colon becomes a ConfigError.
    """
    with own_method_problems(method):
        try:
            yield
        except ValueError as error:
            if not re.match(r"[a-z][a-z0-9_.]*: ", str(error)):
                raise
            raise ConfigError(f"method.{error}") from error


@contextmanager
def own_method_problems(method: type[Method]) -> Iterator[None]:
    """Turn what a method of the user's own raises into a MethodError; an error of the catalogue stays as it is."""
    try:
        yield
    except (EbclabError, MemoryError):
        raise
    except Exception as error:
        if method.__module__.partition(".")[0] == "energy_contrast" or type(error).__name__ == "OutOfMemoryError":
            raise
        at, what = raised_at(error, method), f"{type(error).__name__}: {error}"
        raise MethodError(f"{method.__name__} failed{at}, got {what}; correct the method") from error


def raised_at(error: BaseException, of: type | str) -> str:
    """Return `` (file, line N)`` where an error left the package or file of a class or module; else an empty string."""
    own = (of if isinstance(of, str) else of.__module__).partition(".")[0]
    places = [
        f" ({Path(frame.f_code.co_filename).name}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == own
    ]
    return places[-1] if places else ""


def _why_not_imported(module: str, here: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        beside = [path.stem for path in Path(here).glob("*.py")]
        return f"no module {module} in {here} or on the import path{_did_you_mean(module, beside)}"
    return f"the module {module} cannot be imported, got {type(error).__name__}: {error}{raised_at(error, module)}"


def _problem_with(found: type) -> str:
    """Return why a class cannot be trained as a method; empty if it can."""
    from energy_contrast.method import Method

    if not issubclass(found, Method):
        return "is not a method; derive it from energy_contrast.method.Method, or from a method of the catalogue"
    if isabstract(found):
        return f"is not complete, it lacks {', '.join(sorted(found.__abstractmethods__))}"
    config = getattr(found, "Config", None)
    if not isinstance(config, type) or not is_dataclass(config):
        return "has no Config; give it a frozen dataclass of its settings: Config = MineConfig"
    if taken := [field.name for field in fields(config) if field.name in _OURS]:
        return f"has a setting called {taken[0]}, which the section of every method has already; rename it"
    try:
        config()
        get_type_hints(config)
    except Exception as error:  # a default is missing, an annotation cannot be resolved, __post_init__ fails
        got = f"{type(error).__name__}: {error}"
        return f"has a Config that cannot be made, got {got}; give every setting a type and a default"
    return ""


def _did_you_mean(name: str, names: list[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""
