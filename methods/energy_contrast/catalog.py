"""Every method by its name, written by hand."""

from energy_contrast.byol import Byol
from energy_contrast.dcl import Dcl
from energy_contrast.ebclr import Ebclr
from energy_contrast.flatclr import Flatclr
from energy_contrast.method import Method
from energy_contrast.moco import Moco
from energy_contrast.simclr import Simclr
from energy_contrast.simsiam import Simsiam
from energy_contrast.vem_bank import VemLangevin, VemSvgd
from energy_contrast.vem_image import VemImage

METHODS: dict[str, type[Method]] = {
    "simclr": Simclr,
    "moco": Moco,
    "simsiam": Simsiam,
    "byol": Byol,
    "flatclr": Flatclr,
    "dcl": Dcl,
    "ebclr": Ebclr,
    "vem-langevin": VemLangevin,
    "vem-svgd": VemSvgd,
    "vem-image": VemImage,
}
