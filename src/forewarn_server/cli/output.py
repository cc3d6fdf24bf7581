"""Functions that print tables, times and JSON for all commands.

Output to a terminal has colours unless NO_COLOR is set; `_COLOURS` says what each means.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK
from forewarn_base.protocol import timestamps
from forewarn_base.untrusted_text import escaped_text, unescaped_output
from forewarn_server.cli.api_client import Answer
from forewarn_server.cli.listing import ZERO_UNKNOWN, in_order

if TYPE_CHECKING:
    from forewarn_server.cli.parameters import OutputOptions

Column: TypeAlias = str | tuple[str, str | Callable[[Any], object]]

#: Narrowest width of a shortened column, in characters.
COLUMN_WIDTH_MIN = 8
#: Width to which a column may be shortened before the last column is left out, in characters.
COLUMN_WIDTH_LEAST = 16
GAP = "  "
#: Most names listed in a message; the message gives the number of the others.
NAMED_MAX = 10
CUT = "…"

_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_RED, _YELLOW, _GREEN, _CYAN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[36m"
#: State -> its colour: red is wrong, yellow is under way or needs attention, cyan is to come,
#: green is well, dim is over or at rest.
_COLOURS = {
    state: colour
    for colour, states in (
        (_RED, ("failed", "stuck", "overdue", "blocked", "late", "stopped", "down")),
        (_YELLOW, ("running", "Started", "started", "degraded", "paused", "waiting")),
        (_CYAN, ("announced", "Scheduled", "scheduled", "approved")),
        (_GREEN, ("healthy", "succeeded", "done", "completed", "on-time")),
        (_DIM, ("cancelled", "planned", "draft", "left")),
    )
    for state in states
}
#: Facts that are states.
_STATES = frozenset({"state", "health", "status"})
#: Columns that a narrow terminal leaves out first, the least important first; then the last ones.
_MINOR = (
    *("update domain", "fault domain", "memory mib", "labels", "size", "client", "clients"),
    *("addresses", "driver", "token", "token file", "ca", "kind"),
)


def print_json(answer: object) -> int:
    """Print an answer as JSON and return `OK`."""
    print(json.dumps(answer, indent=2, ensure_ascii=not _takes_any_character()))
    return OK


def print_structured(printed: OutputOptions, answer: Answer) -> int:
    """Print an answer in the form of `--output`, or as `--json`; return `OK`."""
    if printed.output is None:
        return print_json(answer)
    from forewarn_server.cli.structured import written  # noqa: PLC0415 - only then

    print(written(answer, printed.output), end="")
    return OK


def print_json_line(answer: object) -> None:
    """Print an answer as one JSON line, and flush."""
    text = json.dumps(answer, separators=(",", ":"), ensure_ascii=not _takes_any_character())
    print(text, flush=True)


def print_file(text: str) -> None:
    """Print the exact text of a file; escape it on a terminal."""
    print(text, end="", file=sys.stdout if sys.stdout.isatty() else unescaped_output())


def note(sentence: str) -> None:
    """Print a progress message to standard error."""
    print(sentence, file=sys.stderr, flush=True)


class Declined(CallerError):
    """The person at the terminal answered no."""

    code = "declined"
    status = 409
    message = "Nothing was changed."
    advice = "Answer y, or add --yes to skip the question."


def agrees(question: str) -> bool:
    """Ask a person a question on standard error; False also at the end of input."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def confirm(question: str, *, yes: bool) -> None:
    """Ask before a change that cannot be taken back, if a person sits at the terminal.

    Scripts, whose standard input is not a terminal, and `--yes` skip the question.

    Raises:
        Declined: the person did not answer yes.
    """
    if not yes and sys.stdin.isatty() and not agrees(question):
        raise Declined


def note_seconds(what: str, duration: str | None) -> None:
    """Print a duration without a unit in words, which reveals a forgotten unit."""
    if duration and duration.isdecimal() and int(duration):
        note(f"{what}: {duration} seconds")


def warn_unasked(groups: Sequence[str]) -> None:
    """Warn about groups that are not asked. See B-3."""
    if groups:
        note(f"not asked, because none of their VMs polls for events: {listed(groups)}")
        note("  Where no group on a host is asked, the work on it starts once it is announced.")


def listed(names: Sequence[str], most: int = NAMED_MAX) -> str:
    """Return the first names, with the number of the others: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "",
    wide: bool = False,
) -> int:
    """Print a table and return `OK`; shorten cells to the width of a terminal, not in a pipe.

    Columns without any value are left out, and the least important ones where they do not fit.

    Args:
        headings: the headings of the columns.
        rows: the cells; None prints an empty cell.
        empty: a sentence to print if there are no rows.
        wide: print every column in full.
    """
    cells = [tuple(row) for row in rows]
    if not cells:
        note(empty or "none")
        return OK
    texts = [[_plain(cell) for cell in row] for row in cells]
    if not wide:
        kept = [at for at in range(len(headings)) if at == 0 or any(row[at] for row in texts)]
        headings = [headings[at] for at in kept]
        cells = [tuple(row[at] for at in kept) for row in cells]
        texts = [[row[at] for at in kept] for row in texts]
    widths = _widths(headings, texts)
    hidden = 0
    if sys.stdout.isatty() and not wide:
        width_max = shutil.get_terminal_size().columns
        if _line_width(widths) > width_max:
            texts = [[_plain(getattr(cell, "short", cell)) for cell in row] for row in cells]
            widths = _widths(headings, texts)
        kept = columns_shown(headings, widths, width_max)
        hidden = len(widths) - len(kept)
        texts = [[row[at] for at in kept] for row in texts]
        headings = [headings[at] for at in kept]
        widths = fitted([widths[at] for at in kept], width_max)
    coloured = is_coloured()
    heads = [heading.upper() for heading in headings]
    output = unescaped_output()  # for our colours; the cells are escaped
    print(_row(heads, widths, style=_BOLD if coloured else ""), file=output)
    for row in texts:
        print(_row(row, widths, style="state" if coloured else ""), file=output)
    if hidden:
        note(f"{hidden} {noun(hidden, 'column')} more with -o wide")
    return OK


def is_coloured() -> bool:
    """Whether output has colours: on a terminal, unless NO_COLOR is set; always: FORCE_COLOR."""
    if "NO_COLOR" in os.environ:
        return False
    if os.environ.get("FORCE_COLOR", "0") != "0":
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def is_redrawn() -> bool:
    """Whether standard output is a terminal on which a line can be drawn again."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and _takes_any_character()


def columns_shown(headings: Sequence[str], widths: Sequence[int], width_max: int) -> list[int]:
    """Return the columns that fit in a line; `_MINOR` ones go first, then the last ones."""
    kept = list(range(len(widths)))
    minor = [at for name in _MINOR for at in kept[1:] if headings[at] == name]
    while len(kept) > 1:
        least = [min(widths[at], COLUMN_WIDTH_LEAST) for at in kept]
        if _line_width(least) <= width_max:
            break
        kept.remove(minor.pop(0) if minor else kept[-1])
    return kept


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def print_list(
    records: Iterable[Answer], columns: Sequence[Column], *, empty: str = "", wide: bool = False
) -> int:
    """Print records as a table and return `OK`.

    Args:
        records: the records.
        columns: the name of a member, or a heading with a member or a function of a record.
        empty: a sentence to print if there are no records.
        wide: print every column in full.
    """
    pairs = [(each.replace("_", " "), each) if isinstance(each, str) else each for each in columns]
    rows = [[each[of] if isinstance(of, str) else of(each) for _, of in pairs] for each in records]
    return print_table([heading for heading, _ in pairs], rows, empty=empty, wide=wide)


def show_list(
    printed: OutputOptions,
    answer: Answer,
    columns: Sequence[Column],
    *,
    name: str,
    empty: str = "",
) -> int:
    """Print an answer's list `name` as `print_list`, or with `--json` the answer; return `OK`."""
    shown = {**answer, name: in_order(printed, answer[name])}
    if printed.structured:
        return print_structured(printed, shown)
    return print_list(shown[name], columns, empty=empty, wide=printed.form == "wide")


def show_record(printed: OutputOptions, answer: Answer, name: str = "") -> int:
    """Print an answer, or its member `name`, as facts, or with `--json` the answer; return `OK`."""
    if printed.structured:
        return print_structured(printed, answer)
    record = answer[name] if name else answer
    return print_facts(
        (name.replace("_", " "), value)
        for name, value in record.items()
        if value or name not in ZERO_UNKNOWN
    )


def show_done(printed: OutputOptions, answer: Answer, sentence: str) -> int:
    """Print that an act is done, or with `--json` its answer; return `OK`."""
    if printed.structured:
        return print_structured(printed, answer)
    note(sentence)
    return OK


def print_facts(facts: Iterable[tuple[str, object]]) -> int:
    """Print facts, each with its name on a separate line, and return `OK`; skip empty values."""
    given = [(name, _plain(value)) for name, value in facts if _plain(value)]
    width = max((len(name) for name, _ in given), default=0)
    coloured = is_coloured()
    output = unescaped_output()  # for our colours; the values are escaped
    for name, value in given:
        colour = _COLOURS.get(value, "") if coloured and name in _STATES else ""
        shown = f"{colour}{value}{_PLAIN}" if colour else value
        print(f"{name:<{width}}{GAP}{shown}", file=output)
    return OK


def fitted(widths: Sequence[int], width_max: int) -> list[int]:
    """Return column widths that fit in a line; the widest columns shrink first."""
    fits = list(widths)
    over = sum(fits) + len(GAP) * (len(fits) - 1) - width_max
    while over > 0:
        widest = max(range(len(fits)), key=fits.__getitem__)
        if fits[widest] <= COLUMN_WIDTH_MIN:
            break
        second = max((w for n, w in enumerate(fits) if n != widest), default=COLUMN_WIDTH_MIN)
        cut = max(min(over, fits[widest] - max(second - 1, COLUMN_WIDTH_MIN)), 1)
        fits[widest] -= cut
        over -= cut
    return fits


class Time(str):
    """A time as text, with a shorter text for narrow tables."""

    __slots__ = ("short",)
    short: str

    def __new__(cls, text: str, short: str) -> Self:
        """Store the text and the shorter text."""
        time = super().__new__(cls, text)
        time.short = short
        return time


def when(text: str | None, now_ms: int) -> str:
    """Return a time, also relative to now: `2026-11-21T03:15:00Z (in 14 min 30 s)`.

    A table that is wider than the terminal shows `in 14 min 30 s` instead.
    """
    if not text:
        return ""
    by = offset(timestamps.parse(text) - now_ms)
    return Time(f"{to_the_second(text)} ({by})", by)


def to_the_second(text: str) -> str:
    """Return a time without fractions of a second; `--json` prints the full time."""
    seconds, dot, _ = text.partition(".")
    return f"{seconds}Z" if dot else text


def offset(by_ms: int) -> str:
    """Return a time relative to now, in two units: `in 14 min 30 s`, `2 d 3 h ago`, `now`."""
    left_s = abs(by_ms) // 1000
    if left_s == 0:
        return "now"
    parts = []
    for unit, size_s in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left_s = divmod(left_s, size_s)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    text = " ".join(parts[:2])
    return f"in {text}" if by_ms > 0 else f"{text} ago"


def _takes_any_character() -> bool:
    """Return whether standard output can encode all characters, unlike many Windows pipes."""
    return sys.stdout.encoding.lower().startswith("utf")


def _widths(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column's widest text."""
    return [
        max(len(heading), *(len(row[column]) for row in texts))
        for column, heading in enumerate(headings)
    ]


def _plain(cell: object) -> str:
    """Return a cell as one line of text, with control characters escaped."""
    if cell is None or cell is False:
        return ""
    if cell is True:
        return "yes"
    if isinstance(cell, dict):
        cell = [f"{name}={value}" for name, value in cell.items()]
    if isinstance(cell, list | tuple):
        cell = ", ".join(str(each) for each in cell)
    return escaped_text(str(cell))


def _row(cells: Sequence[str], widths: Sequence[int], *, style: str) -> str:
    parts = []
    for cell, width in zip(cells, widths, strict=True):
        cut = cell if len(cell) <= width else cell[: width - 1] + CUT
        padded = cut.ljust(width)
        colour = _COLOURS.get(cell, "") if style == "state" else style
        parts.append(f"{colour}{padded}{_PLAIN}" if colour else padded)
    return GAP.join(parts).rstrip()


def noun(number: int, thing: str) -> str:
    """Return a noun in singular or plural: `world` for 1, otherwise `worlds`."""
    return thing if number == 1 else f"{thing}s"


def call_in_words(confirmation: Mapping[str, Any]) -> str:
    """Return the call that waits for a second operator; a server of 0.1.0 sends no words."""
    words: str = confirmation.get("text", confirmation["request"])
    return words
