"""Encoders by name: sizes, and one sentence for each wrong word."""

import pytest
import torch

from energy_contrast.networks import build_encoder
from energy_contrast.networks.drawn import mean_of_quarters


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


@pytest.mark.parametrize("name", ["small", "resnet18", "resnet50", "wrn28", "pyramidnet-8-5"])
@pytest.mark.parametrize("stem", ["cifar", "strided"])
def test_quarters_give_four_times_the_features_and_the_same_weights(name: str, stem: str) -> None:
    mean, quarters = (
        build_encoder(name, in_channels=1, width=4, stem=stem, pooling=pooling).eval()
        for pooling in ("mean", "quarters")
    )
    assert quarters.embedding_size == 4 * mean.embedding_size
    quarters.load_state_dict(mean.state_dict())
    with torch.no_grad():
        images = torch.rand(2, 1, 32, 32)
        whole, parts = mean(images), quarters(images)
    # 32 pixels leave maps of an even side: the average over all pixels is that of the quarters' averages
    torch.testing.assert_close(parts.view(2, -1, 4).mean(dim=2), whole)


@pytest.mark.parametrize(
    ("name", "stem", "size", "last"),
    [
        ("small", "cifar", 8, 2),
        ("small", "cifar", 28, 7),
        ("resnet18", "cifar", 8, 1),
        ("resnet18", "cifar", 28, 4),
        ("resnet18", "cifar", 32, 4),
        ("resnet18", "strided", 28, 2),
        ("resnet18", "imagenet", 32, 1),
        ("resnet18", "imagenet", 224, 7),
        ("wrn28", "cifar", 32, 8),
        ("wrn28", "cifar", 8, 2),
        ("wrn28", "imagenet", 64, 4),
        ("pyramidnet-14-7", "cifar", 32, 8),
        ("pyramidnet-14-7", "cifar", 28, 7),
        ("pyramidnet-14-7", "cifar", 9, 3),
        ("pyramidnet-14-7", "imagenet", 64, 4),
    ],
)
def test_stems_set_the_resolution_of_the_last_stage(name, stem, size, last):
    network = build_encoder(name, in_channels=3, width=4, stem=stem).eval()
    stage, shapes = "layer4" if name == "resnet18" else "layer3", []
    network.get_submodule(stage).register_forward_hook(lambda m, i, output: shapes.append(output.shape))
    with torch.no_grad():
        embedding = network(torch.zeros(1, 3, size, size))
    assert shapes == [(1, network.embedding_size, last, last)]
    assert embedding.shape == (1, network.embedding_size)


@pytest.mark.parametrize(
    ("name", "convolutions", "initialisation"),
    [
        ("resnet18", 20, "kaiming"),
        ("resnet50", 53, "kaiming"),
        ("wrn28", 28, "torch"),
        ("pyramidnet-14-7", 13, "torch"),
    ],
)
def test_without_norm_no_image_sees_another_and_every_convolution_has_a_bias(name, convolutions, initialisation):
    settings = {"batch_norm": "none", "activation": "leaky_relu", "initialisation": initialisation}
    network = build_encoder(name, in_channels=3, width=4, **settings).double()
    images = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(network(images)[:1], network(images[:1]))
    biases = [module.bias for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(biases) == convolutions
    assert all(bias is not None and (initialisation == "torch" or not bias.any()) for bias in biases)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in network.modules())
    assert list(network.buffers()) == []


@pytest.mark.parametrize("size", [(2, 2), (2, 3), (4, 4), (7, 5)])
def test_quarters_are_the_cells_of_torchs_adaptive_average_over_two_by_two(size: tuple[int, int]) -> None:
    maps = torch.rand(3, 5, *size, dtype=torch.float64)
    expected = torch.nn.functional.adaptive_avg_pool2d(maps, 2).flatten(1)
    torch.testing.assert_close(mean_of_quarters(maps), expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (4, 1)])
def test_a_single_pixel_has_no_quarters(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"encoder.pooling: .*, got {size[0]}x{size[1]}; use mean"):
        mean_of_quarters(torch.zeros(1, 1, *size))


@pytest.mark.parametrize("name", ["small", "resnet18", "wrn28", "pyramidnet-8-5"])
def test_the_strided_stem_is_the_cifar_stem_at_every_second_pixel(name: str) -> None:
    cifar, strided = (build_encoder(name, in_channels=2, width=4, stem=stem).eval() for stem in ("cifar", "strided"))
    strided.load_state_dict(cifar.state_dict())
    with torch.no_grad():
        images = torch.rand(2, 2, 12, 12)
        torch.testing.assert_close(strided.conv1(images), cifar.conv1(images)[:, :, ::2, ::2])


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
        ({"name": "small", "stem": "imagenet"}, "encoder.stem: .*, got 'imagenet'; use 'cifar' or 'strided'"),
        ({"stem": "stride"}, r"encoder.stem: .*, got 'stride'; did you mean strided\?"),
        ({"pooling": "quarter"}, r"encoder.pooling: .*, got 'quarter'; did you mean quarters\?"),
        ({"batch_norm": "local"}, r"encoder.batch_norm: .*, got 'local'; did you mean global\?"),
        ({"activation": "gelu"}, "encoder.activation: .*, got 'gelu'; did you mean relu"),
        ({"width": -1}, "encoder.width: .*, got -1; 0 means 64"),
        ({"in_channels": 0}, "in_channels: .*, got 0; use 1 or more"),
    ],
)
def test_a_wrong_word_or_number_is_named_with_the_right_ones(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_encoder(**{"name": "resnet18", "in_channels": 3} | arguments)


def test_the_small_encoders_parameters_number_as_drawn() -> None:
    stem = 9 * 1 * 16 + 2 * 16
    stages = [2 * 9 * 16 * 16 + 4 * 16]
    for w in (16, 32):
        stages.append(9 * w * 2 * w + 9 * (2 * w) ** 2 + w * 2 * w + 6 * 2 * w)
    assert sum(p.numel() for p in build_encoder("small", in_channels=1).parameters()) == stem + sum(stages)


def test_memory_format_does_not_change_the_embedding() -> None:
    network = build_encoder("small", in_channels=3, width=8)
    images = torch.randn(4, 3, 16, 16)
    expected = network(images)
    network = network.to(memory_format=torch.channels_last)
    actual = network(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
