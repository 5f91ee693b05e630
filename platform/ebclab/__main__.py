"""``python -m ebclab`` is the ``ebclab`` command."""

from typing import NoReturn

from ebclab.cli import main, run_process


def program() -> NoReturn:
    """Run the command line of this process."""
    run_process(main)


if __name__ == "__main__":
    program()
