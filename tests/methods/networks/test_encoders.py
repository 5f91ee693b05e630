"""Encoders by name: sizes, and one sentence for each wrong word."""

import pytest
import torch

from energy_contrast.networks import build_encoder


@pytest.mark.parametrize(
    ("name", "width", "embedding_size"),
    [
        ("small", 0, 64),
        ("small", 8, 32),
        ("resnet18", 0, 512),
        ("resnet18", 8, 64),
        ("resnet50", 2, 64),
        ("wrn28", 4, 16),
        ("pyramidnet-8-5", 0, 21),
        ("pyramidnet-20-7", 4, 11),
    ],
)
def test_embedding_size_is_what_the_network_returns(name: str, width: int, embedding_size: int) -> None:
    encoder = build_encoder(name, in_channels=1, width=width).eval()
    assert encoder.embedding_size == embedding_size
    with torch.no_grad():
        assert encoder(torch.zeros(2, 1, 8, 8)).shape == (2, embedding_size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "resnet81"}, r"encoder.name: .*, got 'resnet81'; did you mean resnet18\?"),
        ({"name": "vgg"}, "encoder.name: .*, got 'vgg'; use one of small, resnet18, resnet50, wrn28, pyramidnet"),
        (
            {"name": "pyramidnet-109-84"},
            "encoder.name: a PyramidNet has 6 n . 2 layers, got 109; use pyramidnet-110-84",
        ),
        ({"name": "pyramidnet-20-12", "width": -1}, "encoder.width: .*, got -1; 0 means 16"),
        ({"stem": "cifra"}, r"encoder.stem: .*, got 'cifra'; did you mean cifar\?"),
        ({"name": "small", "stem": "imagenet"}, "encoder.stem: .*, got 'imagenet'; use 'cifar'"),
        ({"batch_norm": "local"}, r"encoder.batch_norm: .*, got 'local'; did you mean global\?"),
        ({"activation": "gelu"}, "encoder.activation: .*, got 'gelu'; did you mean relu"),
        ({"width": -1}, "encoder.width: .*, got -1; 0 means 64"),
        ({"in_channels": 0}, "in_channels: .*, got 0; use 1 or more"),
    ],
)
def test_a_wrong_word_or_number_is_named_with_the_right_ones(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_encoder(**{"name": "resnet18", "in_channels": 3} | arguments)
