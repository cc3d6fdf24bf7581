"""`forewarn topology`: apply, show and import the whole fleet.

The server parses the file. This module sends the file, in parts if the file is very large.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from forewarn.cli.api_client import client_of
from forewarn.cli.output import note, print_file, print_json, print_json_line
from forewarn.cli.parsing import CommandGroup, Parser
from forewarn.cli.topology_import import add_imports
from forewarn.cli.topology_portions import TopologyFileUnreadable, apply_portions, portions_of
from forewarn.errors import CallerError
from forewarn.exit_codes import OK
from forewarn.garbage import uncollected

#: File name extension -> media type.
_MEDIA = {
    ".toml": "application/toml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".json": "application/json",
}
#: Most changed records that `--json` prints indented, because indenting large answers is slow.
INDENTED_MAX = 10_000
_SIGNS = {"added": "+", "changed": "~", "removed": "-"}


class TopologyUnreadable(CallerError):
    """The topology file cannot be read."""

    code = "topology-unreadable"
    message = "The topology {path} cannot be read: {reason}."
    advice = "Name a readable file that ends in .toml, .yaml or .json, or - with --format."


class FileMalformed(CallerError):
    """The server refused a malformed file."""

    code = "file-malformed"
    message = "The {what} {path} cannot be read: {reason}."
    advice = "Correct the file and run the command again; nothing was changed."


def add_commands(commands: CommandGroup) -> None:
    """Add `topology`."""
    topology = commands.group("topology", default="show")
    apply = topology.command("apply", "change the fleet to match a file", run=_apply)
    add_file(apply)
    apply.flag("--prune", "remove records that the file does not name")
    apply.flag("--dry-run", "show what would change")
    show = topology.command("show", "print the fleet as a file for `topology apply`", run=_show)
    show.option("--format", "format of the file (default: toml)", choices=("toml", "yaml", "json"))
    group = topology.group("import", "import hosts and VMs from a platform", default="")
    add_imports(group)


def add_file(parser: Parser) -> None:
    """Add the arguments for a file in one of the three formats."""
    parser.add_argument("file", metavar="FILE", help=".toml, .yaml or .json; - is standard input")
    parser.option(
        "--format", "format (default: by the file name extension)", choices=("toml", "yaml", "json")
    )


def described(arguments: argparse.Namespace, unreadable: type[CallerError]) -> tuple[bytes, str]:
    """Return the content of the file in the arguments, and its media type.

    Raises:
        CallerError: the file is unreadable or its format unknown; the class is `unreadable`.
    """
    ending = f".{arguments.format}" if arguments.format else Path(arguments.file).suffix.lower()
    media = _MEDIA.get(ending)
    if media is None:
        wrong = f"the extension {ending!r} is unknown" if ending else "its name has no extension"
        raise unreadable(path=arguments.file, reason=wrong)
    try:
        if arguments.file == "-":
            return sys.stdin.buffer.read(), media
        return Path(arguments.file).read_bytes(), media
    except OSError as error:
        raise unreadable(path=arguments.file, reason=error.strerror) from error


def _apply(arguments: argparse.Namespace) -> int:
    body, media = described(arguments, TopologyUnreadable)
    try:
        with uncollected():  # a large file creates a million objects that all stay in use
            portions = portions_of(body, media)
            asked = {"prune": arguments.prune, "dry_run": arguments.dry_run}
            answer = apply_portions(client_of(arguments), portions, asked)
    except TopologyFileUnreadable as refusal:
        raise FileMalformed(what="topology", path=arguments.file, reason=refusal) from refusal
    if arguments.json and sum(len(answer[verb]) for verb in _SIGNS) > INDENTED_MAX:
        print_json_line(answer)
        return OK
    if arguments.json:
        return print_json(answer)
    for verb, sign in _SIGNS.items():
        for each in answer[verb]:
            print(f"{sign} {each['kind']} {each['name']}")
    counts = ", ".join(f"{len(answer[verb])} {verb}" for verb in _SIGNS)
    note(f"{counts}{'' if answer['applied'] else '; nothing was done (--dry-run)'}")
    return OK


def _show(arguments: argparse.Namespace) -> int:
    form = "json" if arguments.json else arguments.format or "toml"
    body = client_of(arguments).send("GET", f"/v1/topology?format={form}")
    text = body.decode("utf-8")
    if form == "json":
        print(text, end="")
    else:
        print_file(text)
    return OK
