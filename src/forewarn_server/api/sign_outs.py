"""Sessions that have ended before their token expires, in every process. Source: P-5.

The issuer's token in a browser's cookie stays valid until it expires, also after the browser has
removed the cookie. So a sign-out stores the token's digest, and each process reads these digests
while it has sessions. A restore stores its own time: tokens that were issued before it are refused,
since sign-outs after the backup are lost.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forewarn_base.errors import ForewarnError, PeerError

if TYPE_CHECKING:
    from forewarn_base.clock import Clock
    from forewarn_store import Store

log = logging.getLogger("forewarn.operator")

#: Age at which the ended sessions are read from the store again, in milliseconds, and how long a
#: call waits for that, in seconds.
READ_MS, READ_WAIT_S = 2000, 1.0
#: Maximum number of ended sessions whose tokens have not expired.
SIGN_OUTS_MAX = 10_000


class SignOutsFull(PeerError):
    """The store has too many ended sessions."""

    code = "sign-outs-full"
    status = 503
    message = "{limit} sessions have ended whose tokens have not expired, so no more can be stored."
    advice = "Let the issuer's tokens expire sooner, or set a shorter [oidc] max_session_s."


class SignOuts:
    """The ended sessions of one store. Use it on one event loop."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        #: Digests of the tokens, and the time before which issued tokens are refused.
        self._digests: frozenset[str] = frozenset()
        self._since_ms = 0
        #: `Clock.elapsed_ms` of the last read; None: not read yet.
        self._read_ms: int | None = None
        self._reading: asyncio.Future[None] | None = None

    def cover(self, digest: str, issued_ms: int) -> bool:
        """Return whether a token's session has ended, as last read; read again if that is old.

        Args:
            digest: the digest of the token.
            issued_ms: when the issuer has issued the token, ms since the epoch UTC.
        """
        self._begin()
        return digest in self._digests or issued_ms < self._since_ms

    async def read(self) -> None:
        """Wait until the ended sessions are recent; if the store is slow, use those last read.

        Raises:
            ForewarnError: the store cannot be read, and has never been.
        """
        self._begin()
        if self._reading is None:
            return
        if self._read_ms is None:
            await asyncio.shield(self._reading)
        else:
            await asyncio.wait([self._reading], timeout=READ_WAIT_S)

    async def add(self, digest: str, expires_ms: int) -> None:
        """End a session, durably.

        Raises:
            SignOutsFull: too many sessions have ended.
            ForewarnError: the store cannot be written.
        """
        if len(self._digests) >= SIGN_OUTS_MAX:
            raise SignOutsFull(limit=SIGN_OUTS_MAX)
        now_ms = self._clock.now_ms()
        await asyncio.to_thread(self._store.note_sign_out, digest, expires_ms, now_ms)
        if self._reading is not None:  # it may have begun before the write
            await asyncio.wait([self._reading])
        self._digests |= {digest}

    def _begin(self) -> None:
        read_ms = self._read_ms
        recent = read_ms is not None and self._clock.elapsed_ms() - read_ms < READ_MS
        if not recent and self._reading is None:
            self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        begun_ms = self._clock.elapsed_ms()
        try:
            ended = await asyncio.to_thread(self._store.sign_outs)
        except ForewarnError as error:
            if self._read_ms is None:
                raise
            log.warning("ended sessions could not be read: %s", error)
        else:
            self._since_ms = ended.pop("", 0)
            self._digests = frozenset(ended)
        finally:
            self._reading = None
        self._read_ms = begun_ms
