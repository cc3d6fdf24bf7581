"""Error classes with their message texts, ordered by the party that must act.

A package with its own errors subclasses one of the three branches, here or in that package.
The agent imports this module, so it imports no other module.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Iterable

#: Maximum length of an external text in a message, in characters.
TEXT_CHARACTERS_MAX = 1000

#: Replacement for a character that a terminal or a database might interpret.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class ForewarnError(Exception):
    """An error with a stable code, an HTTP status, one sentence and advice on what to do.

    A subclass sets `code`, `status`, `message` and `advice`. `message` and `advice` are
    `str.format` templates; the caller gives their facts by keyword, and `facts` stores them.
    """

    #: Stable code of the error, lower case with hyphens; documented, never reused.
    code: str = "error"

    #: HTTP status for this error.
    status: int = 500

    #: One sentence that names the operation and its object; a `str.format` template.
    message: str = "Something went wrong."

    #: Advice for the reader; a `str.format` template, may be empty.
    advice: str = ""

    def __init__(self, **facts: object) -> None:
        """Format the class's message with the facts of this occurrence."""
        self.facts = facts
        super().__init__(self.message.format_map(facts))

    @property
    def clause(self) -> str:
        """The message without its full stop, for use in another sentence."""
        return str(self).removesuffix(".")

    def advice_text(self) -> str:
        """Return the advice with the facts filled in; the fact `near` becomes a suggestion."""
        advice = self.advice.format_map(self.facts)
        near = self.facts.get("near")
        return f"Did you mean {near}? {advice}" if near else advice


class CallerError(ForewarnError):
    """The caller must change the request; repeating it unchanged will not help."""

    code = "bad-request"
    status = 400
    message = "The request is invalid."


class CommandLineInvalid(CallerError):
    """The command line is invalid."""

    code = "command-line-invalid"
    message = "{problem}"
    advice = "See `{program} --help`."


class ArgumentInvalid(CallerError, ValueError):
    """An argument of the SDK has the wrong type or is out of range."""

    code = "argument-invalid"
    message = "{name} must be {wanted}, not {found!r}."
    advice = "Correct the argument."


class PeerError(ForewarnError):
    """Another party (a service, a driver's target, a document from outside) misbehaved."""

    code = "peer"
    status = 502
    message = "Another service gave an unusable answer."
    advice = "Try again; if it persists, check the other service."


class AskedToHold(PeerError):
    """A preparation of the agent is not ready, and asks that nobody approves the event."""

    code = "asked-to-hold"
    message = "The preparation is not ready."


class OurError(ForewarnError):
    """Forewarn is at fault: a bug or a broken store, which users should report."""

    code = "internal"
    status = 500
    message = "Forewarn failed at this request."
    advice = "Check the service's log; report the error if the log does not explain it."


class ClockWentBack(OurError):
    """A hand-driven clock was set back."""

    code = "clock-went-back"
    message = "The clock cannot go from {now_ms} ms back to {wanted_ms} ms."
    advice = "Time only moves forward; start a new clock for an earlier time."


class ClockSpeedInvalid(CallerError):
    """The requested speed of a scaled clock is not a number above zero."""

    code = "clock-speed-invalid"
    message = "The clock cannot run at speed {speed:g}."
    advice = "Give a speed above 0 and at most {speed_max:.0f}; use pause to stop the clock."


def every_error() -> tuple[type[ForewarnError], ...]:
    """Return every loaded class of the tree, the root first, each class once.

    The reference page of errors is generated from this list.
    """
    errors: list[type[ForewarnError]] = [ForewarnError]
    for kind in errors:  # the list grows during the loop
        errors.extend(child for child in kind.__subclasses__() if child not in errors)
    return tuple(errors)


def reason_of(error: BaseException) -> str:
    """Return a short reason for an external failure, with the file but without error numbers."""
    if isinstance(error, ConnectionRefusedError):  # asyncio adds a text to this error
        return "connection refused"
    if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":  # ssl.SSLError is slow to import
        return "it does not use TLS"
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    reason = error.strerror[0].lower() + error.strerror[1:]
    return f"{reason}: {error.filename}" if error.filename else reason


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the known word that is most similar to a misspelt word, or ""."""
    from difflib import get_close_matches  # noqa: PLC0415 - only after a mistake

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=likeness)), "")


def clean_text(value: object, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """Return an external text in a form that can be stored and shown.

    White space becomes a space, a control character is replaced, an odd byte of a program's
    output is escaped, and a text that is too long is cut off.
    """
    text = str(value)[: characters_max + 1]
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    text = " ".join(text.split())
    text = "".join(each if each.isprintable() else REPLACEMENT for each in text)
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
