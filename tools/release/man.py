"""Generates man pages from the commands: one for each command, and an overview.

The function of a command contains its description.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from forewarn_base import exit_codes
from forewarn_server.cli.nouns import NOUNS
from tools.docs.commands import (
    Argument,
    Command,
    argument_row,
    common_arguments,
    every_command,
    sentence,
    usage,
)

ROOT = Path(__file__).resolve().parents[2]


def pages(version: str, day: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    common = common_arguments()
    commands = list(every_command())
    yield (
        "forewarn.1",
        "\n".join(
            [
                *_head("forewarn", "Scheduled Events for any cloud", version, day),
                ".SH SYNOPSIS",
                ".B forewarn",
                escaped("[OPTIONS] COMMAND …"),
                ".SH COMMANDS",
                *_items((f"forewarn {name}", purpose) for name, (_, purpose) in NOUNS.items()),
                ".SH OPTIONS",
                *_items(argument_row(each) for each in common),
                ".SH EXIT STATUS",
                *_items((str(status), text) for status, text in exit_codes.MEANINGS.items()),
                ".SH SEE ALSO",
                *(f".BR forewarn\\-{escaped(name)} (1)" for name in NOUNS),
                "",
            ]
        ),
    )
    for name, (_, purpose) in NOUNS.items():
        own = [one for one in commands if one.words.split()[:1] == [name]]
        lines = _head(f"forewarn-{name}", purpose, version, day)
        lines.append(".SH COMMANDS" if len(own) > 1 else ".SH DESCRIPTION")
        for command in own:
            lines += _command(command, common)
        yield f"forewarn-{name}.1", "\n".join([*lines, ".SH SEE ALSO", ".BR forewarn (1)", ""])


def escaped(text: str) -> str:
    """Escape a line of text for roff."""
    text = " ".join(text.replace("`", "").split()).replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"[^ -~]", lambda one: f"\\[u{ord(one[0]):04X}]", text)
    return f"\\&{text}" if text.startswith((".", "'")) else text


def _head(name: str, purpose: str, version: str, day: str) -> list[str]:
    return [
        f'.TH "{escaped(name.upper())}" 1 "{day}" "Forewarn {escaped(version)}"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(purpose)}",
    ]


def _command(command: Command, common: Sequence[Argument]) -> list[str]:
    own = [one for one in command.arguments if one not in common]
    return [
        f'.SS "{escaped(usage(f"forewarn {command.words}", own))}"',
        escaped(sentence(command.purpose)),
        *_items(argument_row(each) for each in own),
    ]


def _items(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    for term, text in rows:
        yield from (".TP", f"\\fB{escaped(term)}\\fR", escaped(text) or "\\&")


def main() -> int:
    """Write all pages into the given directory."""
    parser = argparse.ArgumentParser(description="Write the man pages.")
    parser.add_argument("output", type=Path)
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    day = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC).strftime("%Y-%m-%d")
    for name, text in pages(version, day):
        output.joinpath(name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
