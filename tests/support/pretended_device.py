"""A device that is none: its tensors are CPU tensors in disguise, with the CPU's numbers and a GPU's manners.

It shows, on any machine, of code that is meant for a GPU: operations that mix devices, which raise; how often the host
waits for the device; how many operations a step sends there; and whether a step can be recorded once and sent again
and again, as a CUDA graph is, without the host in between. `Recording` does that.

It shows nothing of speed, of memory, of streams, or of the numbers of other kernels than the CPU's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
import torch.utils.backend_registration as registration
from torch import Tensor

NAME = "pretended"

_LOOKS = {"_linalg_eigh", "_linalg_svd", "_linalg_eigvals", "linalg_eig"}
"""Operations that look at their own result: torch's documentation says that they wait."""

_SHAPED_BY_NUMBERS = {
    *("nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount", "equal"),
    "repeat_interleave",
}
"""Operations whose result has a shape, or a value on the host, that only the numbers on the device tell."""

_COPIES = {"_to_copy", "copy_", "_copy_from"}
_MAY_TAKE_FROM_HOST = {"index", "index_put_", "_index_put_impl_"}
_MIXES = _COPIES | _MAY_TAKE_FROM_HOST
_CONTAINERS = {list, tuple, dict, torch.Size}
_RESIZED = (("arange", "default"), ("arange", "start"), ("arange", "start_step"), ("eye", "default"), ("eye", "m"))
"""Operations that torch makes of an empty tensor which it then resizes; a disguise cannot grow with what is in it."""

_HALVED = ("conv2d", "linear", "matmul", "mm", "addmm", "bmm", "baddbmm")  # of what autocast holds in half precision


class MixedDevicesError(RuntimeError):
    """An operation was given tensors of both devices."""


class WaitError(RuntimeError):
    """The host looked at the device while a step was recorded."""


class _Device:
    """What has happened on the device since somebody asked.

    Attributes:
        there: Whether torch says that there is such a device.
        operations: How many operations were sent, by name.
        waits: What made the host wait, by name.
        recording: Takes what is sent, while a step is recorded.
    """

    def __init__(self) -> None:
        self.there = False
        self.operations = Counter[str]()
        self.waits = Counter[str]()
        self.recording: Recording | None = None


_device = _Device()


class DisguisedTensor(torch.Tensor):
    """A tensor on the device; its numbers lie in ``raw``, a tensor of the CPU."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> DisguisedTensor:
        made: DisguisedTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            raw.shape,
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device(NAME, 0),
        )
        made.raw = raw
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _send(function, *args, **(kwargs or {}))

    def new_tensor(self, values: Any, **options: Any) -> Tensor:
        """Return values on the device; torch does not let a device of Python take part in its own."""
        return torch.tensor(values, dtype=options.get("dtype", self.dtype)).to(self.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> DisguisedTensor:
        """Return a copy with memory of its own."""
        memo[id(self)] = copied = DisguisedTensor(self.raw.detach().clone())
        copied.requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copied._is_param = True  # type: ignore[attr-defined]
        return copied

    def data_ptr(self) -> int:
        """Return where the numbers lie."""
        return self.raw.data_ptr()

    def tolist(self) -> Any:
        """Return the numbers; torch lets no subclass do so."""
        return self.cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Be saved as a tensor of the CPU: what is loaded is put there anyway."""
        return self.cpu().detach().__reduce_ex__(protocol)


class DeviceGenerator(torch.Generator):
    """A generator that says it lives on the device; its numbers are the CPU's."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(NAME, 0)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return a value whose leaves, in lists, tuples and dictionaries, are those of ``function``."""
    kind = type(value)
    if kind not in _CONTAINERS:
        return function(value)
    if kind is dict:
        return {key: mapped(function, each) for key, each in value.items()}
    return kind([mapped(function, each) for each in value])


def leaves_of(value: Any) -> list[Any]:
    """Return the leaves of lists, tuples and dictionaries."""
    if type(value) not in _CONTAINERS:
        return [value]
    leaves: list[Any] = []
    for each in value.values() if type(value) is dict else value:
        if type(each) in _CONTAINERS:
            leaves += leaves_of(each)
        else:
            leaves.append(each)
    return leaves


def _send(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Do an operation on the raw tensors, count it, and disguise what comes out."""
    name = function.overloadpacket.__name__
    leaves = leaves_of((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    disguised = {id(leaf.raw): leaf for leaf in tensors if isinstance(leaf, DisguisedTensor)}
    undisguised = [leaf for leaf in tensors if not isinstance(leaf, DisguisedTensor)]
    wanted = kwargs.get("device")
    to_host = name in _COPIES and _lands_on_host(name, args, wanted)
    if disguised and undisguised and name not in _MIXES and any(leaf.dim() for leaf in undisguised):
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in undisguised)
        raise MixedDevicesError(f"{name}: on {NAME}, with tensors on the CPU of shape {shapes}")
    _device.operations[name] += 1
    if reason := _why_wait(name, args, kwargs, undisguised, to_host=to_host):
        _device.waits[reason] += 1
        if _device.recording is not None:
            raise WaitError(f"{reason} while a step is recorded")
    raw_args, raw_kwargs = mapped(_undisguised, (args, kwargs))
    if _device.recording is not None:
        raw_args, raw_kwargs = mapped(_as_a_constant(undisguised), (raw_args, raw_kwargs))
        _device.recording.keep(raw_args, raw_kwargs)
    out = function(*raw_args, **raw_kwargs)
    assert all(each.shape == each.raw.shape for each in disguised.values()), f"{name} has resized a tensor"
    if _device.recording is not None:
        _device.recording.take(function, raw_args, raw_kwargs, out)
    if to_host:
        return out if name == "_to_copy" else args[0]
    return mapped(lambda each: disguised[id(each)] if id(each) in disguised else _disguise(each), out)


def _disguise(value: Any) -> Any:
    return DisguisedTensor(value) if isinstance(value, Tensor) else value


def _undisguised(value: Any) -> Any:
    if isinstance(value, DisguisedTensor):
        return value.raw
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == NAME else value


def _as_a_constant(undisguised: list[Tensor]) -> Callable[[Any], Any]:
    """Return a function that copies the host's tensors: a recording has their numbers, whatever becomes of them."""
    of_host = {id(each) for each in undisguised}
    return lambda value: value.clone() if id(value) in of_host else value


def _lands_on_host(name: str, args: Any, wanted: Any) -> bool:
    if name == "_to_copy":
        return wanted is not None and torch.device(wanted).type == "cpu"
    target = args[1] if name == "_copy_from" else args[0]
    return not isinstance(target, DisguisedTensor)


def _why_wait(name: str, args: Any, kwargs: Any, undisguised: list[Tensor], *, to_host: bool) -> str:
    """Return why the host waits for the device in an operation; empty when it does not."""
    if name == "_local_scalar_dense" or to_host:
        return f"{name} to the host"
    if name in _LOOKS or name in _SHAPED_BY_NUMBERS:
        return name
    if name in _COPIES and undisguised:
        later = kwargs.get("non_blocking") or (name != "_to_copy" and len(args) > 2 and args[2])
        return "" if later and all(hasattr(each, "pinned") for each in undisguised) else f"{name} from the host"
    if name in _MAY_TAKE_FROM_HOST:
        indices = [each for each in leaves_of(args[1]) if isinstance(each, Tensor)]
        if any(each.dtype in (torch.bool, torch.uint8) for each in indices):
            return f"{name} by a mask"
        if any(each.dim() for each in undisguised):
            return f"{name} by numbers of the host"
    return ""


class Recording:
    """What a CUDA graph promises: operations that were recorded are sent again, in their order, on the same memory.

    What Python does beside operations is not repeated, and numbers that it passed are those of the recording. While it
    is made nothing changes, and an operation for which the host waits raises, as one does that draws from a generator
    which was not registered. Those that were registered give new numbers each time.
    """

    def __init__(self) -> None:
        self._sent: list[tuple[Any, Any, Any, Any]] = []
        self._generators: list[torch.Generator] = []
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}  # memory that was there
        self._made: set[int] = set()  # memory of results

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Let recorded operations draw from a generator."""
        self._generators.append(generator)

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record what is sent within; it leaves all memory and all generators as they were."""
        states = [generator.get_state() for generator in self._generators]
        _device.recording = self
        try:
            yield
        finally:
            _device.recording = None
            for storage, before in self._before.values():
                storage.copy_(before)
            for generator, state in zip(self._generators, states, strict=True):
                generator.set_state(state)

    def keep(self, args: Any, kwargs: Any) -> None:
        """Keep what an operation may change."""
        registered = {generator._cdata for generator in self._generators}  # torch hands over others, of the same state
        for each in leaves_of((args, kwargs)):
            if isinstance(each, torch._C.Generator) and each._cdata not in registered:
                raise WaitError("a generator that is not registered gives the same numbers each time")
            if isinstance(each, Tensor):
                storage = each.untyped_storage()
                if storage.data_ptr() not in self._before.keys() | self._made:
                    self._before[storage.data_ptr()] = storage, storage.clone()

    def take(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Take an operation with the memory of its result; both stay as long as the recording."""
        self._sent.append((function, args, kwargs, out))
        made = {each.untyped_storage().data_ptr() for each in leaves_of(out) if isinstance(each, Tensor)}
        self._made |= made - self._before.keys()

    def replay(self) -> None:
        """Send all operations again: for the host, that is one."""
        _device.operations["replay"] += 1
        for function, args, kwargs, kept in self._sent:
            fresh = function(*args, **kwargs)
            for old, new in zip(leaves_of(kept), leaves_of(fresh), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class _Module(registration._DummyBackendModule):
    """What stands at ``torch.pretended``."""

    CUDAGraph = Recording

    @staticmethod
    def graph(recording: Recording, *, capture_error_mode: str) -> Any:
        """Return a context whose operations are recorded."""
        return recording.record()

    def is_available(self) -> bool:
        return _device.there

    def device_count(self) -> int:
        return int(_device.there)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_device_name(self, device: Any = None) -> str:
        return "a CPU in disguise"


class _Hook(registration._DummyPrivateUse1Hook):
    def is_available(self) -> bool:
        return _device.there


_libraries: list[torch.library.Library] = []


def _register() -> None:
    """Make the device known to torch, once a process; it is not available outside `pretended_device`."""
    if _libraries:
        return
    registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module(), hook=_Hook())
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(_send, dispatch_key="PrivateUse1")
    fallback.fallback(torch.library.fallthrough_kernel, dispatch_key="AutocastPrivateUse1")
    own = torch.library.Library("aten", "IMPL")
    for name in _HALVED:
        own.impl(name, _halved(getattr(torch.ops.aten, name).default), "AutocastPrivateUse1")
    for name, overload in _RESIZED:
        function = getattr(getattr(torch.ops.aten, name), overload)
        own.impl(f"{name}.{overload}".removesuffix(".default"), partial(_send, function), "PrivateUse1")
    _libraries.extend((fallback, own))


def _halved(function: Any) -> Callable[..., Any]:
    """Return an operation that casts float32 to the type of autocast first."""
    off = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]

    def cast(value: Any) -> Any:
        is_wide = isinstance(value, DisguisedTensor) and value.dtype == torch.float32
        return value.to(torch.get_autocast_dtype(NAME)) if is_wide else value

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(off):  # type: ignore[attr-defined]
            return function(*mapped(cast, args), **kwargs)

    return call


class PretendedDevice:
    """The device, while it is there.

    Attributes:
        device: As torch names it.
    """

    def __init__(self) -> None:
        self.device = torch.device(NAME, 0)

    @contextmanager
    def counting(self) -> Iterator[tuple[Counter[str], Counter[str]]]:
        """Count operations and waits, by name, from here on; nothing that was before."""
        _device.operations, _device.waits = Counter(), Counter()
        yield _device.operations, _device.waits


@contextmanager
def pretended_device() -> Iterator[PretendedDevice]:
    """Let torch have the device within: it is available, generators may live there, memory can be pinned for it."""
    _register()
    plain, make = torch.Generator, torch.tensor

    class Generator(plain):  # type: ignore[valid-type,misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return plain.__new__(DeviceGenerator if torch.device(device).type == NAME else plain, "cpu")

    def tensor_from_host(values: Any, *, device: Any = "cpu", **options: Any) -> Tensor:
        return make(values, **options).to(device)  # what torch does, but for devices of Python, where it dies

    def pinned(tensor: Tensor, *_: Any) -> Tensor:
        copy = tensor.clone()
        copy.pinned = True  # type: ignore[attr-defined]
        return copy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "Generator", Generator)
        patch.setattr(torch, "tensor", tensor_from_host)
        patch.setattr(torch.Tensor, "pin_memory", pinned)
        patch.setattr(_device, "there", True)
        yield PretendedDevice()
