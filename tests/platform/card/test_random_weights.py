"""The network that fine-tuning is compared with: the subject's own, with random weights that a seed decides."""

import shutil
from dataclasses import replace
from pathlib import Path

import torch

from ebclab.card.subject import Subject, open_subject
from ebclab.config.encoder import EncoderConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders.build import digest_of, seeded_encoder
from ebclab.export.card import CardFacts
from ebclab.export.encoder_folder import save_encoder

OLD_RUN = Path(__file__).parents[2] / "folders" / "made_by_0.1" / "runs" / "finished"
SMALL = EncoderConfig(name="small", width=4)


def check(subject: Subject) -> None:
    """The same names and shapes as the subject's, the same bits for a seed, others for another; no generator moves."""
    before = torch.get_rng_state()
    first, again, other = (subject.random_weights(seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    shapes = {name: value.shape for name, value in subject.encoder.state_dict().items()}
    assert {name: value.shape for name, value in first.state_dict().items()} == shapes
    assert digest_of(first.state_dict()) == digest_of(again.state_dict())
    assert len({digest_of(each.state_dict()) for each in (first, other, subject.encoder)}) == 3


def test_of_a_run_it_is_the_runs_network_and_of_an_exported_folder_the_one_described_there(tmp_path):
    shutil.copytree(OLD_RUN, tmp_path / "run")
    check(open_subject(str(tmp_path / "run")))
    check(exported(tmp_path / "out", SMALL))


def exported(folder: Path, architecture: EncoderConfig) -> Subject:
    """Export an encoder with the random weights of seed 0."""
    facts, seen = CardFacts("title", "simclr", "method: {name: simclr}\n"), Preprocessing(8, (0.5,), (0.25,))
    with seeded_encoder(architecture, 0, 1) as encoder:
        save_encoder(folder, encoder, architecture=architecture, in_channels=1, preprocessing=seen, facts=facts)
    return open_subject(str(folder))


def test_networks_with_the_same_weights_are_not_the_same_encoder(tmp_path: Path) -> None:
    """Their features would be taken for one another's."""
    mean, quarters = (exported(tmp_path / each, replace(SMALL, pooling=each)) for each in ("mean", "quarters"))  # type: ignore[arg-type]
    assert digest_of(mean.encoder.state_dict()) == digest_of(quarters.encoder.state_dict())
    assert mean.digest != quarters.digest
