"""What an operator can set, as frozen values with their defaults; each field is documented.

No reading of files, environment or command line may go in here, and no behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """The metadata service. Durations are real seconds, whatever the service's clock does."""

    server_header: str = "Forewarn"
    """`Server` header; some client libraries want `IMDS/` and four numbers. Source: E-7."""
    request_id: bool = False
    """Whether each answer carries `x-ms-request-id`. Source: E-7."""
    unknown_version_status: int = 400
    """Status for an api-version nobody knows: 400, or 404 as also seen. Source: E-3."""
    unknown_event_status: int = 400
    """Status for an approval of an unknown, finished or foreign event. Source: A-3."""
    preview: bool = False
    """Whether the preview api-version 2024-07-09 is served. Source: V-4."""

    rate_per_s: float = 5.0
    """Requests a second each VM may send; 0 switches the limit off. Source: E-6."""
    rate_burst: int = 10
    """Requests a VM may send at once before the rate counts. Source: E-6."""

    proxy_addresses: tuple[str, ...] = ()
    """Peers whose signed `X-Instance-ID` is believed; `unix` is every Unix socket. S-6."""
    proxy_secret: str = ""
    """Shared secret of the proxies; empty: no signature is ever right. Source: S-6."""
    vm_by_query: bool = False
    """Whether `?vm=NAME` says who asks; for the emulator only."""
    default_vm: str = ""
    """VM that every unknown caller is taken for; for the emulator only; empty: nobody."""

    enable_delay_s: float = 0.0
    """How long the first answer to a group is held. Source: B-1."""
    enable_wait_s_max: float = 120.0
    """Longest hold of a first answer while the control plane enables the group. B-1."""
    approve_wait_s_max: float = 30.0
    """Longest hold of an approval until it is durable; then 503, and the client repeats it."""
    wait_s_max: float = 300.0
    """Longest `wait` of a long poll; a longer one is cut to this. Source: E-9."""

    idle_s_max: float = 120.0
    """How long a connection may stay without a request before it is closed."""
    request_s_max: float = 10.0
    """How long a request may take to arrive, from its first byte; then 408."""
    stall_s_max: float = 20.0
    """How long a client may refuse to read its answer before it is cut off."""
    connections_max: int = 20_000
    """Open connections; beyond it the oldest idle one makes room."""
