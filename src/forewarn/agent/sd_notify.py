"""Readiness: what a service manager is sent about this agent, by datagram; nothing else.

Silent where no manager listens. The protocol is systemd's sd_notify, spoken by others as well.
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
        """Take from an environment whether and where somebody listens."""
        self._address = environment.pop("NOTIFY_SOCKET", "")  # not for hooks
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        self.watchdog_ms = int(watchdog_us) // 2000 if watchdog_us.isdigit() else 0
        """Milliseconds between two signs of life the manager wants; 0 for none."""
        self._status = ""

    def ready(self) -> None:
        """Notify systemd that the agent is ready."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Send the agent's status as a sentence; repeats are not sent."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text[:STATUS_CHARACTERS_MAX]}")

    def alive(self) -> None:
        """Give a sign of life."""
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
            return  # a manager that went away must not stop the agent
