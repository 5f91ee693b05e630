"""``python -m ebclab`` is the ``ebclab`` command."""

import sys

from ebclab.cli import main

sys.exit(main())
