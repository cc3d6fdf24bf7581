"""A domain of a host, with the driver's repeatable actions on the domain.

`guests.py` and `migration.py` choose the actions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from forewarn_base.values import value
from forewarn_libvirt.config import Fallback, LibvirtConfig

#: Namespace of the element in the domain's metadata.
NAMESPACE = "https://forewarn.dev/libvirt/task/1"
#: Prefix of the namespace in libvirt's XML.
PREFIX = "forewarn-task"


@value
class DomainMark:
    """The note in a domain's metadata about the operation that works on the domain."""

    #: `op-12@` and the operation's creation time, so that names are unique among stores.
    operation: str
    attempt: int
    generation: int
    #: Whether the current run of the domain must end. Only the running domain's metadata has
    #: this note, so that it disappears when the run ends.
    pending: bool = False
    #: The destination host; empty: the domain stays on its host.
    to: str = ""
    #: Whether the domain ran before the work, and must run afterwards.
    ran: bool = True

    @property
    def element(self) -> str:
        """The mark as an element for the domain's metadata."""
        return (
            f"<task operation={quoteattr(self.operation)} attempt='{self.attempt}' "
            f"generation='{self.generation}' pending='{int(self.pending)}' to={quoteattr(self.to)} "
            f"ran='{int(self.ran)}'/>"
        )


def read_mark(element: str) -> DomainMark | None:
    """Return the driver's mark in a domain's metadata, or None."""
    try:
        attributes = ET.fromstring(element).attrib  # noqa: S314 - libvirt wrote it from its own tree
        return DomainMark(
            attributes["operation"],
            int(attributes["attempt"]),
            int(attributes["generation"]),
            attributes["pending"] == "1",
            attributes["to"],
            attributes["ran"] == "1",
        )
    except (ET.ParseError, KeyError, ValueError):
        return None


@value
class Domain:
    """A domain, defined or running. Raises libvirt's own exceptions."""

    host: str
    name: str
    handle: Any
    libvirt: Any

    @property
    def active(self) -> bool:
        """Whether the domain runs or is suspended."""
        return bool(self.handle.isActive())

    @property
    def paused(self) -> bool:
        """Whether the domain is suspended."""
        return bool(self.handle.state()[0] == self.libvirt.VIR_DOMAIN_PAUSED)

    @property
    def memory_kib(self) -> int:
        """The domain's maximum memory, in KiB."""
        return int(self.handle.maxMemory())

    @property
    def migrating(self) -> bool:
        """Whether the domain is migrating to another host."""
        return bool(self.handle.jobInfo()[0] != self.libvirt.VIR_DOMAIN_JOB_NONE)

    def share(self) -> float:
        """Completed share of the current migration, 0 to 1."""
        counts: dict[str, int] = {}
        with self._gone():
            counts = self.handle.jobStats()
        total = counts.get("data_total", 0)
        return counts.get("data_processed", 0) / total if total else 0.0

    def downtime_ms(self) -> int:
        """Return the domain's pause during its migration to this host, in ms; -1: unknown."""
        lib = self.libvirt
        flags = lib.VIR_DOMAIN_JOB_STATS_COMPLETED | lib.VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED
        try:
            counts = self.handle.jobStats(flags)
        except lib.libvirtError:
            return -1
        return int(counts.get(lib.VIR_DOMAIN_JOB_DOWNTIME, -1))

    def mark(self) -> DomainMark | None:
        """Return Forewarn's entry in the domain's metadata; None if there is no entry."""
        kind = self.libvirt.VIR_DOMAIN_METADATA_ELEMENT
        try:
            return read_mark(self.handle.metadata(kind, NAMESPACE))
        except self.libvirt.libvirtError as error:
            if error.get_error_code() == self.libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                return None
            raise

    @property
    def run_lasts(self) -> bool:
        """Return whether the domain is still in the run that the driver has read."""
        number = self.handle.ID()
        try:
            return bool(number >= 0 and self.handle.connect().lookupByID(number).isActive())
        except self.libvirt.libvirtError as error:
            if error.get_error_code() == self.libvirt.VIR_ERR_NO_DOMAIN:
                return False
            raise

    def put_mark(self, mark: DomainMark) -> None:
        """Write a mark into the domain's metadata; a pending mark ends with the current run."""
        lib = self.libvirt
        if self.handle.isPersistent():
            self._put(replace(mark, pending=False), lib.VIR_DOMAIN_AFFECT_CONFIG)
        if self.active:
            with self._ended():
                self._put(mark, lib.VIR_DOMAIN_AFFECT_LIVE)

    def _put(self, mark: DomainMark, flags: int) -> None:
        kind = self.libvirt.VIR_DOMAIN_METADATA_ELEMENT
        self.handle.setMetadata(kind, mark.element, PREFIX, NAMESPACE, flags)

    def definition(self) -> str:
        """Return the domain's definition for a start."""
        flags = self.libvirt.VIR_DOMAIN_XML_SECURE
        flags |= self.libvirt.VIR_DOMAIN_XML_INACTIVE if self.handle.isPersistent() else 0
        return str(self.handle.XMLDesc(flags))

    def shutdown(self) -> None:
        """Request a shutdown by the domain's power button."""
        with self._gone():
            self.handle.shutdown()

    def destroy(self) -> None:
        """Power the domain off."""
        with self._gone():
            self.handle.destroy()

    def create(self) -> None:
        """Start the domain, unless the domain runs or another client is starting the domain."""
        if self.active:
            return
        try:
            self.handle.create()
        except self.libvirt.libvirtError:
            if not self.active:
                raise

    def suspend(self) -> None:
        """Stop the domain's processors."""
        if self.active and not self.paused:
            with self._ended():
                self.handle.suspend()

    def resume(self) -> None:
        """Resume the domain's processors."""
        if self.active and self.paused:
            with self._ended():
                self.handle.resume()

    def undefine(self) -> None:
        """Remove the domain's definition from the host; leave its disks."""
        with self._gone():
            self.handle.undefineFlags(
                self.libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | self.libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                | self.libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
            )

    def migrate(self, uri: str, config: LibvirtConfig) -> None:
        """Migrate the domain live to another host; return after the end of the migration."""
        lib = self.libvirt
        flags = lib.VIR_MIGRATE_LIVE | lib.VIR_MIGRATE_PEER2PEER | lib.VIR_MIGRATE_AUTO_CONVERGE
        if self.handle.isPersistent():
            flags |= lib.VIR_MIGRATE_PERSIST_DEST | lib.VIR_MIGRATE_UNDEFINE_SOURCE
        if config.storage_is_shared:
            flags |= lib.VIR_MIGRATE_UNSAFE
        if config.migration_fallback is Fallback.POSTCOPY:
            flags |= lib.VIR_MIGRATE_POSTCOPY
        if config.migration_tls:
            flags |= lib.VIR_MIGRATE_TLS
        mib_s = config.migration_mib_s
        parameters = {lib.VIR_MIGRATE_PARAM_BANDWIDTH: mib_s} if mib_s else {}
        self.handle.migrateToURI3(uri, parameters, flags)

    def end_precopy(self) -> None:
        """Switch a running migration to post-copy, in which the guest moves before its memory."""
        with self._gone():
            self.handle.migrateStartPostCopy()

    def abort_migration(self) -> None:
        """Abort a running migration, so that the guest stays on its source host."""
        with self._gone():
            self.handle.abortJob()

    @contextlib.contextmanager
    def _ended(self) -> Iterator[None]:
        """Ignore errors because a run has just ended, which makes the action unnecessary."""
        lib = self.libvirt
        try:
            yield
        except lib.libvirtError as error:
            if error.get_error_code() != lib.VIR_ERR_OPERATION_INVALID or self.active:
                raise

    @contextlib.contextmanager
    def _gone(self) -> Iterator[None]:
        """Ignore errors about a missing domain or job, which make the action unnecessary."""
        lib = self.libvirt
        try:
            yield
        except lib.libvirtError as error:
            if error.get_error_code() not in {lib.VIR_ERR_OPERATION_INVALID, lib.VIR_ERR_NO_DOMAIN}:
                raise
