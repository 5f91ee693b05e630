"""A method of the user's own: SimCLR against few negatives."""

HARDEST = '''
from dataclasses import dataclass

from energy_contrast.contrastive.simclr import Simclr, SimclrConfig
from energy_contrast.settings import setting


@dataclass(frozen=True)
class HardestConfig(SimclrConfig):
    """SimCLR against few negatives."""

    num_negatives: int = setting(16, "Negatives that are kept.", minimum=1)


class Hardest(Simclr):
    """SimCLR against few negatives."""

    Config = HardestConfig
'''
