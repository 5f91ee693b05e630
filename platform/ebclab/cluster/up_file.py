"""Validates a configuration for ``ray up`` before it starts; Ray reports a typo with a traceback."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ebclab.config.addresses import expanded
from ebclab.config.names import did_you_mean, nearest
from ebclab.config.yaml_text import LARGEST_YAML, from_yaml
from ebclab.errors import ConfigError, UserError
from ebclab.formatting import how_to_install
from ebclab.regular_file import read_regular

UpFile = dict[str, Any]
"""The content of a file for ``ray up``, whose form is the schema of the installed Ray."""

_OPEN = "CHANGE-ME"
_RAYS_IDLE_MINUTES = 5
_DASHBOARD = re.compile(r"--dashboard-host[= ]\s*(\S+)")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SOURCES = {
    ".whl": "run `make wheel`",
    "auth_token": "run `ray get-auth-token --generate > /dev/null`",
    "constraints.txt": "run `ray up` in the repository's root",
}


def check_cluster_file(path: Path) -> list[str]:
    """Validate a configuration for ``ray up``; return a summary with one line per kind of machine.

    Args:
        path: The file; relative paths in its ``file_mounts`` are relative to the current folder, as in Ray.
    """
    try:
        text = read_regular(path, LARGEST_YAML).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        remedy = "name a file for `ray up`, such as cluster/cluster.yaml in a clone of the repository"
        raise UserError(f"{path}: cannot be read, got {reason}; {remedy}") from error
    is_for_kubernetes = any(
        line.startswith("apiVersion:") for line in text.splitlines()
    )  # it may hold several documents
    config = None if is_for_kubernetes else from_yaml(text, str(path))
    if not isinstance(config, dict) or "provider" not in config:
        raise UserError(
            f"{path}: not a file for `ray up`, it has no provider; Kubernetes' files are for `kubectl apply`"
        )
    problems, unreadable = _against_schema(config)
    filled = config if unreadable else _with_rays_own(config)
    if not unreadable:
        problems += [*_not_chosen(config), *_missing_files(config), *_open_doors(filled)]
    if problems:
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    return [*_machines(filled), f"{path}: ready for `ray up {path}`"]


def _folder_of_autoscaler() -> Path:
    """Return the folder in which the installed Ray keeps the schema of such files and their default values."""
    spec = find_spec("ray")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"Ray is not installed here; run {how_to_install('ray')} to check a file for it")
    return Path(spec.submodule_search_locations[0]) / "autoscaler"


def _against_schema(config: UpFile) -> tuple[list[str], bool]:
    """Return the problems that the schema of the installed Ray finds, and whether some values have the wrong type."""
    import jsonschema

    schema = json.loads((_folder_of_autoscaler() / "ray-schema.json").read_text())
    problems, unreadable = [], False
    for error in jsonschema.Draft7Validator(schema).iter_errors(config):
        place = ".".join(map(str, error.absolute_path))
        if error.validator != "additionalProperties":
            problems.append(f"{place or 'the file'}: {error.message}")
            unreadable = True
            continue
        known = list(error.schema.get("properties", {}))
        for key in sorted(set(error.instance) - set(known)):
            hint = f"did you mean {close}?" if (close := nearest(key, known)) else did_you_mean(key, known)
            problems.append(f"{place + '.' if place else ''}{key}: Ray knows no such key; {hint}")
    return problems, unreadable


def _not_chosen(config: UpFile) -> Iterator[str]:
    """Yield each value that the user must still choose, once even if it is used several times."""
    seen: set[str] = set()
    for place, value in _texts(config):
        if _OPEN in value and value not in seen:
            seen.add(value)
            yield f"{place}: not chosen yet, got {value}; cluster/README.md says how"


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in items:
            yield from _texts(part, f"{place}.{key}" if place else str(key))


def _missing_files(config: UpFile) -> Iterator[str]:
    for local in config.get("file_mounts") or {}:
        source = str(config["file_mounts"][local])
        if not expanded(source).exists():
            remedy = next((advice for end, advice in _SOURCES.items() if source.endswith(end)), "correct the path")
            yield f"file_mounts: no such file, got {source}; {remedy}"


def _with_rays_own(config: UpFile) -> UpFile:
    """Return the configuration with Ray's defaults for missing top-level keys, as ``ray up`` fills them in."""
    kind = str(config["provider"].get("type"))
    path = _folder_of_autoscaler() / kind / "defaults.yaml"
    own = from_yaml(path.read_text(encoding="utf-8"), str(path)) if kind.isalpha() and path.is_file() else {}
    return {**own, **config}


def _open_doors(config: UpFile) -> Iterator[str]:
    """Yield each setting that would give strangers access; Ray allows all of them, and some are its defaults."""
    for name in ("head_start_ray_commands", "worker_start_ray_commands"):
        for command in config.get(name) or []:
            if "ray start" not in command:
                continue
            if any(host not in _LOOPBACK for host in _DASHBOARD.findall(command)):
                yield f"{name}: the dashboard would listen to others; write --dashboard-host=127.0.0.1"
            if "RAY_AUTH_MODE=token" not in command:
                yield f"{name}: anyone who reaches the node could command it; write export RAY_AUTH_MODE=token; first"
    types = config.get("available_node_types") or {}
    if config["provider"].get("type") == "aws":
        for name, node in types.items():
            if not node.get("node_config", {}).get("SecurityGroupIds"):
                yield f"available_node_types.{name}: Ray would open SSH to the whole world; name SecurityGroupIds"


def _machines(config: UpFile) -> Iterator[str]:
    head, most, kept = config.get("head_node_type"), config.get("max_workers", 0), 0
    for name, node in (config.get("available_node_types") or {}).items():
        kind = node["node_config"].get("InstanceType") or node["node_config"].get("machineType") or "a machine"
        least = node.get("min_workers", 0)
        kept += least * (name != head)
        number = f"{least} to {min(node.get('max_workers', most), most)}"
        yield f"{name}: {kind}, {'one, as long as the cluster' if name == head else number}"
    if "max_workers" in config:
        minutes = config.get("idle_timeout_minutes", _RAYS_IDLE_MINUTES)
        stay = f", except for {kept} that stay" if kept else ""
        yield f"together at most {most} workers, each gone after {minutes:g} idle minutes{stay}"
