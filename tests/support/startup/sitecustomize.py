"""What every Python process below a test does first: one that is to be a worker of Ray has a fork take its place.

``tests/support/worker_server.py`` forks, from a process that has imported what takes a worker most of its start. Where
it is not asked for, or refuses, or is gone, this process becomes the worker, as it does for users.
"""

from __future__ import annotations

import os
import sys

_script = os.path.basename(sys.orig_argv[1]) if len(sys.orig_argv) > 1 else ""
if "EBCLAB_TESTS_WORKERS" in os.environ and _script in ("default_worker.py", "setup_worker.py"):
    import worker_client

    worker_client.have_it_forked(os.environ["EBCLAB_TESTS_WORKERS"], sys.orig_argv)
