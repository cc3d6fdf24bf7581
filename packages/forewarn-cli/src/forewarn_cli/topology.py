"""`forewarn topology`: apply, show and import the whole fleet.

The server parses the file. This module sends the file, in parts if the file is very large.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK
from forewarn_base.garbage import uncollected
from forewarn_cli.file_lines import located
from forewarn_cli.topology_import import imports
from forewarn_cli.topology_portions import TopologyFileUnreadable, apply_portions, portions_of
from forewarn_cli.topology_summary import SIGNS, print_summary
from forewarn_server.cli.api_client import Answer, client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import (
    confirm,
    note,
    noun,
    print_file,
    print_json_line,
    print_structured,
)
from forewarn_server.cli.parameters import (
    COMMON,
    FileOrDash,
    Format,
    ServerOptions,
    Yes,
)

DescriptionFile: TypeAlias = Annotated[
    FileOrDash, Parameter(name="FILE", help=".toml, .yaml or .json; - is standard input")
]
topology = noun_app("topology")
topology.command(imports)


#: File name extension -> media type.
_MEDIA = {
    ".toml": "application/toml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".json": "application/json",
}
#: Most changed records that `--json` prints indented, because indenting large answers is slow.
INDENTED_MAX = 10_000
#: Most changed records of one kind that are printed by name.
SHOWN_MAX = 100
#: Most changed members of a record that are shown, and the text of a member without a value.
MEMBERS_MAX, DEFAULT = 4, "(default)"


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


def described(file: str, format_: str | None, unreadable: type[CallerError]) -> tuple[bytes, str]:
    """Return the content of a file, and its media type.

    Raises:
        CallerError: the file is unreadable or its format unknown; the class is `unreadable`.
    """
    ending = f".{format_}" if format_ else Path(file).suffix.lower()
    media = _MEDIA.get(ending)
    if media is None:
        wrong = f"the extension {ending!r} is unknown" if ending else "its name has no extension"
        raise unreadable(path=file, reason=wrong)
    try:
        if file == "-":
            return sys.stdin.buffer.read(), media
        return Path(file).read_bytes(), media
    except OSError as error:
        raise unreadable(path=file, reason=error.strerror) from error


@topology.command(name="apply")
def _apply(
    file: DescriptionFile,
    /,
    *,
    format_: Annotated[
        Literal["toml", "yaml", "json"] | None,
        Parameter(name="--format", help="format (default: by the file name extension)"),
    ] = None,
    prune: Annotated[bool, Parameter(help="remove records that the file does not name")] = False,
    dry_run: Annotated[bool, Parameter(help="show what would change")] = False,
    revision: Annotated[
        str | None, Parameter(help="revision of the file, such as a git commit, kept in history")
    ] = None,
    yes: Yes = False,
    common: ServerOptions = COMMON,
) -> int:
    """Change the fleet to match a file."""
    body, media = described(file, format_, TopologyUnreadable)
    flags = {"prune": prune, "dry_run": dry_run}
    query = {name: "true" for name, wanted in flags.items() if wanted}
    if revision:
        query["revision"] = revision
    try:
        with (
            located(file, body),
            uncollected(),
        ):  # a large file creates a million objects that all stay in use
            client, portions = client_of(common), portions_of(body, media)
            typed = not (common.structured or file == "-") and sys.stdin.isatty()
            asks = typed and not (yes or dry_run)
            if asks:
                preview = apply_portions(client, portions, {**query, "dry_run": "true"})
                _print_changes(preview)
                if any(preview[verb] for verb in SIGNS):
                    confirm(f"Apply {_counts_text(preview)}?", yes=False)
            answer = apply_portions(client, portions, query)
    except TopologyFileUnreadable as refusal:
        raise FileMalformed(what="topology", path=file, reason=refusal) from refusal
    if common.form == "json" and sum(len(answer[verb]) for verb in SIGNS) > INDENTED_MAX:
        print_json_line(answer)
        return OK
    if common.form in {"csv", "name"}:  # one row for each change
        changes = [{"change": verb, **each} for verb in SIGNS for each in answer[verb]]
        return print_structured(common, {"changes": changes})
    if common.structured:
        return print_structured(common, answer)
    if not asks:
        _print_changes(answer)
    named = f"revision {revision}: " if revision else ""
    end = "" if answer["applied"] else "; nothing was done (--dry-run)"
    note(f"{named}{_counts_text(answer)}{end}")
    return OK


def _print_changes(answer: Answer) -> None:
    """Print changed records with what changes, and their numbers by zone, rack and owner."""
    for verb, sign in SIGNS.items():
        different = {(each["kind"], each["name"]): _differences_text(each) for each in answer[verb]}
        for kind, names in _by_kind(answer[verb]).items():
            for name in names[:SHOWN_MAX]:
                print(f"{sign} {kind} {name}{different[kind, name]}")
            if len(names) > SHOWN_MAX:
                print(f"{sign} {len(names) - SHOWN_MAX} more of kind {kind}")
    print_summary({verb: answer[verb] for verb in SIGNS})


def _differences_text(change: Mapping[str, Any]) -> str:
    """Return what changes in a record: `: zone a -> b, size S -> M and 3 more`."""
    each = [
        f"{one['member']} {one['old'] or DEFAULT} -> {one['new'] or DEFAULT}"
        for one in change.get("differences", ())
    ]
    more = f" and {len(each) - MEMBERS_MAX} more" if len(each) > MEMBERS_MAX else ""
    return f": {', '.join(each[:MEMBERS_MAX])}{more}" if each else ""


def _counts_text(answer: Answer) -> str:
    return ", ".join(_count_text(verb, answer[verb]) for verb in SIGNS)


def _count_text(verb: str, changes: list[dict[str, str]]) -> str:
    """Return the number of changes, by kind if there are several: `3 added (1 host, 2 VMs)`."""
    words = {"vm": "VM"}
    parts = [
        f"{len(names)} {noun(len(names), words.get(kind, kind))}"
        for kind, names in _by_kind(changes).items()
    ]
    kinds = f" ({', '.join(parts)})" if parts else ""
    return f"{len(changes)} {verb}{kinds}"


def _by_kind(changes: list[dict[str, str]]) -> dict[str, list[str]]:
    """Return the names of changed records by their kind."""
    names: dict[str, list[str]] = {}
    for each in changes:
        names.setdefault(each["kind"], []).append(each["name"])
    return names


def print_export(kind: str, format_: Format, common: ServerOptions) -> str:
    """Print the topology or the policy as a file, and return its text."""
    form = common.form if common.form in {"json", "yaml"} else format_ or "toml"
    text = client_of(common).send("GET", f"/v1/{kind}?format={form}").decode("utf-8")
    if form == "json":
        print(text, end="")
    else:
        print_file(text)
    return text


@topology.default
@topology.command(name="show")
def _show(
    *,
    format_: Format = None,
    common: ServerOptions = COMMON,
) -> int:
    """Print the fleet as a file for `topology apply`."""
    print_export("topology", format_, common)
    return OK
