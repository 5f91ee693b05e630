"""The one way to the terminal: text of files and other people is shown there, never obeyed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any, TextIO

from ebclab.formatting import presentable

if TYPE_CHECKING:
    from rich.console import Console


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print ``text`` with control and invisible characters escaped, and without credentials."""
    write(text + end, sys.stderr if err else sys.stdout)


def write(text: str, stream: TextIO | None) -> None:
    """Write ``text`` as ``say`` to ``stream``, at once; None is a stream that the process was started without."""
    if stream is not None:
        try:
            stream.write(presentable(text))
            stream.flush()
        except BrokenPipeError:
            let_go(stream)


def let_go(stream: IO[str]) -> None:
    """Send the rest of an output that no one reads any more, as after ``| head -1``, to the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
    stream.flush()


def console(stream: TextIO | None = None, *, err: bool = False) -> Console:
    """Return a console of rich that shows all text as it is: escaped as by ``say``, without markup and highlights."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class Literal(Console):
        """Escapes strings before they are measured, and what objects of rich contain when it is drawn."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(presentable(text), **options)

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(presentable(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            """Continue: a command may train and save for hours after its reader is gone. Rich ends the process."""
            let_go(self.file)

    return Literal(file=stream, stderr=err, markup=False, highlight=False, emoji=False)


def open_missing_streams() -> None:
    """Open the null device as each standard stream that the process was started without.

    Without one, the next file that is opened gets its number, and is what libraries in C then write messages into.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            try:
                os.fstat(number)
            except OSError:
                os.dup2(null, number)
            setattr(sys, name, os.fdopen(null, "w" if number else "r", encoding="utf-8"))
