"""Protocols of linear probes and of fine-tuning by name: training, source, and deviations from it.

Linear probes use features of images without augmentation, computed once with the encoder in eval mode, and report the
last epoch. Choosing the best epoch by test accuracy, as some released code does, would be selection on the test set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from ebclab.config.names import did_you_mean
from ebclab.errors import ConfigError

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class SolvedProtocol:
    """Multinomial logistic regression on standardised features, solved to convergence: no seed, no learning rate."""

    name: str  # key in `PROTOCOLS`
    doc: str  # one-line description
    source: str  # source of the protocol
    departs: str  # deviations from the source, with reasons; empty if there are none
    # the solver, Newton's method, stops when no component of the gradient of the penalised mean loss exceeds
    # ``tolerance * min(evaluation.linear_l2, 1e-3)``, or when float64 cannot lower the loss any further. The penalty
    # makes the loss l2-strongly convex in the weights, so they are within ``|gradient| / l2`` of the solution; the
    # biases have no penalty, hence the 1e-3
    tolerance: float
    max_iterations: int  # largest number of steps of the solver; a warning is logged if it has not converged by then

    def tolerance_for(self, l2: float) -> float:
        """Return the largest gradient component at which the solver has converged."""
        return self.tolerance * min(l2, 1e-3)


@dataclass(frozen=True)
class EpochProtocol:
    """One linear layer with bias, trained on raw features by mini-batch steps."""

    name: str
    doc: str
    source: str
    departs: str  # deviations from the source, with reasons; empty if there are none
    # sgd has momentum 0.9 (not Nesterov); adam has betas 0.9, 0.999; neither has weight decay
    optimizer: Literal["sgd", "adam"]
    learning_rate: float  # peak; per 256 images of the batch if ``scale_rate`` is set
    batch_size: int  # at most the size of the training set; the last batch may be incomplete
    epochs: int  # passes over the training features; the largest number of them if there is a ``tolerance``
    schedule: Literal["constant", "cosine", "steps"]  # cosine: to 0, every step; steps: a tenth after 60 % and 80 %
    scale_rate: bool = False
    # once: one random order for all epochs; every-epoch: a new one in each
    order: Literal["once", "every-epoch"] = "every-epoch"
    # uniform: weights and biases in +/- 1/sqrt(D); normal: weights N(0, 0.01^2), biases 0
    init: Literal["uniform", "normal"] = "uniform"
    # a seed has converged once an epoch's mean loss is less than this below that of ``STALLED`` epochs before, in nats;
    # 0: all epochs are trained
    tolerance: float = 0.0


Protocol = SolvedProtocol | EpochProtocol

STALLED = 10
"""Epochs within which the loss of a protocol with a ``tolerance`` must still fall."""

LBFGS = SolvedProtocol(
    name="lbfgs",
    doc="logistic regression on standardised features, solved to convergence, no randomness",
    source="scikit-learn's LogisticRegression with C = 1 / (n * evaluation.linear_l2)",
    departs="",
    tolerance=1e-3,
    max_iterations=200,
)
"""The linear protocol that is solved to convergence, by Newton's method; L-BFGS converges to the same minimum."""

_ALL: tuple[Protocol, ...] = (
    LBFGS,
    EpochProtocol(
        name="ebclr-adam",
        doc="Adam 1e-3, batch 512, 200 epochs, constant rate, one fixed order",
        source="the code released with EBCLR (Kim & Ye, 2022)",
        departs=(
            "Reports the last epoch, where the code prints a test accuracy every ten and does not say which counts. "
            "The loss is not divided by the number of classes; Adam takes such a factor out again."
        ),
        optimizer="adam",
        learning_rate=1e-3,
        batch_size=512,
        epochs=200,
        schedule="constant",
        order="once",
    ),
    EpochProtocol(
        name="flatclr-sgd",
        doc="SGD 0.1 * batch/256, momentum 0.9, batch 4096, 100 epochs, cosine",
        source="the code released with FlatNCE (Chen et al., 2021), after SimCLR",
        departs=(
            "Features are frozen: the code leaves the encoder in train mode, so its batch norm uses batch statistics "
            "and its running statistics drift. Reports the last epoch; the code reports the best test epoch. No "
            "augmentation (crop and flip in the code's ImageNet runs), and a new order each epoch."
        ),
        optimizer="sgd",
        learning_rate=0.1,
        scale_rate=True,
        batch_size=4096,
        epochs=100,
        schedule="cosine",
    ),
    EpochProtocol(
        name="flatnce-adam",
        doc="Adam 1e-3, batch 512, constant rate, to convergence: until the loss falls by less than 1e-3 in ten epochs",
        source="FlatNCE, section 5 and appendix E.3: Adam, no l2, no augmentation, trained to convergence",
        departs=(
            "Rate, batch, what convergence means, its limit of 1,000 epochs and PyTorch's initial weights are our "
            "reading: the paper names none. Images of 224 pixels, scaled bicubically, are options of evaluate."
        ),
        optimizer="adam",
        learning_rate=1e-3,
        batch_size=512,
        epochs=1_000,
        schedule="constant",
        tolerance=1e-3,
    ),
    EpochProtocol(
        name="moco-sgd",
        doc="SGD 30, momentum 0.9, batch 256, 100 epochs, a tenth of the rate from epoch 60 and again from 80",
        source="the code released with MoCo (He et al., 2020)",
        departs="Reports the last epoch where the code keeps the best one, and augments nothing (crop and flip there).",
        optimizer="sgd",
        learning_rate=30.0,
        batch_size=256,
        epochs=100,
        schedule="steps",
        init="normal",
    ),
    EpochProtocol(
        name="vem-sgd",
        doc="SGD 5, momentum 0.9, batch 256, 200 epochs, cosine",
        source="VEM, appendix D; rate, schedule, epochs and batch size are all that it states",
        departs="Momentum 0.9, no weight decay, no augmentation and PyTorch's initial weights are our reading.",
        optimizer="sgd",
        learning_rate=5.0,
        batch_size=256,
        epochs=200,
        schedule="cosine",
    ),
)

PROTOCOLS: dict[str, Protocol] = {protocol.name: protocol for protocol in _ALL}
"""All linear protocols by name, the values of ``evaluation.linear_protocol``."""


@dataclass(frozen=True)
class FineTuningProtocol:
    """How all weights of an encoder and a new linear layer are trained, without weight decay."""

    name: str
    doc: str
    source: str
    departs: str  # deviations from the source, with reasons
    optimizer: Literal["sgd", "nadam"]  # sgd has Nesterov momentum 0.9; nadam is Adam with it, betas 0.9 and 0.999
    rates: tuple[float, ...]  # of several, the first of those with the highest held-out accuracy
    schedule: Literal["constant", "cosine"]  # cosine decays to 0, updated every step
    batch_size: int  # largest number of images of a step; sizes of batches differ by one image at most
    epochs: int  # passes over the labelled images, unless the user says how many
    smallest_crop: float  # smallest share of the area that a training view shows
    flips_all: bool = False  # whether images of every dataset are flipped; else those whose usual views flip them
    test_crop: float = 1.0  # share of the shorter side that is the side of the central square seen of test images

    @property
    def optimizer_in_words(self) -> str:
        name = "Adam" if self.optimizer == "nadam" else "SGD"
        schedule = "cosine to 0 without warm-up" if self.schedule == "cosine" else "constant rate"
        return f"{name} with Nesterov momentum 0.9, {schedule}"


FINE_TUNING: dict[str, FineTuningProtocol] = {
    each.name: each
    for each in (
        FineTuningProtocol(
            name="simclr",
            doc="SGD with Nesterov momentum, best of three rates on held-out images, cosine, batches of 64, 10 epochs",
            source="Chen et al. (2020), SimCLR, appendix B.5",
            departs="Smaller batches, fewer epochs, larger crops, and the choice of the rate; see docs/evaluation.md.",
            optimizer="sgd",
            rates=(0.03, 0.1, 0.01),
            schedule="cosine",
            batch_size=64,
            epochs=10,
            smallest_crop=0.5,
        ),
        FineTuningProtocol(
            name="flatnce",
            doc="Adam with Nesterov momentum 0.9 at 5^-5, batches of 512, 100 epochs, tested on the central 7/8",
            source="FlatNCE, appendix E.3",
            departs=(
                "5^-5 is as printed; 5e-5 may be meant. Unsaid: schedule (here constant), the crops' smallest share "
                "(0.08, SimCLR's), the second beta (0.999). The test crop of 224 of 256 pixels is taken as a share of "
                "the image; no fewer than 200 steps, for few labels."
            ),
            optimizer="nadam",
            rates=(5.0**-5,),
            schedule="constant",
            batch_size=512,
            epochs=100,
            smallest_crop=0.08,
            flips_all=True,
            test_crop=7 / 8,
        ),
    )
}
"""All protocols of fine-tuning by name, as in ``--fine-tuning``."""


def look_up(where: str, kind: str, name: str, table: Mapping[str, _Value]) -> _Value:
    """Return ``table[name]``; messages name the setting or argument ``where`` and the kind of thing."""
    if name not in table:
        raise ConfigError([f"{where}: no such {kind}, got {name!r}; {did_you_mean(name, table)}"])
    return table[name]
