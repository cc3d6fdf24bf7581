"""Import of the topology from a platform, once or continuously.

The drivers discover the machines. This module sends the machines to the operator API, and reports
hosts that do not answer for too long.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from forewarn_base.clock import Clock, SystemClock
from forewarn_base.errors import CallerError, ForewarnError
from forewarn_base.exit_codes import OK
from forewarn_core.fleet.impact import TRAITS, Cause
from forewarn_server.cli.api_client import ApiClient, ApiRefused, client_of
from forewarn_server.cli.application import application
from forewarn_server.cli.driver import driver_table
from forewarn_server.cli.output import note, print_structured
from forewarn_server.cli.parameters import (
    COMMON,
    Config,
    ServerOptions,
)

if TYPE_CHECKING:
    from forewarn_drivers.found import Found
    from forewarn_drivers.sources import FleetSource

imports = application("import", "import hosts and VMs from a platform")


class HypervisorsUnnamed(CallerError):
    """Neither URIs nor a configuration are named, or both."""

    code = "hypervisors-unnamed"
    message = "Hypervisors must be named in exactly one way."
    advice = "Name each host as NAME=URI, or name a file with --config."


# Commands import the packages of drivers late, because `--help` works without these packages.


@imports.command(name="driver")
def _driver(
    name: Annotated[str, Parameter(name="NAME", help="as in [drivers.NAME]")],
    /,
    *,
    config: Config = (),
    follow: Annotated[bool, Parameter(help="keep importing changes until Ctrl-C")] = False,
    dry_run: Annotated[bool, Parameter(help="show what would change")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Import hosts and VMs that a driver lists."""
    from forewarn_drivers.sources import make_source  # noqa: PLC0415

    source = make_source(name, driver_table(name, config)[0])
    return run_import(common, source, follow=follow, dry_run=dry_run)


@imports.command(name="kubernetes")
def _kubernetes(
    name: Annotated[
        str, Parameter(name="NAME", help="as in [drivers.NAME] (default: kubernetes)")
    ] = "kubernetes",
    /,
    *,
    config: Config = (),
    follow: Annotated[bool, Parameter(help="keep importing changes until Ctrl-C")] = False,
    dry_run: Annotated[bool, Parameter(help="show what would change")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Import nodes and VMs from Kubernetes and KubeVirt."""
    source = _source_of_kind("kubernetes", name, config)
    return run_import(common, source, follow=follow, dry_run=dry_run)


@imports.command(name="nova")
def _nova(
    name: Annotated[
        str, Parameter(name="NAME", help="as in [drivers.NAME] (default: nova)")
    ] = "nova",
    /,
    *,
    config: Config = (),
    follow: Annotated[bool, Parameter(help="keep importing changes until Ctrl-C")] = False,
    dry_run: Annotated[bool, Parameter(help="show what would change")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Import hosts and VMs from OpenStack Nova."""
    source = _source_of_kind("nova", name, config)
    return run_import(common, source, follow=follow, dry_run=dry_run)


def _source_of_kind(kind: str, name: str, config: Sequence[Path]) -> FleetSource:
    """Return the source of this kind with the settings of the named driver.

    Raises:
        DriverNotSet: the driver is not in the settings.
    """
    from forewarn_drivers.registry import KIND  # noqa: PLC0415
    from forewarn_drivers.sources import make_source  # noqa: PLC0415

    return make_source(name, {**driver_table(name, config)[0], KIND: kind})


@imports.command(name="libvirt")
def _libvirt(
    *uris: Annotated[
        str, Parameter(name="[NAME=]URI", help="such as h1=qemu+tls://h1.example/system")
    ],
    config: Annotated[
        str | None, Parameter(metavar="FILE", help="the libvirt driver's file")
    ] = None,
    follow: Annotated[bool, Parameter(help="keep importing changes until Ctrl-C")] = False,
    dry_run: Annotated[bool, Parameter(help="show what would change")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Import hosts and VMs from libvirt."""
    from forewarn_drivers.sources import make_source  # noqa: PLC0415

    if bool(uris) == bool(config):
        raise HypervisorsUnnamed
    source = make_source("libvirt", {"config": config} if config else {"uris": list(uris)})
    return run_import(common, source, follow=follow, dry_run=dry_run)


def run_import(common: ServerOptions, source: FleetSource, *, follow: bool, dry_run: bool) -> int:
    """Import the topology according to the options."""
    importer = Importer(client_of(common), source, dry_run=dry_run)
    if follow:
        return importer.follow()
    fleet = importer.once()
    if common.structured:
        return print_structured(
            common, {"hosts": fleet.hosts, "vms": fleet.vms, "silent": fleet.silent}
        )
    for host, reason in fleet.silent.items():
        note(f"host {host} does not answer: {reason}")
    return OK


class Importer:
    """Updates the topology from a platform."""

    def __init__(
        self,
        client: ApiClient,
        source: FleetSource,
        *,
        dry_run: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Prepare the importer without querying any host."""
        self._client = client
        self._source = source
        self._dry_run = dry_run
        self._clock = clock or SystemClock()
        #: Time at which each host stopped answering, ms since the epoch UTC.
        self._silent_ms: dict[str, int] = {}
        self._reported: set[str] = set()
        #: Every host that the platform has ever listed.
        self._hosts: set[str] = set()
        #: Messages of the last update and of the current update, printed once.
        self._said: set[str] = set()
        self._saying: set[str] = set()

    def once(self) -> Found:
        """Query every host once, and update the topology.

        Raises:
            ApiRefused: the server refused some records; the error names the first.
        """
        fleet, refused = self._bring_in_step()
        if refused:
            raise refused[0]
        return fleet

    def turn(self) -> None:
        """Update once; print each new failure, and retry at the next update."""
        try:
            fleet, failed = self._bring_in_step()
            self._report_silence(fleet)
        except ForewarnError as error:
            failed = [error]
        for each in failed:
            self._note_once(str(each))
        self._said, self._saying = self._saying, set()

    def _note_once(self, text: str) -> None:
        if text not in self._said | self._saying:
            note(text)
        self._saying.add(text)

    def follow(self) -> int:
        """Update until interrupted."""
        changed = self._source.watch()
        sys.stderr.flush()
        while True:
            changed.clear()
            self.turn()
            changed.wait(self._source.every_s)

    def _bring_in_step(self) -> tuple[Found, list[ForewarnError]]:
        """Apply the discovered records; return the records, and the errors of refused records."""
        from forewarn_drivers.found import difference, gone  # noqa: PLC0415

        fleet = self._source.discover()
        known = json.loads(self._client.send("GET", "/v1/topology?format=json"))
        changed = difference(fleet, known)
        self._hosts.update(fleet.hosts)
        removed = gone(fleet, known, self._hosts)
        refused: list[ForewarnError] = []
        for kind, forms in changed.items():
            for name, form in forms.items():
                where = f" on {form['host']}" if kind == "vms" else ""
                sign = "~" if name in known.get(kind, {}) else "+"
                try:
                    self._put(kind, name, form)
                except ApiRefused as error:
                    refused.append(error)
                    before = known.get(kind, {}).get(name, {})
                    if before.get("host", form.get("host")) != form.get("host"):
                        with suppress(
                            ApiRefused
                        ):  # record the new host, so that notices reach the VM
                            self._put(kind, name, {**before, "host": form["host"]})
                else:
                    note(f"{sign} {kind[:-1]} {name}{where}")
        for name in removed:
            try:
                self._remove(name)
            except ApiRefused as error:
                refused.append(error)
            else:
                note(f"- vm {name}")
        return fleet, refused

    def _put(self, kind: str, name: str, form: dict[str, Any]) -> None:
        if not self._dry_run:
            body = json.dumps({kind: {name: form}}).encode()
            self._client.send("PUT", "/v1/topology", body=body, kind="application/json")

    def _remove(self, vm: str) -> None:
        if not self._dry_run:
            self._client.delete(f"/v1/vms?name={vm}")

    def _report_silence(self, fleet: Found) -> None:
        """Report hosts that have not answered for too long. Source: L-4."""
        now_ms = self._clock.now_ms()
        for host in list(self._silent_ms):
            if host not in fleet.silent:
                del self._silent_ms[host]
                self._reported.discard(host)
                note(f"host {host} answers again")
        for host, reason in fleet.silent.items():
            if host not in self._silent_ms:
                note(f"host {host} does not answer: {reason}")
            since_ms = self._silent_ms.setdefault(host, now_ms)
            limit_s = self._source.lost_after_s
            late = limit_s and now_ms - since_ms >= limit_s * 1000
            if late and host not in self._reported and not self._is_worked_on(host):
                self._reported.add(host)
                form = {"cause": "host-lost", "targets": [host]}
                operations = self._client.post("/v1/operations", form)["operations"]
                note(
                    f"host {host} is reported lost: {', '.join(each['id'] for each in operations)}"
                )

    def _is_worked_on(self, host: str) -> bool:
        """Return whether the work of a driver explains why a host does not answer.

        Stuck work does not count, because the host may never answer again.
        """
        running = self._client.get("/v1/operations", state="running", host=host)["operations"]
        return any(
            each["target_kind"] == "host"
            and not each["reason"]
            and not TRAITS[Cause(each["cause"])].fault
            for each in running
        )
