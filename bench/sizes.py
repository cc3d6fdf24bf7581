"""The sizes of a benchmark: of published figures, of `--quick`, and of `--smoke`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

Value = int | float | tuple[int, ...]


class Parser(argparse.ArgumentParser):
    """A benchmark's options; `--quick` and `--smoke` change the defaults of its sizes."""

    def __init__(self, prog: str, description: str | None) -> None:
        """Create the parser with the two options."""
        super().__init__(prog=f"python -m {prog}", description=description)
        self._quick: dict[str, Value] = {}
        self._smoke: dict[str, Value] = {}
        self.add_argument("--quick", action="store_true", help="measure less, in a few minutes")
        self.add_argument(
            "--smoke",
            action="store_true",
            help="run to the end in seconds; the figures mean nothing",
        )

    def add_size(self, option: str, full: Value, quick: Value, smoke: Value, what: str) -> None:
        """Add a size; an option on the command line overrides it."""
        many = isinstance(full, tuple)
        action = self.add_argument(
            option,
            type=type(full[0]) if isinstance(full, tuple) else type(full),
            nargs="+" if many else None,
            default=full,
            help=f"{what} (default: {full}; quick: {quick}; smoke: {smoke})",
        )
        self._quick[action.dest], self._smoke[action.dest] = quick, smoke

    def sized(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the options with the chosen sizes."""
        chosen, _ = self.parse_known_args(arguments)
        self.set_defaults(**(self._smoke if chosen.smoke else self._quick if chosen.quick else {}))
        return self.parse_args(arguments)
