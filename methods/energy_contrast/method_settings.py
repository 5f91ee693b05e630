"""The settings of every method by its name, read without torch; ``catalog.py`` has the methods in the same order."""

from energy_contrast.contrastive import settings as contrastive
from energy_contrast.energy_based import settings as energy_based
from energy_contrast.predictive import settings as predictive
from energy_contrast.supervised import settings as supervised

SETTINGS: dict[str, type] = {
    "simclr": contrastive.SimclrConfig,
    "moco": contrastive.MocoConfig,
    "simsiam": predictive.SimsiamConfig,
    "byol": predictive.ByolConfig,
    "flatclr": contrastive.FlatclrConfig,
    "dcl": contrastive.DclConfig,
    "dhel": contrastive.DhelConfig,
    "sogclr": contrastive.SogclrConfig,
    "vicreg": predictive.VicregConfig,
    "barlow": predictive.BarlowConfig,
    "lejepa": predictive.LejepaConfig,
    "supervised": supervised.SupervisedConfig,
    "jem": energy_based.JemConfig,
    "ebclr": energy_based.EbclrConfig,
    "vem-langevin": energy_based.VemLangevinConfig,
    "vem-svgd": energy_based.VemSvgdConfig,
    "vem-image": energy_based.VemImageConfig,
}
