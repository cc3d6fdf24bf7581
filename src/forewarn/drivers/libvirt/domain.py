"""One domain of one host, with the driver's actions on it, which may be repeated.

No decision about what to do stands here.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from forewarn.drivers.libvirt.config import Fallback
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forewarn.drivers.libvirt.config import LibvirtConfig


#: Namespace of the element in the domain's metadata.
NAMESPACE = "https://forewarn.dev/libvirt/task/1"
#: Prefix of the namespace in libvirt's XML.
PREFIX = "forewarn-task"


@value
class DomainMark:
    """The note in a domain about the operation that works on it."""

    #: `op-12@` and its creation time, so that names are unique across stores.
    operation: str
    attempt: int
    generation: int
    #: Whether the current run of the domain must end. The note is only in the running domain, not
    #: in its definition, so a later run does not have it.
    pending: bool = False
    #: The destination host; empty if the domain stays.
    to: str = ""
    #: Whether the domain ran, and so must run again.
    ran: bool = True

    @property
    def element(self) -> str:
        """The element that goes into the domain's metadata."""
        return (
            f"<task operation={quoteattr(self.operation)} attempt='{self.attempt}' "
            f"generation='{self.generation}' pending='{int(self.pending)}' to={quoteattr(self.to)} "
            f"ran='{int(self.ran)}'/>"
        )


def read_mark(element: str) -> DomainMark | None:
    """Return the mark in a domain's metadata; None if it has none of ours."""
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
        """Whether it runs, suspended or not."""
        return bool(self.handle.isActive())

    @property
    def paused(self) -> bool:
        """Whether it is suspended."""
        return bool(self.handle.state()[0] == self.libvirt.VIR_DOMAIN_PAUSED)

    @property
    def memory_kib(self) -> int:
        """Its maximum memory."""
        return int(self.handle.maxMemory())

    @property
    def migrating(self) -> bool:
        """Whether it is migrating to another host."""
        return bool(self.handle.jobInfo()[0] != self.libvirt.VIR_DOMAIN_JOB_NONE)

    def share(self) -> float:
        """Share of the current migration that is done, 0 to 1."""
        counts: dict[str, int] = {}
        with self._gone():
            counts = self.handle.jobStats()
        total = counts.get("data_total", 0)
        return counts.get("data_processed", 0) / total if total else 0.0

    def downtime_ms(self) -> int:
        """Return how long it was paused by its migration here; -1: not reported."""
        lib = self.libvirt
        flags = lib.VIR_DOMAIN_JOB_STATS_COMPLETED | lib.VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED
        try:
            counts = self.handle.jobStats(flags)
        except lib.libvirtError:
            return -1
        return int(counts.get(lib.VIR_DOMAIN_JOB_DOWNTIME, -1))

    def mark(self) -> DomainMark | None:
        """Return its mark."""
        kind = self.libvirt.VIR_DOMAIN_METADATA_ELEMENT
        try:
            return read_mark(self.handle.metadata(kind, NAMESPACE))
        except self.libvirt.libvirtError as error:
            if error.get_error_code() == self.libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                return None
            raise

    @property
    def run_lasts(self) -> bool:
        """Whether the run seen at the look-up continues; each run has its own number."""
        number = self.handle.ID()
        try:
            return bool(number >= 0 and self.handle.connect().lookupByID(number).isActive())
        except self.libvirt.libvirtError as error:
            if error.get_error_code() == self.libvirt.VIR_ERR_NO_DOMAIN:
                return False
            raise

    def put_mark(self, mark: DomainMark) -> None:
        """Write a mark into its metadata; a pending one only for the current run."""
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
        """Return its definition for a start."""
        flags = self.libvirt.VIR_DOMAIN_XML_SECURE
        flags |= self.libvirt.VIR_DOMAIN_XML_INACTIVE if self.handle.isPersistent() else 0
        return str(self.handle.XMLDesc(flags))

    def shutdown(self) -> None:
        """Press its power button."""
        with self._gone():
            self.handle.shutdown()

    def destroy(self) -> None:
        """Power it off."""
        with self._gone():
            self.handle.destroy()

    def create(self) -> None:
        """Start it, unless it runs or another client is starting it."""
        if self.active:
            return
        try:
            self.handle.create()
        except self.libvirt.libvirtError:
            if not self.active:
                raise

    def suspend(self) -> None:
        """Stop its processors."""
        if self.active and not self.paused:
            with self._ended():
                self.handle.suspend()

    def resume(self) -> None:
        """Resume its processors."""
        if self.active and self.paused:
            with self._ended():
                self.handle.resume()

    def undefine(self) -> None:
        """Remove its definition from its host; its disks stay."""
        with self._gone():
            self.handle.undefineFlags(
                self.libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | self.libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                | self.libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
            )

    def migrate(self, uri: str, config: LibvirtConfig) -> None:
        """Migrate it live between the two hosts; return after the end."""
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
        """Switch a running migration to post-copy: the guest moves, and its memory follows."""
        with self._gone():
            self.handle.migrateStartPostCopy()

    def abort_migration(self) -> None:
        """Abort a running migration; the guest stays on its source host."""
        with self._gone():
            self.handle.abortJob()

    @contextlib.contextmanager
    def _ended(self) -> Iterator[None]:
        """Ignore that a run has just ended: the action is no longer needed."""
        lib = self.libvirt
        try:
            yield
        except lib.libvirtError as error:
            if error.get_error_code() != lib.VIR_ERR_OPERATION_INVALID or self.active:
                raise

    @contextlib.contextmanager
    def _gone(self) -> Iterator[None]:
        """Ignore that a domain or job has gone: the action is no longer needed."""
        lib = self.libvirt
        try:
            yield
        except lib.libvirtError as error:
            if error.get_error_code() not in {lib.VIR_ERR_OPERATION_INVALID, lib.VIR_ERR_NO_DOMAIN}:
                raise
