"""Every method by its name, written by hand."""

from energy_contrast.contrastive.dcl import Dcl
from energy_contrast.contrastive.dhel import Dhel
from energy_contrast.contrastive.flatclr import Flatclr
from energy_contrast.contrastive.moco import Moco
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.contrastive.sogclr import Sogclr
from energy_contrast.energy_based.ebclr import Ebclr
from energy_contrast.energy_based.jem import Jem
from energy_contrast.energy_based.vem_bank import VemLangevin, VemSvgd
from energy_contrast.energy_based.vem_image import VemImage
from energy_contrast.method import Method
from energy_contrast.predictive.barlow import Barlow
from energy_contrast.predictive.byol import Byol
from energy_contrast.predictive.lejepa import Lejepa
from energy_contrast.predictive.simsiam import Simsiam
from energy_contrast.predictive.vicreg import Vicreg
from energy_contrast.supervised.supervised import Supervised

METHODS: dict[str, type[Method]] = {
    "simclr": Simclr,
    "moco": Moco,
    "simsiam": Simsiam,
    "byol": Byol,
    "flatclr": Flatclr,
    "dcl": Dcl,
    "dhel": Dhel,
    "sogclr": Sogclr,
    "vicreg": Vicreg,
    "barlow": Barlow,
    "lejepa": Lejepa,
    "supervised": Supervised,
    "jem": Jem,
    "ebclr": Ebclr,
    "vem-langevin": VemLangevin,
    "vem-svgd": VemSvgd,
    "vem-image": VemImage,
}
