"""Bearer tokens of the settings, and who sends tokens that nobody has.

Tokens of operators and of metadata nodes are judged alike; what they allow is decided elsewhere.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from forewarn.connection_table import source_of
from forewarn.errors import CallerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

log = logging.getLogger("forewarn.tokens")

#: A shorter token can be guessed; `python3 -c "import secrets; print(secrets.token_hex())"`.
TOKEN_LENGTH_MIN = 16
#: Sources of unknown tokens, and owners' sources, that are remembered.
SOURCES_REMEMBERED = 10_000
#: How long unknown tokens are counted, in milliseconds.
REFUSED_WINDOW_MS = 60_000
_FACT = {"action": "token-refused"}


class TokenInvalid(CallerError):
    """A token in the settings that cannot be one."""

    code = "token-invalid"
    message = "Token number {number} of the settings {problem}."
    advice = "Write tokens as NAME:TOKEN, each name once, each token 16 characters or more."


class TokenWrong(CallerError):
    """A call with a token that nobody has."""

    code = "token-wrong"
    status = 401
    message = "This bearer token is not known here."
    advice = "Look at FOREWARN_TOKEN and at `tokens` in the service's [operator] settings."


class TooManyRefused(CallerError):
    """A source that has sent many unknown tokens."""

    code = "too-many-refused"
    status = 429
    message = "{source} has sent too many unknown tokens."
    advice = "Correct the token, wait a minute, then try again."


class RefusedTokens:
    """Who has sent tokens that nobody has, and how many: logged with the address, and limited.

    Above the limit a token is not looked at, right or wrong, but for owners who have called from
    there before: a stranger behind the same proxy does not lock them out.
    """

    def __init__(self, limit: int, now_ms: Callable[[], int]) -> None:
        """Refuse nobody yet; `limit` unknown tokens may come from one source in a minute."""
        self._limit = limit
        self._now_ms = now_ms
        #: By source: since when they are counted, in ms of `now_ms`, and how many.
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()
        #: Owners seen, with the source each called from; the latest last.
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def judge(self, owner: str, address: str) -> None:
        """Let a call through whose token is its owner's; empty: nobody's.

        Raises:
            TokenWrong: it is nobody's.
            TooManyRefused: too many from there were.
        """
        source = source_of(address)
        if owner and (owner, source) in self._seen:
            return
        now_ms = self._now_ms()
        since_ms, count = self._counts.get(source, (now_ms, 0))
        if not 0 <= now_ms - since_ms < REFUSED_WINDOW_MS:
            since_ms, count = now_ms, 0
        if count >= self._limit:
            raise TooManyRefused(source=source or "The Unix socket")
        if owner:
            self._seen[owner, source] = None
            _forget(self._seen)
            return
        self._counts[source] = (since_ms, count + 1)
        self._counts.move_to_end(source)
        _forget(self._counts)
        more = "; no more is looked at for a minute" if count + 1 == self._limit else ""
        log.warning(
            "unknown token from %s refused%s", address or "a Unix socket", more, extra=_FACT
        )
        raise TokenWrong


def read_tokens(written: Iterable[str], *, name_length_max: int = 64) -> dict[str, bytes]:
    """Return tokens by their owners' names, from `NAME:TOKEN`.

    Raises:
        TokenInvalid: one cannot be a token.
    """
    tokens: dict[str, bytes] = {}
    for number, each in enumerate(written, 1):
        name, separator, token = each.partition(":")
        problem = ""
        if not (separator and name and name.isprintable() and len(name) <= name_length_max):
            problem = "has no name before a colon"
        elif name in tokens:
            problem = "is there twice"
        elif len(token) < TOKEN_LENGTH_MIN or not token.isascii() or not token.isprintable():
            problem = f"is shorter than {TOKEN_LENGTH_MIN} characters or not plain text"
        if problem:
            raise TokenInvalid(number=number, problem=problem)
        tokens[name] = token.encode()
    return tokens


def _forget(known: OrderedDict[Any, Any]) -> None:
    if len(known) > SOURCES_REMEMBERED:
        known.popitem(last=False)
