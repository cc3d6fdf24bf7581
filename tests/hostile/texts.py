"""Hostile texts for readers of any format: one piece, repeated, sometimes after a beginning."""

from collections.abc import Callable, Iterator
from functools import partial

SIGNS = [chr(code) for code in range(33, 127)] + list(" \t\n\r\0é\u2028")
PAIRS = [
    *('"\\', '\\"', ":1", "a.", "a,", "a=", "{}", "[]", "[],", '{"a":', "%41", "/..", "\r\n"),
    *("\n ", "- ", "? ", "&a ", "*a ", "#\n", "'''", '"""', "a:\n", "<a>", "<!--", "&amp;", "=?"),
    *(";a=", "-1", "+1", "1_", "0x", ".1", "e9", "::", "a@", "key=", "a b", "()", "x:", "\\x"),
    *("\\u0041", "0,", "a\n", "a: b\n", "\n%TAG !a! b", "\\\n", "''", "//", "a/b,", "1\n"),
]
STARTS = ["", '"', "1"]


def repeated(start: str, piece: str, size: int) -> str:
    """Return a text about `size` long."""
    return start + piece * (size // len(piece))


def texts() -> Iterator[Callable[[int], str]]:
    """Yield functions that make a text of a length."""
    for start in STARTS:
        for piece in SIGNS + PAIRS:
            yield partial(repeated, start, piece)
