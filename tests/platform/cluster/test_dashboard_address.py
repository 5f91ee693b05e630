"""The address of the job server, and the warning about a token on an open network."""

from __future__ import annotations

import pytest

from ebclab.cluster.dashboard_address import choose_address, plain_text_warning
from ebclab.errors import UserError


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        (None, {}, "http://127.0.0.1:8265"),
        ("http://head:1/", {"RAY_API_SERVER_ADDRESS": "http://other:2"}, "http://head:1"),
        ("head:9000", {}, "http://head:9000"),
        ("https://gateway/ray", {}, "https://gateway/ray"),
        (None, {"RAY_API_SERVER_ADDRESS": "http://a:1", "RAY_ADDRESS": "http://b:2"}, "http://a:1"),
        (None, {"RAY_ADDRESS": "http://b:2"}, "http://b:2"),
        (None, {"RAY_ADDRESS": "10.0.0.1:6379"}, "http://127.0.0.1:8265"),  # a cluster's address has no job server
        (None, {"RAY_ADDRESS": "auto"}, "http://127.0.0.1:8265"),
    ],
)
def test_what_is_asked_for_comes_before_the_environment_and_that_before_the_tunnel(
    asked: str | None, environment: dict[str, str], expected: str
) -> None:
    assert choose_address(asked, environment) == expected


@pytest.mark.parametrize(
    "wrong", ["ray://head:10001", "http://head:port", "http://", "auto://x y", "http://head:99999"]
)
def test_what_is_no_address_of_a_job_server_is_refused_with_its_origin(wrong: str) -> None:
    with pytest.raises(UserError, match=r"^--address: not the address of a job server, got"):
        choose_address(wrong, {})
    with pytest.raises(UserError, match=r"^RAY_API_SERVER_ADDRESS: not the address"):
        choose_address(None, {"RAY_API_SERVER_ADDRESS": wrong})


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError, match="--address") as caught:
        choose_address("http://me:secret@head:8265", {})
    assert "secret" not in str(caught.value)


def test_a_token_on_an_open_network_is_warned_of() -> None:
    token = {"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "token"}
    assert plain_text_warning("http://head:8265", {"RAY_AUTH_TOKEN": "t"}) is None  # it is not sent there
    assert "head unencrypted" in (plain_text_warning("http://head:8265", token) or "")
    assert plain_text_warning("https://head", token) is None
    assert plain_text_warning("http://127.0.0.1:8265", token) is None
    assert plain_text_warning("http://[::1]:8265", token) is None
    assert plain_text_warning("http://head:8265", {"HOME": "/nowhere", "RAY_AUTH_MODE": "token"}) is None
