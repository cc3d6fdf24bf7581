"""`forewarn declaration`: declared maintenances, as their owners and operators see them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK, REFUSED
from forewarn_base.protocol.timestamps import duration_text, parse
from forewarn_base.validation.toml_reader import read_toml
from forewarn_server.cli.api_client import Answer, ApiClient, ApiRefused, client_of, part
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import (
    listed,
    note,
    note_seconds,
    print_facts,
    print_file,
    print_list,
    print_structured,
    show_list,
    to_the_second,
    when,
)
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    FileOrDash,
    ListOptions,
    Moment,
    PositiveInt,
    ServerOptions,
)
from forewarn_server.cli.text_files import text_of

declaration = noun_app("declaration")
#: How often and at which intervals, in seconds, a command looks for the plan after a choice.
PLANNED_TRIES, PLANNED_EVERY_S = 10, 0.3
DeclarationId: TypeAlias = Annotated[str, Parameter(name="ID", help="m-12")]


@declaration.default
@declaration.command(name="list")
def _list(*, common: ListOptions = LISTED) -> int:
    """List declared maintenances; owners see those that concern their VMs."""
    client = client_of(common)
    answer = client.get("/v1/declarations")
    now_ms = client.now_ms
    columns = (
        *("id", "severity", "state", "impact"),
        ("resources", lambda each: len(each["resources"])),
        ("open", lambda each: _count(each, "open")),
        ("hand back until", lambda each: when(each["hand_back_deadline"], now_ms)),
        "reason",
    )
    empty = "No maintenance is declared, or none that concerns your VMs."
    return show_list(common, answer, columns, name="declarations", empty=empty)


@declaration.command(name="show")
def _show(id_: DeclarationId, /, *, common: ServerOptions = COMMON) -> int:
    """Show a declared maintenance: for each resource the planned start and the choice."""
    client = client_of(common)
    answer = client.get(f"/v1/declarations/{part(id_)}")
    if common.structured:
        return print_structured(common, answer)
    each, now_ms = answer["declaration"], client.now_ms
    print_facts(
        [
            *((name, each[name]) for name in ("id", "severity", "state", "cause", "impact")),
            ("reason", each["reason"]),
            ("waived", listed(each.get("waived", []))),
            ("declared", when(each["declared"], now_ms)),
            ("hand back until", when(each["hand_back_deadline"], now_ms)),
            ("earliest start", when(each["earliest_start"], now_ms)),
            ("interruption", _interruption(each)),
            ("window of a host", duration_text(each["window_s"])),
            *(("test first", order_text(one)) for one in each.get("first_groups", [])),
            ("version", each["version"]),
        ]
    )
    print()
    columns = (
        *("host", "owner"),
        ("VMs", lambda one: listed(one["vms"])),
        "state",
        ("start", lambda one: when(one["start"], now_ms)),
        ("chosen", lambda one: when(one["chosen_start"], now_ms) or one["decision"] or ""),
        ("hand back until", lambda one: when(one["hand_back_deadline"], now_ms)),
        ("deferral", lambda one: deferral_text(one.get("deferral"), now_ms)),
    )
    print_list(each["resources"], columns, wide=common.form == "wide")
    return OK


@declaration.command(name="openings")
def _openings(
    id_: DeclarationId,
    /,
    *,
    host: Annotated[str | None, Parameter(metavar="NAME", help="host of your VMs")] = None,
    vm: Annotated[str | None, Parameter(metavar="NAME", help="one of your VMs")] = None,
    common: ListOptions = LISTED,
) -> int:
    """List the times at which the work on one host can start, and how many hosts still can."""
    require_one(**{"--host": host, "--vm": vm})
    client = client_of(common)
    answer = client.get(f"/v1/declarations/{part(id_)}/openings", host=host, vm=vm)
    numbered = [{"number": n, **each} for n, each in enumerate(answer["openings"], 1)]
    columns = (
        "number",
        ("start", lambda each: local_time(each["start"])),
        ("latest start", lambda each: local_time(each["latest"])),
        ("hosts left", lambda each: "any" if each["room"] is None else each["room"]),
    )
    empty = answer.get("text") or "No opening before the hand-back deadline."
    return show_list(common, {"openings": numbered}, columns, name="openings", empty=empty)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ChosenVms:
    """Options that name the VMs of a choice."""

    host: Annotated[str | None, Parameter(metavar="NAME", help="your VMs on this host")] = None
    group: Annotated[str | None, Parameter(metavar="NAME", help="the VMs of this group")] = None
    vm: Annotated[
        str | None, Parameter(metavar="NAME", help="this VM, and your others on its host")
    ] = None
    failure_domain: Annotated[
        str | None, Parameter(metavar="KEY=VALUE", help="your VMs on hosts with this label")
    ] = None
    owner: Annotated[
        str | None,
        Parameter(metavar="NAME", help="only this owner's VMs there (default: one owner's)"),
    ] = None

    @property
    def named(self) -> dict[str, str]:
        """The options that were given."""
        return {name: each for name, each in vars(self).items() if each is not None}

    def require_place(self) -> None:
        """Refuse anything but one place; --owner goes with hosts."""
        domain = {"--failure-domain": self.failure_domain}
        require_one(**{"--host": self.host, "--group": self.group, "--vm": self.vm, **domain})
        if self.owner is not None and self.host is None and self.failure_domain is None:
            raise OptionsContradict(problem="--owner needs --host or --failure-domain")


def require_one(**options: object) -> None:
    """Refuse options of which not exactly one was given; keys are their names.

    Raises:
        OptionsContradict: none was given, or several were.
    """
    names = list(options)
    choice = f"{', '.join(names[:-1])} and {names[-1]}"
    given = [name for name, each in options.items() if each not in {None, False}]
    if len(given) != 1:
        problem = f"not {' and '.join(given)}" if given else "none was given"
        raise OptionsContradict(problem=f"Give exactly one of {choice}, {problem}")


CHOSEN = ChosenVms()
DryRun: TypeAlias = Annotated[bool, Parameter(help="only check whether the choices are possible")]


@declaration.command(name="choose")
def _choose(
    id_: DeclarationId,
    /,
    *,
    chosen: ChosenVms = CHOSEN,
    at: Annotated[
        Moment | None,
        Parameter(metavar="TIME", help="start of the work: 2026-12-06T02:00:00+01:00"),
    ] = None,
    now: Annotated[bool, Parameter(help="start the work as soon as possible")] = False,
    opening: Annotated[
        PositiveInt | None,
        Parameter(metavar="N", help="start at an opening, by its number in `declaration openings`"),
    ] = None,
    approve: Annotated[bool, Parameter(help="approve the event of the work in advance")] = False,
    file: Annotated[
        FileOrDash | None,
        Parameter(metavar="FILE", help="file with a choice on each line: `host h7 TIME`"),
    ] = None,
    rule: Annotated[
        FileOrDash | None,
        Parameter(
            metavar="FILE",
            help="TOML file with a window; only chooses where no choice stands",
        ),
    ] = None,
    dry_run: DryRun = False,
    common: ServerOptions = COMMON,
) -> int:
    """Choose when the work on your VMs starts.

    A file has a line for each choice: `host`, `group`, `vm` or `failure-domain`, a name, and a
    time, `now` or `release`.
    """
    require_one(**{"--at": at, "--now": now, "--opening": opening, "--file": file, "--rule": rule})
    if file is not None and (chosen.named or approve):
        raise OptionsContradict(
            problem="--file cannot be combined with --host, --group, --vm, --failure-domain, "
            "--owner and --approve"
        )
    if rule is not None and approve:
        raise OptionsContradict(
            problem="--rule cannot be combined with --approve; write `approve = true` in the file"
        )
    if opening is not None and (chosen.group or chosen.failure_domain):
        raise OptionsContradict(
            problem="--opening needs --host or --vm: several hosts have different openings"
        )
    if file is None and (rule is None or chosen.named):
        chosen.require_place()
    client = client_of(common)
    if rule is not None:
        members = rule_of(text_of(rule))
        choices = [{**each, **members} for each in _places(client, id_, chosen)]
        with _rule_named(rule):
            return _send(client, id_, choices, common, dry_run=dry_run)
    if file is not None:
        numbered = choices_of(text_of(file))
        if not numbered:
            raise ChoicesMissing(path=file)
        try:
            return _send(client, id_, [*numbered.values()], common, dry_run=dry_run)
        except ApiRefused as refused:
            raise _in_lines(refused, tuple(numbered)) from refused
    if opening is not None:
        at = _start_of_opening(client, id_, chosen, number=opening)
    given = {"at": at, "now": now, "approve": approve}
    choice: dict[str, object] = {**chosen.named}
    choice |= {name: each for name, each in given.items() if each}
    return _send(client, id_, [choice], common, dry_run=dry_run)


def _start_of_opening(client: ApiClient, id_: str, chosen: ChosenVms, *, number: int) -> str:
    """Return the start of an opening by its number in the list, counted from 1.

    Raises:
        OpeningUnknown: the list is shorter.
    """
    path = f"/v1/declarations/{part(id_)}/openings"
    openings = client.get(path, host=chosen.host, vm=chosen.vm)["openings"]
    if number > len(openings):
        raise OpeningUnknown(number=number, count=len(openings))
    return str(openings[number - 1]["start"])


@declaration.command(name="release")
def _release(
    id_: DeclarationId,
    /,
    *,
    chosen: ChosenVms = CHOSEN,
    dry_run: DryRun = False,
    common: ServerOptions = COMMON,
) -> int:
    """Hand VMs back early: the work on them may start at any time."""
    chosen.require_place()
    choice = {**chosen.named, "release": True}
    return _send(client_of(common), id_, [choice], common, dry_run=dry_run)


@declaration.command(name="calendar")
def _calendar(*, common: ServerOptions = COMMON) -> int:
    """Print your declared maintenances as an iCalendar file.

    It has an event for the window of each resource, and one for each hand-back deadline.
    """
    print_file(client_of(common).send("GET", "/v1/declarations.ics").decode())
    return OK


@declaration.command(name="defer")
def _defer(
    id_: DeclarationId,
    /,
    *,
    chosen: ChosenVms = CHOSEN,
    until: Annotated[
        Moment, Parameter(metavar="TIME", help="hand-back deadline: 2026-12-20T02:00:00+01:00")
    ],
    reason: Annotated[str, Parameter(metavar="TEXT", help="the reason, shown to operators")],
    common: ServerOptions = COMMON,
) -> int:
    """Ask for a later hand-back deadline; the policy answers, or leaves it to an operator."""
    chosen.require_place()
    client = client_of(common)
    form = {**chosen.named, "until": until, "reason": reason}
    answer = client.post(f"/v1/declarations/{part(id_)}/deferrals", form)
    return print_deferrals(common, answer, client.now_ms)


def order_text(order: Answer) -> str:
    """Return the test group of an owner, with what becomes of it."""
    text = f"group {order['group']}" + (f" of {order['owner']}" if order["owner"] else "")
    hosts = listed(order["first"]) or "no host"
    text = f"{text} on {hosts}, observed for {duration_text(order['observation_s'])}"
    if order["problem"]:
        text = f"{text}; this order does not count: {order['problem']}"
    return f"{text}; its other hosts are held: {order['held']}" if order["held"] else text


OfOwner: TypeAlias = Annotated[
    str | None, Parameter(metavar="NAME", help="owner of the hosts, for operators")
]


@declaration.command(name="test-first")
def _test_first(
    id_: DeclarationId,
    /,
    *,
    group: Annotated[
        str | None,
        Parameter(metavar="NAME", help="your test group: its hosts come before your others"),
    ] = None,
    observation: Annotated[
        str | None,
        Parameter(
            metavar="DURATION",
            help="time between the work on its hosts and on your others (default: 24h)",
        ),
    ] = None,
    none: Annotated[bool, Parameter(help="want no order any more")] = False,
    owner: OfOwner = None,
    common: ServerOptions = COMMON,
) -> int:
    """Put the hosts of a test group before your other hosts."""
    require_one(**{"--group": group, "--none": none})
    note_seconds("observation", observation)
    return _order(id_, "first-group", common, group=group, observation=observation, owner=owner)


@declaration.command(name="hold")
def _hold(
    id_: DeclarationId,
    /,
    *,
    reason: Annotated[str, Parameter(metavar="TEXT", help="the reason, shown to operators")],
    owner: OfOwner = None,
    common: ServerOptions = COMMON,
) -> int:
    """Hold your hosts after the test: until their hand-back deadline no choice counts."""
    return _order(id_, "hold", common, reason=reason, owner=owner)


@declaration.command(name="resume")
def _resume(id_: DeclarationId, /, *, owner: OfOwner = None, common: ServerOptions = COMMON) -> int:
    """Resume the work on your hosts after the test: your choices count again."""
    return _order(id_, "resume", common, owner=owner)


def _order(id_: str, act: str, common: ServerOptions, **members: object) -> int:
    client = client_of(common)
    answer = client.post(f"/v1/declarations/{part(id_)}/{act}", members)
    if common.structured:
        return print_structured(common, answer)
    orders = answer["declaration"]["first_groups"]
    for each in orders:
        print(order_text(each))
    for each in answer.get("displaced", []):
        owner = f" ({each['owner']})" if each["owner"] else ""
        start = local_time(each["start"])
        print(f"The choice of {start} for {each['host']}{owner} comes too early; choose again.")
    if not orders:
        note("No test group is named.")
    return OK


def print_deferrals(common: ServerOptions, answer: Answer, now_ms: int) -> int:
    """Print requests for later hand-back deadlines; return the exit status of a request."""
    every = answer["deferrals"]
    refused = any(each["state"] == "refused" for each in every)
    if common.structured:
        print_structured(common, answer)
        return REFUSED if refused else OK
    for each in every:
        print(f"host {each['host']}: {deferral_text(each, now_ms)}")
    for each in answer.get("withdrawn", []):
        choice = local_time(each["start"]) if each["start"] else f"`{each['decision']}`"
        owner = f" ({each['owner']})" if each["owner"] else ""
        print(f"The choice of {choice} for {each['host']}{owner} no longer counts; choose again.")
    return REFUSED if refused else OK


def deferral_text(each: Answer | None, now_ms: int) -> str:
    """Return the state of a request for a later hand-back deadline, with its reason."""
    if not each:
        return ""
    if each["state"] in {"refused", "withdrawn"}:
        text = f"the request for a deadline of {local_time(each['until'])} was {each['state']}"
        return f"{text}: {each['answer']}" if each["answer"] else text
    text = f"{each['state']} until {local_time(each['until'])}"
    if each["state"] == "asked":
        return f"{text}; an operator decides by {when(each['decide_by'], now_ms)}"
    return f"{text}: {each['answer']}" if each["answer"] else text


def rule_of(text: str) -> dict[str, object]:
    """Return the members of a choice by a rule, from a TOML file.

    Raises:
        RuleMalformed: the file is not TOML.
        FileTooComplex: the file has too many names.
    """
    try:
        window: dict[str, object] = read_toml(text)
    except ValueError as error:
        raise RuleMalformed(problem=str(error)) from error
    members: dict[str, object] = {"within": window, "unchosen": True}
    members |= {name: window.pop(name) for name in ("otherwise", "approve") if name in window}
    return members


def _places(client: ApiClient, id_: str, chosen: ChosenVms) -> list[dict[str, object]]:
    """Return what a rule chooses for: the named VMs, or those without a choice.

    Raises:
        OwnersMixed: VMs of several owners have no choice, and none are named.
    """
    if chosen.named:
        return [dict(chosen.named)]
    resources = client.get(f"/v1/declarations/{part(id_)}")["declaration"]["resources"]
    waiting = [each for each in resources if each["state"] in {"open", "displaced"}]
    if len({each["owner"] for each in waiting}) > 1:
        raise OwnersMixed
    return [{"vm": each["vms"][0]} for each in waiting]


_PLACES = ("host", "group", "vm", "failure-domain")


def choices_of(text: str) -> dict[int, dict[str, object]]:
    """Return the choices of a file by line number; empty lines and lines with `#` are comments.

    Raises:
        ChoiceMalformed: a line is not a choice.
    """
    choices: dict[int, dict[str, object]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[0] not in _PLACES:
            raise ChoiceMalformed(number=number, text=line.strip())
        kind, name, when_ = words
        kind = kind.replace("-", "_")
        way = {when_: True} if when_ in {"now", "release"} else {"at": when_}
        choices[number] = {kind: name, **way}
    return choices


def _send(
    client: ApiClient,
    id_: str,
    choices: list[dict[str, object]],
    common: ServerOptions,
    *,
    dry_run: bool,
) -> int:
    if not choices:
        note("Every host has a choice.")
        return OK
    form = {"choices": choices, "dry_run": dry_run or None}
    answer = client.post(f"/v1/declarations/{part(id_)}/choices", form)
    results = answer["results"]
    possible = all(each["possible"] for each in results)
    if common.structured:
        print_structured(common, answer)
        return OK if possible else REFUSED
    _print_results(id_, results, {} if dry_run else _resources_at_once(client, id_, results))
    if dry_run:
        note("Nothing was changed.")
    return OK if possible else REFUSED


_Resources: TypeAlias = dict[tuple[str, str], Answer]


def _resources_at_once(client: ApiClient, id_: str, results: list[Answer]) -> _Resources:
    """Return the resources whose work may start at any time, once it is planned, by host and owner.

    Waits `PLANNED_TRIES` times for the plan; without it, their start is not known.
    """
    wanted = {
        (each["host"], each["owner"])
        for each in results
        if each["possible"] and not each["start"] and each["agreed"] and not each["held"]
    }
    for _ in range(PLANNED_TRIES if wanted else 0):
        resources = client.get(f"/v1/declarations/{part(id_)}")["declaration"]["resources"]
        every = {(each["host"], each["owner"]): each for each in resources}
        planned = {place: each for place in wanted if (each := every.get(place)) and each["start"]}
        if len(planned) == len(wanted):
            return planned
        threading.Event().wait(PLANNED_EVERY_S)
    return {}


def _print_results(id_: str, results: list[Answer], at_once: _Resources) -> None:
    """Print the answer to each choice, with its owner if there are several."""
    several = len({each["owner"] for each in results}) > 1
    for each in results:
        where = f"host {each['host']}"
        if several:
            where += f", {each['owner'] or 'no owner'}"
        if not each["possible"]:
            print(f"{where}: not possible: {each['text']}")
            for one in each["openings"]:
                print(f"  opening: {local_time(one['start'])}")
        else:
            resource = at_once.get((each["host"], each["owner"]))
            print(f"{where}: {_chosen_text(id_, each, resource)}")
    if not results:
        note("The rule chooses nothing: no opening is within its window, or all have a choice.")


_CHOICE = re.compile(r"\bchoices\[(\d+)\](?:\.(\w+))?")


#: A member of a choice that a rule's file has, and not an option.
_OF_RULE = re.compile(r"\bchoices\[\d+\]\.(?:within\.|(?=otherwise|approve))")


@contextmanager
def _rule_named(file: str) -> Iterator[None]:
    """Name members of the rule's file instead of members of the call, in a refusal."""
    try:
        yield
    except ApiRefused as refused:
        text = _OF_RULE.sub("", str(refused))
        if text == str(refused):
            raise
        raise ApiRefused(
            status=refused.status,
            code=refused.code,
            message=f"{'The rule' if file == '-' else file}: {text}",
            advice=refused.advice_text(),
        ) from refused


def _in_lines(refused: ApiRefused, lines: tuple[int, ...]) -> ApiRefused:
    """Return a refusal that names lines of the file instead of members of the call."""

    def named(match: re.Match[str]) -> str:
        member = f": {match[2]}" if match[2] else ""
        return f"line {lines[int(match[1])]}{member}"

    text = _CHOICE.sub(named, str(refused))
    return ApiRefused(
        status=refused.status,
        code=refused.code,
        message=text[:1].upper() + text[1:],
        advice=refused.advice_text(),
    )


def _chosen_text(id_: str, result: Answer, resource: Answer | None) -> str:
    """Return what was chosen, when the work starts, and under which condition it counts."""
    if result["start"]:
        text = local_time(result["start"])
        unless = "the other owners of the host choose the same time or release"
    else:
        text = result["decision"]
        if resource is not None:
            return f"{text}: {_start_text(resource)}"
        if result.get("earliest"):
            text = f"{text}, from {local_time(result['earliest'])} at the earliest"
        unless = "the other owners of the host also choose now or release"
    conditions = [] if result.get("agreed", True) else [unless]
    if result.get("held"):
        conditions.append(f"you take back the hold with `forewarn declaration resume {id_}`")
    if not conditions:
        return text
    return f"{text}, only if {' and '.join(conditions)}; else after the deadline"


def _start_text(resource: Answer) -> str:
    """Return when work that may start at any time starts."""
    start = local_time(resource["start"])
    if resource["state"] == "announced":
        by = "the choice approves it" if resource["approves"] else "its VMs approve"
        return f"its event is announced; the work starts once {by}, at the latest at {start}"
    return f"the work is planned to start at {start} at the latest"


def local_time(text: str) -> str:
    """Return a time in UTC, and in the local zone with its offset. Source: T-16."""
    local = datetime.fromtimestamp(parse(text) / 1000, UTC).astimezone()
    if not local.utcoffset():
        return to_the_second(text)
    return f"{to_the_second(text)} ({local.isoformat(timespec='seconds')})"


class OptionsContradict(CallerError):
    """Options of a command contradict each other, or one of them is missing."""

    code = "options-contradict"
    message = "{problem}."
    advice = "See the command's --help; nothing was changed."


class OpeningUnknown(CallerError):
    """No opening has this number."""

    code = "opening-unknown"
    message = "There is no opening {number}; {count} are listed."
    advice = "List them with `forewarn declaration openings`, with the same --host or --vm."


class RuleMalformed(CallerError):
    """A file with a rule is malformed."""

    code = "choice-rule-malformed"
    message = "The rule is not TOML: {problem}."
    advice = (
        """Write one member on each line: `weekdays = ["sun"]`, `from = "22:00"`, `to = "04:00"`,"""
        """ `time_zone = "UTC"`."""
    )


class OwnersMixed(CallerError):
    """A rule would choose for several owners."""

    code = "choice-owners-mixed"
    message = "The rule would choose for the VMs of several owners."
    advice = "Name the VMs with --host, --group or --vm, or use an owner's token."


class ChoiceMalformed(CallerError):
    """A line of a file with choices is malformed."""

    code = "choice-malformed"
    message = "Line {number} is not a choice: {text!r}."
    advice = (
        "Write `host`, `group`, `vm` or `failure-domain`, a name, and a time, `now` or `release`."
    )


class ChoicesMissing(CallerError):
    """A file with choices has none."""

    code = "choices-missing"
    message = "{path} has no choice."
    advice = "Write one on each line, such as `host h7 2026-12-06T02:00:00Z`."


def _count(each: Answer, state: str) -> int:
    return sum(1 for one in each["resources"] if one["state"] == state)


def _interruption(each: Answer) -> str:
    seconds = each["interruption_s"]
    return "as long as the work lasts" if seconds < 0 else duration_text(seconds)
