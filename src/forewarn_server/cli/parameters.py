"""Options and types of values that several commands share.

A command takes the options of every command as `common: ServerOptions = COMMON`, or as
`printed: OutputOptions = PRINTED` if it calls no server.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter, Token

from forewarn_base.validation.durations import read_duration_s
from forewarn_server.cli.defaults import DEFAULT_CONFIG, DEFAULT_SERVER, LIST_MAX
from forewarn_server.cli.familiar_words import familiar_option

Form: TypeAlias = Literal["table", "wide", "json", "yaml", "csv", "name"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of every command that prints an answer."""

    json: Annotated[bool, Parameter(help="print JSON, errors included")] = False
    output: Annotated[
        Form | None,
        Parameter(
            alias="-o",
            help="form of the answer: table, wide (every column in full), json, yaml, csv or name",
        ),
    ] = None

    @property
    def form(self) -> str:
        """The form of the answer."""
        return self.output or ("json" if self.json else "table")

    @property
    def structured(self) -> bool:
        """Whether the answer is printed for programs."""
        return self.form not in {"table", "wide"}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerOptions(OutputOptions):
    """Options of every command that calls a server."""

    server: Annotated[
        str,
        Parameter(
            metavar="URL", help=f"operator API (default: FOREWARN_SERVER, then {DEFAULT_SERVER})"
        ),
    ] = ""
    token_file: Annotated[
        str,
        Parameter(metavar="FILE", help="file with the bearer token (default: FOREWARN_TOKEN)"),
    ] = ""
    ca: Annotated[
        str,
        Parameter(metavar="FILE", help="CA certificate of the server (default: FOREWARN_CA)"),
    ] = ""


#: A duration with its units, such as 4h or 1h30m.
_AGE = re.compile(r"([0-9]+[dhms])+")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WatchOptions(ServerOptions):
    """Options of every command that can follow what it shows."""

    watch: Annotated[
        bool, Parameter(alias="-w", help="show it again after each change, until Ctrl-C")
    ] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ListOptions(WatchOptions):
    """Options of every list."""

    sort: Annotated[
        str,
        Parameter(
            metavar="MEMBER",
            help="sort by this member of --json; -MEMBER: descending",
            allow_leading_hyphen=True,
        ),
    ] = ""


PRINTED = OutputOptions()
COMMON = ServerOptions()
WATCHED = WatchOptions()
LISTED = ListOptions()


def _positive(_: object, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise ValueError(f"{text!r} must be a positive integer")
    return int(text)


def _integer(_: object, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{text!r} must be an integer") from error


def _number(_: object, tokens: Sequence[Token]) -> float:
    text = tokens[0].value
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} must be a number") from error


def _seconds(_: object, tokens: Sequence[Token]) -> float:
    text = tokens[0].value
    try:
        duration_s = float(read_duration_s(text)) if text[-1:] in "dhms" else float(text)
    except ValueError:
        duration_s = math.nan
    if not 0 < duration_s < math.inf:
        raise ValueError(f"{text!r} must be a positive number of seconds, or such as 90s or 10m")
    return duration_s


def _file_or_dash(_: object, tokens: Sequence[Token]) -> str:
    """Read the name of a file, or `-` for standard input or output."""
    text = tokens[0].value
    if text.startswith("-") and text != "-":
        instead = familiar_option(text)
        raise ValueError(f"there is no option {text}{instead and ': '}{instead}")
    return text


def pairs(_: object, tokens: Sequence[Token]) -> list[str]:
    """Check that repeated values have the form NAME=TEXT."""
    texts = [token.value for token in tokens]
    for text in texts:
        if "=" not in text:
            raise ValueError(f"{text!r} is not NAME=TEXT")
    return texts


def _moment(_: object, tokens: Sequence[Token]) -> str:
    """Read a time; `4h` is the same as `+4h`."""
    text = tokens[0].value
    if text.lstrip("+").isdecimal():
        raise ValueError(f"{text!r} has no unit: write {text}s, {text}m, {text}h or {text}d")
    return f"+{text}" if _AGE.fullmatch(text) else text


Moment: TypeAlias = Annotated[str, Parameter(converter=_moment, metavar="TIME")]
FileOrDash: TypeAlias = Annotated[
    str, Parameter(allow_leading_hyphen=True, converter=_file_or_dash)
]
PositiveInt: TypeAlias = Annotated[int, Parameter(converter=_positive)]
Int: TypeAlias = Annotated[int, Parameter(converter=_integer)]
Number: TypeAlias = Annotated[float, Parameter(converter=_number)]
Seconds: TypeAlias = Annotated[float, Parameter(converter=_seconds)]
Limit: TypeAlias = Annotated[
    PositiveInt, Parameter(metavar="N", help=f"list at most N (default: {LIST_MAX})")
]
AllLimit: TypeAlias = Annotated[
    PositiveInt | None, Parameter(metavar="N", help="list at most N (default: all)")
]
Config: TypeAlias = Annotated[
    Sequence[Path], Parameter(metavar="FILE", help="settings of the service (TOML)")
]
Store: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="ADDRESS",
        help="the store: a file or a database URL (default: from the settings)",
    ),
]
Reason: TypeAlias = Annotated[
    str | None, Parameter(metavar="TEXT", help="the reason, recorded in history")
]
Format: TypeAlias = Annotated[
    Literal["toml", "yaml", "json"] | None,
    Parameter(name="--format", help="format of the file (default: toml)"),
]
Yes: TypeAlias = Annotated[bool, Parameter(help="do not ask for confirmation on a terminal")]
Wait: TypeAlias = Annotated[bool, Parameter(help="wait until the work has ended")]
WaitLimit: TypeAlias = Annotated[
    Seconds,
    Parameter(
        name="--timeout",
        metavar="SECONDS",
        help="with --wait: stop waiting after this time; the work continues",
    ),
]


def settings_files(config: Sequence[Path]) -> list[Path]:
    """Return the settings files of `--config`, or else the default file if it exists."""
    return list(config) or ([DEFAULT_CONFIG] if DEFAULT_CONFIG.is_file() else [])
