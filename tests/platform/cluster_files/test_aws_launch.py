"""cluster.yaml through Ray's own `ray up`, with Amazon played by moto, up to the requests that would cost money."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.client import BaseClient
from click import ClickException
from moto import mock_aws
from ray.autoscaler._private import commands
from ray.autoscaler._private.aws import node_provider
from ray.autoscaler._private.aws import utils as rays_clients
from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
from ray.autoscaler._private.event_summarizer import EventSummarizer
from ray.autoscaler._private.node_launcher import BaseNodeLauncher
from ray.autoscaler._private.node_provider_availability_tracker import NodeProviderAvailabilityTracker
from ray.autoscaler._private.util import ConcurrentCounter
from ray.autoscaler.tags import TAG_RAY_CLUSTER_NAME, TAG_RAY_NODE_STATUS, TAG_RAY_USER_NODE_TYPE

REGION = "us-west-2"
MY_ADDRESS = "198.51.100.7/32"
CLUSTER = Path(__file__).parents[3] / "cluster"
IMAGE = "ami-0123456789abcdef0"
TOKEN = "0123456789abcdef" * 4
CREDENTIALS = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")  # Amazon's own example


pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)

Requests = list[tuple[str, dict[str, Any]]]


@contextmanager
def _amazon(home: Path) -> Iterator[Requests]:
    """An account with what cluster/README.md has one make, a home with a token; yields every request, in order."""
    (home / "dist").mkdir()
    (home / "dist" / "ebclab-0.1.0-py3-none-any.whl").write_bytes(b"wheel")
    (home / "constraints.txt").write_text("torch\n")
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text(TOKEN)
    requests: Requests = []
    send = BaseClient._make_api_call  # type: ignore[attr-defined]

    def record(client: BaseClient, operation: str, parameters: dict[str, Any]) -> Any:
        requests.append((operation, parameters))
        return send(client, operation, parameters)

    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name, value in {
            "HOME": str(home),
            "AWS_ACCESS_KEY_ID": CREDENTIALS[0],
            "AWS_SECRET_ACCESS_KEY": CREDENTIALS[1],
            "RAY_USAGE_STATS_ENABLED": "0",
            "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
        }.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        patch.chdir(home)
        _clear_rays_clients()
        _prepare_account()
        patch.setattr(BaseClient, "_make_api_call", record)
        patch.setattr(commands, "NodeUpdaterThread", _Setup)
        patch.setattr(node_provider, "list_ec2_instances", cache(node_provider.list_ec2_instances))  # 1,400 of them
        yield requests
    _clear_rays_clients()


def _clear_rays_clients() -> None:
    rays_clients.resource_cache.cache_clear()
    rays_clients.client_cache.cache_clear()


def _prepare_account() -> None:
    """Do what steps 2 and 4 of the README do, with the policies of cluster/aws."""
    iam = boto3.client("iam", region_name=REGION)
    for name in ("ebclab-head", "ebclab-worker"):
        trust = (CLUSTER / "aws" / "trust.json").read_text()
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)
        storage = (CLUSTER / "aws" / "storage.json").read_text().replace("BUCKET", "my-bucket")
        iam.put_role_policy(RoleName=name, PolicyName="storage", PolicyDocument=storage)
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    head = (CLUSTER / "aws" / "head.json").read_text().replace("ACCOUNT", "123456789012")
    iam.put_role_policy(RoleName="ebclab-head", PolicyName="autoscaling", PolicyDocument=head)
    ec2 = boto3.client("ec2", region_name=REGION)
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    group = ec2.create_security_group(GroupName="ebclab", Description="ebclab", VpcId=vpc)["GroupId"]
    ec2.authorize_security_group_ingress(GroupId=group, IpProtocol="-1", SourceSecurityGroupName="ebclab")
    ec2.authorize_security_group_ingress(GroupId=group, IpProtocol="tcp", FromPort=22, ToPort=22, CidrIp=MY_ADDRESS)


def _filled_in(but_not: str = "") -> dict[str, Any]:
    """Return cluster.yaml after a person has chosen everything, but not what is to be forgotten."""
    ec2 = boto3.client("ec2", region_name=REGION)
    group = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["ebclab"]}])["SecurityGroups"][0]
    text = (CLUSTER / "cluster.yaml").read_text(encoding="utf-8")
    for blank, choice in (("sg-CHANGE-ME", group["GroupId"]), ("ami-CHANGE-ME", IMAGE)):
        text = text.replace(blank, choice) if blank != but_not else text
    config: dict[str, Any] = yaml.safe_load(text)
    return config


class _Setup:
    """Stands in for the thread that would set a machine up by SSH; keeps what it was told."""

    told: dict[str, Any]
    exitcode = 0

    def __init__(self, **told: Any) -> None:
        type(self).told = told
        bootstrap = Path(told["file_mounts"]["~/ray_bootstrap_config.yaml"])
        type(self).told["bootstrap"] = json.loads(bootstrap.read_text())
        key = "~/ray_bootstrap_key.pem"  # this home plays the head's as well
        shutil.copy(told["file_mounts"][key], Path(key).expanduser())

    def start(self) -> None:
        """Nothing."""

    def join(self) -> None:
        """Nothing."""


def _ray_up(config: dict[str, Any]) -> None:
    resolved = commands._bootstrap_config(config, no_config_cache=True)
    commands.get_or_create_head_node(resolved, "cluster.yaml", False, False, True, None)


@dataclass(frozen=True)
class Launched:
    """What one `ray up` and a worker of each kind asked of Amazon."""

    requests: Requests
    live: Requests  # the same list, which grows
    head: dict[str, Any]  # the request that launched the head, and those of a worker of each kind
    spot: dict[str, Any]
    on_demand: dict[str, Any]
    told: dict[str, Any]  # what the thread that sets the head up was told
    home: Path

    @property
    def node_types(self) -> dict[str, Any]:
        """Node types as the head's autoscaler reads them."""
        types: dict[str, Any] = self.told["bootstrap"]["available_node_types"]
        return types


def _end_a_worker(told: dict[str, Any]) -> None:
    """Write a worker's state into its tags and end it, as the head's autoscaler does."""
    provider = AWSNodeProvider(told["bootstrap"]["provider"], "ebclab")
    (worker,) = provider.non_terminated_nodes({TAG_RAY_USER_NODE_TYPE: "gpu-on-demand"})
    provider.set_node_tags(worker, {TAG_RAY_NODE_STATUS: "up-to-date"})
    provider.terminate_nodes([worker])


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    home = tmp_path_factory.mktemp("home")
    with _amazon(home) as requests:
        _ray_up(_filled_in())
        for node_type in ("gpu-spot", "gpu-on-demand"):
            _launch_worker(_Setup.told, node_type)
        head, spot, on_demand = _launches(requests)
        _end_a_worker(_Setup.told)
        yield Launched(list(requests), requests, head, spot, on_demand, _Setup.told, home)


def _launches(requests: Requests) -> list[dict[str, Any]]:
    return [parameters for operation, parameters in requests if operation == "RunInstances"]


def _launch_worker(told: dict[str, Any], node_type: str) -> None:
    """Launch one worker as the head's autoscaler would, from the configuration that was copied to the head."""
    config = told["bootstrap"]
    node_types = config["available_node_types"]
    launcher = BaseNodeLauncher(
        AWSNodeProvider(config["provider"], config["cluster_name"]),
        ConcurrentCounter(),
        EventSummarizer(),
        NodeProviderAvailabilityTracker(),
        node_types=node_types,
    )
    launcher.pending.inc(node_type, 1)
    launcher.launch_node(config, 1, node_type)


def test_the_head_is_one_small_machine_with_its_role_and_an_encrypted_disk_that_goes_with_it(launched):
    asked = launched.head
    assert (asked["InstanceType"], asked["MinCount"], asked["MaxCount"]) == ("m7i.large", 1, 1)
    assert asked["ImageId"] == IMAGE
    assert asked["IamInstanceProfile"] == {"Name": "ebclab-head"}
    assert asked["KeyName"] == "ebclab"
    assert asked["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    assert "InstanceMarketOptions" not in asked
    assert "UserData" not in asked
    (disk,) = asked["BlockDeviceMappings"]
    assert disk["Ebs"] == {"VolumeSize": 120, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}


def test_what_costs_money_can_be_found_by_the_clusters_name(launched: Launched) -> None:
    for asked in (launched.head, launched.spot, launched.on_demand):
        tagged = {one["ResourceType"]: one["Tags"] for one in asked["TagSpecifications"]}
        assert set(tagged) == {"instance", "volume"}
        assert all({"Key": TAG_RAY_CLUSTER_NAME, "Value": "ebclab"} in tags for tags in tagged.values())


def test_no_rule_or_right_is_added_and_only_my_address_reaches_ssh(launched: Launched) -> None:
    operations = {operation for operation, _ in launched.requests}
    assert not {one for one in operations if "SecurityGroup" in one and not one.startswith("Describe")}
    assert not {one for one in operations if "Role" in one or "Policy" in one or "Profile" in one}
    ec2 = boto3.client("ec2", region_name=REGION)
    for asked in (launched.head, launched.spot, launched.on_demand):
        groups = ec2.describe_security_groups(GroupIds=asked["SecurityGroupIds"])["SecurityGroups"]
        for rule in (rule for group in groups for rule in group["IpPermissions"]):
            sources = [one["CidrIp"] for one in rule["IpRanges"]] + [one["CidrIpv6"] for one in rule["Ipv6Ranges"]]
            if sources:
                assert (sources, rule["FromPort"], rule["ToPort"]) == ([MY_ADDRESS], 22, 22)
            else:
                assert [pair["GroupId"] for pair in rule["UserIdGroupPairs"]] == asked["SecurityGroupIds"]


def test_a_spot_worker_ends_when_taken_and_one_on_demand_is_the_same(launched: Launched) -> None:
    asked = launched.spot
    assert (asked["InstanceType"], asked["IamInstanceProfile"]) == ("g6.xlarge", {"Name": "ebclab-worker"})
    assert asked["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
    }
    of_each = {"InstanceMarketOptions", "TagSpecifications", "ClientToken"}
    spot, on_demand = (
        {key: value for key, value in one.items() if key not in of_each} for one in (asked, launched.on_demand)
    )
    assert spot == on_demand
    assert "InstanceMarketOptions" not in launched.on_demand


def test_machines_come_up_in_named_zones_and_offer_what_amazon_says(launched: Launched) -> None:
    ec2 = boto3.client("ec2", region_name=REGION)
    for node in launched.node_types.values():
        zones = [ec2.describe_subnets(SubnetIds=[one])["Subnets"][0] for one in node["node_config"]["SubnetIds"]]
        assert [one["AvailabilityZone"] for one in zones] == [f"{REGION}{letter}" for letter in "abcd"]
    assert launched.node_types["head"]["resources"]["CPU"] == 0
    for name in ("gpu-spot", "gpu-on-demand"):
        offered = launched.node_types[name]["resources"]
        assert (offered["CPU"], offered["GPU"]) == (4, 1)


def test_neither_token_nor_credential_is_in_any_request_or_command_or_in_the_heads_configuration(launched):
    told = launched.told
    texts = [json.dumps(launched.requests, default=str), json.dumps(told["bootstrap"])]
    texts += [*told["setup_commands"], *told["ray_start_commands"], *told["initialization_commands"]]
    key = launched.home / ".ssh" / "ebclab.pem"
    assert key.stat().st_mode & 0o077 == 0
    for secret in (TOKEN, *CREDENTIALS, key.read_text().splitlines()[1]):
        assert not any(secret in text for text in texts)


def test_every_machine_gets_wheel_constraints_and_token_and_nothing_else_of_mine(launched: Launched) -> None:
    to_head = dict(launched.told["file_mounts"])
    assert to_head.pop("~/ray_bootstrap_key.pem") == str(launched.home / ".ssh" / "ebclab.pem")
    to_head.pop("~/ray_bootstrap_config.yaml")
    assert to_head == {
        "~/ebclab/ebclab-0.1.0-py3-none-any.whl": "dist/ebclab-0.1.0-py3-none-any.whl",
        "~/ebclab/constraints.txt": "constraints.txt",
        "~/.ray/auth_token": "~/.ray/auth_token",
    }
    assert launched.told["bootstrap"]["file_mounts"] == {remote: remote for remote in to_head}


def test_the_heads_rights_are_enough_for_what_its_autoscaler_asks(launched: Launched) -> None:
    """The head launches workers with the rights of head.json alone; the first launch of the list is the user's own."""
    begun = [index for index, (operation, _) in enumerate(launched.requests) if operation == "RunInstances"]
    asked = {operation for operation, _ in launched.requests[begun[0] + 1 :]}
    statements = json.loads((CLUSTER / "aws" / "head.json").read_text())["Statement"]
    allowed = [
        action
        for one in statements
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
    ]
    assert asked >= {"RunInstances", "CreateTags", "TerminateInstances"}
    assert all(any(fnmatch(f"ec2:{operation}", pattern) for pattern in allowed) for operation in asked)


def test_a_security_group_that_was_not_chosen_stops_before_a_machine_runs(launched, capsys):
    before = len(_machines())
    with pytest.raises((AssertionError, ClickException)):
        _ray_up(_filled_in(but_not="sg-CHANGE-ME") | {"cluster_name": "another"})
    assert "Failed to detect a security group with id equal to any of the configured" in "".join(capsys.readouterr())
    assert len(_machines()) == before


def test_left_to_itself_ray_would_open_ssh_to_the_world(launched: Launched) -> None:
    """Why the security group has to be chosen; when this fails, it need not be any more."""
    config = _filled_in() | {"cluster_name": "another"}
    for node in config["available_node_types"].values():
        del node["node_config"]["SecurityGroupIds"]
    commands._bootstrap_config(config, no_config_cache=True)
    (opened,) = [asked for operation, asked in launched.live if operation == "AuthorizeSecurityGroupIngress"]
    assert {"CidrIp": "0.0.0.0/0"} in [one for rule in opened["IpPermissions"] for one in rule.get("IpRanges", [])]


def test_the_end_of_a_cluster_ends_its_machines_instead_of_stopping_them(launched: Launched) -> None:
    _ray_up(_filled_in() | {"cluster_name": "another"})
    _launch_worker(_Setup.told, "gpu-on-demand")
    provider = AWSNodeProvider(_Setup.told["bootstrap"]["provider"], "another")
    nodes = provider.non_terminated_nodes({})
    provider.terminate_nodes(nodes)
    assert [one["State"]["Name"] for one in _machines() if one["InstanceId"] in nodes] == ["terminated"] * 2


def _machines() -> list[Any]:
    groups = boto3.client("ec2", region_name=REGION).describe_instances()["Reservations"]
    return [one for group in groups for one in group["Instances"]]
