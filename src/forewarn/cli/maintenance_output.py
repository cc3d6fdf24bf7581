"""How maintenances look in a terminal: their progress, waves, plans and what is in their way.

Nothing is asked of the server in here but by `watch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.cli.output import (
    note,
    noun,
    offset,
    print_facts,
    print_json_line,
    print_table,
    to_the_second,
    warn_unasked,
    when,
)
from forewarn.cli.plan_preview import calendar_lines, group_lines
from forewarn.exit_codes import OK, REFUSED
from forewarn.protocol import timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forewarn.cli.api_client import Answer, ApiClient

#: Hosts that are named of a wave; more are counted.
NAMED_MAX = 6
#: Blocked hosts that are listed one by one; more are counted by what they wait for.
BLOCKED_MAX = 10
#: States in which nothing changes until an operator speaks.
_AT_REST = {"draft", "done", "cancelled", "stopped", "paused"}
_BAR = 30


def print_maintenances(
    found: Iterable[Answer], now_ms: int, *, empty: str = "No maintenances."
) -> None:
    """Print maintenances as a table, or a sentence where there are none."""
    print_table(
        (
            *("maintenance", "what", "state", "announced", "running", "done", "failed"),
            *("next wave", "expected end", "reason"),
        ),
        [
            (
                each["id"],
                each["cause"],
                each["state"],
                each["announced"] or "",
                each["running"] or "",
                f"{each['done']}/{each['hosts']}",
                each["failed"] or "",
                when(each["next_wave"], now_ms),
                when(each["expected_end"], now_ms),
                each["halt_reason"] or each["reason"],
            )
            for each in found
        ],
        empty=empty,
    )


def print_full(answer: Answer, now_ms: int) -> None:
    """Print one maintenance: how far it is, its waves, and what is in its way."""
    made = answer["maintenance"]
    print_facts(
        (
            ("maintenance", made["id"]),
            ("what", f"{made['cause']} of {made['hosts']} hosts ({made['impact']})"),
            ("reason", made["reason"]),
            ("asked by", made["actor"]),
            ("state", made["state"]),
            ("because", made["halt_reason"]),
            ("progress", progress(made)),
            ("started", when(made["started"], now_ms)),
            ("gate", made["gate"] + (" (being checked)" if made["checking"] else "")),
            ("next wave", when(made["next_wave"], now_ms)),
            ("expected end", when(made["expected_end"], now_ms)),
            ("deadline", when(made["deadline"], now_ms)),
            ("ended", when(made["ended"], now_ms)),
            *_waits_for(answer["waits_for"], now_ms),
            *(("postponed", _postponed(each)) for each in made["postponed"]),
        )
    )
    warn_unasked(answer["not_asked"])
    if answer["approvals"]:
        print()
        _print_approvals(answer["approvals"], now_ms)
    if answer["waves"]:
        print()
        print_waves(answer["waves"], now_ms)
    print_blocked(answer["blocked"])


def _waits_for(blocker: Answer | None, now_ms: int) -> Iterator[tuple[str, object]]:
    if blocker:
        yield "waits for", blocker["text"]
        yield "since", when(blocker["since"], now_ms)
        yield "until", when(blocker["clears"], now_ms)


def _print_approvals(answers: Iterable[Answer], now_ms: int) -> None:
    """Print what each group has answered to its event, and whom to remind."""
    print_table(
        ("group", "owner", "event", "answer", "missing", "last poll", "starts at the latest"),
        [
            (
                *(each["group"], each["owner"], each["event"], each["state"], each["missing"]),
                when(each["polled"], now_ms) or "never",
                when(each["not_before"], now_ms) if each["state"] != "started" else "",
            )
            for each in answers
        ],
    )


def _postponed(each: Answer) -> str:
    reason = f": {each['reason']}" if each["reason"] else ""
    return f"host {each['host']} until {each['until']} for {each['by']}{reason}"


def progress(made: Answer) -> str:
    """Return a bar and counts: `####++..  4 of 9 done, 1 announced, 2 running`."""
    hosts = made["hosts"] or 1
    full = _BAR * made["done"] // hosts
    part = _BAR * (made["announced"] + made["running"]) // hosts
    bar = "#" * full + "+" * part + "." * (_BAR - full - part)
    others = [f", {made[word]} {word}" for word in ("announced", "running", "failed") if made[word]]
    return f"{bar} {made['done']} of {made['hosts']} done{''.join(others)}"


def print_waves(waves: Iterable[Answer], now_ms: int) -> None:
    """Print waves as a table, in the order of time."""
    print_table(
        ("wave", "state", "hosts", "announced", "starts", "ends", "names"),
        [
            (
                f"{each['number']}{' canary' if each['canary'] else ''}",
                each["state"],
                _hosts_of(each),
                when(each["announced"], now_ms),
                when(each["started"] or each["latest_start"], now_ms),
                when(each["ended"] or each["latest_end"], now_ms),
                _some(each["hosts"]),
            )
            for each in waves
        ],
        empty="no waves",
    )


def _hosts_of(wave: Answer) -> str:
    """Return how many hosts a wave has, and how far they are: `4 (1 announced, 3 done)`."""
    counts = ", ".join(f"{count} {state}" for state, count in wave["counts"].items() if count)
    hosts = len(wave["hosts"])
    return f"{hosts} ({counts})" if counts else str(hosts)


def print_blocked(blocked: list[Answer]) -> None:
    """Print what cannot be done, and why."""
    if not blocked:
        return
    print()
    if len(blocked) <= BLOCKED_MAX:
        for each in blocked:
            print(f"waits: {each['text']} ({each['code']})")
        return
    for code, names in _by_code(blocked).items():
        print(f"waits: {len(names)} hosts ({code}): {_some(names)}")


def print_preview(answer: Answer, now_ms: int) -> None:
    """Print a plan: its bound, waves, calendar, what groups are left with, what cannot be done."""
    plan = answer["plan"]
    hosts = sum(len(each["hosts"]) for each in plan["waves"])
    waves = len(plan["waves"])
    counts = f"{hosts} {noun(hosts, 'host')} in {waves} {noun(waves, 'wave')}"
    note(f"{counts}; at least {plan['least_waves']}: {plan['argument']}")
    warn_unasked(answer["not_asked"])
    print_waves(plan["waves"], now_ms)
    for lines in (calendar_lines(plan["waves"]), group_lines(answer["groups"])):
        for number, line in enumerate(lines):
            print(line if number else f"\n{line}")
    print_blocked(plan["blocked"])


def _moved(before: int, after: int) -> str:
    return f"wave {before} -> {after}" if before != after else f"wave {after}, at another time"


def print_difference(answer: Answer) -> None:
    """Print what one plan changed of another."""
    note(f"plan {answer['to']} against {answer['from'] or 'none'}")
    rows = [(each, "+", "added") for each in answer["added"]]
    rows += [(each, "-", "done, blocked or not asked for any more") for each in answer["removed"]]
    rows += [
        (each["host"], "~", _moved(each["from_wave"], each["to_wave"]))
        for each in answer["changed"]
    ]
    rows += [(each, "!", "blocked") for each in answer["blocked"]]
    print_table(("host", "", "change"), rows, empty="the plans say the same")


def print_hosts(answer: Answer, hosts: Iterable[Answer], now_ms: int) -> None:
    """Print what became of a maintenance, of each wave and of each host."""
    print_full(answer, now_ms)
    print()
    facts, times = ("host", "state", "wave", "operation"), ("announced", "started", "ended")
    rows = [
        (
            *(each[name] or "" for name in facts),
            *(to_the_second(each[name] or "") for name in times),
            each["reason"],
        )
        for each in hosts
    ]
    print_table((*facts, *times, "reason"), rows)


def watch(client: ApiClient, path: str, *, as_json: bool) -> int:
    """Follow a maintenance until it has ended or is halted; return the exit status."""
    made: Answer = {}
    try:
        for made in _changes(client, path, client.history_end(), as_json=as_json):
            if made["state"] in _AT_REST:
                break
    except KeyboardInterrupt:
        note("no longer watching; the work goes on: see `forewarn maintenance list`")
        raise
    return OK if made["state"] == "done" and not made["failed"] else REFUSED


def _changes(client: ApiClient, path: str, after: int, *, as_json: bool) -> Iterator[Answer]:
    """Print how a maintenance is, and again whenever history says that it has changed."""
    printed: list[object] = []
    answer = client.get(path)
    _print_state(answer, client.now_ms, as_json=as_json)
    yield answer["maintenance"]
    for entry in client.lines("/v1/watch", after=after):
        if entry is not None and "end" in entry:
            note(f"the server ended the stream: {entry['end']}")
            return
        if entry is None or entry["action"].startswith("maintenance."):
            answer = client.get(path)
            made, waits = answer["maintenance"], answer["waits_for"]
            sign = [
                made["state"],
                *(made[word] for word in ("announced", "running", "done", "failed")),
                made["wave"],
                waits and waits["code"],
            ]
            if sign != printed:
                printed = sign
                _print_state(answer, client.now_ms, as_json=as_json)
            yield made


def _print_state(answer: Answer, now_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json_line(answer)
    else:
        print(_line(answer, now_ms), flush=True)


def _line(answer: Answer, now_ms: int) -> str:
    made, waits = answer["maintenance"], answer["waits_for"]
    text = f"{made['id']} {made['state']}  {progress(made)}"
    if made["halt_reason"]:
        return f"{text}: {made['halt_reason']}"
    if made["wave"]:
        text += f"; wave {made['wave']}"
    if made["expected_end"]:
        text += f", ends {offset(timestamps.parse(made['expected_end']) - now_ms)}"
    return f"{text}; waits: {waits['text']}" if waits else text


def _by_code(blocked: Iterable[Answer]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in blocked:
        found.setdefault(each["code"], []).append(each["name"])
    return found


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
