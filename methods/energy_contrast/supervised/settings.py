"""Settings of supervised learning and SupCon, apart from the methods: they are read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from energy_contrast.settings import EssConfig, setting


@dataclass(frozen=True)
class SupervisedConfig(EssConfig):
    """Settings of supervised learning."""

    objective: Literal["cross-entropy", "supcon", "negatives-only"] = setting(
        "cross-entropy",
        "cross-entropy: one view of an image; supcon: two views, images of a class attract each other; negatives-only: "
        "two views, DCL's loss without negatives of the anchor's own class.",
    )
    label_smoothing: float = setting(
        0.0, "Share of a label that is spread over all classes.", minimum=0.0, below=1.0, symbol="epsilon"
    )
    temperature: float = setting(0.1, "Divides cosine similarities; cross-entropy has none.", above=0.0, symbol="tau")
    projection_size: int = setting(128, "Size of the vectors that are contrasted.", unit="dimensions", minimum=1)
    projection_hidden_size: int = setting(
        0, "Size of the projection head's hidden layer; 0 means the embedding size.", unit="dimensions", minimum=0
    )

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        found = super().problems()
        if self.ess_target and self.objective == "cross-entropy":
            found.append(
                f"ess_target: cross-entropy has no temperature, got {self.ess_target}; leave it out, or set "
                "objective=supcon"
            )
        return found
