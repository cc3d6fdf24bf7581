"""Windows and freezes: the times in which routine work may run on a host. Source: F-7."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from forewarn_core.rules.blockers import NOT_AT_ADMISSION, Blocker, Code, Meaning
from forewarn_core.rules.local_time import (
    WEEKDAYS,
    Span,
    Unit,
    Window,
    WindowInvalid,
    open_spans,
    without,
)
from forewarn_core.rules.members import (
    ByNameKind,
    ChoiceKind,
    GivenMembers,
    ListKind,
    MomentKind,
    NameKind,
    Overridden,
    PolicyInvalid,
    PolicyMember,
    SelectorKind,
    Stored,
    StoredRow,
    TableKind,
    TextKind,
    TimeOfDayKind,
    member,
    members,
)
from forewarn_core.rules.site import Site

#: Maximum number of windows, freezes, and excluded dates of one window.
WINDOWS_MAX, FREEZES_MAX, DATES_MAX = 100, 100, 366
#: Maximum number of groups of one window.
GROUPS_MAX = 10_000
#: Maximum number of days of the month, and of tags, of one window.
MONTH_DAYS_MAX, TAGS_MAX = 100, 50

#: Subject of a blocker if only freezes close the time.
FREEZE = "a freeze"
WINDOW = Code(
    "window",
    Meaning(
        "{who} waits for {subject} to open",
        "No window is open for the host, its time zone is unknown here, or a freeze is active.",
        "The next window opens, or the time zone's data is installed and the service restarts.",
        NOT_AT_ADMISSION,
        {FREEZE: "{who} waits for a freeze to end"},
        never_clears=True,
        prevents_start=True,
    ),
)
WINDOW_TOO_SHORT = Code(
    "window-too-short",
    Meaning(
        "{subject} never opens long enough for {who}",
        "No window of the host is ever long enough for the work.",
        "A new policy is applied, or a maintenance with a shorter duration is created.",
        NOT_AT_ADMISSION,
        {FREEZE: "the freezes leave no time that is long enough for {who}"},
        never_clears=True,
        prevents_start=True,
    ),
)

_DATE = TextKind(10, r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date such as 2028-02-29")
_LAST = TextKind(
    16,
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2})?",
    "a date such as 2028-02-29, or a local time such as 2028-02-29 22:00",
)
_EVERY = TextKind(
    10, r"([1-9][0-9]{0,2} )?(day|week|month)s?", "a period such as 2 weeks, 3 days or month"
)


def _read_window(name: str, members: GivenMembers) -> Window:
    number, _, unit = members.get("every", "week").rpartition(" ")
    window = Window(
        name,
        members.get("time_zone", "UTC"),
        tuple(sorted(set(members.get("weekdays", range(7))))),
        members.get("from", 0),
        members.get("to", 24 * 60),
        members.get("except", ()),
        members.get("hosts", ()),
        members.get("groups"),
        members.get("first", ""),
        members.get("last", ""),
        int(number or 1),
        Unit(unit.removesuffix("s")),
        members.get("days", ()),
        tuple(sorted(members.get("tags", {}).items())),
    )
    if problem := window.contradiction():
        raise WindowInvalid(name=name, problem=problem)
    return window


def _written_window(window: Window) -> dict[str, object]:
    weekly, unit = window.unit is Unit.WEEK, window.unit.value
    every = f"{window.every} {unit}s" if window.every > 1 else unit
    members: dict[str, object] = {
        "time_zone": window.time_zone,
        "weekdays": window.weekdays if weekly else (),
        "from": window.from_min,
        "to": window.to_min,
        "except": window.except_dates,
        "hosts": window.hosts,
        "groups": window.groups,
        "first": window.first_date,
        "last": window.last_date,
        "every": "" if weekly and window.every == 1 else every,
        "days": window.month_days,
        "tags": dict(window.tags),
    }
    always = {"from", "to", "groups"}
    return {
        name: each
        for name, each in members.items()
        if each or (name in always and each is not None)
    }


WINDOW_TABLE = TableKind(
    "WindowForm",
    "A window: times in which work may run. If a host has windows, no work runs on it at other "
    "times.",
    (
        PolicyMember(
            "time_zone",
            TextKind(64),
            "Time zone of the window, an IANA name such as `Europe/Berlin` (default: UTC).",
        ),
        PolicyMember(
            "weekdays",
            ListKind(ChoiceKind({day: number for number, day in enumerate(WEEKDAYS)}), 7, 1),
            "Days on which the window opens: `mon` to `sun` (default: every day).",
        ),
        PolicyMember("from", TimeOfDayKind(), "Local opening time (default: 00:00)."),
        PolicyMember(
            "to",
            TimeOfDayKind(),
            "Local closing time (default: 24:00); at or before `from`, it is on the next day.",
        ),
        PolicyMember(
            "except", ListKind(_DATE, DATES_MAX), "Local dates on which the window stays closed."
        ),
        PolicyMember(
            "hosts",
            SelectorKind(),
            "Restricts the window to hosts with all of these labels, such as `zone=2,rack=r7`.",
        ),
        PolicyMember(
            "groups",
            ListKind(NameKind(), GROUPS_MAX),
            "Restricts the window to hosts with VMs of one of these groups; an empty list "
            "matches no host.",
        ),
        PolicyMember(
            "first", _DATE, "First local date on which the window opens (default: no limit)."
        ),
        PolicyMember(
            "last",
            _LAST,
            "Last local date, or local time such as `2028-02-29 22:00`, at which the window opens "
            "(default: no limit).",
        ),
        PolicyMember(
            "every",
            _EVERY,
            "Period: `2 weeks`, `3 days` or `month`, counted from the day, the week (from Monday) "
            "or the month of `first` (default: `week`).",
        ),
        PolicyMember(
            "days",
            ListKind(TextKind(14), MONTH_DAYS_MAX, 1),
            "With a period of months, the days on which the window opens: `1` to `31`, `last`, "
            "`first mon`, `last sun`, or `last sun-3` for three days before it (default: the day "
            "of `first`). A month without such a day has no window.",
        ),
        PolicyMember(
            "tags",
            ByNameKind(TextKind(), TAGS_MAX),
            "Names and texts for other tools, without effect.",
        ),
    ),
    _read_window,
    _written_window,
)


def _read_freeze(_name: str, members: GivenMembers) -> Span:
    if members["from"] >= members["to"]:
        raise PolicyInvalid(problem="it ends before it begins")
    return members["from"], members["to"]


FREEZE_TABLE = TableKind(
    "FreezeForm",
    "A freeze: a time in which no work runs, even in open windows.",
    (
        PolicyMember("from", MomentKind(), "Start of the freeze, with UTC offset.", required=True),
        PolicyMember("to", MomentKind(), "End of the freeze, with UTC offset.", required=True),
    ),
    _read_freeze,
    lambda span: dict(zip(("from", "to"), span, strict=True)),
)

#: Number of a window's members in the store before periods and tags were added.
_WINDOW_BASE = 10


def _window_row(window: Window) -> list[object]:
    """Return a window's members; without a period and tags those of earlier versions alone."""
    row = [getattr(window, name) for name in window.__match_args__]
    plain = row[_WINDOW_BASE:] == [1, Unit.WEEK, (), ()]
    return row[:_WINDOW_BASE] if plain else [_plain(each) for each in row]


def _plain(each: object) -> object:
    return each.value if isinstance(each, Unit) else each


def _window_of(row: StoredRow) -> Window:
    name, zone, days, from_min, to_min, dates, hosts, groups, first, last, *period = row
    every, unit, month_days, tags = period or (1, Unit.WEEK.value, (), ())
    return Window(
        name,
        zone,
        tuple(days),
        from_min,
        to_min,
        tuple(dates),
        tuple(hosts),
        None if groups is None else tuple(groups),
        first,
        last,
        every,
        Unit(unit),
        tuple(month_days),
        tuple((tag, text) for tag, text in tags),
    )


@members
class WindowMembers:
    """The windows and freezes of a policy."""

    __slots__ = ()

    #: Windows in which work may run; a host with windows is closed at all other times.
    windows: tuple[Window, ...] = field(
        default=(),
        metadata=member(
            "windows",
            ByNameKind(WINDOW_TABLE, WINDOWS_MAX),
            "Windows by name: times in which work may run.",
            stored=Stored(
                lambda windows: {"windows": [*map(_window_row, windows)]},
                lambda form: tuple(map(_window_of, form["windows"])),
            ),
            emergency=Overridden(()),
        ),
    )
    #: Spans without any work, ms since the epoch UTC.
    freezes: tuple[Span, ...] = field(
        default=(),
        metadata=member(
            "freezes",
            ListKind(FREEZE_TABLE, FREEZES_MAX),
            "Times in which no work runs.",
            stored=Stored(
                lambda freezes: {"freezes": freezes},
                lambda form: tuple((start_ms, end_ms) for start_ms, end_ms in form["freezes"]),
            ),
            emergency=Overridden(()),
        ),
    )

    def windows_of(self, words: frozenset[str]) -> tuple[Window, ...]:
        """Return the windows that apply to a host with these `key=value` pairs."""
        return tuple(each for each in self.windows if each.is_for(words))

    def open_spans_of(self, words: frozenset[str], span: Span) -> tuple[Span, ...]:
        """Return the time within a span that windows and freezes leave open for a host."""
        return without(open_spans(self.windows_of(words), *span), self.freezes)

    def is_open(self, words: frozenset[str], span: Span) -> bool:
        """Whether the whole span is open for a host; otherwise work does not fit. Source: F-7."""
        closed = self.windows_of(words) or self.freezes
        return not closed or self.open_spans_of(words, span) == (span,)


def choosing(policy: WindowMembers, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if an owner chooses a start whose work is not in open time. Source: T-2."""
    if not policy.is_open(site.words, (site.start_ms, site.end_ms)):
        text = "no window is open, or a freeze is in force"
        yield Blocker(WINDOW, "", site.since_ms, text=text)
