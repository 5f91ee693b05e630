"""Environment variables for Ray: our defaults for its switches, and variables passed to all nodes of a cluster.

Ray reads some of its switches when it is imported.
"""

from __future__ import annotations

import os

from ebclab.config.addresses import STORES
from ebclab.storage.filesystem import PATIENCE
from ebclab.storage.object_store import COPIES, UNGUARDED, cache_folder

_NEEDED = {
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune's own display of a sweep, for which Tune would leave out our callback
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # workers on this machine keep the user's working folder
    "RAY_TRAIN_V2_ENABLED": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the first Ctrl-C saves
    "TUNE_RESULT_BUFFER_LENGTH": "1",  # a report is answered before the next epoch
}
"""Ray's switches by name without which runs and sweeps would not work."""

SWITCHES = _NEEDED | {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed",  # Ray prints a page about it, our display one line
    "RAY_prestart_worker_first_driver": "0",  # no trial has such a process: Tune starts its own, as it sets variables
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # below `uv run`, Ray would copy the working folder, with images and all
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # a sweep has a log of its own
    # time of a trial that was ended to close its folder, loggers and workers, before its process is used again: Tune
    # gives it 2 s, and else takes the next trial for failed
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "600",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # a resume does not read Tune's own record of the trials
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # our display says in a line why a trial failed
}
"""Ray's switches by name."""


def set_ray_switches() -> None:
    """Set Ray's switches in this process; local workers inherit them. Of those not needed, the user's are kept."""
    os.environ.update(_NEEDED)
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)


def environment_of_nodes() -> dict[str, dict[str, str]] | None:
    """Return a runtime environment for Ray with this process's variables about stores; None if none is set.

    The processes of a cluster that is already running do not inherit the environment of this process.
    """
    by_ray = os.environ.get(
        "RAY_JOB_CONFIG_JSON_ENV_VAR", ""
    )  # variables of a submitted job: Ray refuses a variable that is set twice
    variables = {
        name: os.environ[name]
        for name in (PATIENCE, UNGUARDED, COPIES, STORES)
        if os.environ.get(name) and name not in by_ray
    }
    if COPIES in variables:
        variables[COPIES] = str(cache_folder())  # absolute: nodes have other working folders
    return {"env_vars": variables} if variables else None
