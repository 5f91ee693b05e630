"""The program ``ebclab`` with less patience, for tests in which machines die and others take over."""

_COMMAND = "from ebclab.__main__ import program; program()"

HEAD = ["-c", "from ebclab.cluster.join import Head; Head.loss.__kwdefaults__['patience'] = 8.0; " + _COMMAND]
"""Takes a head for lost after 8 s of silence instead of 30 s; the 30 s: test_head."""

LIFETIME = 8.0
"""Seconds without a sign of life after which the holder of a folder is taken for dead, instead of 60: test_lease."""

USUAL = ["-m", "ebclab"]
"""Waits as long as users do."""
