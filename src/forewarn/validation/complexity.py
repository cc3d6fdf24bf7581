"""How much a text may describe: judged before anything is built of it, and given up when asked.

A few bytes can describe much: 80 KB of dotted keys made 6 GB of tables. What a text means is not
decided in here.
"""

from __future__ import annotations

import contextvars
import re
from typing import TYPE_CHECKING, TypeVar

from forewarn.errors import CallerError, OurError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

T = TypeVar("T")

#: Deepest nesting that is read: kind, name, member, tag, and some room for a wrong file's error.
DEPTH_MAX = 8
#: Members one text may have: 100,000 VMs with ten each. A member costs up to 100 bytes.
MEMBERS_MAX = 1_000_000
#: Parts of names one TOML text may have; its reader needs up to 1 KB for each.
TOML_PARTS_MAX = 250_000

#: Texts and comments; one that does not end goes to the end, so that no byte is looked at twice.
_TOML_TEXTS = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)|"(?:[^"\\\n]|\\.)*(?:"|\n|\Z)'
    r"|'''.*?(?:'''|\Z)|'[^'\n]*(?:'|\n|\Z)|#[^\n]*",
    re.DOTALL,
)
_TOML_DEEP = re.compile(rf"[\w-](?:[ \t]*\.[ \t]*[\w-]+){{{DEPTH_MAX}}}")
_JSON_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

_gone: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("gone", default=None)


class FileTooComplex(CallerError):
    """A text that describes more than one request may."""

    code = "file-too-complex"
    status = 413
    message = "The body {problem}."
    advice = "Send it in smaller parts, as `forewarn topology apply` does; nothing was changed."


class Abandoned(OurError):
    """Work whose caller no longer waits."""

    code = "abandoned"
    status = 503
    message = "The caller no longer waited for the answer; nothing was done."
    advice = "Send the request again."


def check_json(body: bytes) -> None:
    """Refuse a JSON text with more members than one may have; costs its length.

    Raises:
        FileTooComplex: it has more.
    """
    if sum(map(body.count, (b",", b"{", b"["))) > MEMBERS_MAX:  # texts may hold some of them
        bare = _JSON_TEXTS.sub(b"", body)
        _check_count(sum(map(bare.count, (b",", b"{", b"["))), MEMBERS_MAX)


def check_toml(text: str) -> None:
    """Refuse a TOML text that nests too deeply or has too many names; costs its length.

    Raises:
        FileTooComplex: it does, or has.
    """
    bare = _TOML_TEXTS.sub("x", text)
    if _TOML_DEEP.search(bare):
        raise FileTooComplex(problem=f"has a name of more than {DEPTH_MAX} parts")
    dots = bare.count(".")
    _check_count(dots + sum(map(bare.count, "=[{,")), TOML_PARTS_MAX)


def checkpoint() -> None:
    """Give up if the caller no longer waits; called wherever work grows with its input.

    Raises:
        Abandoned: the caller no longer waits.
    """
    gone = _gone.get()
    if gone is not None and gone.is_set():
        raise Abandoned


def abandonable(gone: threading.Event, work: Callable[[], T]) -> T:
    """Do work whose checkpoints look at an event."""
    token = _gone.set(gone)
    try:
        return work()
    finally:
        _gone.reset(token)


def check_count(count: int) -> None:
    """Refuse more members than one text may have; looks up, now and then, whether to go on.

    Raises:
        FileTooComplex: there are more.
        Abandoned: the caller no longer waits.
    """
    if count % 1024 == 0:
        checkpoint()
    _check_count(count, MEMBERS_MAX)


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise FileTooComplex(problem=f"has more than {most} members")
