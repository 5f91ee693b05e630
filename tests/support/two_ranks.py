"""The run that faults disturb, by two ranks without Ray: what its workers must come to."""

from run_files import weights
from small_runs import one_folder, train_as
from torch import Tensor

from ebclab.config import ExperimentConfig, compose
from ebclab.runs.folder import RunFolder
from ebclab.training.process_group import Ranks

TINY = ["data.train_limit=640", "training.batch_size=64", "training.log_every=1", "training.epochs=12"]


def two_workers(workers: int = 2) -> ExperimentConfig:
    """Return the settings of a run on workers with a CPU each."""
    return compose("moco", overrides=[*TINY, f"resources.workers={workers}", "resources.cpus_per_worker=1"])


def be_a_rank(rank: int, num_ranks: int) -> dict[str, Tensor]:
    """Train as one of ``num_ranks`` processes; return the weights of the last checkpoint."""
    with one_folder() as folder:
        train_as(Ranks.of_process_group(), RunFolder.at(folder / "run"), two_workers(num_ranks))
        return weights(folder / "run")
