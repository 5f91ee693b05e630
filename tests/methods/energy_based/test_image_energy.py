"""Energies of single images against their equations as loops, and what all methods that have them promise."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from energy_contrast.catalog import METHODS
from energy_contrast.method import Method
from energy_contrast.sampling_method import ImageEnergy

from ..conftest import built

NAMES = [name for name, kind in METHODS.items() if issubclass(kind, ImageEnergy)]
SMALL = {"ebclr": {"buffer_size": 8, "projection_size": 4}, "jem": {"buffer_size": 8}}


def build(name: str, **settings: object) -> Method:
    small = SMALL.get(name, {"bank_size": 8, "projection_size": 4})
    method = built(METHODS[name], None, *((3,) if METHODS[name].needs_labels else ()), **{**small, **settings})
    for module in method.modules():  # statistics and scales that are not those of the start
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return method.eval()


def images(count: int, seed: int = 1) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(network: nn.Module, image: Tensor) -> list[float]:
    vector = network(image[None])[0].tolist()
    length = math.sqrt(sum(each**2 for each in vector))
    return [each / length for each in vector]


def test_energy_of_ebclr() -> None:
    method, few, references = build("ebclr", temperature=0.3), images(3), images(5, seed=2)
    network = nn.Sequential(method.encoder, method.head)
    expected = []
    for image in few:
        z, total = unit(network, image), 0.0
        for reference in references:
            total += math.exp(-sum((a - b) ** 2 for a, b in zip(z, unit(network, reference), strict=True)) / 0.3)
        expected.append(-math.log(total))
    found = method.image_energy(few, method.encode_references(references))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_energy_of_jem() -> None:
    method, few = build("jem"), images(3)
    expected = [-math.log(sum(math.exp(logit) for logit in method.classify(image[None])[0].tolist())) for image in few]
    found = method.image_energy(few, method.encode_references(images(5, seed=2)))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", NAMES)
def test_energies_are_float32_under_the_callers_autocast_and_compare_in_it(name: str) -> None:
    method, few, references = build(name).float(), images(3).float(), images(5, seed=2).float()
    with torch.autocast("cpu", torch.bfloat16):
        encoded = method.encode_references(references)
        found = method.image_energy(few, encoded)
        embedding = method.encoder(few)
    assert found.dtype == torch.float32
    if name.startswith("vem"):
        with torch.autocast("cpu", torch.bfloat16):
            encoder, head = method.key_networks()
            key = torch.nn.functional.normalize(head(encoder(few)).float(), dim=1)
        cosine = key @ encoded.float().T
        expected = -torch.logsumexp(cosine / method.config.bank_temperature, dim=1)
    elif name == "ebclr":
        with torch.autocast("cpu", torch.bfloat16):
            z = torch.nn.functional.normalize(method.head(embedding).float(), dim=1)
        squared = torch.cdist(z.double(), torch.nn.functional.normalize(encoded.double(), dim=1)).square()
        expected = -torch.logsumexp(-squared / method.config.temperature, dim=1).float()
    else:
        with torch.autocast("cpu", torch.bfloat16):
            expected = -torch.logsumexp(method.classifier(embedding).float(), dim=1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["ebclr", "jem"])
def test_the_energy_that_moves_chains_is_that_of_the_method_in_copies_too(name: str) -> None:
    method = build(name)
    copied = copy.deepcopy(method)
    with torch.no_grad():
        for weight in [*copied.parameters()]:
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)).to(weight))
    few, encoded = images(3), copied.encode_references(images(5, seed=2))
    moving = copied._energy(few, copied._energy.context(encoded)(0, few))
    torch.testing.assert_close(moving.double(), copied.image_energy(few, encoded), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("vem")])
@pytest.mark.parametrize("keys", ["momentum", "shared"])
def test_energy_of_vem(name: str, keys: str) -> None:
    method = build(name, bank_temperature=0.2, key_encoder=keys)
    if keys == "momentum":  # a slow copy that is somewhere else
        with torch.no_grad():
            for weight in method.key_head.parameters():
                weight.add_(0.1)
    queries = nn.Sequential(method.encoder, method.head)
    key_network = nn.Sequential(method.key_encoder, method.key_head) if keys == "momentum" else queries
    few, references, expected = images(3), images(5, seed=2), []
    for image in few:
        u, total = unit(key_network, image), 0.0
        for reference in references:
            total += math.exp(sum(a * b for a, b in zip(u, unit(queries, reference), strict=True)) / 0.2)
        expected.append(-math.log(total))
    found = method.image_energy(few, method.encode_references(references))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ebclr", {"temperature": 0.3}),
        ("vem-langevin", {"temperature": 0.3, "key_encoder": "momentum"}),
        ("vem-svgd", {"temperature": 0.3, "key_encoder": "shared"}),
        ("vem-image", {"temperature": 0.3}),
    ],
)
def test_energy_of_every_pair_of_a_first_and_a_second_view(name: str, settings: dict[str, object]) -> None:
    method, first, second = build(name, **settings), images(3), images(4, seed=2)
    network = queries = nn.Sequential(method.encoder, method.head)
    if hasattr(method, "key_head"):
        with torch.no_grad():
            for weight in method.key_head.parameters():  # a slow copy that is somewhere else
                weight.add_(0.1)
        network = nn.Sequential(method.key_encoder, method.key_head)
    expected = torch.empty(3, 4, dtype=torch.float64)
    for n, view in enumerate(first):
        for m, other in enumerate(second):
            pairs = [*zip(unit(queries, view), unit(network, other), strict=True)]
            distance, cosine = sum((a - b) ** 2 for a, b in pairs), sum(a * b for a, b in pairs)
            expected[n, m] = distance / 0.3 if name == "ebclr" else -cosine / 0.3
    found = method.pair_energy(method.encode_references(first), method.encode_second(second))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_an_energy_is_of_one_image_and_can_be_differentiated(name: str) -> None:
    method, few = build(name), images(4)
    references = method.encode_references(images(6, seed=2)).detach()
    alone = torch.cat([method.image_energy(image[None], references) for image in few])
    torch.testing.assert_close(method.image_energy(few, references), alone)
    assert alone.shape == (4,)
    assert torch.autograd.gradcheck(lambda x: method.image_energy(x, references), few[:1].requires_grad_())


def test_an_image_among_few_references_is_likelier_than_others() -> None:
    """Against itself alone, an image's energy is 0 in EBCLR, and -1 / tau_bank in VEM with one network: the least."""
    for name, least in (("ebclr", 0.0), ("vem-image", -1 / 0.2)):
        method = build(name, **({} if name == "ebclr" else {"bank_temperature": 0.2, "key_encoder": "shared"}))
        few = images(5)
        energies = method.image_energy(few, method.encode_references(few[:1])).detach()
        assert float(energies[0]) == pytest.approx(least, abs=1e-9)
        assert bool((energies[1:] > least).all())
