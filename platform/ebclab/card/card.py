"""The card of one encoder on one dataset; the results of each group are saved as soon as they are complete.

card/
  groups/<group>.json           results of one group, with a checksum
  groups/<group>.safetensors    contributions of each image to its metrics
  pictures/<group>-<name>.png
  features/                     see ``feature_store``
  card.json  card.md  card.html
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from ebclab.card.results import Findings, Number
from ebclab.errors import RunError
from ebclab.regular_file import read_regular
from ebclab.storage import atomic
from ebclab.storage.own_folder import own_folder
from ebclab.storage.reading import read_json, typed, with_checksum

FORMAT = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_LARGEST = 1 << 30  # bytes of one file


@dataclass(frozen=True)
class GroupResult:
    """The outcome of one group."""

    group: str
    key: str  # hash of everything that the findings depend on; with an equal key they need not be measured again
    findings: Findings  # empty if it failed or was skipped
    seconds: float
    problem: str = ""  # why there are no findings; empty if there are
    failed: bool = False  # whether ``problem`` is an unexpected failure rather than a consequence of the request


@dataclass(frozen=True)
class Card:
    """Everything that was measured of one encoder on one dataset."""

    label: str  # name of the encoder in tables
    address: str  # path, address or name of the encoder
    origin: str  # one line about where it comes from
    encoder: str  # SHA-256 of network, weights and preprocessing
    settings: str  # digest of the run's settings without its seed; empty if the encoder is not of a run
    seed: int | None  # None if the encoder is not of a run
    dataset: str
    data: str  # SHA-256 of the dataset's content, see ``MeasuredSet.digest``
    num_train: int
    num_test: int
    environment: Mapping[str, Any]  # versions, machine and device
    results: tuple[GroupResult, ...] = ()  # in the order of the catalogue
    num_repeated: int = 0  # test images that are also training images

    def numbers(self, group: str) -> tuple[Number, ...]:
        """Return the metrics of a group; empty if it was not measured."""
        return next((each.findings.numbers for each in self.results if each.group == group), ())

    def to_mapping(self) -> dict[str, Any]:
        """Return the card as plain values, without pixels of pictures, plots, and contributions of images."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "results"}
        return {**facts, "groups": [_plain(each, whole=False) for each in self.results]}


class CardFolder:
    """The folder of a card on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def features(self) -> Path:
        return own_folder(self.path, "features")

    def write(self, result: GroupResult) -> None:
        """Save the results of a group; the JSON file is written last, so that a result is complete or absent."""
        for folder in (own_folder(self.path, "groups"), own_folder(self.path, "pictures")):
            atomic.make_folder(folder)
        for picture in result.findings.pictures:
            atomic.write_bytes(self._picture(result.group, picture.name), picture.png)
        contributions = {
            number.name: number.contributions for number in result.findings.numbers if number.contributions is not None
        }
        content = to_bytes(contributions)
        atomic.write_bytes(self._group(result.group, ".safetensors"), content)
        plain = {"format": FORMAT, **_plain(result, whole=True), "contributions": hashlib.sha256(content).hexdigest()}
        atomic.write_json(self._group(result.group, ".json"), with_checksum(plain))

    def read(self, group: str, key: str) -> GroupResult | None:
        """Return the saved results of a group; None if there are none, they are damaged, or have another key."""
        try:
            content = read_json(self._group(group, ".json"))
            stored = typed(content, GroupResult)
            if stored.key != key or content.get("format") != FORMAT:
                return None
            saved = read_regular(self._group(group, ".safetensors"), _LARGEST)
            if content.get("contributions") != hashlib.sha256(saved).hexdigest():
                return None
            contributions, findings = from_bytes(saved), stored.findings
            pictures = tuple(
                replace(each, png=read_regular(self._picture(group, each.name), _LARGEST)) for each in findings.pictures
            )
        except (OSError, ValueError, RunError, SafetensorError):
            return None
        numbers = tuple(replace(each, contributions=contributions.get(each.name)) for each in findings.numbers)
        return replace(stored, findings=replace(findings, numbers=numbers, pictures=pictures))

    def _group(self, group: str, ending: str) -> Path:
        return own_folder(self.path, "groups") / f"{_checked(group)}{ending}"

    def _picture(self, group: str, name: str) -> Path:
        return own_folder(self.path, "pictures") / f"{_checked(group)}-{_checked(name)}.png"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"a name of letters, digits and hyphens is needed, got {name!r:.80}")
    return name


def _plain(result: GroupResult, *, whole: bool) -> dict[str, Any]:
    """Return a result as plain values; plots only if ``whole``, pixels and contributions never."""
    findings = result.findings
    numbers = [
        {name: value for name, value in vars(number).items() if name != "contributions"} for number in findings.numbers
    ]
    plain: dict[str, Any] = {
        "numbers": numbers,
        "tables": [asdict(table) for table in findings.tables],
        "pictures": [{"name": each.name, "title": each.title, "note": each.note} for each in findings.pictures],
        "remarks": list(findings.remarks),
    }
    if whole:
        from plotly.utils import PlotlyJSONEncoder

        plain["plots"] = json.loads(json.dumps([vars(each) for each in findings.plots], cls=PlotlyJSONEncoder))
    rest = {"problem": result.problem, "failed": result.failed} if result.problem else {}
    return {"group": result.group, "key": result.key, "seconds": result.seconds, "findings": plain, **rest}
