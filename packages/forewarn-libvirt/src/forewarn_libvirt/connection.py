"""Connections to hypervisors: opened on demand, reused and monitored.

Only this module imports libvirt's library. The module converts the library's exceptions.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from forewarn_base.errors import CallerError, PeerError
from forewarn_base.host_port import host_of_url
from forewarn_drivers import PlatformUnanswered
from forewarn_libvirt.config import LibvirtConfig
from forewarn_libvirt.domain import Domain

#: Seconds between two keepalives, and number of missing answers after which a connection is dead.
KEEPALIVE_S, KEEPALIVE_COUNT = 2, 3
#: Time limit for a host to accept a connection, in seconds. libvirt alone would wait two minutes
#: for a host that drops packets.
CONNECT_TIMEOUT_S = 5.0
#: Default ports of libvirt's transports.
_PORTS = {"": 16514, "tls": 16514, "tcp": 16509}


class LibvirtMissing(CallerError):
    """The client library of libvirt is not installed."""

    code = "libvirt-missing"
    status = 422
    message = "The libvirt driver needs libvirt-python, which is not installed."
    advice = (
        "Install it, from a clone of Forewarn: pip install './forewarn[libvirt]' (it needs"
        " libvirt's headers)."
    )


class HypervisorFailed(PeerError):
    """A hypervisor is unreachable, or refused a call."""

    code = "hypervisor-failed"
    message = "Host {host}: {reason}."
    advice = "Check libvirtd on the host; then retry, complete or fail the operation."


class HypervisorAway(HypervisorFailed, PlatformUnanswered):
    """A hypervisor does not answer, or is busy with a domain; a later call may succeed."""

    code = "hypervisor-away"
    advice = "Check libvirtd on the host; the driver tries again within the task's time."


class DomainGone(HypervisorFailed):
    """A domain left its host after the driver had read the domain."""

    code = "domain-gone"
    message = "Host {host} no longer has the domain: {reason}."


class HostUnconfigured(CallerError):
    """The driver's file does not name the host."""

    code = "host-unconfigured"
    status = 422
    message = "Host {host} is not in the libvirt configuration."
    advice = "Add [hosts.{host}] with its uri to the driver's file."


def library() -> Any:  # noqa: ANN401 - a module without types
    """Import libvirt's library, start its event loop, and return the library.

    Raises:
        LibvirtMissing: the library is not installed.
    """
    with _loading:
        try:
            import libvirt  # noqa: PLC0415 - an extra that few installations have
        except ImportError as error:
            raise LibvirtMissing from error
        if not _loop:
            libvirt.registerErrorHandler(
                lambda *_: None, None
            )  # print no errors, which libvirt also raises as exceptions
            libvirt.virEventRegisterDefaultImpl()
            thread = threading.Thread(target=_run_loop, args=(libvirt,), daemon=True)
            _loop.append(thread)
            thread.start()
        return libvirt


_loading = threading.Lock()
_loop: list[threading.Thread] = []


def _run_loop(libvirt: Any) -> None:  # noqa: ANN401 - the same
    """Run libvirt's timers, which end calls to hosts that do not answer."""
    while True:
        libvirt.virEventRunDefaultImpl()


def host_name(uri: str) -> str:
    """Ask a hypervisor for the name of its host.

    Raises:
        HypervisorFailed: the host is unreachable.
    """
    with failing(uri):
        connection = library().open(uri)
        try:
            return str(connection.getHostname())
        finally:
            connection.close()


class Connections:
    """Open connections to the hosts of one configuration; thread-safe."""

    def __init__(self, config: LibvirtConfig) -> None:
        self._config = config
        self._open: dict[str, Any] = {}
        self._lock = threading.Lock()
        #: Event that is set when a domain of any host starts, moves or stops; None unless
        #: discovery waits for changes.
        self._changed: threading.Event | None = None
        #: One lock per host, so that an unreachable host does not delay calls to other hosts.
        self._opening: dict[str, threading.Lock] = {}

    def to(self, host: str) -> Any:  # noqa: ANN401 - libvirt's own, which has no types
        """Return a live connection to a host.

        Raises:
            HostUnconfigured: the file does not name the host.
            HypervisorFailed: the host is unreachable.
        """
        uris = self._config.hosts.get(host)
        if uris is None:
            raise HostUnconfigured(host=host)
        with self._lock:
            opening = self._opening.setdefault(host, threading.Lock())
        libvirt = library()
        with opening, failing(host):
            connection = self._open.get(host)
            if connection is not None and connection.isAlive():
                return connection
            self._open.pop(host, None)
            _check_reachable(host, uris.uri)
            connection = libvirt.open(uris.uri)
            _keep_alive(libvirt, connection)
            self._listen(libvirt, connection)
            self._open[host] = connection
            return connection

    def watch(self) -> threading.Event:
        """Return an event that is set when a domain on a connected host starts, moves or stops."""
        self._changed = self._changed or threading.Event()
        return self._changed

    def _listen(self, libvirt: Any, connection: Any) -> None:  # noqa: ANN401 - no types
        changed = self._changed
        if changed is None:
            return
        kind = libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE
        connection.domainEventRegisterAny(None, kind, lambda *_: changed.set(), None)

    def forget(self, host: str) -> None:
        """Close the connection to a host, so that the next call opens a new connection."""
        connection = self._open.pop(host, None)
        if connection is not None:
            with contextlib.suppress(library().libvirtError):
                connection.close()

    def close(self) -> None:
        """Close all open connections."""
        for connection in self._open.values():
            with contextlib.suppress(library().libvirtError):
                connection.close()
        self._open.clear()

    def domain(self, host: str, name: str) -> Domain | None:
        """Return a domain of a host; None if no domain has this name.

        Raises:
            HypervisorFailed: the host is unreachable.
        """
        libvirt, connection = library(), self.to(host)
        with failing(host):
            try:
                return Domain(host, name, connection.lookupByName(name), libvirt)
            except libvirt.libvirtError as error:
                if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                    return None
                raise

    def domains(self, host: str) -> list[Domain]:
        """Return all domains of a host, running or not.

        Raises:
            HypervisorFailed: the host is unreachable.
        """
        libvirt, connection = library(), self.to(host)
        with failing(host):
            handles = connection.listAllDomains()
            return [Domain(host, each.name(), each, libvirt) for each in handles]

    def memory_mib(self, host: str) -> int:
        """Return a host's memory, in MiB.

        Raises:
            HypervisorFailed: the host is unreachable.
        """
        connection = self.to(host)
        with failing(host):
            return int(connection.getInfo()[1])

    def free_kib(self, host: str) -> int:
        """Return the host memory that is not assigned to running domains, in KiB.

        Raises:
            HypervisorFailed: the host is unreachable.
        """
        connection = self.to(host)
        with failing(host):
            running = [each for each in connection.listAllDomains() if each.isActive()]
            used_kib = sum(int(each.maxMemory()) for each in running)
        return self.memory_mib(host) * 1024 - used_kib

    def define(self, host: str, xml: str) -> None:
        """Define a domain on a host, replacing an existing definition.

        Raises:
            HypervisorFailed: the host is unreachable, or refuses the definition.
        """
        connection = self.to(host)
        with failing(host):
            connection.defineXML(xml)


def _keep_alive(libvirt: Any, connection: Any) -> None:  # noqa: ANN401 - no types
    """Enable keepalive on a network connection, to detect a dead connection."""
    try:
        connection.setKeepAlive(KEEPALIVE_S, KEEPALIVE_COUNT)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise


def _check_reachable(host: str, uri: str) -> None:
    """Refuse a remote host that does not accept a connection in time.

    Raises:
        HypervisorAway: the host does not accept a connection.
    """
    parts = urlsplit(uri)
    transport = parts.scheme.partition("+")[2]
    if not parts.hostname or transport not in _PORTS:
        return
    address = host_of_url(parts.hostname), parts.port or _PORTS[transport]
    try:
        socket.create_connection(address, CONNECT_TIMEOUT_S).close()
    except OSError as error:
        reason = f"no connection to {address[0]}:{address[1]}: {error.strerror or error}"
        raise HypervisorAway(host=host, reason=reason) from error


@contextlib.contextmanager
def failing(host: str) -> Iterator[None]:
    """Convert exceptions of libvirt to errors of the driver."""
    libvirt = library()
    try:
        yield
    except libvirt.libvirtError as error:
        kind = _kind_of(libvirt, error)
        raise kind(host=host, reason=str(error).removesuffix(".")) from error


def _kind_of(libvirt: Any, error: Any) -> type[HypervisorFailed]:  # noqa: ANN401 - no types
    """Return the kind of an error of libvirt.

    On a busy machine, libvirt gives up waiting for a domain's lock, or its connection breaks: the
    call has not been carried out, or its result is unknown.
    """
    code = error.get_error_code()
    if code == libvirt.VIR_ERR_NO_DOMAIN:
        return DomainGone
    if code in {libvirt.VIR_ERR_OPERATION_TIMEOUT, libvirt.VIR_ERR_RESOURCE_BUSY}:
        return HypervisorAway
    broken = {libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_ERR_RPC}
    transport = error.get_error_domain() in {libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE}
    refused = "certificate" in str(error).lower()  # it has the codes of a broken connection
    return HypervisorAway if transport and code in broken and not refused else HypervisorFailed
