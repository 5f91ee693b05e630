"""Every method by its name, written by hand."""

from energy_contrast.flatclr import Flatclr
from energy_contrast.method import Method
from energy_contrast.moco import Moco
from energy_contrast.simclr import Simclr

METHODS: dict[str, type[Method]] = {
    "simclr": Simclr,
    "moco": Moco,
    "flatclr": Flatclr,
}
