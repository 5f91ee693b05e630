"""The token that authenticates this process at a Ray cluster: where Ray looks for it, and when Ray sends it."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from ebclab.errors import UserError

MODE = "RAY_AUTH_MODE"
"""Environment variable that Ray reads when it is imported; with the value "token", Ray sends the token."""

COPY_TOKEN = "copy the head's ~/.ray/auth_token to this machine, to the same place (chmod 600)"
"""Advice if the token is missing or wrong."""

TOKEN, TOKEN_PATH = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Environment variables with the token, and with the path of its file."""


@dataclass(frozen=True)
class TokenSource:
    """The place from which Ray takes this user's token."""

    name: str  # name of the place in messages
    text: str = ""  # the token; empty if it is in a file
    file: Path | None = None  # the file; None if the token is in an environment variable
    required: bool = False  # whether the user has named the file, so that it must contain a token

    @property
    def is_set(self) -> bool:
        """Whether the environment variable is set, the default file exists, or the user has named a file."""
        return self.required or self.file is None or self.file.is_file()

    def read(self) -> str | None:
        """Return the token, or None if there is none."""
        if self.file is None:
            return self.text
        readable = self.file.is_file() and os.access(self.file, os.R_OK)
        token = self.file.read_text(encoding="utf-8").strip() if readable else ""
        if self.required and not token:
            raise UserError(
                f"{TOKEN_PATH}: no file with a token, got {self.file}; {COPY_TOKEN}, and unset the variable"
            )
        return token or None


def token_source(environment: Mapping[str, str]) -> TokenSource:
    """Return the first source, in Ray's search order, that the environment names; else Ray's default file."""
    if token := environment.get(TOKEN, "").strip():
        return TokenSource(TOKEN, text=token)
    if path := environment.get(TOKEN_PATH):
        return TokenSource(f"{TOKEN_PATH} ({path})", file=Path(path), required=True)
    home = Path(environment.get("HOME") or Path.home())
    return TokenSource("~/.ray/auth_token", file=home / ".ray" / "auth_token")


def sends_token(environment: Mapping[str, str], *, unasked: bool = False) -> bool:
    """Return whether a token is sent; ``unasked`` says whether it is if RAY_AUTH_MODE is not set."""
    return environment.get(MODE, "token" if unasked else "").lower() == "token"


def send_token(environment: MutableMapping[str, str]) -> None:
    """Have Ray's client send the user's token if there is one; clusters without authentication ignore it.

    Ray reads the mode when it is imported. A value of RAY_AUTH_MODE that the user has set is kept.
    """
    if token_source(environment).is_set:
        environment.setdefault(MODE, "token")
