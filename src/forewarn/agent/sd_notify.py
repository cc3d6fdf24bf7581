"""Notifications to the service manager, in systemd's sd_notify protocol.

Without a listening manager, nothing is sent.
"""

from __future__ import annotations

import os
import socket

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import MutableMapping

STATUS_CHARACTERS_MAX = 200


class SdNotify:
    """Notifies the service manager of readiness, status and life."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Read the manager's address from the environment."""
        self._address = environment.pop("NOTIFY_SOCKET", "")  # hooks must not inherit it
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        self.watchdog_ms = int(watchdog_us) // 2000 if watchdog_us.isdigit() else 0
        """Interval of keep-alives that the manager expects, in milliseconds; 0 for none."""
        self._status = ""

    def ready(self) -> None:
        """Notify systemd that the agent is ready."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Send the agent's status as a sentence; do not repeat it."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text[:STATUS_CHARACTERS_MAX]}")

    def alive(self) -> None:
        """Send a keep-alive."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Notify systemd that the agent is stopping."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.sendto(text.replace("\n", " ").encode("utf-8", "replace"), address)
        except OSError:
            return  # the loss of the manager must not stop the agent
