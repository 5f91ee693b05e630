"""The program ``ebclab`` with less patience, for tests in which machines die and others take over."""

from __future__ import annotations

_COMMAND = "from ebclab.cli import main; import sys; sys.exit(main())"

HEAD = ["-c", "from ebclab.cluster.join import Head; Head.loss.__kwdefaults__['patience'] = 8.0; " + _COMMAND]
"""Takes a head for lost after 8 s of silence instead of 30 s; the 30 s: test_head."""

LEASE = ["-c", "from ebclab.storage import lease; lease.LIFETIME = 8.0; " + _COMMAND]
"""Takes the holder of a folder for dead after 8 s without a sign of life instead of 60 s; the 60 s: test_lease."""

USUAL = ["-m", "ebclab"]
"""Waits as long as users do."""
