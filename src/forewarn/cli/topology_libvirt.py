"""`forewarn topology import libvirt`: hosts and VMs as libvirt has them, once or from then on.

What is found is in `drivers/libvirt/discovery.py`; this carries it to the operator API.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.cli.output import note, print_json
from forewarn.clock import SystemClock
from forewarn.core.impact import TRAITS, Cause
from forewarn.errors import CallerError, ForewarnError
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.api_client import ApiClient
    from forewarn.cli.parsing import Commands
    from forewarn.clock import Clock
    from forewarn.drivers.libvirt.config import LibvirtConfig
    from forewarn.drivers.libvirt.discovery import Found
    from forewarn.drivers.libvirt.records import Records

#: How often all hosts are asked while they are followed, in seconds.
EVERY_S = 2.0


class HypervisorsUnnamed(CallerError):
    """Neither URIs nor a configuration."""

    code = "hypervisors-unnamed"
    message = "No hypervisor is named."
    advice = "Give NAME=URI for each host, or --config FILE, but not both."


def add_import(topology: Commands) -> None:
    """Add `topology import libvirt`."""
    parser = topology.group("import", "take hosts and VMs over from what runs them").command(
        "libvirt", "take hosts and VMs over from libvirt", run=_import
    )
    parser.add_argument(
        "uris", metavar="[NAME=]URI", nargs="*", help="such as h1=qemu+tls://h1.example/system"
    )
    parser.add_argument("--config", metavar="FILE", help="the libvirt driver's file")
    parser.add_argument("--follow", action="store_true", help="keep in step until it is ended")
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")


def _import(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of  # noqa: PLC0415 - `--help` needs it not
    from forewarn.drivers.libvirt.records import Records  # noqa: PLC0415

    config = _config(arguments)
    client = client_of(arguments)
    records = Records(config) if arguments.config else None
    importer = Importer(client, config, records=records, dry_run=arguments.dry_run)
    if arguments.follow:
        return importer.follow()
    found = importer.once()
    if arguments.json:
        return print_json({"hosts": found.hosts, "vms": found.vms, "silent": found.silent})
    for host, reason in found.silent.items():
        note(f"host {host} was left out: {reason}")
    return OK


def _config(arguments: argparse.Namespace) -> LibvirtConfig:
    from forewarn.drivers.libvirt.config import config_of_uris, read_config  # noqa: PLC0415
    from forewarn.drivers.libvirt.connection import host_name  # noqa: PLC0415

    if bool(arguments.uris) == bool(arguments.config):
        raise HypervisorsUnnamed
    if arguments.config:
        return read_config(Path(arguments.config))
    uris = {}
    for word in arguments.uris:
        name, equals, uri = word.partition("=")
        # A URI's own query holds equals signs, too; a name holds no colon.
        uris.update({name: uri} if equals and ":" not in name else {host_name(word): word})
    return config_of_uris(uris)


class Importer:
    """Brings the topology in step with libvirt."""

    def __init__(
        self,
        client: ApiClient,
        config: LibvirtConfig,
        *,
        records: Records | None = None,
        dry_run: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Ask nobody yet."""
        from forewarn.drivers.libvirt.connection import Connections  # noqa: PLC0415

        self._client = client
        self._config = config
        self._connections = Connections(config)
        self._records = records
        self._dry_run = dry_run
        self._clock = clock or SystemClock()
        #: Host -> since when it has been silent, ms since the epoch UTC.
        self._silent_ms: dict[str, int] = {}
        self._reported: set[str] = set()
        self._said: set[str] = set()

    def once(self) -> Found:
        """Ask every host, and have the topology say what they say.

        Raises:
            ApiRefused: the first record that was refused; all others were taken over.
        """
        found, refused = self._bring_in_step()
        if refused:
            raise refused[0]
        return found

    def turn(self) -> None:
        """Keep in step; what cannot be done now is said once, and left for the next turn."""
        try:
            found, failed = self._bring_in_step()
            self._look_after(found)
        except ForewarnError as error:
            failed = [error]
        texts = [str(error) for error in failed]
        for text in texts:
            if text not in self._said:
                note(text)
        self._said = set(texts)

    def follow(self) -> int:
        """Keep in step until it is ended."""
        changed = self._connections.watch()
        sys.stderr.flush()
        while True:
            changed.clear()
            self.turn()
            _wait(changed)

    def _bring_in_step(self) -> tuple[Found, list[ForewarnError]]:
        """Take over what was found; return it, and what was refused: work may go on there."""
        from forewarn.cli.api_client import ApiRefused  # noqa: PLC0415 - `--help` needs it not
        from forewarn.drivers.libvirt.discovery import difference, discover, gone  # noqa: PLC0415

        found = discover(self._config, self._connections, self._records)
        known = json.loads(self._client.send("GET", "/v1/topology?format=json"))
        changed = difference(found, known)
        removed = gone(found, known, self._config.hosts.__contains__)
        refused: list[ForewarnError] = []
        for kind, forms in changed.items():
            for name, form in forms.items():
                where = f" on {form['host']}" if kind == "vms" else ""
                sign = "~" if name in known.get(kind, {}) else "+"
                try:
                    self._put(kind, name, form)
                except ApiRefused as error:
                    refused.append(error)
                else:
                    note(f"{sign} {kind[:-1]} {name}{where}")
        for name in removed:
            try:
                self._remove(name)
            except ApiRefused as error:
                refused.append(error)
            else:
                note(f"- vm {name}")
        return found, refused

    def _put(self, kind: str, name: str, form: dict[str, Any]) -> None:
        if not self._dry_run:
            body = json.dumps({kind: {name: form}}).encode()
            self._client.send("PUT", "/v1/topology", body=body, kind="application/json")

    def _remove(self, vm: str) -> None:
        if not self._dry_run:
            self._client.delete(f"/v1/vms?name={vm}")

    def _look_after(self, found: Found) -> None:
        """Report hosts that have been silent for too long. Source: L-4."""
        now_ms = self._clock.now_ms()
        for host in list(self._silent_ms):
            if host not in found.silent:
                del self._silent_ms[host]
                self._reported.discard(host)
                note(f"host {host} answers again")
        for host, reason in found.silent.items():
            if host not in self._silent_ms:
                note(f"host {host} does not answer: {reason}")
            since_ms = self._silent_ms.setdefault(host, now_ms)
            limit_s = self._config.lost_after_s
            late = limit_s and now_ms - since_ms >= limit_s * 1000
            if late and host not in self._reported and not self._is_worked_on(host):
                self._reported.add(host)
                form = {"cause": "host-lost", "targets": [host]}
                made = self._client.post("/v1/operations", form)["operations"]
                note(f"host {host} is reported lost: {', '.join(each['id'] for each in made)}")

    def _is_worked_on(self, host: str) -> bool:
        """Whether a host may be silent since work on it is under way, which its driver watches.

        Work that is stuck has a reason: then nobody expects the host back any more.
        """
        running = self._client.get("/v1/operations", state="running", host=host)["operations"]
        return any(
            each["target_kind"] == "host"
            and not each["reason"]
            and not TRAITS[Cause(each["cause"])].fault
            for each in running
        )


def _wait(changed: threading.Event) -> None:
    changed.wait(EVERY_S)
