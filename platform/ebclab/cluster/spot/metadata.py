"""Preemption notices of spot machines, from the metadata services of Amazon and Google.

Requests go directly, whatever proxy is set: a proxy cannot reach a machine's own service.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from typing import Protocol
from urllib.parse import urlsplit

from ebclab.errors import MetadataError, UserError
from ebclab.storage.reading import foreign_json_value

AMAZONS_ADDRESS = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
"""Environment variable, known to Amazon's own tools, with the URL of a substitute such as http://127.0.0.1:1338/."""
GOOGLES_ADDRESS = "GCE_METADATA_HOST"
"""Environment variable, known to Google's own tools, with the HOST or HOST:PORT of a substitute."""

_USUAL = "169.254.169.254"  # link-local address of the service in both clouds
_ANSWER_SECONDS = 2.0
_MOST_BYTES = 1 << 16
_PAUSE = 2.0  # seconds between polls; Google's notice comes 30 seconds before the end
_TRIES = 3
_AMAZONS_SECONDS, _GOOGLES_SECONDS = 120.0, 30.0  # from a notice until the machine is taken away
_AMAZONS_ACTIONS = ("terminate", "stop", "hibernate")
_TOKEN_SECONDS = "21600"  # the maximum that Amazon allows


@dataclass(frozen=True)
class Notice:
    """The announcement that a machine will be taken away."""

    what: str  # description of the event
    deadline: float  # time of the event, in seconds since 1970


class Cloud(Protocol):
    """The metadata service of a cloud. Each method raises a MetadataError if the service does not respond properly."""

    name: str

    def is_spot(self) -> bool:
        """Return False if the service reports that this is not a spot machine."""

    def notice(self) -> Notice | None:
        """Return the preemption notice, or None if there is none."""


class Amazon:
    """Amazon's service in its second version (IMDSv2), in which each request carries a token."""

    name = "Amazon"

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = environment.get(AMAZONS_ADDRESS) or f"http://{_USUAL}"
        url = urlsplit(named)
        if url.scheme != "http" or not url.netloc:
            raise UserError(f"{AMAZONS_ADDRESS}: no http address, got {named}; write http://HOST:PORT, or unset it")
        self._host, self._base, self._token = url.netloc, url.path.rstrip("/"), ""

    def is_spot(self) -> bool:
        """See ``Cloud``."""
        return self._get("instance-life-cycle") != "on-demand"

    def notice(self) -> Notice | None:
        """See ``Cloud``."""
        text = self._get("spot/instance-action")
        if text is None:
            return None
        try:
            announced = foreign_json_value(text.encode())
            action, at = announced["action"], announced.get("time")
        except (ValueError, KeyError, TypeError):
            action = at = None
        if action not in _AMAZONS_ACTIONS:
            raise MetadataError(f"{self._host}: no notice that Amazon's documentation knows, got {text[:200]!r}")
        return Notice(f"Amazon will {action} this machine", _seconds(at, time.time() + _AMAZONS_SECONDS))

    def _get(self, name: str) -> str | None:
        """Return the entry of the service with this name, or None if there is none."""
        status = 401
        for _ in range(2):  # a token that has expired is refused with 401
            self._token = self._token or self._new_token()
            status, text, _ = self._ask("GET", f"meta-data/{name}", {"X-aws-ec2-metadata-token": self._token})
            if status in (200, 404):
                return text if status == 200 else None
            self._token = ""
            if status != 401:
                break
        raise MetadataError(f"{self._host}: not as Amazon's metadata service answers, got status {status} for {name}")

    def _new_token(self) -> str:
        status, text, _ = self._ask("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": _TOKEN_SECONDS})
        if status != 200 or not (text and text.isascii() and text.isprintable()):
            raise MetadataError(f"{self._host}: not Amazon's metadata service, got status {status} for a token")
        return text

    def _ask(self, method: str, name: str, headers: dict[str, str]) -> tuple[int, str, str]:
        return _ask(self._host, method, f"{self._base}/latest/{name}", headers)


class Google:
    """Google's service."""

    name = "Google"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._host = environment.get(GOOGLES_ADDRESS) or _USUAL

    def is_spot(self) -> bool:
        """See ``Cloud``."""
        return self._get("scheduling/preemptible") != "FALSE"

    def notice(self) -> Notice | None:
        """See ``Cloud``."""
        text = self._get("preempted")
        if text not in ("TRUE", "FALSE"):
            raise MetadataError(f"{self._host}: neither TRUE nor FALSE, as Google's documentation says, got {text!r}")
        return None if text == "FALSE" else Notice("Google will end this machine", time.time() + _GOOGLES_SECONDS)

    def _get(self, name: str) -> str:
        path = f"/computeMetadata/v1/instance/{name}"
        status, text, flavor = _ask(self._host, "GET", path, {"Metadata-Flavor": "Google"})
        if status != 200 or flavor != "Google":
            raise MetadataError(f"{self._host}: not Google's metadata service, got status {status} for {name}")
        return text[:200]


def find_cloud(environment: Mapping[str, str], *, pause: float = _PAUSE) -> tuple[Cloud, bool]:
    """Return the cloud to which this machine belongs, and whether this is a spot machine.

    Args:
        pause: Seconds before the next attempt if no cloud responds.
    """
    failures: list[str] = []
    for number in range(_TRIES):
        time.sleep(pause if number else 0)
        failures = []
        for cloud in (Amazon(environment), Google(environment)):
            try:
                return cloud, cloud.is_spot()
            except MetadataError as error:
                failures.append(f"{cloud.name}: {error}")
    raise UserError(f"no machine of Amazon or Google, got {'; '.join(failures)}; there is nothing to watch here")


def await_notice(cloud: Cloud, say: Callable[[str], None], *, pause: float = _PAUSE) -> Notice:
    """Wait for the cloud's notice and return it.

    Args:
        cloud: The cloud to which this machine belongs.
        say: Called with a message when the cloud stops responding properly, and when it responds again.
        pause: Seconds between polls.
    """
    answered = True
    while True:
        try:
            notice = cloud.notice()
        except MetadataError as error:
            if answered:
                say(f"{error}; asking on")
            answered = False
        else:
            if not answered:
                say(f"{cloud.name}'s metadata service answers again")
            answered = True
            if notice is not None:
                return notice
        time.sleep(pause)


def _ask(host: str, method: str, path: str, headers: dict[str, str]) -> tuple[int, str, str]:
    """Return status, text and Metadata-Flavor header of a response; the last identifies Google's service."""
    try:
        connection = HTTPConnection(host, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            text = answer.read(_MOST_BYTES).decode("utf-8", "replace").strip()
            return answer.status, text, answer.getheader("Metadata-Flavor", "")
        finally:
            connection.close()
    except (OSError, HTTPException) as error:
        raise MetadataError(f"{host}: no metadata service answers, got {error or type(error).__name__}") from error


def _seconds(text: object, otherwise: float) -> float:
    """Return a time such as 2026-01-31T08:22:00Z in seconds since 1970, or ``otherwise`` if ``text`` is not a time."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return otherwise
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
