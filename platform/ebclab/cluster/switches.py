"""Environment variables and Ray: defaults of ours for its own switches, and what is told to the nodes of a cluster.

Some switches are read when Ray is imported.
"""

from __future__ import annotations

import os

from ebclab.storage.remote import COPIES, cache_folder
from ebclab.storage.retry import PATIENCE

SWITCHES = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # a box about Tune's own view of a sweep
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # workers on this machine keep the user's working folder
    "RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed",  # a page on the console for what we say in a line
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # a sweep's own log says it all
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the first Ctrl-C saves
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # Tune's own record of all trials, which no resume reads
    "TUNE_RESULT_BUFFER_LENGTH": "1",
}
"""Name and value of each."""


def set_ray_switches() -> None:
    """Set them in this process, whose environment its workers inherit; what the user has set stays."""
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)


def environment_of_nodes() -> dict[str, dict[str, str]] | None:
    """Return Ray's runtime environment with what this process was told about stores; None when that is nothing.

    Nodes that run already have an environment of their own.
    """
    by_ray = os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "")  # a job's own variables; Ray refuses one twice
    told = {name: os.environ[name] for name in (PATIENCE, COPIES) if os.environ.get(name) and name not in by_ray}
    if COPIES in told:
        told[COPIES] = str(cache_folder())  # relative to nobody's working folder
    return {"env_vars": told} if told else None
