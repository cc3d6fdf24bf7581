"""Progress of long work, on standard error: a bar on a terminal, at most lines elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from forewarn_base.untrusted_text import escaped_text, unescaped_errors
from forewarn_server.cli.output import note

#: Shows a sentence about the work, and how many of its parts are done (None: unknown).
Report: TypeAlias = Callable[[str, int | None, int | None], None]


def is_drawn() -> bool:
    """Whether standard error is a terminal on which a line can be drawn again."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def part_bar(text: str, count: int) -> Iterator[Callable[[], None]]:
    """Show the progress of work in parts: a bar on a terminal, else a line for each part.

    Yields the function that ends one part.
    """
    ended = 0

    def end_part() -> None:
        nonlocal ended
        ended += 1
        if is_drawn():
            report(text, ended, count)
        else:
            note(f"part {ended} of {count}; {text}")

    with progress_bar(text, count) as report:
        yield end_part


@contextmanager
def progress_bar(text: str, count: int | None = None) -> Iterator[Report]:
    """Show on a terminal that work goes on, and for how long; yield the function that updates it.

    Without a count, the bar moves to and fro. The bar disappears at the end of the work.
    """
    if not is_drawn():
        yield _ignore
        return
    from rich.console import Console  # noqa: PLC0415 - only for long work
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(file=unescaped_errors(), markup=False, highlight=False)
    columns = (BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task(escaped_text(text), total=count)
        yield lambda text, done, count: bar.update(
            task, description=escaped_text(text), completed=done or 0, total=count, refresh=True
        )


def _ignore(*_: object) -> None:
    """Show nothing."""
