"""Nothing that comes from a file, a store or a setting is ever run; docs/security.md says so, and here it is read."""

import ast
from pathlib import Path

import pytest
from sources import tree

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("platform/ebclab", "methods/energy_contrast") for path in (ROOT / folder).rglob("*.py")]

READERS_OF_PICKLES = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "cPickle", "_pickle"}
MAY_NAME_THEM = {
    "platform/ebclab/data/sources/stored_files.py": {"pickle.Unpickler"},  # the base of one that knows five names
    "platform/ebclab/storage/tensors.py": {"pickle.UnpicklingError"},
    "platform/ebclab/cluster/versions.py": {  # how a question travels to a node
        "cloudpickle.register_pickle_by_value",
        "cloudpickle.unregister_pickle_by_value",
    },
}
LOADER = "_Loader"
"""The YAML loader of config/yaml_text.py, which is a SafeLoader."""


def _dangers(tree: ast.AST) -> list[str]:
    """Return what in a module could run what it reads."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in READERS_OF_PICKLES:
            found.append(f"{node.value.id}.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in READERS_OF_PICKLES:
            found.append(f"from {node.module}")
        if isinstance(node, ast.Call):
            found += _dangerous_call(node)
    return found


def _dangerous_call(node: ast.Call) -> list[str]:
    name = ast.unparse(node.func)
    given = {word.arg: ast.unparse(word.value) for word in node.keywords}
    if name == "torch.load" and given.get("weights_only") != "True":
        return ["torch.load without weights_only=True"]
    if name in ("np.load", "numpy.load") and given.get("allow_pickle", "False") != "False":
        return ["numpy.load with pickles"]
    if name in ("yaml.load", "yaml.load_all") and [ast.unparse(one) for one in node.args[1:]] != [LOADER]:
        return [f"{name} with a loader that may build anything"]
    if name in ("yaml.unsafe_load", "yaml.full_load", "eval", "exec", "os.system", "os.popen"):
        return [name]
    return ["a shell"] if given.get("shell", "False") != "False" else []


def test_no_module_reads_pickles_or_runs_text() -> None:
    found = {path.relative_to(ROOT).as_posix(): set(_dangers(tree(path))) for path in SOURCES}
    assert len(found) > 200
    beyond = {name: dangers - MAY_NAME_THEM.get(name, set()) for name, dangers in found.items()}
    assert {name: dangers for name, dangers in beyond.items() if dangers} == {}


@pytest.mark.parametrize(
    "code",
    [
        "pickle.load(file)",
        "from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text, yaml.Loader)",
        "joblib.load(path)",
        "subprocess.run(command, shell=True)",
        "eval(text)",
    ],
)
def test_each_way_to_run_what_was_read_would_be_noticed(code: str) -> None:
    assert _dangers(ast.parse(code)) != []


class _Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._path,)


def test_a_checkpoint_that_would_run_something_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    import pickle

    import torch

    from ebclab.storage.tensors import read_state

    torch.save({"optimizer": _Bomb(tmp_path / "ran")}, tmp_path / "state.pt")
    with pytest.raises(
        ValueError, match=r"^state\.pt holds more than tensors and plain values, got __builtin__ getattr$"
    ):
        read_state(tmp_path / "state.pt")
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(_Bomb(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()  # it would have


def test_the_yaml_loader_is_a_safe_one() -> None:
    import yaml

    from ebclab.config import yaml_text

    assert issubclass(yaml_text._Loader, yaml.SafeLoader)


def test_what_ebclab_starts_by_itself_has_no_dashboard_and_is_closed_to_other_users() -> None:
    text = (ROOT / "platform" / "ebclab" / "cluster" / "join.py").read_text(encoding="utf-8")
    (call,) = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ray.init"
    ]
    assert [ast.unparse(word.value) for word in call.keywords if word.arg is None] == ["options"]
    body = ast.unparse(ast.parse(text))
    for line in ("'include_dashboard': False", "on_loopback()", "private_instance()", "'_temp_dir': str(folder)"):
        assert line in body
    elsewhere = [path for path in SOURCES if "ray.init(" in path.read_text(encoding="utf-8") and path.name != "join.py"]
    assert elsewhere == []
