"""Notifications to the service manager, by systemd's sd_notify protocol.

Without a service manager, the functions do nothing.
"""

from __future__ import annotations

import os
import socket

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import MutableMapping

STATUS_CHARACTERS_MAX = 200


class SdNotify:
    """Sends readiness, status and keep-alives to the service manager."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Read the service manager's address from the environment."""
        self._address = environment.pop("NOTIFY_SOCKET", "")  # hooks must not inherit the address
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        #: Interval of keep-alives in milliseconds; 0: no keep-alives.
        self.watchdog_ms = int(watchdog_us) // 2000 if watchdog_us.isdigit() else 0
        self._status = ""

    def ready(self) -> None:
        """Notify systemd that the agent is ready."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Send the agent's status as a sentence, once per change."""
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
                out.setblocking(False)  # noqa: FBT003 - a manager that hangs must not stop the agent
                out.sendto(text.replace("\n", " ").encode("utf-8", "replace"), address)
        except OSError:
            return  # the agent continues without a service manager
