"""A store or a Ray cluster in an address of somebody's file gets no request; one that the user has named does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import ebclab as library
from ebclab.comparisons.plan import ComparisonFolder, make_comparison
from ebclab.comparisons.request import ComparisonRequest
from ebclab.config import compose
from ebclab.errors import UserError
from ebclab.sweeps.plan import make_plan, write_plan

from .conftest import Ebclab


class Host(ThreadingHTTPServer):
    """Holds nothing; ``heard`` has the header Authorization of every request, ``callers`` the number of connections."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _NotFound)
        self.url, self.heard, self.callers = f"http://127.0.0.1:{self.server_port}", list[str](), 0

    def get_request(self) -> Any:
        self.callers += 1
        return super().get_request()

    def address(self, kind: str) -> str:
        """Return the address of a folder here."""
        region = "&region=us-east-1" if kind == "s3" else ""
        return f"{kind}://sets/one?endpoint_override=127.0.0.1:{self.server_port}&scheme=http{region}"


class _NotFound(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.heard.append(self.headers.get("Authorization", ""))  # type: ignore[attr-defined]
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815  (http.server's names)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a made-up service account of Google."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    file = tmp_path_factory.mktemp("account") / "account.json"
    facts = {"type": "service_account", "project_id": "p", "private_key_id": "k", "private_key": pem, "client_id": "1"}
    facts |= {"client_email": "me@p.iam.gserviceaccount.com", "token_uri": "https://oauth2.googleapis.com/token"}
    file.write_text(json.dumps(facts))
    return file


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, account: Path, tmp_path: Path) -> Iterator[Host]:
    """A host that listens, and a user with credentials for Amazon and Google who has named no host."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "EBCLAB_STORES", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, name.lower())
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
    monkeypatch.setenv("EBCLAB_COPIES", str(tmp_path / "copies"))
    monkeypatch.setenv("EBCLAB_STORAGE_PATIENCE", "0")
    with Host() as host:
        threading.Thread(target=host.serve_forever, args=(0.02,), daemon=True).start()
        yield host
        host.shutdown()


def _settings(run: Path, section: str, **values: object) -> Path:
    """Change settings that a run has recorded; return their file."""
    file = run / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    settings[section] |= values
    settings["data"].pop("digest", None)
    file.write_text(yaml.safe_dump(settings))
    return file


def _evaluated(run: Path, address: str) -> list[str]:
    _settings(run, "data", name=f"parquet:{address}")
    return ["evaluate", "runs/done"]


def _config(run: Path, address: str) -> list[str]:
    return ["pretrain", "flatclr", "--config", str(_settings(run, "data", name=f"parquet:{address}")), "--name", "n"]


def _weights(run: Path, address: str) -> list[str]:
    return ["pretrain", "flatclr", "--config", str(_settings(run, "init", weights=address)), "--name", "n"]


def _resumed(run: Path, address: str) -> list[str]:
    _settings(run, "data", name=f"folder:{address}")
    _settings(run, "training", epochs=3)
    (run / "result.json").unlink()
    return ["pretrain", "flatclr", "--name", "done", "--resume"]


def _send_sweep(*settings: str) -> list[str]:
    """Let somebody's sweep be here; return the command that resumes it."""
    place = Path("sweeps/sent")
    place.mkdir(parents=True)
    write_plan(place / "sweep.yaml", make_plan(compose("simclr", overrides=settings)))
    return ["sweep", "simclr", "--name", "sent", "--resume"]


def _send_comparison(dataset: str, *settings: str) -> list[str]:
    """Let somebody's comparison be here; return the command that continues it."""
    place = Path("comparisons/sent")
    place.mkdir(parents=True)
    request = ComparisonRequest(
        methods=("simclr", "flatclr"), batch_sizes=(16,), datasets=(dataset,), assignments=settings, epochs=1
    )
    ComparisonFolder(place).write_plan(make_comparison(request))
    return ["compare", "--name", "sent"]


def _swept(run: Path, address: str) -> list[str]:
    return _send_sweep(f"data.name=parquet:{address}", "views.recipe=none")


def _compared(run: Path, address: str) -> list[str]:
    return _send_comparison(f"parquet:{address}", "views.recipe=none")


CARRIERS = [_evaluated, _config, _weights, _resumed, _swept, _compared]


@pytest.mark.parametrize(
    ("carrier", "kind"),
    [*((carrier, "gs") for carrier in CARRIERS), (_evaluated, "s3"), (_weights, "s3")],
    ids=lambda each: getattr(each, "__name__", each).strip("_"),
)
def test_a_host_that_only_a_file_names_gets_no_request(ebclab, finished, host, carrier, kind):
    outcome = ebclab(*carrier(finished, host.address(kind)))
    assert host.callers == 0
    assert f"got {host.url} in '{kind}://sets/one'; " in outcome.refusal.replace("\n", " ")
    assert f"set EBCLAB_STORES={host.url}" in outcome.err.replace("\n", " ")
    assert outcome.err.count("error: ") == 1


@pytest.mark.parametrize(
    ("way", "kind"), [("option", "gs"), ("setting", "gs"), ("variable", "gs"), ("option", "s3"), ("setting", "s3")]
)
def test_a_host_that_the_user_names_gets_a_request(ebclab, finished, host, monkeypatch, kind, way):
    command = _evaluated(finished, host.address(kind))
    if way == "variable":
        monkeypatch.setenv("EBCLAB_STORES", f"other.example.org, {host.url}/")
    elif way == "option":
        command += ["--dataset", f"parquet:{host.address(kind)}"]
    else:
        command = ["pretrain", "simclr", "--set", f'data={{name: "parquet:{host.address(kind)}"}}']
    outcome = ebclab(*command)
    assert "credentials, or how" not in outcome.refusal
    assert any("Bearer " in words if kind == "gs" else "aws_access_key_id" in words for words in host.heard)


def test_what_one_command_names_the_next_does_not_know(ebclab: Ebclab, finished: Path, host: Host) -> None:
    command = _evaluated(finished, host.address("gs"))
    ebclab(*command, "--dataset", f"parquet:{host.address('gs')}")
    asked = host.callers
    assert ebclab(*command).code == 2
    assert host.callers == asked > 0


def test_a_dataset_of_a_file_is_not_named_by_the_note_on_its_recipe(ebclab: Ebclab, finished: Path, host: Host) -> None:
    # The command composes settings again for a note, with the file's dataset in the place of an option.
    file = _config(finished, host.address("s3"))[3]
    assert ebclab("pretrain", "flatclr", "--recipe", "digits-demo", "--config", file, "--name", "n").code == 2
    assert host.callers == 0


def test_arguments_of_python_name_hosts_and_settings_from_a_file_do_not(host, tmp_path, monkeypatch):
    monkeypatch.setenv("EBCLAB_STORES", "")  # restored afterwards
    dataset = f"parquet:{host.address('s3')}"
    config = library.compose("simclr", config={"data": {"name": dataset}, "views": {"recipe": "none"}})
    with pytest.raises(UserError, match="EBCLAB_STORES=http"):
        library.pretrain(config, runs=tmp_path)
    assert host.callers == 0
    config = library.compose("simclr", overrides={"data.name": dataset, "views.recipe": "none"})
    with pytest.raises(UserError, match="no such bucket or folder"):
        library.pretrain(config, runs=tmp_path)
    assert host.callers > 0
    asked = host.callers
    with pytest.raises(UserError):
        library.open_run(host.address("s3").replace("sets/one", "sets/runs/one"))
    assert host.callers > asked


RESUMED = ["pretrain", "flatclr", "--name", "done", "--resume"]
NAMED = ["pretrain", "flatclr", "--name", "new", "--config", "runs/done/config.yaml"]
SWEEP = ["sweep", "flatclr", "--config", "runs/done/config.yaml", "--trials", "1"]


def _run_with_cluster(run: Path, address: str) -> None:
    """Let a run, as somebody may send it, name a cluster."""
    _settings(run, "training", epochs=3)
    _settings(run, "resources", address=address, workers=1)
    (run / "result.json").unlink()


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (RESUMED, "the run's config.yaml"),
        (NAMED, "runs/done/config.yaml"),
        (SWEEP, "runs/done/config.yaml"),
        ([*SWEEP, "--show"], "runs/done/config.yaml"),
        (["sweep", "simclr", "--name", "sent", "--resume"], "the sweep's sweep.yaml"),
        (["compare", "--name", "sent"], "a file"),
    ],
    ids=lambda value: " ".join(value[:5]) if isinstance(value, list) else "",
)
def test_a_cluster_that_only_a_file_names_is_not_contacted(ebclab, finished, host, command, where):
    address = f"127.0.0.1:{host.server_port}"
    _run_with_cluster(finished, address)
    _send_sweep(f'resources.address="{address}"')
    _send_comparison("digits", f'resources.address="{address}"')
    outcome = ebclab(*command)
    assert f"resources.address: {where} names a cluster, got {address}, and a file alone does not" in outcome.refusal
    assert f"set RAY_ADDRESS={address}, or --set resources.address=null" in outcome.err
    assert host.callers == 0


@pytest.mark.parametrize("way", ["option", "variable", "comparison"])
def test_a_cluster_that_the_user_names_is_contacted(ebclab, finished, host, monkeypatch, way):
    address = f"127.0.0.1:{host.server_port}"
    named = ["--set", f'resources.address="{address}"']
    command = RESUMED
    _run_with_cluster(finished, "10.255.255.1:6379")  # nobody must ask there
    if way == "comparison":
        command = _send_comparison("digits", named[1])
    elif way == "variable":
        monkeypatch.setenv("RAY_ADDRESS", address)
        named = []
    outcome = ebclab(*command, *named)
    assert f"resources.address: what answers is not a Ray cluster, got {address}" in outcome.err
    assert host.callers > 0


def test_without_workers_an_address_in_a_file_says_nothing(ebclab: Ebclab, finished: Path, host: Host) -> None:
    _run_with_cluster(finished, f"127.0.0.1:{host.server_port}")
    assert ebclab(*RESUMED, "--workers", "0").code == 0
    assert host.callers == 0
