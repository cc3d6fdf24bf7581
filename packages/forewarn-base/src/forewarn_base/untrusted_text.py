r"""Text from others in what people read: terminals, logs, mail and chats show it and obey nothing.

Control characters move a terminal's cursor, set its title or make it answer, and characters that
set the direction of text hide or reorder it. Each is written as its JSON escape (`\u202e`), so that
JSON stays valid and keeps its values. Mail and chats get text without characters of mark-up.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` needs too much memory for the agent
if TYPE_CHECKING:
    from typing import Any, TextIO

#: Sign of mark-up in HTML, Markdown or a chat -> its full-width form of Unicode.
_WIDE = {ord(each): ord(each) + 0xFEE0 for each in "<>[]@"}
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped_text(text: str) -> str:
    """Escape everything in a line that is not printable, also line ends."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else _SHORT.get(each) or _escape(each) for each in text
    )


def escaped_lines(text: str) -> str:
    """Escape everything in a text that is not printable, except for line ends and tabs."""
    if text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(escaped_text, line.split("\t"))) for line in lines)


def without_markup(text: str) -> str:
    """Replace the characters that begin tags, links and mentions in mail and chats by wide ones."""
    return text.translate(_WIDE)


def _escape(character: str) -> str:
    """Return the JSON escape of a character, or two for one that UTF-16 writes with two units."""
    octets = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{octets[at : at + 2].hex()}" for at in range(0, len(octets), 2))


class EscapedStream:
    """A stream of text for people, which escapes what it writes."""

    def __init__(self, stream: TextIO) -> None:
        """Write to a stream."""
        self.unescaped = stream
        #: rich, which prints the help with its own escape sequences, writes to this stream instead.
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write a text with visible control characters."""
        self.unescaped.write(escaped_lines(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write texts."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the stream has it
        """Return an attribute of the stream."""
        return getattr(self.unescaped, name)


class EscapedOutput:
    """While entered, everything that this process prints is escaped."""

    def __enter__(self) -> None:
        """Replace standard output and standard error."""
        self._streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = map(_escape_stream, self._streams)

    def __exit__(self, *_: object) -> None:
        """Restore both."""
        sys.stdout, sys.stderr = self._streams


def unescaped_output() -> TextIO:
    """Return standard output for our own escape sequences, or for a file's exact text."""
    return getattr(sys.stdout, "unescaped", sys.stdout)


def unescaped_errors() -> TextIO:
    """Return standard error for our own escape sequences."""
    return getattr(sys.stderr, "unescaped", sys.stderr)


def _escape_stream(stream: TextIO) -> TextIO:
    return stream if isinstance(stream, EscapedStream) else EscapedStream(stream)  # type: ignore[return-value]
