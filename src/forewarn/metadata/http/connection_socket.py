"""What a transport does with a connection's socket. No state and no decision may go in here."""

from __future__ import annotations


class ConnectionSocket:
    """Five acts; each transport has its own way to do them."""

    __slots__ = ()

    def _write(self, octets: bytes) -> None:
        """Send, now or as soon as the client reads; sets `stalled` where it does not."""
        raise NotImplementedError

    def _close(self, *, linger: bool) -> None:
        """Close once everything is sent; `linger`: read on for a while, unheard."""
        raise NotImplementedError

    def _reset(self) -> None:
        """Reset the connection at once."""
        raise NotImplementedError

    def _read(self, *, wanted: bool) -> None:
        """Read from the client, or stop reading."""
        raise NotImplementedError

    def _interface(self) -> str:
        """Return the interface it came in by, where the system knows it."""
        raise NotImplementedError
