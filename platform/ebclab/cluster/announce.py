"""Reports to the head how far its cluster may grow; Ray's autoscaler knows this limit but does not publish it.

Without the report, a sweep on a cluster that starts with no workers would be refused for lack of resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.core.generated import autoscaler_pb2, gcs_pb2

from ebclab.cluster.join import head_of_this_machine
from ebclab.config.addresses import expanded
from ebclab.config.yaml_text import LARGEST_YAML, from_yaml
from ebclab.errors import UserError
from ebclab.regular_file import read_regular

_UNITS = ("CPU", "GPU")


@dataclass(frozen=True)
class Growth:
    """The workers to which a cluster may grow, in addition to its head."""

    # for each kind of worker, the maximum number of them and the resources of one, e.g. {"CPU": 4, "GPU": 1}
    kinds: Mapping[str, tuple[int, Mapping[str, int]]]
    most: int  # maximum number of workers of all kinds together

    def largest(self, unit: str) -> int:
        """Return the maximum total of a resource over all workers; kinds with most of it are counted first."""
        total, left = 0, self.most
        for number, has in sorted(self.kinds.values(), key=lambda kind: -kind[1].get(unit, 0)):
            total += min(number, left) * has.get(unit, 0)
            left -= min(number, left)
        return total


def announce(growth: Growth) -> str:
    """Report to the head of this machine's cluster how far the cluster may grow; return a message with that limit.

    The limit includes the resources of the head itself.
    """
    address = head_of_this_machine("call this on the head, after `ray start`")
    client = GcsClient(address=address)
    head = _of_the_head(client)
    config = autoscaler_pb2.ClusterConfig()  # type: ignore[attr-defined]
    config.node_group_configs.add(name="head", max_count=1, resources=head)
    for name, (most, resources) in growth.kinds.items():
        if most:
            config.node_group_configs.add(name=name, max_count=most, resources=dict(resources))
    total = {unit: head.get(unit, 0) + growth.largest(unit) for unit in _UNITS}
    config.max_resources.update(total)  # less than the kinds' sum if the total number of workers is limited
    client.report_cluster_config(config.SerializeToString())
    return f"notified the head at {address}: the cluster may grow to {total['CPU']} CPUs and {total['GPU']} GPUs"


def _of_the_head(client: Any) -> dict[str, int]:
    """Return the CPUs and GPUs of the head itself, if it is alive."""
    alive = gcs_pb2.GcsNodeInfo.ALIVE  # type: ignore[attr-defined]
    for info in client.get_all_node_info().values():
        if info.is_head_node and info.state == alive:
            return {unit: int(info.resources_total[unit]) for unit in _UNITS if unit in info.resources_total}
    return {}


def growth_of(path: Path) -> Growth:
    """Return how far a cluster may grow according to the configuration that ``ray up`` copied to its head."""
    try:
        config: Any = from_yaml(read_regular(expanded(str(path)), LARGEST_YAML).decode("utf-8"), str(path))
        types = config["available_node_types"]
        most = config["max_workers"]
        kinds = {
            name: (min(node["max_workers"], most), {k: v for k, v in node["resources"].items() if k in _UNITS})
            for name, node in types.items()
            if name != config["head_node_type"]
        }
        return Growth(kinds, most)
    except OSError as error:
        raise UserError(f"{path}: cannot be read, got {error.strerror}; `ray up` brings one to the head") from error
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not what `ray up` brings to a head, got {error!r}; name its configuration") from error
