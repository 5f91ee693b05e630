"""The checksum that JSON files of ours carry over their own content."""

from __future__ import annotations

import hashlib
import json

import pytest

from ebclab.storage.checksum import require_checksum, with_checksum


def test_the_checksum_is_the_sha256_of_the_sorted_text_without_spaces() -> None:
    content = {"b": (1, 2.5), "a": {"x": None}}
    text = b'{"a":{"x":null},"b":[1,2.5]}'
    assert with_checksum(content) == content | {"digest": hashlib.sha256(text).hexdigest()}


@pytest.mark.parametrize("content", [{}, {"a": [1, 0.1, "\u00e9", None, True]}, {"digest": "of before"}])
def test_what_was_written_and_read_again_passes_in_any_order_of_its_keys(content: dict[str, object]) -> None:
    read = json.loads(json.dumps(with_checksum(content), indent=2))
    require_checksum(read)
    require_checksum(dict(reversed(read.items())))


@pytest.mark.parametrize("change", [{"a": 2}, {"a": 1.0}, {"b": None}, {"digest": ""}, {"digest": None}])
def test_what_was_changed_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="its content does not match its checksum"):
        require_checksum(with_checksum({"a": 1}) | change)


@pytest.mark.parametrize("content", [{"a": 1}, {}, [1], None, "digest"])
def test_content_without_a_checksum_is_older_and_passes(content: object) -> None:
    require_checksum(content)
