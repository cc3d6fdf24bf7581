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

from forewarn.errors import CallerError, OurError

T = TypeVar("T")

#: Deepest permitted nesting: a topology needs four levels.
DEPTH_MAX = 8
#: Most members of one text: 100,000 VMs with ten members each. A member costs up to 100 bytes.
MEMBERS_MAX = 1_000_000
#: Most parts of names in one TOML text; the TOML parser needs up to 1 KB for each.
TOML_PARTS_MAX = 250_000

#: Pattern of strings and comments; an unterminated string extends to the end of the text.
_TOML_TEXTS = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)|"(?:[^"\\\n]|\\.)*(?:"|\n|\Z)'
    r"|'''.*?(?:'''|\Z)|'[^'\n]*(?:'|\n|\Z)|#[^\n]*",
    re.DOTALL,
)
_TOML_DEEP = re.compile(rf"[\w-](?:[ \t]*\.[ \t]*[\w-]+){{{DEPTH_MAX}}}")
_JSON_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

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


def check_json(body: bytes) -> None:
    """Refuse a JSON text with too many members; O(its length).

    Raises:
        FileTooComplex: the text has more than `MEMBERS_MAX` members.
    """
    if sum(map(body.count, (b",", b"{", b"["))) > MEMBERS_MAX:  # strings may contain commas, too
        bare = _JSON_TEXTS.sub(b"", body)
        _check_count(sum(map(bare.count, (b",", b"{", b"["))), MEMBERS_MAX)


def check_toml(text: str) -> None:
    """Refuse a TOML text with too deep nesting or too many names; O(its length).

    Raises:
        FileTooComplex: a limit is exceeded.
    """
    bare = _TOML_TEXTS.sub("x", text)
    if _TOML_DEEP.search(bare):
        raise FileTooComplex(problem=f"has a name with more than {DEPTH_MAX} parts")
    dots = bare.count(".")
    _check_count(dots + sum(map(bare.count, "=[{,")), TOML_PARTS_MAX)


def checkpoint() -> None:
    """Raise `Abandoned` if the caller no longer waits; long loops call this.

    Raises:
        Abandoned: the caller no longer waits.
    """
    gone = _gone.get()
    if gone is not None and gone.is_set():
        raise Abandoned


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
