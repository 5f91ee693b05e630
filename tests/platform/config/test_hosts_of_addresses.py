"""What an address says about how it is reached, and paths and addresses that no system takes."""

import time

import pytest

from ebclab.config.addresses import (
    LONGEST,
    STORES,
    cluster_problem,
    folder_problem,
    form_problem,
    host_problem,
    hosts_of,
    name_hosts,
)
from ebclab.config.recipes import name_hosts_in
from ebclab.data.sources.load import load_split
from ebclab.errors import UserError
from ebclab.storage.object_store import remote_at


@pytest.mark.parametrize(
    "address",
    [
        "/data/set",
        "a?endpoint_override=h",
        "file:///data/set",
        "s3://bucket/set",
        "s3://bucket.of_mine-1/set?region=eu-north-1&allow_bucket_creation=true&scheme=https",
        "gs://anonymous@bucket/set?retry_limit_seconds=0.5",
    ],
)
def test_a_path_or_bucket_at_its_usual_host_names_none(address: str) -> None:
    assert hosts_of(address) == []


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("s3://b/x?endpoint_override=h:1", ["https://h:1"]),
        ("s3://b/x?scheme=http&endpoint_override=h:1", ["http://h:1"]),
        ("s3://b/x?endpoint_override=https://h:1&scheme=http", ["https://h:1"]),  # as pyarrow decides
        ("s3://b/x?endpoint%5Foverride=h%3A1", ["https://h:1"]),
        ("s3://b/x?region=a&endpoint_override=h&endpoint_override=g", ["https://h", "https://g"]),
        ("s3://b/x?endpoint_override=h&scheme=http&scheme=https", ["http://h", "https://h"]),
        ("s3://b/x?endpoint_override=mine@h", ["https://mine@h"]),
        ("gs://b/x?scheme=http", ["http://storage.googleapis.com"]),
        ("gcs://b/x?endpoint_override=h", ["https://h"]),
        ("s3://b/x?scheme=http", ["http://amazonaws.com"]),
        ("s3://b/x?region=h/", ["region=h/"]),
        ("s3://b/x?region=a;endpoint_override=h", ["region=a;endpoint_override=h"]),
        ("s3://b/x?region=a#&endpoint_override=h", ["https://h", "region=a#"]),
        ("s3://b/x?tls_verify_certificates=false", ["tls_verify_certificates=false"]),
        ("s3://b/x?tls_ca_file_path=/tmp/x", ["tls_ca_file_path=/tmp/x"]),
        ("s3://b/x?proxy_options", ["proxy_options="]),
        ("s3://h:9000/b/x", ["s3://h:9000"]),
        ("s3://user@b/x", ["s3://user@b"]),
        ("s3://b%2Fc/x", ["s3://b%2Fc"]),
        ("http://h/x", ["http://h"]),
        ("fsspec+http://h/x", ["fsspec+http://h/x"]),
        ("abfs://c@h/x?blob_storage_authority=g", ["abfs://c@h", "blob_storage_authority=g"]),
        ("ray://h:6379", ["ray://h:6379"]),
        ("S3://b/x", ["S3://b"]),
    ],
)
def test_all_that_an_address_says_about_how_it_is_reached_is_found(address, hosts, monkeypatch):
    assert hosts_of(address) == hosts
    monkeypatch.setenv(STORES, "")
    with pytest.raises(UserError, match="a file alone does not choose which host"):
        load_split(f"parquet:{address}", None, "train")
    name_hosts("--dataset", f"parquet:{address}")
    assert host_problem(address) is None


def test_a_chain_of_addresses_is_refused_even_if_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORES, "")
    chain = "fsspec+filecache::http://h/x"
    name_hosts(chain)
    assert host_problem(chain) is not None


@pytest.mark.parametrize(
    ("listed", "address", "allowed"),
    [
        ("h:1", "s3://b/x?endpoint_override=h:1", True),
        ("h:1", "s3://b/x?endpoint_override=h:1&scheme=http", False),  # the token would be sent in plain text
        ("http://h:1/", "s3://b/x?endpoint_override=h:1&scheme=http", True),
        ("g, http://h:1", "gs://b/x?endpoint_override=h:1&scheme=http", True),
        ("h", "s3://b/x?endpoint_override=h:1", False),
        ("h", "s3://b/x?endpoint_override=h.evil", False),
        ("h", "s3://b/x?endpoint_override=h&tls_verify_certificates=false", False),
        ("h,tls_verify_certificates=false", "s3://b/x?endpoint_override=h&tls_verify_certificates=false", True),
        ("", "s3://b/x?endpoint_override=", False),
    ],
)
def test_the_variable_lists_whole_hosts(listed, address, allowed, monkeypatch):
    monkeypatch.setenv(STORES, listed)
    assert (host_problem(address) is None) == allowed


def test_credentials_are_not_put_into_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORES, "")
    name_hosts("s3://AKIAME:hush@bucket/x", "s3://b/x?endpoint_override=h&access_key=hush")
    name_hosts_in(["data.name=parquet:s3://AKIAME:hush@bucket/x"])
    assert host_problem("s3://b/x?endpoint_override=h") is not None


def test_a_cluster_is_named_by_the_setting_or_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORES, "")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert cluster_problem("local") is None
    assert cluster_problem("auto") is None
    assert "set RAY_ADDRESS=h:6379" in str(cluster_problem("h:6379"))
    monkeypatch.setenv("RAY_ADDRESS", "h:6379")
    assert cluster_problem("h:6379") is None
    for other in ("http://h:8265", "ray://h:10001"):  # ray#35010, ray#53226: refused later, for what they are
        monkeypatch.setenv("RAY_ADDRESS", other)
        assert cluster_problem(other) is None
    name_hosts_in(["resources={address: 'g:6379'}"])
    assert cluster_problem("g:6379") is None
    assert cluster_problem("g:6380") is not None


def test_the_remedy_for_a_shell_is_quoted_and_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORES, "")
    problem = str(host_problem("s3://b/x?endpoint_override=h;rm%20-r%1b[2J"))
    assert problem.endswith(f"set {STORES}='https://h;rm -r\\x1b[2J'")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/data/\0x", "a control character in a path or address, got '\\x00' in /data/\\x00x; leave it out"),
        ("s3://AKIAME:hush@b/\x1b[2J", "got '\\x1b' in s3...; "),
        ("gs://b/" + "x" * 100_000, "more than 4,096 characters, got 100,007: gs...; shorten it"),
        ("/" + "x" * 100_000, f"more than 4,096 characters, got 100,001: /{'x' * 59}...; shorten it"),
        ("x://" * 30_000, "more than 4,096 characters, got 120,000: x...; shorten it"),
    ],
)
def test_a_path_that_no_system_takes_is_a_short_sentence(path: str, said: str) -> None:
    begun = time.process_time()
    with pytest.raises(UserError) as refused:
        load_split(f"folder:{path}", None, "train")
    assert said in str(refused.value)
    assert said in str(folder_problem(path))
    if "://" in path:
        with pytest.raises(UserError) as refused:
            remote_at(path)
        assert said in str(refused.value)
    assert time.process_time() - begun < 20  # the password's pattern alone would take hours
    assert form_problem("/" + "x" * (LONGEST - 1)) is None
