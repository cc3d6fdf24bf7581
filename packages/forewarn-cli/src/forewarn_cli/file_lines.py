"""The line of a file that a refusal of the server is about: `fleet.toml:6: …`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from forewarn_server.cli.api_client import ApiRefused

#: Longest file that is searched, in characters.
SEARCHED_MAX = 2 * 1024 * 1024
#: Longest name of a member in a refusal.
_NAME_MAX = 256
#: A refusal's place: `the topology.vms.web-0 has the unknown member 'adresses'`.
_PLACE = re.compile(
    r"the (?:topology|policy)(?:\.(\S{1,512}))? (?:has the unknown member '([^']{1,256})')?"
)


@contextmanager
def located(file: str, body: bytes) -> Iterator[None]:
    """Put the file and the line before the sentence of a refusal of its content.

    Raises:
        ApiRefused: the server refused the file.
    """
    try:
        yield
    except ApiRefused as refusal:
        line = line_of(body.decode("utf-8", "replace"), str(refusal))
        if refusal.code != "validation-failed" or not line:
            raise
        place = "standard input" if file == "-" else file
        raise ApiRefused(
            status=refusal.status,
            code=refusal.code,
            message=f"{place}:{line}: {refusal}",
            advice=refusal.advice_text(),
        ) from refusal


def line_of(text: str, sentence: str) -> int:
    """Return the line of a TOML, YAML or JSON file that a refusal names; 0: not found."""
    match = _PLACE.match(sentence)
    if match is None or len(text) > SEARCHED_MAX:
        return 0
    member = (match[2],) if match[2] else ()
    for names in _split(match[1] or ""):
        at = _position(text, (*names, *member))
        if at >= 0:
            return text.count("\n", 0, at) + 1
    return 0


def _split(path: str) -> Iterator[Sequence[str]]:
    """Yield the ways to divide `vms.web.0.host` into names, which may contain dots."""
    kind, _, rest = path.partition(".")
    if not rest:
        yield (kind,) if kind else ()
        return
    yield kind, rest
    ends = [at for at, letter in enumerate(rest) if letter == "."]
    for end in reversed(ends):
        yield kind, rest[:end], *rest[end + 1 :].split(".")


def _position(text: str, names: Sequence[str]) -> int:
    """Return where the last of nested keys stands, each after the one before; -1: nowhere."""
    at = 0 if names else -1
    for name in names:
        match = _key(name).search(text, at)
        if match is None:
            return -1
        at = match.start() + (1 if match[0][0] in "\"'" else 0)
    return at


def _key(name: str) -> re.Pattern[str]:
    """Return the pattern of a key, with what follows it in TOML, YAML or JSON."""
    return re.compile(rf"""(?<![\w"'-])(["']?){re.escape(name[:_NAME_MAX])}\1\s*[=:\].]""")
