"""The settings of a run: one frozen dataclass for each section, every field with its meaning, unit and range.

Also the named view settings: the papers' own, and ours for the small datasets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from ebclab.config.addresses import FOLDER, LOCATIONS, shortened
from energy_contrast.settings import setting

CHOOSE_IMAGES = ("name", "train_limit", "holdout_rate", "confirm_rate")
"""Settings of ``data`` that say which images are held out; runs in which one differs are scored on other images."""

LARGEST_SIDE = 11_585
"""Pixels; its square is within the number of pixels that are decoded."""


@dataclass(frozen=True)
class DataConfig:
    """Which images, how they are read, and how they reach the training loop."""

    name: str = setting(
        "digits",
        "Dataset name (`ebclab data list` prints them), such as imagenet100:PATH, or folder:PATH for an image folder, "
        "parquet:PATH, webdataset:PATH, arrow:PATH; all but arrow: also take s3://bucket/folder or gs://bucket/folder.",
    )
    root: str | None = setting(None, "Folder that holds datasets; none means $EBCLAB_DATA, then ~/.cache/ebclab.")
    holdout_rate: float = setting(
        0.1, "Share of the training set held out for selection, chosen by hash.", minimum=0.0, below=1.0
    )
    confirm_rate: float = setting(
        0.0,
        "Share of the training set, chosen by another hash before anything else, that no run trains on and only "
        "confirming runs of a sweep are scored on; 0: they are scored on the held-out images.",
        minimum=0.0,
        below=1.0,
    )
    train_limit: int = setting(
        0, "Use only this many training images, chosen by hash; 0 means all.", unit="images", minimum=0
    )
    resize: int = setting(
        0,
        "Scale and crop encoded images to squares of this side when they are read; 0 needs images of one size.",
        unit="pixels",
        minimum=0,
        maximum=LARGEST_SIDE,
    )
    decoding: Literal["full", "reduced"] = setting(
        "full",
        "full decodes all pixels of a file; reduced decodes JPEG files at the least half, quarter or eighth that "
        "covers data.resize, which is faster for large photographs and changes pixels slightly.",
    )
    colour: Literal["rgb", "grey"] = setting("rgb", "Channels that encoded images are read with: three or one.")
    skip_corrupt: bool = setting(False, "Leave out images that cannot be decoded; false stops at the first.")
    image_column: str = setting("image", "Column of a Parquet set that holds the images.")
    label_column: str = setting("label", "Column of a Parquet set that holds the labels, if there is one.")
    labels: str = setting(
        "",
        "Table of labels in folder:PATH, such as labels.csv, with columns data.image_column (file_name if not set) and "
        "data.label_column. metadata.csv and metadata.jsonl are read without it.",
    )
    delivery: Literal["auto", "resident", "stream"] = setting(
        "auto",
        "resident: all images stay in the memory of the device; stream: Ray Data reads them again every epoch; "
        "auto: resident when they fit.",
    )
    views_on: Literal["worker", "pipeline"] = setting(
        "worker", "Where views of streamed images are made: on the worker's device, or in Ray Data's tasks."
    )
    digest: str = setting(
        "", "SHA-256 of the images, or of a stream's index, written down when the run begins; empty: not known yet."
    )

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        problems = []
        if self.name.startswith(LOCATIONS) and self.root is not None:
            problems.append(
                f"root: data.name says already where the images are, got {shortened(self.root)}; leave it out"
            )
        if self.resize and not self.name.startswith(LOCATIONS):
            problems.append(
                f"resize: {shortened(self.name)} is not resized on reading, got {self.resize}; leave it out, and set "
                "views.image_size to train on another size"
            )
        if self.labels and not (self.name.startswith(FOLDER) and {"", ".", ".."}.isdisjoint(self.labels.split("/"))):
            problems.append(
                f"labels: must be the path of a file in folder:PATH, got {shortened(self.labels)} of "
                f"{shortened(self.name)}; write it from there, or leave it out"
            )
        if self.decoding == "reduced" and not self.resize:
            problems.append(
                "decoding: reduced needs a size that images are scaled to, got data.resize 0; set it, or leave out "
                "decoding"
            )
        return problems


def _differ(rates: tuple[float, float]) -> bool:
    """Return whether what first and second views get with these chances may apply to one view and not the other."""
    return rates[0] != rates[1] or 0 < rates[0] < 1


@dataclass(frozen=True)
class ViewsConfig:
    """How two views of an image are drawn, each with its own random numbers; with more, every other is a second."""

    recipe: str = setting(
        "auto", "Named view settings that the other fields of this section override; auto: the dataset's usual ones."
    )
    image_size: int = setting(0, "Side of the square views; 0 means the dataset's own size.", unit="pixels", minimum=0)
    crop_scale_min: float = setting(1.0, "Smallest share of the image's area in a crop.", above=0.0, maximum=1.0)
    crop_scale_max: float = setting(1.0, "Largest share of the image's area in a crop.", above=0.0, maximum=1.0)
    crop_ratio_min: float = setting(0.75, "Smallest width/height of a crop.", above=0.0)
    crop_ratio_max: float = setting(4 / 3, "Largest width/height of a crop.", above=0.0)
    flip_rate: float = setting(0.0, "Chance of a horizontal flip.", minimum=0.0, maximum=1.0)
    jitter_rate: float = setting(0.0, "Chance that colour jitter is applied.", minimum=0.0, maximum=1.0)
    brightness: float = setting(0.0, "Brightness factor is drawn from 1 -/+ this.", minimum=0.0)
    contrast: float = setting(0.0, "Contrast factor is drawn from 1 -/+ this.", minimum=0.0)
    saturation: float = setting(0.0, "Saturation factor is drawn from 1 -/+ this.", minimum=0.0)
    hue: float = setting(0.0, "Hue shift is drawn from -/+ this, in turns.", unit="turns", minimum=0.0, maximum=0.5)
    grayscale_rate: float = setting(0.0, "Chance that colour is dropped.", minimum=0.0, maximum=1.0)
    blur_rate: float = setting(0.0, "Chance of a Gaussian blur.", minimum=0.0, maximum=1.0)
    second_blur_rate: float | None = setting(
        None, "Chance of a Gaussian blur of second views; none means blur_rate.", minimum=0.0, maximum=1.0
    )
    blur_kernel_size: int = setting(3, "Width of the blur kernel, odd.", unit="pixels", minimum=1)
    blur_sigma_min: float = setting(0.1, "Smallest blur standard deviation.", unit="pixels", above=0.0)
    blur_sigma_max: float = setting(2.0, "Largest blur standard deviation.", unit="pixels", above=0.0)
    solarise_rate: float = setting(0.0, "Chance that pixels from 128 of 255 on are inverted.", minimum=0.0, maximum=1.0)
    second_solarise_rate: float | None = setting(
        None,
        "Chance that pixels of second views from 128 of 255 on are inverted; none means solarise_rate.",
        minimum=0.0,
        maximum=1.0,
    )
    second_plain: bool = setting(
        False, "Second views are the unchanged images, except for noise, for methods that treat the views differently."
    )
    noise_std: float = setting(
        0.0,
        "Standard deviation of Gaussian noise added to every pixel, not clipped.",
        unit="image range [0, 1]",
        minimum=0.0,
    )
    normalisation: Literal["dataset", "half", "none"] = setting(
        "dataset",
        "dataset: subtract the dataset's channel means and divide by their standard deviations; "
        "half: map [0, 1] to [-1, 1]; none: leave [0, 1].",
    )
    shared_by: Literal["image", "batch", "chunk"] = setting(
        "image",
        "Images that share the random numbers of a view, except its noise. image: none; batch: a global batch; "
        "chunk: neighbours in the training set, as many as a batch has images.",
    )

    @property
    def blur_rates(self) -> tuple[float, float]:
        """Chances of a blur of first and of second views."""
        return self.blur_rate, self.blur_rate if self.second_blur_rate is None else self.second_blur_rate

    @property
    def solarise_rates(self) -> tuple[float, float]:
        """Chances that first and second views are solarised."""
        return (
            self.solarise_rate,
            self.solarise_rate if self.second_solarise_rate is None else self.second_solarise_rate,
        )

    def are_equal(self, channels: int) -> bool:
        """Return whether all views of an image are the same: nothing that is drawn changes a pixel.

        Args:
            channels: Channels of the images; one alone has no colour to change.
        """
        amounts = [self.brightness, self.contrast]
        if channels > 1:
            amounts += [self.saturation, self.hue]
        if self.second_plain:
            rates = [self.flip_rate, self.solarise_rate, self.noise_std, 1 - self.crop_scale_min]
            rates += [self.blur_rate] if self.blur_kernel_size > 1 else []
            rates += [self.grayscale_rate] if channels > 1 else []
            return not (any(rates) or (self.jitter_rate and any(amounts)))
        sigma_varies = self.blur_sigma_min < self.blur_sigma_max
        blurs = self.blur_kernel_size > 1 and (_differ(self.blur_rates) or (any(self.blur_rates) and sigma_varies))
        return not (
            self.crop_scale_min < 1
            or 0 < self.flip_rate < 1
            or (self.jitter_rate > 0 and any(amount > 0 for amount in amounts))
            or (channels > 1 and 0 < self.grayscale_rate < 1)
            or blurs
            or _differ(self.solarise_rates)
            or self.noise_std > 0
        )

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        pairs = [
            ("crop_scale_min", "crop_scale_max"),
            ("crop_ratio_min", "crop_ratio_max"),
            ("blur_sigma_min", "blur_sigma_max"),
        ]
        problems = [
            f"{low}: must not exceed {high}, got {getattr(self, low)} > {getattr(self, high)}"
            for low, high in pairs
            if getattr(self, low) > getattr(self, high)
        ]
        if self.blur_kernel_size % 2 == 0:
            problems.append(f"blur_kernel_size: must be odd, got {self.blur_kernel_size}")
        if any(self.blur_rates) and 0 < 2 * self.image_size <= self.blur_kernel_size:
            problems.append(
                "blur_kernel_size: must be below twice image_size, "
                f"got {self.blur_kernel_size} for {self.image_size} pixels; shrink it, or set blur_rate to 0"
            )
        return problems


@dataclass(frozen=True)
class OptimizerConfig:
    """How weights move."""

    name: Literal["sgd", "adam", "adamw", "lars"] = setting("sgd", "Optimizer.")
    learning_rate: float = setting(0.06, "Peak learning rate at the batch size used (see scaling).", above=0.0)
    scaling: Literal["none", "linear", "sqrt"] = setting(
        "none", "Multiply learning_rate by batch_size/256 (linear) or its square root (sqrt)."
    )
    momentum: float = setting(0.9, "Momentum of sgd and lars.", minimum=0.0, below=1.0)
    beta1: float = setting(0.9, "First decay rate of adam and adamw.", minimum=0.0, below=1.0)
    beta2: float = setting(0.999, "Second decay rate of adam and adamw.", minimum=0.0, below=1.0)
    weight_decay: float = setting(5e-4, "Weight decay (decoupled in adamw).", minimum=0.0)
    weight_decay_end: float | None = setting(
        None, "Weight decay that a cosine over the run leads to; none: it stays.", minimum=0.0
    )
    decay_norm_and_bias: bool = setting(False, "Apply weight decay (and lars adaptation) to norms and biases too.")
    clip_norm: float = setting(0.0, "Largest norm of a step's gradient over all weights; 0: any.", minimum=0.0)
    schedule: Literal["cosine", "linear", "step", "constant"] = setting("cosine", "Learning rate after the warm-up.")
    warmup_epochs: float = setting(0.0, "Linear warm-up from 0.", unit="epochs", minimum=0.0)
    final_rate: float = setting(
        0.0, "Last learning rate of cosine and linear, as a share of the peak.", minimum=0.0, maximum=1.0
    )
    milestones: tuple[float, ...] = setting(
        (0.6, 0.8), "Shares of the run at which step multiplies the learning rate by step_factor.", above=0.0, below=1.0
    )
    step_factor: float = setting(0.1, "Factor of the learning rate at each milestone.", above=0.0, maximum=1.0)

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        if any(first >= second for first, second in pairwise(self.milestones)):
            return [f"milestones: must rise, got {list(self.milestones)}; write {sorted(set(self.milestones))}"]
        return []


@dataclass(frozen=True)
class TrainingConfig:
    """How long, how much at once, and how numbers are held."""

    epochs: int = setting(10, "Passes over the training images.", unit="epochs", minimum=1)
    batch_size: int = setting(256, "Global batch size; an incomplete last batch is dropped.", unit="images", minimum=2)
    accumulate: int = setting(
        1,
        "Chunks in which the encoder passes a batch, twice, to keep the activations of one chunk: the gradient is that "
        "of the whole batch, except that batch norm in the encoder sees one chunk at a time. Not for chains of images.",
        unit="chunks",
        minimum=1,
    )
    precision: Literal["float32", "bfloat16", "float16"] = setting(
        "float32",
        "bfloat16 and float16 run the forward pass under autocast; float16 also scales the loss, and skips steps whose "
        "gradients overflow.",
    )
    average_weights: float = setting(
        0.0,
        "Decay a step of an exponential moving average of the trained weights, which is scored, evaluated and exported "
        "in their place; 0: the last weights are.",
        minimum=0.0,
        below=1.0,
    )
    channels_last: bool = setting(True, "Keep images and convolutions in NHWC memory order.")
    compile: bool | Literal["default", "graph"] = setting(
        False,
        "default, or true: networks and samplers' steps by torch.compile, which takes a minute; graph: whole steps as "
        "one CUDA graph.",
    )
    log_every: int = setting(20, "Write metrics every this many steps.", unit="steps", minimum=1)
    loggers: tuple[Literal["mlflow", "wandb", "trackio"], ...] = setting(
        (), "Loggers beside TensorBoard; each needs its library."
    )
    checkpoint_every: int = setting(1, "Save a checkpoint every this many epochs.", unit="epochs", minimum=1)
    keep_every: int = setting(0, "Also keep the model of every n-th epoch; 0: none.", unit="epochs", minimum=0)
    health: Literal["act", "watch", "stop", "none"] = setting(
        "act",
        "act: report collapse; with sampled negatives, lower the step size, roll back or stop if energies diverge; "
        "watch: only report; stop: as act, and end a run that has collapsed.",
    )
    extended: tuple[int, ...] = setting(
        (),
        "Totals of epochs before each --extend, oldest first: schedules ended at each and started over.",
        unit="epochs",
        minimum=1,
    )

    copied_weights: str = setting(
        "",
        "Member of a population (--scheduler pbt) whose weights were copied, and after which epoch; sweeps write it.",
    )

    @property
    def ends(self) -> tuple[int, ...]:
        """Epochs at which a schedule ends: one for each extension, then the run's own end."""
        return (*self.extended, self.epochs)

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        if any(first >= second for first, second in pairwise(self.ends)):
            return [
                f"extended: totals must grow and be below epochs, got {list(self.extended)} and {self.epochs} epochs; "
                "leave it out, `ebclab pretrain --extend` writes it"
            ]
        return []


@dataclass(frozen=True)
class EvaluationConfig:
    """How quality is measured."""

    objective: Literal[
        "holdout_knn",
        "holdout_linear",
        "effective_rank",
        "alignment_uniformity",
        "minus_holdout_uniformity",
        "holdout_effective_rank",
        "minus_holdout_info_nce",
        "minus_holdout_nll",
        "minus_holdout_brier",
        "holdout_few_labels",
        "holdout_auroc_rotated",
        "holdout_auroc_inverted",
        "holdout_fgsm",
        "holdout_pgd",
    ] = setting(
        "holdout_knn",
        "Objective of the best checkpoint and of sweeps, on held-out training images, higher being better; ranks, "
        "alignment_uniformity, uniformity, info_nce and auroc need no labels. docs/evaluation.md has them all.",
    )
    monitor: tuple[
        Literal[
            "classification",
            "geometry",
            "information",
            "calibration",
            "few-labels",
            "out-of-distribution",
            "robustness",
        ],
        ...,
    ] = setting(
        (),
        "Groups of metrics that are also measured on held-out images during training; geometry, "
        "information and out-of-distribution need no labels.",
    )
    monitor_every: int = setting(
        1, "Measure the monitors every this many epochs, and after the last.", unit="epochs", minimum=1
    )
    scored_on: Literal["holdout", "confirm"] = setting(
        "holdout",
        "Images that are scored: holdout, or confirm (those of data.confirm_rate), which sweeps set when confirming.",
    )
    knn_every: int = setting(1, "Score the held-out split every this many epochs; 0 never.", unit="epochs", minimum=0)
    knn_neighbours: int = setting(20, "Neighbours that vote.", minimum=1)
    knn_temperature: float = setting(0.1, "A neighbour's vote is exp(cosine similarity / temperature).", above=0.0)
    knn_bank_limit: int = setting(
        10_000, "Training images that vote in the held-out kNN, chosen by hash; 0 means all.", unit="images", minimum=0
    )
    linear_protocol: str = setting("lbfgs", "Linear probe protocol; `ebclab show --protocols` prints them.")
    linear_l2: float = setting(
        1e-3, "lbfgs protocol: penalty 0.5 * linear_l2 * ||W||^2 beside the mean cross-entropy.", above=0.0
    )
    linear_seeds: int = setting(3, "Number of seeds of a stochastic linear protocol.", minimum=1)
    batch_size: int = setting(512, "Images per forward pass while computing features.", unit="images", minimum=1)

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        problems = []
        if self.monitor and self.knn_every == 0:
            problems.append(
                f"monitor: nothing is scored with knn_every=0, got {', '.join(self.monitor)}; set knn_every=1"
            )
        elif self.monitor and self.monitor_every > 1 and self.monitor_every % self.knn_every:
            problems.append(
                f"monitor_every: monitors are measured where held-out images are scored, every {self.knn_every} epochs "
                f"by knn_every, got {self.monitor_every}; take a multiple of it"
            )
        return problems


ON_RAY = "cuda"
"""The type of device that a process has which Ray gives a GPU; no other accelerator is reserved."""

BACKEND_ON_RAY = "nccl"
"""What torch sends tensors of such a device with, between processes."""


@dataclass(frozen=True)
class ResourcesConfig:
    """What the run may use."""

    device: str = setting(
        "auto",
        "auto, or a type of device that torch has: cpu, cuda, xpu and the like; auto takes a GPU, if there is one.",
    )
    threads: int = setting(
        0,
        "CPU threads of torch; 0 means all it may use. Beside other programs, set OMP_WAIT_POLICY=PASSIVE too.",
        unit="threads",
        minimum=0,
    )
    deterministic: bool = setting(True, "Refuse kernels whose result depends on timing (GPU only; CPU is exact).")
    workers: int = setting(
        0,
        "0 trains in this process, without Ray; 1 or more on that many Ray workers, which share each global batch.",
        unit="workers",
        minimum=0,
    )
    max_workers: int = setting(
        0,
        "Let the number of workers vary between workers and this, as machines come and go; 0 keeps it fixed.",
        unit="workers",
        minimum=0,
    )
    cpus_per_worker: float = setting(
        0.0,
        "CPUs that each worker reserves, fractions allowed; 0 shares all whole CPUs evenly.",
        unit="CPUs",
        minimum=0.0,
    )
    max_failures: int = setting(
        3, "Start the workers again from the last checkpoint at most this often after one of them died.", minimum=0
    )
    address: str | None = setting(
        None, "HOST:PORT of a running Ray cluster, or auto; none means $RAY_ADDRESS, then a new one on this machine."
    )

    @property
    def cluster(self) -> str:
        """Address of the cluster to join; "local": a new one on this machine."""
        return self.address or os.environ.get("RAY_ADDRESS") or "local"

    def wants_gpu(self, gpus: float) -> bool:
        """Return whether a process takes a GPU of a Ray cluster that has so many."""
        return self.device == ON_RAY or (self.device == "auto" and gpus > 0)

    def ray_problem(self) -> str | None:
        """Return why Ray cannot give the device to a process; None if it can."""
        if self.device in ("auto", "cpu", ON_RAY):
            return None
        return f"Ray places processes on cpu or {ON_RAY} alone, got {shortened(self.device)}; use one of these"

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        if not self.device.isidentifier():
            return [
                f"device: not a type of device, got {shortened(repr(self.device))}; write auto, cpu, cuda or "
                "another that torch has, without a number"
            ]
        if self.workers and (problem := self.ray_problem()):
            return [f"device: {problem}, or workers=0"]
        if self.max_workers and not 0 < self.workers < self.max_workers:
            return [
                f"max_workers: must exceed workers, which must be at least 1, got workers {self.workers} and "
                f"max_workers {self.max_workers}; write --workers MIN:MAX, or set max_workers to 0"
            ]
        return []


# Named views. Numbers are those of the authors' published code if there is some. Parameters are drawn per image; if the
# authors drew them once for many images, recipes of whole runs that say "as released" do so with ``views.shared_by``.
_IDENTITY = {name: value for name, value in asdict(ViewsConfig()).items() if name not in ("recipe", "image_size")}
_CROP = {"crop_scale_min": 0.08, "crop_scale_max": 1.0, "crop_ratio_min": 3 / 4, "crop_ratio_max": 4 / 3}
_FLIP = {"flip_rate": 0.5}
_COLOUR = {**_IDENTITY, **_CROP, **_FLIP, "grayscale_rate": 0.2}
_GREY_JITTER = {"jitter_rate": 0.8, "brightness": 0.4, "contrast": 0.4}
_WEAK_JITTER = {"jitter_rate": 0.8, "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
_STRONG_JITTER = {"jitter_rate": 0.8, "brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2}
_BYOL = {
    **{"jitter_rate": 0.8, "brightness": 0.4, "contrast": 0.4, "saturation": 0.2, "hue": 0.1},
    **{"blur_rate": 1.0, "second_blur_rate": 0.1, "solarise_rate": 0.0, "second_solarise_rate": 0.2},
}
_LARGE = {"image_size": 224, "blur_kernel_size": 23}
_BLUR = {"blur_sigma_min": 0.1, "blur_sigma_max": 2.0}
_EBCLR = {"noise_std": 0.03, "normalisation": "half"}


class ViewRecipe(NamedTuple):
    """Named view settings."""

    doc: str  # what it is for and where it comes from, one sentence
    # every field of ``ViewsConfig`` except ``recipe``; without ``image_size``, the dataset's own size
    settings: Mapping[str, Any]


VIEW_RECIPES: Mapping[str, ViewRecipe] = {
    "none": ViewRecipe("The unchanged image.", _IDENTITY),
    "digits": ViewRecipe(
        "Ours, for 8x8 digits: crops that keep most of the stroke, no flip since digits are not mirror-symmetric.",
        _IDENTITY | _CROP | _GREY_JITTER | {"crop_scale_min": 0.3, "noise_std": 0.05},
    ),
    "fashion-mnist": ViewRecipe(
        "Ours, for 28x28 grey pictures of clothes, which may be mirrored.",
        _IDENTITY | _CROP | _FLIP | _GREY_JITTER | {"crop_scale_min": 0.2},
    ),
    "ebclr-mnist": ViewRecipe(
        "EBCLR (Kim & Ye, 2022) on MNIST and Fashion-MNIST, from the authors' code.",
        _IDENTITY | _CROP | _EBCLR,
    ),
    "ebclr-cifar": ViewRecipe(
        "EBCLR (Kim & Ye, 2022) on CIFAR-10 and CIFAR-100, from the authors' code: always blurred.",
        _COLOUR | _STRONG_JITTER | _BLUR | _EBCLR | {"blur_rate": 1.0, "blur_kernel_size": 3},
    ),
    "flatclr-cifar": ViewRecipe(
        "FlatCLR (Chen et al., 2021) on CIFAR, from the authors' code: no blur.",
        _COLOUR | _WEAK_JITTER,
    ),
    "moco-cifar": ViewRecipe(
        "MoCo's official CIFAR-10 demonstration (He et al., 2020): the same numbers as FlatCLR's.",
        _COLOUR | _WEAK_JITTER,
    ),
    "byol-imagenet": ViewRecipe(
        "BYOL (Grill et al., 2020, appendix B, table 6) on ImageNet: second views are blurred more seldom, and "
        "solarised at times. There, crops are resized bicubically; here, as everywhere, bilinearly and antialiased.",
        _COLOUR | _BLUR | _BYOL | _LARGE,
    ),
    "byol-cifar": ViewRecipe(
        "Ours, for CIFAR: BYOL's numbers for ImageNet, with a blur kernel of a tenth of 32 pixels.",
        _COLOUR | _BLUR | _BYOL | {"blur_kernel_size": 3},
    ),
    "simclr-imagenet": ViewRecipe(
        "SimCLR (Chen et al., 2020, appendix A) on ImageNet, strength 1: 224 pixels, a blur kernel of a tenth of that.",
        _COLOUR | _STRONG_JITTER | _BLUR | _LARGE | {"blur_rate": 0.5},
    ),
    "moco-imagenet": ViewRecipe(
        "MoCo v2 (Chen et al., 2020, section 3, `--aug-plus` of the authors' code) and SimSiam (appendix A) on "
        "ImageNet: larger crops and weaker colours than SimCLR's. There, Pillow blurs; 23 pixels hold 5.5 sigma.",
        _COLOUR | _WEAK_JITTER | _BLUR | _LARGE | {"blur_rate": 0.5, "crop_scale_min": 0.2},
    ),
}

_PHOTOGRAPH = 96  # pixels; from here on views of ImageNet's recipe, which are of 224


def fitting_views(channels: int, height: int, width: int) -> list[str]:
    """Return settings of views that suit images of a given shape, of which nothing else is known."""
    side = min(height, width)
    if side < _PHOTOGRAPH:
        return [f"views.recipe={'flatclr-cifar' if channels > 1 else 'fashion-mnist'}"]
    own = VIEW_RECIPES["simclr-imagenet"].settings["image_size"]
    return ["views.recipe=simclr-imagenet", *([f"views.image_size={side}"] if side < own else [])]


USUAL_VIEWS: Mapping[str, str] = {
    "digits": "digits",
    "mnist": "ebclr-mnist",
    "fashion-mnist": "fashion-mnist",
    "cifar10": "flatclr-cifar",
    "cifar100": "flatclr-cifar",
}
"""The view recipe of ``views.recipe: auto`` for each dataset."""
