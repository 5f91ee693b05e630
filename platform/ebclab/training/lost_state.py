"""Attributes of a method that training changes and no checkpoint holds, so that a resume would lose them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from torch import Tensor, nn
from torch.utils.weak import WeakIdRef

from energy_contrast.method import Method

_MOST = 10_000
"""Values of one attribute that are looked at."""
_SET_BY_THE_CALLER = frozenset(("diagnosing", "memories", "num_chunks", "num_images", "pixel_range"))


def outside_checkpoints(method: Method) -> dict[str, object]:
    """Return what tells whether an attribute of a method or of its parts has changed, by name.

    Parts that an encoder may have too (layers, whole copies of it) are left out, since they keep none of a method's
    state in attributes.
    """
    saved = {id(tensor) for tensor in (*method.parameters(), *method.buffers())}
    usual = vars(nn.Module()).keys() | vars(nn.Module).keys()
    layers = {type(part) for part in method.encoder.modules()}
    return {
        f"{place}.{name}".removeprefix("."): _all_facts(value, saved)
        for place, part in method.named_modules()
        if type(part) not in layers
        for name, value in vars(part).items()
        if name not in usual and not (part is method and name in _SET_BY_THE_CALLER)
    }


def lost_at_a_resume(method: Method, before: Mapping[str, object]) -> str:
    """Return a warning that names attributes changed since ``outside_checkpoints`` returned ``before``, or nothing."""
    changed = [name for name, facts in outside_checkpoints(method).items() if before.get(name) != facts]
    if not changed:
        return ""
    return (
        f"{type(method).__name__}: training changes attributes that are in no checkpoint, so that a resume begins with "
        f"their first values, got {', '.join(changed)}; keep what steps remember in a buffer (register_buffer) or in "
        "memories"
    )


def _all_facts(value: object, saved: Collection[int]) -> object:
    """Return the facts of a value; of one that cannot be looked at, which object it is."""
    try:
        return tuple(_facts(value, saved))
    except Exception:  # an object of the user's may do anything when it is looked at
        return id(value)


def _facts(value: object, saved: Collection[int]) -> Iterator[object]:
    """Yield plain values of which an attribute consists, and for any other object which one it is."""
    left = [value]
    for _ in range(_MOST):
        if not left:
            return
        each = left.pop()
        yield type(each)
        if isinstance(each, Tensor):
            yield each.shape
            if each.numel() and id(each) not in saved:
                yield WeakIdRef(each)
                yield None if each.is_inference() else each._version
        elif isinstance(each, float | complex):
            yield repr(each)
        elif each is None or isinstance(each, bool | int | str | bytes):
            yield each
        elif isinstance(each, Mapping | Collection) and type(each).__module__ in ("builtins", "collections"):
            yield len(each)
            left += islice(each.items() if isinstance(each, Mapping) else each, _MOST)
        else:
            yield id(each)
