"""Features: frozen means frozen, and rows stay in order; long work tells how far it is, and not too often."""

import pytest
import torch
from torch import Tensor, nn

from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError, TrainingError
from ebclab.evaluation.features import compute_features, require_labels
from ebclab.evaluation.progress import ProgressRates, in_lines

PLAIN = Preprocessing(8, (0.0,), (1.0,))


def grey_images(count: int) -> Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def conv_net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten())
    net[1].running_mean.uniform_(-1, 1)
    net[1].running_var.uniform_(0.5, 2)
    return net


@pytest.mark.parametrize("norm_trains", [True, False])
def test_a_network_in_training_keeps_its_bits_and_the_mode_of_each_part(norm_trains: bool) -> None:
    net = conv_net().train()
    net[1].train(norm_trains)  # or a frozen norm inside a network in training
    before = {name: value.clone() for name, value in net.state_dict().items()}
    compute_features(net, grey_images(50), PLAIN, batch_size=16, device="cpu")
    colour = Preprocessing(8, (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(RuntimeError):  # modes return even when the encoder fails
        compute_features(net, grey_images(4).expand(4, 3, 8, 8), colour, batch_size=2, device="cpu")
    assert before.keys() == net.state_dict().keys()
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert [part.training for part in net] == [True, norm_trains, True, True, True]
    assert net.training


def test_batch_norm_uses_running_statistics_and_dropout_does_nothing() -> None:
    net = conv_net().train()
    images = grey_images(9)
    features = compute_features(net, images, PLAIN, batch_size=4, device="cpu")
    conv, norm = net[0], net[1]
    maps = nn.functional.conv2d(images.double() / 255, conv.weight.double(), conv.bias.double())
    shape = (1, 4, 1, 1)
    scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    expected = (maps - norm.running_mean.double().view(shape)) * scale.view(shape) + norm.bias.double().view(shape)
    torch.testing.assert_close(features.double(), expected.relu().flatten(1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 7, 20, 21, 1000])
def test_rows_are_the_images_in_order_for_any_batch_size(batch_size: int) -> None:
    images = grey_images(21)
    normalised = Preprocessing(8, (0.25,), (0.5,))
    features = compute_features(nn.Flatten(), images, normalised, batch_size=batch_size, device="cpu")
    assert torch.equal(features, ((images.float() / 255 - 0.25) / 0.5).flatten(1))


def test_features_are_float32_without_gradient_and_usable_in_training() -> None:
    net = conv_net().double()
    features = compute_features(lambda x: net.eval()(x.double()), grey_images(3), PLAIN, batch_size=2, device="cpu")
    assert features.dtype == torch.float32
    assert not features.requires_grad
    probe = nn.Linear(features.shape[1], 2)
    probe(features).sum().backward()
    assert probe.weight.grad is not None


def test_a_bound_method_stands_for_its_module() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = conv_net()

        def embed(self, images: Tensor) -> Tensor:
            return self.encoder(images)

    wrapper = Wrapper().train()
    frozen = compute_features(wrapper.encoder, grey_images(6), PLAIN, batch_size=3, device="cpu")
    assert torch.equal(compute_features(wrapper.embed, grey_images(6), PLAIN, batch_size=3, device="cpu"), frozen)
    assert wrapper.encoder.training


def test_progress_counts_images() -> None:
    seen: list[tuple[int, int, str]] = []
    told = {"on_progress": lambda *step: seen.append(step), "what": "features of test images"}
    compute_features(nn.Flatten(), grey_images(5), PLAIN, batch_size=2, device="cpu", **told)
    assert seen == [(done, 5, "features of test images") for done in (2, 4, 5)]


def broken(images: Tensor) -> Tensor:
    out = images.flatten(1).clone()
    out[1, 0], out[2, 3] = float("nan"), float("inf")
    return out


@pytest.mark.parametrize(
    ("encoder", "count", "channels", "error", "sentence"),
    [
        (broken, 4, 1, TrainingError, "got NaN or infinity for 2 of 4 images"),
        (nn.Flatten(), 2, 3, DataError, r"expects 3 channel\(s\), got 1"),  # one would broadcast to three
        (nn.Flatten(), 0, 1, DataError, "at least one"),
    ],
)
def test_what_gives_no_features_is_one_sentence(encoder, count, channels, error, sentence):
    preprocessing = Preprocessing(8, (0.0,) * channels, (1.0,) * channels)
    with pytest.raises(error, match=sentence):
        compute_features(encoder, grey_images(count), preprocessing, batch_size=4, device="cpu")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([0, -1, 2, -1], "folder: .* got 2 of 4 without"),
        ([0, 1_000_000_000_002], "folder: labels must be numbers of classes, below 1,048,576, .* 1000000000002"),
    ],
)
def test_labels_that_no_probe_can_use_are_one_sentence(labels: list[int], sentence: str) -> None:
    count = len(labels)
    images = ImageSet("folder", grey_images(count), torch.tensor(labels), torch.arange(count), (), (0.0,), (1.0,))
    with pytest.raises(DataError, match=sentence):
        require_labels(images)
    require_labels(images.rows((images.labels >= 0) & (images.labels < 10)))


def test_a_line_comes_every_ten_seconds_whatever_the_work() -> None:
    times, written = iter([0.0, 4.0, 9.9, 10.0, 19.9, 20.1]), list[str]()
    on_progress = in_lines(written.append, lambda: next(times))
    for done, what in ((1, "features"), (2, "features"), (1_200, "features"), (1, "knn"), (5_000, "linear")):
        on_progress(done, 10_000, what)
    # 1,199 images in 6 s, 8,800 to go: 44.04 s; of linear nothing but its beginning has been seen
    assert written == ["features: 1,200 of 10,000, 200/s, 0:44 left", "linear: 5,000 of 10,000"]


def test_work_that_begins_again_or_in_the_middle_has_a_rate_of_its_own() -> None:
    rates = ProgressRates()
    seen = [rates.seen(done, "features", now) for done, now in ((0, 0.0), (20, 10.0), (0, 100.0), (5, 101.0))]
    assert seen == [0.0, 2.0, 0.0, 5.0]
    continued = [rates.seen(done, "images", now) for done, now in ((1000, 0.0), (1300, 30.0))]
    assert continued == [0.0, 10.0]
