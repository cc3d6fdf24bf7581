"""`forewarn policy`: apply, check and show the maintenance policy and its open times.

The server parses the policy file and uses its own time zone data.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
from collections.abc import Iterator

from forewarn.cli.api_client import Answer, client_of
from forewarn.cli.output import note, noun, offset, print_file, print_json, print_list, when
from forewarn.cli.parsing import CommandGroup, whole_number
from forewarn.cli.topology import FileMalformed, add_file, described
from forewarn.cli.topology_portions import TopologyFileUnreadable, put_file
from forewarn.errors import CallerError
from forewarn.exit_codes import OK
from forewarn.protocol import timestamps

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


def add_commands(commands: CommandGroup) -> None:
    """Add `policy`."""
    policy = commands.group("policy", default="show")
    apply = policy.command("apply", "replace the policy with a file", run=_apply)
    add_file(apply)
    apply.flag("--dry-run", "show what would change")
    check = policy.command("check", "check a file without changing anything", run=_apply)
    add_file(check)
    check.set_defaults(dry_run=True)
    show = policy.command("show", "print the policy as a file for `policy apply`", run=_show)
    show.option("--format", "format of the file (default: toml)", choices=("toml", "yaml", "json"))
    spans = policy.command("windows", "list the times open for maintenance", run=_windows)
    spans.option("--days N", "days ahead (default: 7)", type=whole_number)
    spans.option("--host NAME", "only the times at which this host may be maintained")


def _apply(arguments: argparse.Namespace) -> int:
    body, media = described(arguments, PolicyUnreadable)
    client = client_of(arguments)

    def put(dry_run: str) -> Answer:
        path = f"/v1/policy?dry_run={dry_run}"
        try:
            answer: Answer = json.loads(put_file(client, path, body, media=media))
        except TopologyFileUnreadable as refusal:
            raise FileMalformed(what="policy", path=arguments.file, reason=refusal) from refusal
        return answer

    if arguments.json:
        return print_json(put("true" if arguments.dry_run else "false"))
    before, answer = client.get("/v1/policy"), put("true")
    changed = answer["changed"]
    for line in _changes(before, answer):
        print(line)
    for each in answer.get("maintenances", ()):
        for line in _moved_end(each, client.now_ms):
            print(line, flush=True)
    if not arguments.dry_run:
        answer = put("false")
    policy = answer["policy"]
    counts = []
    for name, thing in _COUNTED.items():
        if number := len(policy.get(name, ())):
            counts.append(f"{number} {noun(number, thing)}")
    end = "" if answer["applied"] and changed else "; nothing was changed"
    note(f"the policy has {', '.join(counts) or 'no rules'}{end}")
    return OK


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
            number_or_text = not isinstance(new.get(part, {}), dict)
            yield f"{sign} {part} = {new[part]}" if number_or_text else f"{sign} {part}"


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


def _show(arguments: argparse.Namespace) -> int:
    form = "json" if arguments.json else arguments.format or "toml"
    body = client_of(arguments).send("GET", f"/v1/policy?format={form}")
    text = body.decode("utf-8")
    if form == "json":
        print(text, end="")
    else:
        print_file(text)
    if body.strip() in {b"", b"{}"}:
        note("The policy is empty: no budgets, windows, freezes or confirmations.")
    return OK


def _windows(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).get("/v1/windows", days=arguments.days, host=arguments.host)
    if arguments.json:
        return print_json(answer)
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
