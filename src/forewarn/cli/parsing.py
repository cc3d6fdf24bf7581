"""How commands are put together from their modules; no command is defined in here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_SERVER = "http://127.0.0.1:8470"


def add_json_option(parser: argparse.ArgumentParser, *, default: object) -> None:
    """Add `--json`, which every command has."""
    parser.add_argument(
        "--json", action="store_true", default=default, help="print JSON, for programs"
    )


def add_server_options(parser: argparse.ArgumentParser, *, default: object) -> None:
    """Add what every command that talks to a server has."""
    parser.add_argument(
        "--server",
        metavar="URL",
        default=default,
        help=f"operator API (else FOREWARN_SERVER, else {DEFAULT_SERVER})",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        default=default,
        help="file that holds the bearer token (else FOREWARN_TOKEN)",
    )


class Commands:
    """Where modules add their commands: the top level, or the actions of one group."""

    def __init__(
        self, parser: argparse.ArgumentParser, helps: Mapping[str, str], metavar: str
    ) -> None:
        """Add to this parser.

        Args:
            parser: gets the commands.
            helps: what each top-level command is for; empty below the top level.
            metavar: what the usage line calls the word that is expected.
        """
        self._helps = helps
        self._subparsers = parser.add_subparsers(
            metavar=metavar, dest=metavar.lower(), required=True, title=f"{metavar.lower()}s"
        )

    def command(
        self,
        name: str,
        help: str = "",  # noqa: A002 - the word argparse uses
        *,
        run: Callable[[argparse.Namespace], int],
        remote: bool = True,
    ) -> argparse.ArgumentParser:
        """Add a command and return its parser, for its own arguments.

        Args:
            name: the word to type.
            help: what it does, in one line; at the top level `main.COMMANDS` says it.
            run: does it and returns the exit status.
            remote: whether it talks to a server.
        """
        parser = self._add(name, help)
        add_json_option(parser, default=argparse.SUPPRESS)
        if remote:
            add_server_options(parser, default=argparse.SUPPRESS)
        parser.set_defaults(run=run)
        return parser

    def group(self, name: str, help: str = "") -> Commands:  # noqa: A002
        """Add a word that is followed by an action, and return where actions are added."""
        return Commands(self._add(name, help), {}, "ACTION")

    def add_parser(self, name: str, **_: object) -> argparse.ArgumentParser:
        """Add a command that talks to no server, as argparse's own subparsers would."""
        parser = self._add(name, "")
        add_json_option(parser, default=argparse.SUPPRESS)
        return parser

    def _add(self, name: str, help_line: str) -> argparse.ArgumentParser:
        line = help_line or self._helps[name]
        return self._subparsers.add_parser(
            name, help=line, description=line[:1].upper() + line[1:] + ".", allow_abbrev=False
        )

    def stub(self, name: str) -> None:
        """Add a command for `--help` alone, without what it takes."""
        self._add(name, "")
