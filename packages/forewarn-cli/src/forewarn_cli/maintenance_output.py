"""Terminal output of maintenances: progress, waves, plans and blockers.

Among these functions, only `watch` sends requests.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator

from forewarn_base.exit_codes import OK, REFUSED
from forewarn_base.protocol import timestamps
from forewarn_base.protocol.timestamps import duration_text
from forewarn_base.untrusted_text import escaped_text, unescaped_output
from forewarn_cli.plan_preview import calendar_lines, chart_lines, group_lines
from forewarn_server.cli.api_client import Answer, ApiClient
from forewarn_server.cli.output import (
    is_redrawn,
    listed,
    note,
    noun,
    offset,
    print_facts,
    print_json_line,
    print_list,
    print_table,
    to_the_second,
    warn_unasked,
    when,
)

#: Maximum number of hosts of a wave listed by name; the output gives the number of the others.
HOSTS_NAMED_MAX = 6
#: Maximum number of blocked hosts listed by name; the output gives the number of the others per
#: blocker.
BLOCKED_MAX = 10
#: Maximum number of hosts whose VM moves are listed.
MOVES_MAX = 40
#: States in which a maintenance waits for an operator or has ended.
_NOT_RUNNING = {"draft", "done", "cancelled", "stopped", "paused"}
_BAR = 30


def _hosts(maintenance: Answer) -> str:
    return f"{maintenance['hosts']} {noun(maintenance['hosts'], 'host')}"


def print_maintenances(
    maintenances: Iterable[Answer],
    now_ms: int,
    *,
    empty: str = "No maintenances.",
    wide: bool = False,
) -> None:
    """Print maintenances as a table, or the sentence `empty` for an empty list."""
    columns = (
        *(("maintenance", "id"), ("what", "cause"), "state"),
        ("announced", lambda each: each["announced"] or ""),
        ("running", lambda each: each["running"] or ""),
        ("done", lambda each: f"{each['done']}/{each['hosts']}"),
        ("failed", lambda each: each["failed"] or ""),
        ("next wave", lambda each: when(each["next_wave"], now_ms)),
        ("expected end", lambda each: when(each["expected_end"], now_ms)),
        ("reason", lambda each: each["halt_reason"] or each["reason"]),
    )
    print_list(maintenances, columns, empty=empty, wide=wide)


def print_full(answer: Answer, now_ms: int) -> None:
    """Print one maintenance: its progress, waves and blockers."""
    maintenance = answer["maintenance"]
    print_facts(
        (
            ("maintenance", maintenance["id"]),
            (
                "what",
                f"{maintenance['cause']} of {_hosts(maintenance)} ({maintenance['impact']})",
            ),
            ("moves", _moves(maintenance)),
            *(
                ("duration", _duration_text(each, maintenance))
                for each in maintenance.get("durations", ())
            ),
            ("reason", maintenance["reason"]),
            ("asked by", maintenance["actor"]),
            ("state", maintenance["state"]),
            ("because", maintenance["halt_reason"]),
            ("progress", progress(maintenance)),
            ("failed", failed_hosts(maintenance)),
            ("started", when(maintenance["started"], now_ms)),
            ("gate", maintenance["gate"] + (" (being checked)" if maintenance["checking"] else "")),
            ("next wave", when(maintenance["next_wave"], now_ms)),
            ("expected end", when(maintenance["expected_end"], now_ms)),
            ("deadline", when(maintenance["deadline"], now_ms)),
            ("ended", when(maintenance["ended"], now_ms)),
            *_waits_for(answer["waits_for"], now_ms),
            *(("postponed", _postponement_text(each)) for each in maintenance["postponed"]),
        )
    )
    warn_unasked(answer["not_asked"])
    if answer["approvals"]:
        print()
        _print_approvals(answer["approvals"], now_ms)
    if answer["waves"]:
        print()
        print_waves(answer["waves"], now_ms)
        if is_redrawn():
            print()
            print(*chart_lines(answer["waves"], now_ms), sep="\n")
    print_blocked(answer["blocked"])


def _moves(maintenance: Answer) -> str:
    if not maintenance["move_s"]:
        return ""
    text = f"VMs move away first, within {duration_text(maintenance['move_s'])}"
    if not maintenance["return_s"]:
        return f"{text}, and stay away"
    within = duration_text(maintenance["return_s"])
    return f"{text}, and return within {within} after the work, notice included"


def _duration_text(duration: Answer, maintenance: Answer) -> str:
    return f"{duration['text']}; {duration_text(maintenance['duration_s'])} was asked"


def failed_hosts(maintenance: Answer) -> str:
    """Return the number of failed hosts, and whether a new plan includes these hosts."""
    count = maintenance["failed"]
    if not count:
        return ""
    again = maintenance["state"] == "stopped"
    them = "it" if count == 1 else "them"
    verb = f"`forewarn maintenance resume` plans {them} again" if again else "not planned again"
    return f"{count} {noun(count, 'host')}: {verb}"


def _waits_for(blocker: Answer | None, now_ms: int) -> Iterator[tuple[str, object]]:
    if blocker:
        yield "waits for", blocker["text"]
        yield "since", when(blocker["since"], now_ms)
        yield "until", when(blocker["clears"], now_ms)


def _print_approvals(answers: Iterable[Answer], now_ms: int) -> None:
    """Print each group's answer to its event, and the VMs whose approval is missing."""
    columns = (
        *("group", "owner", "event", ("answer", "state"), "missing"),
        ("last poll", lambda each: when(each["polled"], now_ms) or "never"),
        (
            "starts at the latest",
            lambda each: when(each["not_before"], now_ms) if each["state"] != "started" else "",
        ),
    )
    print_list(answers, columns)


def _postponement_text(each: Answer) -> str:
    reason = f": {each['reason']}" if each["reason"] else ""
    return f"host {each['host']} until {each['until']} for {each['by']}{reason}"


def progress(maintenance: Answer) -> str:
    """Return a progress bar with counts: `####++..  4 of 9 done, 1 announced, 2 running`."""
    hosts = maintenance["hosts"] or 1
    full = _BAR * maintenance["done"] // hosts
    part = _BAR * (maintenance["announced"] + maintenance["running"]) // hosts
    bar = "#" * full + "+" * part + "." * (_BAR - full - part)
    others = [
        f", {maintenance[word]} {word}"
        for word in ("announced", "running", "failed")
        if maintenance[word]
    ]
    return f"{bar} {maintenance['done']} of {maintenance['hosts']} done{''.join(others)}"


def print_waves(waves: Iterable[Answer], now_ms: int) -> None:
    """Print waves as a table, ordered by time."""
    columns = (
        ("wave", lambda each: f"{each['number']}{' canary' if each['canary'] else ''}"),
        *("state", ("hosts", _hosts_of)),
        ("announced", lambda each: when(each["announced"], now_ms)),
        ("starts", lambda each: when(each["started"] or each["latest_start"], now_ms)),
        ("ends", lambda each: when(each["ended"] or each["latest_end"], now_ms)),
        ("names", lambda each: listed(each["hosts"], HOSTS_NAMED_MAX)),
    )
    print_list(waves, columns, empty="no waves")


def _hosts_of(wave: Answer) -> str:
    """Return the hosts of a wave, counted by state: `4 (1 announced, 3 done)`."""
    counts = ", ".join(f"{count} {state}" for state, count in wave["counts"].items() if count)
    hosts = len(wave["hosts"])
    return f"{hosts} ({counts})" if counts else str(hosts)


def print_blocked(blocked: list[Answer]) -> None:
    """Print the blocked hosts with their blockers."""
    if not blocked:
        return
    print()
    if len(blocked) <= BLOCKED_MAX:
        for each in blocked:
            print(f"waits: {each['text']} ({each['code']})")
        return
    for code, names in _by_code(blocked).items():
        each = noun(len(names), "host")
        print(f"waits: {len(names)} {each} ({code}): {listed(names, HOSTS_NAMED_MAX)}")


def print_preview(answer: Answer, now_ms: int, *, returning: bool) -> None:
    """Print a plan, with its bound, waves, calendar, groups and blocked hosts."""
    plan = answer["plan"]
    hosts = sum(len(each["hosts"]) for each in plan["waves"])
    waves = len(plan["waves"])
    counts = f"{hosts} {noun(hosts, 'host')} in {waves} {noun(waves, 'wave')}"
    note(f"{counts}; at least {plan['least_waves']}: {plan['argument']}")
    for each in plan.get("durations", ()):
        note(f"Work {each['text']}.")
    warn_unasked(answer["not_asked"])
    print_waves(plan["waves"], now_ms)
    for lines in (calendar_lines(plan["waves"]), group_lines(answer["groups"])):
        for number, line in enumerate(lines):
            print(line if number else f"\n{line}")
    print_moves(answer, returning=returning)
    print_blocked(plan["blocked"])


def print_moves(answer: Answer, *, returning: bool) -> None:
    """Print the planned destinations of each host's VMs, and the fullest host's memory use."""
    to_hosts: dict[tuple[int, str], Counter[str]] = {}
    for each in answer["plan"]["moves"]:
        place = each["wave"], each["from"]
        to_hosts.setdefault(place, Counter())[each["to"] or "the driver chooses"] += 1
    if not to_hosts:
        return
    print()
    rows = [
        (
            wave,
            host,
            counts.total(),
            listed([f"{to} ({n})" for to, n in sorted(counts.items())], HOSTS_NAMED_MAX),
        )
        for (wave, host), counts in sorted(to_hosts.items())
    ]
    after = "return" if returning else "stay"
    print_table(("wave", "host", "vms", f"destinations (vms {after})"), rows[:MOVES_MAX])
    if len(rows) > MOVES_MAX:
        print(f"and {len(rows) - MOVES_MAX} more hosts; --json prints all")
    known = [each for each in answer["room"] if each["memory_mib"]]
    if known:
        full = max(known, key=lambda each: each["during_mib"] / each["memory_mib"])
        used = f"{full['during_mib']} of {full['memory_mib']} MiB"
        print(f"fullest: {full['host']} in wave {full['wave']}, {used}")


def _wave_text(before: int, after: int) -> str:
    return (
        f"wave {before} -> {after}" if before != after else f"still wave {after}, at another time"
    )


def print_difference(answer: Answer) -> None:
    """Print the differences between two plans."""
    note(f"plan {answer['to']} against {answer['from'] or 'none'}")
    rows = [(each, "+", "added") for each in answer["added"]]
    rows += [(each, "-", "done, blocked or no longer requested") for each in answer["removed"]]
    rows += [
        (each["host"], "~", _wave_text(each["from_wave"], each["to_wave"]))
        for each in answer["changed"]
    ]
    rows += [(each, "!", "blocked") for each in answer["blocked"]]
    print_table(("host", "", "change"), rows, empty="The plans are equal.")


def print_hosts(answer: Answer, hosts: Iterable[Answer], now_ms: int) -> None:
    """Print the results of a maintenance, its waves and its hosts."""
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


def follow(client: ApiClient, path: str, *, as_json: bool) -> int:
    """Follow a maintenance until it ends or stops; return the exit status."""
    maintenance: Answer = {}
    try:
        for maintenance in _changes(client, path, client.history_end(), as_json=as_json):
            if maintenance["state"] in _NOT_RUNNING:
                break
    except KeyboardInterrupt:
        note("no longer watching; the work continues: see `forewarn maintenance list`")
        raise
    return OK if maintenance["state"] == "done" and not maintenance["failed"] else REFUSED


def _changes(client: ApiClient, path: str, after: int, *, as_json: bool) -> Iterator[Answer]:
    """Print the state of a maintenance, now and after each change in history."""
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
            maintenance, waits = answer["maintenance"], answer["waits_for"]
            sign = [
                maintenance["state"],
                *(maintenance[word] for word in ("announced", "running", "done", "failed")),
                maintenance["wave"],
                waits and waits["code"],
            ]
            if sign != printed:
                printed = sign
                _print_state(answer, client.now_ms, as_json=as_json)
            yield maintenance


def _print_state(answer: Answer, now_ms: int, *, as_json: bool) -> None:
    """Print the state: as a line, or on a terminal in the place of the line before."""
    if as_json:
        print_json_line(answer)
        return
    line = line_of(answer, now_ms)
    if not is_redrawn():
        print(line, flush=True)
        return
    line = escaped_text(line)[: shutil.get_terminal_size().columns - 1]
    end = "\n" if answer["maintenance"]["state"] in _NOT_RUNNING else ""
    print(f"\r\x1b[2K{line}", end=end, file=unescaped_output(), flush=True)


def line_of(answer: Answer, now_ms: int) -> str:
    """Return the state of a maintenance in one line."""
    maintenance, waits = answer["maintenance"], answer["waits_for"]
    text = f"{maintenance['id']} {maintenance['state']}  {progress(maintenance)}"
    if maintenance["halt_reason"]:
        return f"{text}: {maintenance['halt_reason']}"
    if maintenance["wave"]:
        text += f"; wave {maintenance['wave']}"
    if maintenance["expected_end"]:
        text += f", ends {offset(timestamps.parse(maintenance['expected_end']) - now_ms)}"
    return f"{text}; waits: {waits['text']}" if waits else text


def _by_code(blocked: Iterable[Answer]) -> dict[str, list[str]]:
    names_by_code: dict[str, list[str]] = {}
    for each in blocked:
        names_by_code.setdefault(each["code"], []).append(each["name"])
    return names_by_code
