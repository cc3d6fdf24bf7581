"""A made-up hypervisor: a directory with a file for each host. A real one has an API instead.

`HOST.json` has the host's VMs and whether it is healthy; `boots` has a line for each reboot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


class Platform:
    """The hosts of one directory."""

    def __init__(self, options: Mapping[str, object]) -> None:
        """Use the option `directory`.

        Raises:
            ValueError: the option is missing, or there is another one.
        """
        directory = options.get("directory")
        if not isinstance(directory, str) or len(options) > 1:
            raise ValueError("must have the one option directory, a path")
        self.directory = Path(directory)

    def hosts(self) -> dict[str, dict[str, object]]:
        """Return the content of each host's file, by the host's name."""
        files = sorted(self.directory.glob("*.json"))
        return {file.stem: json.loads(file.read_text("utf-8")) for file in files}

    def reboot(self, host: str, request: str) -> None:
        """Reboot a host; a repeated request has no further effect.

        Raises:
            LookupError: there is no such host.
        """
        if host not in self.hosts():
            raise LookupError(f"Acme has no host {host}")
        if f"{host} {request}" not in self.boots():
            with (self.directory / "boots").open("a", encoding="utf-8") as file:
                file.write(f"{host} {request}\n")

    def boots(self) -> list[str]:
        """Return all reboots, each as host and request."""
        file = self.directory / "boots"
        return file.read_text("utf-8").splitlines() if file.exists() else []
