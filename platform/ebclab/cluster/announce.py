"""Reports to the head how far its cluster may grow; Ray's autoscaler knows this limit but does not publish it.

Without the report, a sweep on a cluster that starts with no workers would be refused for lack of resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.core.generated import autoscaler_pb2

from ebclab.cluster.join import head_of_this_machine
from ebclab.config.addresses import expanded
from ebclab.config.yaml_text import LARGEST_YAML, from_yaml
from ebclab.errors import UserError
from ebclab.regular_file import read_regular


def announce(groups: Mapping[str, tuple[int, Mapping[str, int]]]) -> str:
    """Report to the head on this machine how far the cluster may grow; return that limit in words.

    Args:
        groups: For each kind of worker, the largest number of them and the resources of one, as {"CPU": 4, "GPU": 1}.

    Raises:
        UserError: No head runs here, or it does not admit this process.
    """
    address = head_of_this_machine("call this on the head, after `ray start`")
    config = autoscaler_pb2.ClusterConfig()  # type: ignore[attr-defined]
    for name, (most, resources) in groups.items():
        if most:
            config.node_group_configs.add(name=name, max_count=most, resources=dict(resources))
    GcsClient(address=address).report_cluster_config(config.SerializeToString())
    total = {unit: sum(most * has.get(unit, 0) for most, has in groups.values()) for unit in ("CPU", "GPU")}
    return f"the cluster may grow to {total['CPU']} CPUs and {total['GPU']} GPUs"


def groups_of(path: Path) -> dict[str, tuple[int, Mapping[str, int]]]:
    """Return the kinds of workers in a configuration that ``ray up`` copied to the head.

    Args:
        path: Usually ~/ray_bootstrap_config.yaml.

    Raises:
        UserError: The file cannot be read, or it is not a configuration for ``ray up``.
    """
    try:
        config: Any = from_yaml(read_regular(expanded(str(path)), LARGEST_YAML).decode("utf-8"), str(path))
        types = config["available_node_types"]
        most = config["max_workers"]
        return {
            name: (min(node["max_workers"], most), {k: v for k, v in node["resources"].items() if k in ("CPU", "GPU")})
            for name, node in types.items()
            if name != config["head_node_type"]
        }
    except OSError as error:
        raise UserError(f"{path}: cannot be read, got {error.strerror}; `ray up` brings one to the head") from error
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not what `ray up` brings to a head, got {error!r}; name its configuration") from error
