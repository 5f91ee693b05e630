"""Protocols of linear probes by name: training on frozen features, source, and deviations from it.

All of them use features of images without augmentation, computed once with the encoder in eval mode, and report the
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
    """Multinomial logistic regression on standardised features, solved to convergence: no seed, no learning rate.

    Attributes:
        name: Key in `PROTOCOLS`.
        doc: One-line description.
        source: Source of the protocol.
        departs: Deviations from the source, with reasons; empty if there are none.
        tolerance: The solver, Newton's method, stops when no component of the gradient of the penalised mean loss
            exceeds ``tolerance * min(evaluation.linear_l2, 1e-3)``, or when float64 cannot lower the loss any further.
            The penalty makes the loss l2-strongly convex in the weights, so they are within ``|gradient| / l2`` of the
            solution; the biases have no penalty, hence the 1e-3.
        max_iterations: Largest number of steps of the solver; a warning is logged if it has not converged by then.
    """

    name: str
    doc: str
    source: str
    departs: str
    tolerance: float
    max_iterations: int

    def tolerance_for(self, l2: float) -> float:
        """Return the largest gradient component at which the solver has converged."""
        return self.tolerance * min(l2, 1e-3)


@dataclass(frozen=True)
class EpochProtocol:
    """One linear layer with bias, trained on raw features by mini-batch steps.

    Attributes:
        name: Key in `PROTOCOLS`.
        doc: One-line description.
        source: Source of the protocol.
        departs: Deviations from the source, with reasons; empty if there are none.
        optimizer: sgd has momentum 0.9 (not Nesterov); adam has betas 0.9, 0.999. Neither uses weight decay.
        learning_rate: Peak learning rate; per 256 images of the batch if ``scale_rate`` is set.
        scale_rate: Whether to multiply the rate by batch size / 256.
        batch_size: Images per step, at most the size of the training set; the last batch may be incomplete.
        epochs: Passes over the training features.
        schedule: cosine decays to 0, updated every step; steps divides by 10 after 60 % and after 80 % of the epochs.
        order: once: one random order for all epochs; every-epoch: a new random order in each epoch.
        init: uniform: both weights and biases in +/- 1/sqrt(D); normal: weights N(0, 0.01^2), biases 0.
    """

    name: str
    doc: str
    source: str
    departs: str
    optimizer: Literal["sgd", "adam"]
    learning_rate: float
    batch_size: int
    epochs: int
    schedule: Literal["constant", "cosine", "steps"]
    scale_rate: bool = False
    order: Literal["once", "every-epoch"] = "every-epoch"
    init: Literal["uniform", "normal"] = "uniform"


Protocol = SolvedProtocol | EpochProtocol

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
        source="VEM, appendix on linear evaluation; rate, schedule, epochs and batch size are all that it states",
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


def look_up(where: str, kind: str, name: str, table: Mapping[str, _Value]) -> _Value:
    """Return ``table[name]``.

    Args:
        where: The setting or argument that contains ``name``, for the message.
        kind: Kind of object, e.g. "protocol", for the message.
        name: Name given by the user.
        table: All valid names and their values.

    Raises:
        ConfigError: There is no such name; the message contains suggestions.
    """
    if name not in table:
        raise ConfigError([f"{where}: no such {kind}, got {name!r}; {did_you_mean(name, table)}"])
    return table[name]
