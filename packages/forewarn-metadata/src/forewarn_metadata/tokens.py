"""Logs calls with unknown bearer tokens, and limits their number.

`access/tokens.py` defines tokens and their permissions.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from forewarn_base.errors import CallerError
from forewarn_metadata.connection_table import source_of

log = logging.getLogger("forewarn.tokens")

#: Maximum stored sources of unknown tokens, and maximum stored token owners.
SOURCES_REMEMBERED = 10_000
#: Period in which unknown tokens are counted, in milliseconds.
REFUSED_WINDOW_MS = 60_000
_FACT = {"action": "token-refused"}


class TokenWrong(CallerError):
    """The call has an unknown token."""

    code = "token-wrong"
    status = 401
    message = (
        "This bearer token is unknown, was revoked, has expired, or is suspended after a restore."
    )
    advice = (
        "Copy it again, or ask an admin for another one (`forewarn access token create`) or to "
        "resume it (`forewarn access token resume`)."
    )


class TooManyRefused(CallerError):
    """A source has sent many unknown tokens."""

    code = "too-many-refused"
    status = 429
    message = "{source} has sent too many unknown tokens."
    advice = "Correct the token, wait a minute, then try again."


class RefusedTokens:
    """Counts unknown tokens by source, logs them with the address, and limits them.

    Above the limit, no token from the source is checked, except for owners who have called from
    there before. So a stranger behind the same proxy cannot lock out these owners.
    """

    def __init__(self, limit: int, now_ms: Callable[[], int]) -> None:
        """Start counting; one source may send `limit` unknown tokens per minute."""
        self._limit = limit
        self._now_ms = now_ms
        #: For each source, the number of unknown tokens, after the time at which the count started.
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()
        #: Known owners with the sources of their calls; the latest last.
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def judge(self, owner: str, address: str) -> None:
        """Accept a call with a valid token's owner; refuse an empty owner.

        Raises:
            TokenWrong: the token is unknown.
            TooManyRefused: too many calls from the address were refused.
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
        more = "; no token from there is checked for a minute" if count + 1 == self._limit else ""
        log.warning(
            "unknown token from %s refused%s", address or "a Unix socket", more, extra=_FACT
        )
        raise TokenWrong


def _forget(known: OrderedDict[Any, Any]) -> None:
    if len(known) > SOURCES_REMEMBERED:
        known.popitem(last=False)
