"""What Amazon and Google tell a machine before they take it away, asked of a server that answers as theirs do."""

import json
import time
from typing import Any

import pytest

from ebclab.cluster import spot as cloud_notice
from ebclab.cluster.spot import Amazon, Cloud, Google, await_notice, find_cloud
from ebclab.errors import MetadataError, UserError

CLOUDS = {"amazon": Amazon, "google": Google}
NOBODY = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1", "GCE_METADATA_HOST": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_notice, "_PAUSE", 0.0)


def asked_of(metadata: Any, name: str) -> Cloud:
    metadata.cloud = name
    made: Cloud = CLOUDS[name](metadata.variables())
    return made


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_amazons_notice_says_what_will_happen_and_when(action: str, metadata: Any) -> None:
    ends = metadata.announce(97, action)
    notice = asked_of(metadata, "amazon").notice()
    assert notice is not None
    assert (notice.what, notice.deadline) == (f"Amazon will {action} this machine", ends.timestamp())


@pytest.mark.parametrize("told", [{}, {"time": "soon"}, {"time": None}, {"time": 7}])
def test_a_notice_without_a_time_means_two_minutes_or_googles_thirty_seconds(told, metadata):
    metadata.announce(0)
    metadata.facts["spot/instance-action"] = json.dumps({"action": "terminate", **told})
    for name, seconds in (("amazon", 120), ("google", 30)):
        notice = asked_of(metadata, name).notice()
        assert notice is not None
        assert notice.deadline == pytest.approx(time.time() + seconds, abs=5)
        assert name == "amazon" or notice.what == "Google will end this machine"


def test_amazon_is_asked_with_one_token_until_that_has_expired(metadata: Any) -> None:
    cloud = asked_of(metadata, "amazon")
    cloud.notice()
    cloud.notice()
    assert [method for method, _, _ in metadata.asked] == ["PUT", "GET", "GET"]
    metadata.tokens.clear()
    metadata.announce(120)
    assert cloud.notice() is not None
    assert [method for method, _, _ in metadata.asked[3:]] == ["GET", "PUT", "GET"]


def test_amazons_address_may_have_a_path(metadata: Any) -> None:
    assert Amazon(metadata.variables("/behind/")).notice() is None
    assert next(path for _, path, _ in metadata.asked) == "/behind/latest/api/token"


@pytest.mark.parametrize("address", ["https://127.0.0.1:1", "127.0.0.1:1338", "http://"])
def test_an_address_of_amazons_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UserError, match=f"AWS_EC2_METADATA_SERVICE_ENDPOINT: no http address, got {address}; write"):
        Amazon({"AWS_EC2_METADATA_SERVICE_ENDPOINT": address})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("amazon", text) for text in ("", "soon", "[1]", '"terminate"', '{"action": "paint"}', '{"action": []}')),
        *(("amazon", "{}"), ("amazon", "\0"), ("google", ""), ("google", "true"), ("google", "<html>")),
    ],
)
def test_what_is_no_notice_is_none(name, text, metadata):
    metadata.facts[{"amazon": "spot/instance-action", "google": "preempted"}[name]] = text
    said = {
        "amazon": "no notice that Amazon's documentation knows, got",
        "google": "neither TRUE nor FALSE, as Google's documentation says, got",
    }
    with pytest.raises(MetadataError, match=said[name]):
        asked_of(metadata, name).notice()


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("status", [301, 401, 403, 500, 503])
def test_any_other_status_and_a_page_that_does_not_call_itself_googles_are_odd(name, status, metadata):
    cloud = asked_of(metadata, name)
    cloud.notice()
    metadata.status = status
    with pytest.raises(MetadataError, match=f"got status {status}"):
        cloud.notice()
    metadata.cloud, metadata.status = "amazon", 200
    with pytest.raises(MetadataError, match="not Google's metadata service, got status 200 for preempted"):
        Google(metadata.variables()).notice()


@pytest.mark.parametrize("name", CLOUDS)
def test_a_service_that_does_not_answer_is_not_waited_for(name, metadata, monkeypatch):
    monkeypatch.setattr(cloud_notice, "_ANSWER_SECONDS", 0.2)
    cloud = asked_of(metadata, name)
    metadata.silent.clear()
    asked = time.monotonic()
    with pytest.raises(MetadataError, match="no metadata service answers, got timed out"):
        cloud.notice()
    assert time.monotonic() - asked < 30  # not a minute
    metadata.silent.set()
    metadata.leave()
    with pytest.raises(MetadataError, match=r"no metadata service answers, got .*refused"):
        cloud.notice()
    metadata.come_back()
    assert cloud.notice() is None


@pytest.mark.parametrize("name", CLOUDS)
def test_no_proxy_is_asked(name: str, metadata: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    assert asked_of(metadata, name).notice() is None


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("spot", [True, False])
def test_the_cloud_and_whether_it_may_take_the_machine_away_are_found_out(name: str, spot: bool, metadata: Any) -> None:
    if not spot:
        metadata.facts |= {"instance-life-cycle": "on-demand", "scheduling/preemptible": "FALSE"}
    metadata.cloud = name
    cloud, is_spot = find_cloud(metadata.variables())
    assert (type(cloud), is_spot) == (CLOUDS[name], spot)
    metadata.facts.pop("instance-life-cycle")  # without a word about that, a machine is watched
    assert name == "google" or cloud.is_spot()


def test_a_machine_of_no_cloud_is_told_so_with_what_was_asked(metadata: Any) -> None:
    with pytest.raises(UserError, match=r"^no machine of Amazon or Google, got Amazon: 127\.0\.0\.1:1: .*; Google: "):
        find_cloud(NOBODY)
    metadata.status = 404  # another cloud's service, at the same address
    with pytest.raises(UserError, match=r"got Amazon: .*status 404 for a token; Google: .*status 404"):
        find_cloud(metadata.variables())


def test_a_service_that_comes_late_is_found(metadata: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata.leave()
    pauses = iter([lambda: None, metadata.come_back])  # none before the first try
    monkeypatch.setattr(time, "sleep", lambda seconds: next(pauses)())
    cloud, _ = find_cloud(metadata.variables())
    assert cloud.name == "Amazon"


def test_odd_answers_are_told_once_and_the_notice_is_heard_after_them(metadata, monkeypatch):
    cloud = asked_of(metadata, "amazon")
    happens = iter([metadata.leave, lambda: None, lambda: None, metadata.come_back, lambda: metadata.announce(60)])
    monkeypatch.setattr(time, "sleep", lambda seconds: next(happens)())
    said: list[str] = []
    assert await_notice(cloud, said.append).what == "Amazon will terminate this machine"
    first, second = said
    assert first.startswith("127.0.0.1:")
    assert first.endswith("refused; asking on")
    assert second == "Amazon's metadata service answers again"
    assert next(happens, None) is None
