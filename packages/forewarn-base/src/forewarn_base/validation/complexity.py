"""Limits on the complexity of input, checked before parsing, and cancellation of work.

Small inputs can need much memory: in a test, 80 KB of dotted TOML keys became 6 GB of tables. Other
modules parse the input.
"""

from __future__ import annotations

import contextvars
import re
import threading
from collections.abc import Callable
from typing import TypeVar

from forewarn_base.errors import CallerError, OurError

T = TypeVar("T")

#: Deepest permitted nesting: a topology needs four levels.
DEPTH_MAX = 8
#: Most members of one text: 100,000 VMs with ten members each. A member costs up to 100 bytes.
MEMBERS_MAX = 1_000_000
#: Most members of a request other than a file: a list of 100,000 names.
FORM_MEMBERS_MAX = 250_000
#: Most parts of names in one TOML text; the TOML parser needs up to 1 KB for each.
TOML_PARTS_MAX = 250_000

#: Bytes of JSON that are counted at a time.
_SLICE = 64 * 1024
#: Characters of TOML outside strings and comments that begin a string or a comment, separate the
#: parts of a name, or end a name.
_TOML_MARK = re.compile(r"[\"'#.=\[{,\n]")
#: Rest of a string or comment after its first characters. Each pattern matches any text, and the
#: possessive repetitions never try a character twice, so that the time is linear. An unterminated
#: string extends to the end of its line or text, where the parser refuses it. Up to two quotes
#: before the closing three belong to the string.
_TOML_RESTS = {
    '"""': re.compile(r'(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5})?', re.DOTALL),
    "'''": re.compile(r"(?:[^']++|'(?!''))*+(?:'{3,5})?"),
    '"': re.compile(r'(?:[^"\\\n]++|\\.)*+"?'),
    "'": re.compile(r"[^'\n]*+'?"),
    "#": re.compile(r"[^\n]*+"),
}

_gone: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("gone", default=None)


class FileTooComplex(CallerError):
    """A text exceeds the permitted number of members or levels."""

    code = "file-too-complex"
    status = 413
    message = "The body {problem}."
    advice = "Send smaller parts, like `forewarn topology apply`; nothing was changed."


class Abandoned(OurError):
    """The caller no longer waits for the work."""

    code = "abandoned"
    status = 503
    message = "The caller stopped waiting for the answer; nothing was done."
    advice = "Send the request again."


def check_json(body: bytes, members_max: int) -> None:
    """Refuse a JSON text with too many members; O(its length).

    Commas and brackets in strings count, too, so that strings need not be recognized.

    Raises:
        FileTooComplex: the text has more than `members_max` members.
    """
    count = 0
    for start in range(0, len(body), _SLICE):  # no other thread runs during a call
        count += sum(body.count(sign, start, start + _SLICE) for sign in (b",", b"{", b"["))
    _check_count(count, members_max)


def check_toml(text: str) -> None:
    """Refuse a TOML text with too deep nesting or too many names; O(its length).

    Raises:
        FileTooComplex: a limit is exceeded.
    """
    at = parts = dots = 0
    while mark := _TOML_MARK.search(text, at):
        sign, at = mark[0], mark.end()
        if rest := _TOML_RESTS.get(sign):
            if text.startswith(sign * 2, at) and sign != "#":
                at, rest = at + 2, _TOML_RESTS[sign * 3]
            ended = rest.match(text, at)
            assert ended, sign
            at = ended.end()
        elif sign == "\n":
            dots = 0
        else:
            parts, dots = parts + 1, dots + 1 if sign == "." else 0
            _check_count(parts, TOML_PARTS_MAX)
            if dots >= DEPTH_MAX:
                raise FileTooComplex(problem=f"has a name with more than {DEPTH_MAX} parts")


def checkpoint() -> None:
    """Raise `Abandoned` if the caller no longer waits; long loops call this.

    Raises:
        Abandoned: the caller no longer waits.
    """
    if abandoned():
        raise Abandoned


def abandoned() -> bool:
    """Return whether the caller no longer waits."""
    gone = _gone.get()
    return gone is not None and gone.is_set()


def abandonable(gone: threading.Event, work: Callable[[], T]) -> T:
    """Run work; `checkpoint` aborts the work once the event `gone` is set."""
    token = _gone.set(gone)
    try:
        return work()
    finally:
        _gone.reset(token)


def check_count(count: int) -> None:
    """Refuse a number of members above the limit; at intervals, call `checkpoint`.

    Raises:
        FileTooComplex: the number exceeds `MEMBERS_MAX`.
        Abandoned: the caller no longer waits.
    """
    if count % 1024 == 0:
        checkpoint()
    _check_count(count, MEMBERS_MAX)


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise FileTooComplex(problem=f"has more than {most} members")
