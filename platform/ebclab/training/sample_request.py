"""Which chains ``ebclab sample`` runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ebclab.config.options import option, option_problems
from ebclab.errors import UserError

SampleSource = Literal["noise", "data", "buffer"]


@dataclass(frozen=True)
class SampleRequest:
    """Which chains to run."""

    source: SampleSource = option(
        "noise",
        "Where chains begin: uniform pixels, views of training images, the run's replay buffer.",
        flag="--from",
        metavar="<noise|data|buffer>",
        panel="Chains",
    )
    num_steps: int = option(
        500, "Steps of the run's own sampler, without restarts.", flag="--steps", metavar="N", minimum=1
    )
    count: int = option(64, "Number of chains; the picture shows up to 16.", metavar="M", minimum=1)
    seed: int = option(
        0, "Seed of starts and noise; the same seed gives the same samples.", minimum=0, maximum=2**32 - 1
    )
    overrides: tuple[str, ...] = option(
        (),
        "Setting of the method other than the run's, e.g. method.step_size=0.02.",
        flag="--set",
        metavar="KEY=VALUE",
    )

    def __post_init__(self) -> None:
        problems = option_problems(self) + [
            f"--set: only settings of the method act on chains, got {text}; write method.KEY=VALUE"
            for text in self.overrides
            if not text.startswith("method.")
        ]
        if problems:
            raise UserError("\n".join(problems))

    @property
    def moments(self) -> tuple[int, ...]:
        """The numbers of steps after which chains are looked at: 0, 1, 10, 100, and the last."""
        powers = (10**power for power in range(len(str(self.num_steps))))
        return (0, *(power for power in powers if power < self.num_steps), self.num_steps)
