"""The token is looked for where Ray looks, and sent when Ray sends it."""

from pathlib import Path

import pytest

from ebclab.cluster.address import send_token, sends_token, token_source
from ebclab.errors import UserError


def test_the_token_is_looked_for_where_ray_looks(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert (token_source(home).is_set, token_source(home).read()) == (False, None)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("usual\n")
    (tmp_path / "named").write_text("named\n")
    assert (token_source(home).name, token_source(home).read()) == ("~/.ray/auth_token", "usual")
    (tmp_path / ".ray" / "auth_token").write_text(" \n")
    assert token_source(home).read() is None
    named = token_source(home | {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "named")})
    assert (named.name, named.read()) == (f"RAY_AUTH_TOKEN_PATH ({tmp_path}/named)", "named")
    given = token_source(home | {"RAY_AUTH_TOKEN_PATH": "/x", "RAY_AUTH_TOKEN": " the secret itself "})
    assert (given.name, given.read()) == ("RAY_AUTH_TOKEN", "the secret itself")


@pytest.mark.parametrize("content", [None, " \n"])
def test_a_named_file_without_a_token_is_refused(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    source = token_source({"RAY_AUTH_TOKEN_PATH": str(path)})
    assert source.is_set
    with pytest.raises(UserError, match=f"^RAY_AUTH_TOKEN_PATH: no file with a token, got {path}; copy the head's"):
        source.read()


def test_a_token_is_sent_when_there_is_one_unless_the_user_switched_it_off(tmp_path: Path) -> None:
    nothing = {"HOME": str(tmp_path)}
    send_token(nothing)
    assert "RAY_AUTH_MODE" not in nothing
    some = {"RAY_AUTH_TOKEN": "t"}
    send_token(some)
    assert some["RAY_AUTH_MODE"] == "token"
    off = {"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "disabled"}
    send_token(off)
    assert off["RAY_AUTH_MODE"] == "disabled"


@pytest.mark.parametrize(
    ("mode", "unasked", "expected"),
    [(None, False, False), (None, True, True), ("Token", False, True), ("disabled", True, False)],
)
def test_whether_ray_sends_a_token_is_the_mode_or_its_own_choice(mode, unasked, expected):
    environment = {} if mode is None else {"RAY_AUTH_MODE": mode}
    assert sends_token(environment, unasked=unasked) is expected
