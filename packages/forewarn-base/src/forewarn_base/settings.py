"""The settings as frozen values with defaults; each field is documented."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn_base.errors import CallerError
from forewarn_base.values import value

#: `FOREWARN_STORE_URL` in the environment sets `url` in `[store]`.
ENVIRONMENT_PREFIX = "FOREWARN_"


#: Limits and times that suit every installation, or that only the emulator needs. Files and
#: variables cannot set these; code that builds `Settings` can.
FIXED: dict[str, frozenset[str]] = {
    "metadata": frozenset(
        (
            "default_vm",
            "domains_allowed",
            "enable_delay_s",
            "enable_timeout_s",
            "approve_timeout_s",
            "idle_timeout_s",
            "request_timeout_s",
            "stall_timeout_s",
            "max_unknown_connections",
            "max_connections_per_client",
            "unknown_event_status",
            "request_id",
        )
    ),
    "operator": frozenset(
        (
            "answer_timeout_s",
            "max_connections",
            "max_connections_per_source",
            "request_timeout_s",
            "max_streams_per_operator",
            "max_refused_tokens",
            "max_topology_bytes",
        )
    ),
    "lifecycle": frozenset(("notice_margin_ms", "prediction_s", "max_operations")),
}

#: Settings that are secrets, and settings that name files with secrets; `service/secret_files.py`
#: adds the options of tables, and passwords in URLs.
SECRETS: dict[str, frozenset[str]] = {
    "metadata": frozenset({"proxy_secret"}),
    "node": frozenset({"token"}),
    "oidc": frozenset({"client_secret"}),
    "azure": frozenset({"token_key"}),
    "audit": frozenset({"key"}),
}
SECRET_FILES: dict[str, frozenset[str]] = {
    "feed": frozenset({"key"}),
    "node": frozenset({"key"}),
    "operator": frozenset({"key"}),
    "azure": frozenset({"key"}),
}


class SettingInvalid(CallerError):
    """A setting is unknown or has the wrong type."""

    code = "setting-invalid"
    message = "Setting {name} in {place} {problem}."
    advice = "See 'Settings' in the documentation for all settings."


@value
class MetadataSettings:
    """The metadata service. Durations are real seconds, whatever the service's clock does."""

    #: Whether VMs get answers although the service has not reached a shared store for a term, or a
    #: worker no answer of its service. False, the default on PostgreSQL: VMs get 503, so that a
    #: proxy asks another control plane. Metadata nodes always answer. Source: H-3.
    serve_outdated: bool = True
    #: `Server` header of answers; some client libraries require `IMDS/` and four numbers. Source:
    #: E-7.
    server_header: str = "Forewarn"
    #: Whether each answer carries `x-ms-request-id`. Source: E-7.
    request_id: bool = False
    #: Status for an unknown api-version of Scheduled Events: 404, as the public service has
    #: answered, or 400 with the newest versions.
    #:
    #: Source: E-3.
    scheduledevents_unknown_version_status: int = 404
    #: Status for an unknown api-version of instance metadata: 400, as cloud-init expects, or 404.
    #:
    #: Source: E-3.
    instance_unknown_version_status: int = 400
    #: Status for an approval of an unknown, finished or foreign event. Source: A-3.
    unknown_event_status: int = 400
    #: Whether the preview api-version 2024-07-09 is served; Forewarn never uses its advisory type.
    #:
    #: Source: V-4.
    preview: bool = False
    #: Oldest accepted api-version of Scheduled Events. From `2017-08-01` on every request requires
    #: the `Metadata` header, so that a web page cannot send requests blindly.
    #:
    #: Source: E-2.
    min_api_version: str = "2017-03-01"
    #: Whether an approval by an api-version of 2017 may lack the `Metadata` header, as one of
    #: Microsoft's samples does. Source: E-2.
    post_without_header: bool = False
    #: Names and addresses that a request's `Host` may have, without port; empty: any. This blocks
    #: web pages whose name was made to resolve to the service (DNS rebinding).
    allowed_hosts: tuple[str, ...] = ()
    #: Whether `Host` may be any domain name while `allowed_hosts` is empty; the emulator accepts
    #: addresses, names without a dot, and `allowed_hosts`.
    domains_allowed: bool = True

    #: Requests per second that each VM may send, over all its addresses; 0: no limit. Each worker
    #: counts separately. On Linux an address always reaches the same worker, and a VM with several
    #: workers has an equal share at each. Behind proxies, workers see the proxy's address: a VM has
    #: this limit once for each worker that its proxies reach, at most once per proxy.
    #:
    #: Source: E-6.
    rate_per_s: float = 5.0
    #: Requests a VM may send at once before the rate counts: by default, the polls that a VM misses
    #: in a pause of ten minutes. Source: E-6.
    rate_burst: int = 600

    #: Peers whose signed `X-Instance-ID` or `X-Metadata-Provider` is trusted; `unix` is every Unix
    #: socket. Source: S-6.
    proxy_addresses: tuple[str, ...] = ()
    #: Whether a signed request may lack the `Metadata` header: Neutron's metadata agent drops a
    #: VM's headers. Source: E-2, S-6.
    proxy_without_header: bool = False
    #: Shared secret of the proxies; empty: no signature is accepted. Source: S-6.
    proxy_secret: str = ""
    #: Whether `?vm=NAME` identifies the caller; for the emulator only.
    vm_by_query: bool = False
    #: VM assumed for unknown callers; for the emulator only; may be empty.
    default_vm: str = ""

    #: Delay of the first answer to a group, which then becomes enabled. Source: B-1.
    enable_delay_s: float = 0.0
    #: Longest delay of a first answer while the control plane enables the group. B-1.
    enable_timeout_s: float = 120.0
    #: Longest wait until an approval is durable; then VMs get 503 and repeat the approval.
    approve_timeout_s: float = 30.0
    #: Whether a VM may ask for the outcome of its events, at `/forewarn/outcomes/EVENT`. X-1.
    outcomes: bool = False
    #: Maximum `wait` of a long poll; longer waits are shortened. Source: E-9.
    wait_timeout_s: float = 300.0

    #: How long a connection may stay without a request before it is closed.
    idle_timeout_s: float = 120.0
    #: Time limit for receiving a request, from its first byte; then 408.
    request_timeout_s: float = 10.0
    #: How long a client may stall before its connection is closed.
    stall_timeout_s: float = 20.0
    #: Maximum open connections; beyond it the oldest idle one is closed. If the process may open
    #: fewer files, three quarters of its files; the others are for the operator API and the store.
    max_connections: int = 20_000
    #: Maximum open connections of one VM; beyond it one of the VM's connections is closed. An
    #: address without a VM has the same limit; further connections are refused.
    max_connections_per_client: int = 64
    #: Maximum open connections of all unknown callers, at most a quarter of all connections.
    max_unknown_connections: int = 256


@value
class ListenSettings:
    """Where the service listens: `IPV4:PORT`, `localhost:PORT`, `[IPV6]:PORT` or `unix:PATH`."""

    #: Addresses of the metadata service. Source: E-1.
    metadata: tuple[str, ...] = ("169.254.169.254:80",)
    #: Number of processes that share the metadata addresses; 0: the service's own process answers.
    workers: int = 0
    #: Address of the operator API; empty: no operator API.
    operator: str = "127.0.0.1:8470"
    #: Unix socket of the operator API for users of this machine, `unix:PATH`: root and the
    #: service's own user are admin; other users have the roles of `user:NAME`. Empty:
    #: `/run/forewarn/operator.sock` if the service can write there, otherwise `operator.sock`
    #: beside a SQLite store. Source: P-1, P-4.
    local: str = ""
    #: Address of `GET /metrics` for Prometheus, without a token, for the service and for a metadata
    #: node; empty: no metrics. The metrics name groups and nodes: keep the address unreachable for
    #: VMs.
    metrics: str = ""


@value
class FeedSettings:
    """The feed for metadata nodes on other machines, on the control plane's side."""

    #: `HOST:PORT` of the feed for nodes; empty: no feed at an address. Source: M-1.
    listen: str = ""
    #: Control plane's certificate (file, PEM); required unless the address is loopback.
    certificate: str = ""
    #: File with the private key of the certificate.
    key: str = ""
    #: CA certificates (file) that sign node certificates; empty: nodes need tokens of the role
    #: `node`.
    client_ca: str = ""
    #: Hosts that a node may serve, `NAME=HOST,HOST`; a certificate or token proves its name. `*`:
    #: every host has its own node, with the host's name. Work waits for the nodes named here, even
    #: before their first connection.
    #:
    #: Source: M-4, M-5.
    hosts: tuple[str, ...] = ("*",)


@value
class NodeSettings:
    """A metadata node away from the control plane: `forewarn node run`."""

    #: `HOST:PORT` of a control plane's feed; separate several by commas. The node follows any of
    #: them that is up to date. Source: H-5.
    follow: str = ""
    #: Directory for the node's documents, so that the node can restart without the feed. M-2.
    store: str = ""
    #: Name of the node; empty: the name of its machine.
    name: str = ""
    #: Hosts whose VMs the node serves, at most 2,048 characters in all; empty: all permitted hosts.
    hosts: tuple[str, ...] = ()
    #: File with its certificate, PEM.
    certificate: str = ""
    #: File with the private key of the certificate.
    key: str = ""
    #: CA certificates (file) that sign the certificate of the control plane; empty: no TLS, only
    #: for feeds on a loopback address.
    ca: str = ""
    #: Token of the node, if it has no certificate. Best set by environment.
    token: str = ""
    #: Maximum approvals that the node accepts while the control plane is unreachable, to deliver
    #: afterwards; 0: VMs get 503. An accepted approval may arrive too late to count.
    #:
    #: Source: M-3.
    max_spooled_approvals: int = 0


@value
class OperatorSettings:
    """The operator API."""

    #: Whether callers on this machine are admin without a token, as in the emulator; calls through
    #: a proxy (`X-Forwarded-For`, `Forwarded`, `Via`) need one. Source: P-1.
    open_on_loopback: bool = False
    #: File with the certificate of the operator API, PEM; empty: plain HTTP, for loopback or behind
    #: a proxy with TLS. Source: P-6.
    certificate: str = ""
    #: File with the private key of the certificate.
    key: str = ""
    #: CA certificates (file) that sign callers' certificates: a caller is `dns:NAME` or the URI in
    #: its certificate; empty: callers need tokens. Source: P-6.
    client_ca: str = ""
    #: URL of this control plane for the other control planes of a shared store; empty: its address.
    #: Source: H-4.
    url: str = ""
    #: CA certificates (file) that sign other control planes' certificates; empty: the system's.
    url_ca: str = ""
    #: Longest wait for the control plane and its database; then 503 with the known state.
    answer_timeout_s: float = 30.0
    #: Maximum open connections; beyond it the oldest one without an accepted request is closed.
    max_connections: int = 1000
    #: Maximum connections without an accepted request from one IPv4 address or IPv6 /64 network,
    #: TLS handshakes included. All sources together may have at most 256, and at most a sixteenth
    #: of the process's limit of open files. One source may have at most a quarter of this number.
    max_connections_per_source: int = 64
    #: Time limit for the head of a request, and for each pause in its body; then 408, or the
    #: connection is closed.
    request_timeout_s: float = 10.0
    #: Maximum concurrent watch streams of one token; all tokens together may have 200.
    max_streams_per_operator: int = 20
    #: Maximum unknown tokens that one source may send per minute; beyond it 429 without a check.
    max_refused_tokens: int = 20
    #: Maximum size of a topology in one request; `forewarn topology apply` sends larger ones in
    #: parts.
    max_topology_bytes: int = 4_194_304


@value
class OidcSettings:
    """Callers identified by an OpenID Connect issuer. Source: P-5."""

    #: Address of the issuer, as in its tokens: `https://…`; empty: no issuer. An identified caller
    #: is `oidc:NAME`, with the bindings of each `group:GROUP` in the claim `groups`.
    issuer: str = ""
    #: This service's name at the issuer, and the audience of its tokens; its redirect address is
    #: the operator page's, with a slash at the end.
    client_id: str = ""
    #: Secret of this service at the issuer; empty: it is a public client. Best set by environment.
    client_secret: str = ""
    #: Claim with a caller's name: `sub`, or one that the issuer never reassigns to another person.
    #:
    #: `email` is accepted only with `email_verified`.
    name_claim: str = "sub"
    #: Longest use of a token, in seconds from its claim `iat`, also if the token expires later. For
    #: this long, the issuer's keys stay valid while the issuer is unreachable.
    max_session_s: int = 43_200


@value
class AzureSettings:
    """Azure Resource Manager over TLS, for Azure's own tools; same callers as the operator API."""

    #: Address in the form of `[listen] operator`; empty: not served.
    listen: str = ""
    #: File of a certificate with its chain, PEM; empty: each start creates one for localhost.
    certificate: str = ""
    #: File of the certificate's private key, PEM.
    key: str = ""
    #: Key of 32 bytes or more that signs issued tokens; empty: a new key at each start.
    token_key: str = ""


@value
class AuditSettings:
    """The audit of calls: changes with their callers, and refused calls."""

    #: Key of 32 bytes or more that signs each record; empty: no signatures. Best set by
    #: environment. Source: P-7.
    key: str = ""


@value
class StoreSettings:
    """The store of state and history."""

    #: `sqlite:///PATH`, `sqlite::memory:` or `postgresql://…`.
    url: str = "sqlite:///var/lib/forewarn/forewarn.db"
    #: Whether a store must exist even at the first start; false: an empty store is created, with a
    #: warning. A removed SQLite store is never replaced by an empty one, because its lock file
    #: remains. With PostgreSQL, set it after the first start: an emptied database looks like a new
    #: one.
    must_exist: bool = False
    #: File in which the service notes its last commit, to notice at its next start that the store
    #: has lost commits. Empty: beside a SQLite store; with PostgreSQL `last-commit` in the state
    #: directory that systemd gives the service. Source: H-10.
    last_commit_file: str = ""

    @property
    def shared(self) -> bool:
        """Whether several processes may use the store."""
        return self.url.startswith("postgres")


@value
class HistorySettings:
    """Limits of the past, enforced hourly. Ended work stays for a week, for its outcomes."""

    #: History, ended work and audit records older than this are deleted; 0: no limit.
    max_age_days: int = 400
    #: Maximum size of history, ended work and the audit, in bytes without indexes; the oldest are
    #: deleted first; 0: no limit.
    max_bytes: int = 1_000_000_000
    #: Whether history is exported before it is deleted, as compressed JSON lines, with its records
    #: of work. The audit is never deleted without an export.
    export: bool = True
    #: Directory for exports. Empty: `history` in the state directory that systemd gives the
    #: service, or beside a SQLite store; without either nothing is deleted.
    export_directory: str = ""


@value
class LifecycleSettings:
    """Notice, limits and time-outs of events and operations, for the whole fleet; in seconds."""

    #: Least notice of a Freeze; may be raised, never below 900. Source: N-1.
    notice_freeze_s: int = 900
    #: Least notice of a Reboot; at least 900.
    notice_reboot_s: int = 900
    #: Least notice of a Redeploy; at least 600.
    notice_redeploy_s: int = 600
    #: Least notice of a Preempt; at least 30.
    notice_preempt_s: int = 30
    #: Least notice of a Terminate if its group wants notice; at least 300.
    notice_terminate_s: int = 300
    #: Added to each notice for the time from decision to first view, in milliseconds.
    notice_margin_ms: int = 500
    #: How early predicted failure is announced if the request gives no time. Source: N-2.
    prediction_s: int = 604_800
    #: Maximum user-initiated operations that an owner may have scheduled at a time; 0: no limit.
    #: Source: O-1.
    max_user_operations: int = 0
    #: Maximum live operations, planned ones included; failures are recorded beyond the limit.
    max_operations: int = 200_000
    #: A group without a poll for this long is disabled. Source: B-2.
    disable_after_s: int = 86_400
    #: How much longer than announced an operation may run without an alert. Source: L-8.
    overdue_after_s: int = 3600
    #: How long work waits for metadata nodes that do not show its documents. Then history names the
    #: nodes, and the policy decides whether the work continues (`wait_until_shown`). Source: M-4,
    #: H-7.
    show_timeout_s: float = 10.0


@value
class NamedTable:
    """One table `[drivers.NAME]`, `[gates.NAME]` or `[outbox.NAME]`, as written."""

    name: str
    values: Mapping[str, object]


@value
class DriverSettings:
    """Drivers carry out work; each table `[drivers.NAME]` in a file adds a driver."""

    #: Default driver of hosts: `manual`, `simulated`, or NAME of a `[drivers.NAME]`.
    default: str = "manual"
    #: Time limit of one driver call; then the operation is stuck. Source: R-1.
    call_timeout_s: float = 60.0
    #: Maximum concurrent calls of one driver, hanging calls included. Source: R-1.
    max_concurrent_calls: int = 32
    #: How long calls are repeated that the platform behind a driver does not answer; then the
    #: operation is stuck. Source: R-1.
    unanswered_timeout_s: float = 300.0
    #: The tables `[drivers.NAME]`, by their names.
    tables: tuple[NamedTable, ...] = ()


@value
class GateSettings:
    """Checks between waves of a maintenance; each table `[gates.NAME]` in a file adds one."""

    #: The tables `[gates.NAME]`, by their names.
    tables: tuple[NamedTable, ...] = ()


@value
class OutboxSettings:
    """Destinations of transitions; each table `[outbox.NAME]` in a file adds a destination."""

    #: The tables `[outbox.NAME]`, by their names.
    tables: tuple[NamedTable, ...] = ()


@value
class OtlpSettings:
    """Traces and logs for OpenTelemetry."""

    #: Address of a collector that accepts OTLP over HTTP, for instance `http://127.0.0.1:4318`;
    #: empty: no traces. Needs `forewarn[otel]`. OpenTelemetry's own variables set certificates and
    #: headers, such as `OTEL_EXPORTER_OTLP_HEADERS`.
    endpoint: str = ""


@value
class LogSettings:
    """The service's log on standard error."""

    #: `debug`, `info`, `warning` or `error`.
    level: str = "info"
    #: `text`, or `json`: one object per line.
    format: str = "text"


@value
class Settings:
    """All settings of an operator."""

    listen: ListenSettings = ListenSettings()
    metadata: MetadataSettings = MetadataSettings()
    feed: FeedSettings = FeedSettings()
    node: NodeSettings = NodeSettings()
    operator: OperatorSettings = OperatorSettings()
    oidc: OidcSettings = OidcSettings()
    azure: AzureSettings = AzureSettings()
    audit: AuditSettings = AuditSettings()
    store: StoreSettings = StoreSettings()
    history: HistorySettings = HistorySettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    drivers: DriverSettings = DriverSettings()
    gates: GateSettings = GateSettings()
    outbox: OutboxSettings = OutboxSettings()
    otlp: OtlpSettings = OtlpSettings()
    log: LogSettings = LogSettings()

    @property
    def certificates(self) -> dict[str, str]:
        """The files with this process's certificates, by section."""
        files = {
            "operator": self.operator.certificate,
            "feed": self.feed.certificate,
            "azure": self.azure.certificate,
        }
        return {name: file for name, file in files.items() if file}
