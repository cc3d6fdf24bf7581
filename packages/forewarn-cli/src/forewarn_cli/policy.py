"""`forewarn policy`: apply, check and show the maintenance policy and its open times.

The server parses the policy file and uses its own time zone data.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Annotated, Literal

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK
from forewarn_base.protocol import timestamps
from forewarn_cli.file_lines import located
from forewarn_cli.topology import DescriptionFile, FileMalformed, described, print_export
from forewarn_cli.topology_portions import TopologyFileUnreadable, put_file
from forewarn_server.cli.api_client import Answer, client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import (
    note,
    noun,
    offset,
    print_list,
    print_structured,
    when,
)
from forewarn_server.cli.parameters import (
    COMMON,
    Format,
    PositiveInt,
    ServerOptions,
)

policy = noun_app("policy")


#: Least shift of a maintenance's expected end that is printed, in ms: a new plan always moves it by
#: some seconds.
MOVED_MS_MIN = 60_000
#: Lists of a policy, and what one element of each is called.
_COUNTED = {
    "budgets": "budget",
    "windows": "window",
    "freezes": "freeze",
    "confirm": "confirmed act",
}


class PolicyUnreadable(CallerError):
    """The policy file cannot be read."""

    code = "policy-unreadable"
    message = "The policy {path} cannot be read: {reason}."
    advice = "Name a readable file that ends in .toml, .yaml or .json, or - with --format."


@policy.command(name="apply")
def _apply(
    file: DescriptionFile,
    /,
    *,
    format_: Annotated[
        Literal["toml", "yaml", "json"] | None,
        Parameter(name="--format", help="format (default: by the file name extension)"),
    ] = None,
    dry_run: Annotated[bool, Parameter(help="show what would change")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Replace the policy with a file."""
    return _put(file, format_, dry_run=dry_run, common=common)


@policy.command(name="check")
def _check(
    file: DescriptionFile,
    /,
    *,
    format_: Annotated[
        Literal["toml", "yaml", "json"] | None,
        Parameter(name="--format", help="format (default: by the file name extension)"),
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Check a file without changing anything."""
    return _put(file, format_, dry_run=True, common=common)


def _put(file: str, format_: str | None, *, dry_run: bool, common: ServerOptions) -> int:
    body, media = described(file, format_, PolicyUnreadable)
    client = client_of(common)

    def put(*, dry_run: bool) -> Answer:
        path = f"/v1/policy?dry_run={str(dry_run).lower()}"
        try:
            with located(file, body):
                answer: Answer = json.loads(put_file(client, path, body, media=media))
        except TopologyFileUnreadable as refusal:
            raise FileMalformed(what="policy", path=file, reason=refusal) from refusal
        return answer

    if common.structured:
        return print_structured(common, put(dry_run=dry_run))
    before, answer = client.get("/v1/policy"), put(dry_run=True)
    changed = answer["changed"]
    for line in _changes(before, answer):
        print(line)
    for each in answer.get("maintenances", ()):
        for line in _moved_end(each, client.now_ms):
            print(line, flush=True)
    if not dry_run:
        answer = put(dry_run=False)
    end = "" if answer["applied"] and changed else "; nothing was changed"
    note(f"the policy has {_size(answer['policy'])}{end}")
    return OK


def _size(policy: Answer) -> str:
    """Return how many rules of each kind a policy has."""
    counts = [
        f"{number} {noun(number, thing)}"
        for name, thing in _COUNTED.items()
        if (number := len(policy.get(name, ())))
    ]
    others = sum(bool(each) for name, each in policy.items() if name not in _COUNTED)
    if others:
        counts.append(f"{others} other {noun(others, 'member')}")
    return ", ".join(counts) or "no rules"


def _changes(before: Answer, answer: Answer) -> Iterator[str]:
    """Yield a line for each changed member, with one line for each window, budget and freeze."""
    for name in answer["changed"]:
        old, new = (_parts(name, policy.get(name)) for policy in (before, answer["policy"]))
        signs = {
            part: "+" if part not in old else "~" if part in new else "-"
            for part in dict.fromkeys((*old, *new))
            if old.get(part) != new.get(part)
        }
        for part, sign in (signs or {name: "~"}).items():  # or only the order changes
            known = new.get(part, {})
            text = known if isinstance(known, str) else json.dumps(known)
            yield f"{sign} {part}" if isinstance(known, dict) else f"{sign} {part} = {text}"


def _parts(name: str, member: object) -> dict[str, object]:
    """Return the parts of a policy's member by the names that `_changes` prints."""
    if isinstance(member, dict):
        return {f"{name}.{key}": each for key, each in member.items()}
    if isinstance(member, list):
        return {f"{name}: {_in_words(each)}": {} for each in member}
    return {} if member is None else {name: member}


def _in_words(element: object) -> str:
    if not isinstance(element, dict):
        return str(element)
    return ", ".join(f"{name} {each}" for name, each in element.items())


def _moved_end(each: Answer, now_ms: int) -> Iterator[str]:
    """Yield the new end of a maintenance if the end moves, and the number of blocked hosts."""
    old, new = each["expected_end"], each["new_end"]
    moved_ms = abs(timestamps.parse(new) - timestamps.parse(old)) if old and new else None
    if old != new and (moved_ms is None or moved_ms >= MOVED_MS_MIN):
        then = f"ends {when(new, now_ms)}" if new else "has no host that can be done"
        yield f"{each['id']} {then}, before: {when(old, now_ms) or 'unknown'}"
    if blocked := each["new_blocked"]:
        yield f"{each['id']}: {blocked} {noun(blocked, 'host')} cannot be done by this policy"


@policy.default
@policy.command(name="show")
def _show(
    *,
    format_: Format = None,
    common: ServerOptions = COMMON,
) -> int:
    """Print the policy as a file for `policy apply`."""
    text = print_export("policy", format_, common)
    if text.strip() in {"", "{}"}:
        note("The policy is empty: no budgets, windows, freezes or confirmations.")
    return OK


@policy.command(name="windows")
def _windows(
    *,
    days: Annotated[
        PositiveInt | None, Parameter(metavar="N", help="days ahead (default: 7)")
    ] = None,
    host: Annotated[
        str | None,
        Parameter(metavar="NAME", help="only the times at which this host may be maintained"),
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """List the times open for maintenance."""
    answer = client_of(common).get("/v1/windows", days=days, host=host)
    if common.structured:
        return print_structured(common, answer)
    columns = (
        ("window", lambda each: each["window"] or "(always)"),
        ("opens", lambda each: _time_with_weekday(each["local_opens"])),
        ("closes", lambda each: _time_with_weekday(each["local_closes"])),
        ("for", _length),
    )
    print_list(answer["spans"], columns, empty="No open times in this period.")
    for name, zone, hosts in dict.fromkeys(
        (each["window"], each["time_zone"], each["hosts"]) for each in answer["spans"]
    ):
        if name:
            note(f"{name}: times of {zone}; {f'hosts with {hosts}' if hosts else 'every host'}")
    return OK


def _time_with_weekday(text: str) -> str:
    """Return a local time with its weekday: `Sat 2026-11-21 22:00 +01:00`."""
    at = dt.datetime.fromisoformat(text)
    return f"{at:%a %Y-%m-%d %H:%M} {at.isoformat()[-6:]}"


def _length(each: Answer) -> str:
    return offset(timestamps.parse(each["closes"]) - timestamps.parse(each["opens"])).removeprefix(
        "in "
    )
