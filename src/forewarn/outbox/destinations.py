"""Parser of the destinations in the tables `[outbox.NAME]` of the settings."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from forewarn.drivers.webhook.signing import SECRET_BYTES_MIN
from forewarn.errors import CallerError
from forewarn.outbox.apprise_sink import INCLUDE, AppriseSink
from forewarn.outbox.delivery import Destination
from forewarn.outbox.kafka_sink import KafkaSink, KafkaTarget
from forewarn.outbox.nats_sink import NatsSink, NatsTarget
from forewarn.outbox.webhook_sink import EventGridSink, HttpTarget, WebhookSink
from forewarn.urls import is_protected, shown_url
from forewarn.validation.fields import Boolean, Integer, Number, Text, ValidationFailed
from forewarn.validation.forms import Field, Form, ListOf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.outbox.sink import Sink

#: Most destinations; each destination has a task that reads history.
DESTINATIONS_MAX = 20
TIMEOUT_S = 10.0

_PATTERNS = ListOf(Text(100), 100, 1)
#: Options of all kinds of destinations.
COMMON = (
    Field(
        "kind", Text(20), "`webhook`, `event-grid`, `nats`, `kafka` or `apprise`.", required=True
    ),
    Field(
        "include",
        _PATTERNS,
        "Actions to send, as shell patterns (default: all); `audit.head` adds the audit's head.",
    ),
    Field("exclude", _PATTERNS, "Actions to omit from `include` (default: none)."),
    Field("owner", Text(), "Sends only data that this owner may read (default: all data)."),
    Field("source", Text(2048), "CloudEvents' `source` (default: `/forewarn/` and the epoch)."),
    Field("timeout_s", Number(0.1, 3600), "Longest time of one delivery (default: 10)."),
)
_HTTP = (
    Field(
        "url",
        Text(2048),
        "URL for the events; https is required unless the receiver is on this machine.",
        required=True,
    ),
    Field("ca_file", Text(4096), "Trusted CA certificates (default: the system's certificates)."),
    Field("secret_file", Text(4096), "File with the secret that signs requests."),
    Field("token_file", Text(4096), "File with a bearer token for the requests."),
    Field("batch", Integer(1, 1000), "Most transitions in one request."),
    Field(
        "validate", Boolean(), "Whether to request the receiver's permission before sending events."
    ),
)
FORMS: dict[str, Form] = {
    "webhook": Form("WebhookDestination", "CloudEvents over HTTP.", (*COMMON, *_HTTP)),
    "event-grid": Form(
        "EventGridDestination",
        "Scheduled Events in Event Grid's schema.",
        (
            *COMMON,
            *_HTTP,
            Field("topic", Text(2048), "Event Grid's `topic` (default: `/forewarn/NAME`)."),
            Field(
                "callback",
                Text(2048),
                "URL at which the receiver reaches the operator API; adds a `validationUrl`.",
            ),
            Field("key_file", Text(4096), "File with the key of an Event Grid topic."),
        ),
    ),
    "nats": Form(
        "NatsDestination",
        "CloudEvents in a stream of NATS JetStream.",
        (
            *COMMON,
            Field(
                "servers",
                ListOf(Text(2048), 20, 1),
                "`tls://HOST:PORT` or `nats://`.",
                required=True,
            ),
            Field("subject", Text(200), "Prefix of the subjects (default: `forewarn`)."),
            Field("credentials_file", Text(4096), "Credentials file, written by `nsc`."),
            Field(
                "token_file",
                Text(4096),
                "File with a token; requires TLS unless the server is on this machine.",
            ),
            Field("ca_file", Text(4096), "Trusted CA certificates for TLS."),
        ),
    ),
    "kafka": Form(
        "KafkaDestination",
        "CloudEvents in a topic of a broker with Kafka's protocol.",
        (
            *COMMON,
            Field("brokers", ListOf(Text(300), 20, 1), "`HOST:PORT`, …", required=True),
            Field("topic", Text(249), "The topic (default: `forewarn`)."),
            Field("partition", Integer(0, 1_000_000), "The partition (default: 0)."),
            Field("tls", Boolean(), "Whether to encrypt the connection (default: no)."),
            Field(
                "ca_file",
                Text(4096),
                "Trusted CA certificates (default: the system's certificates).",
            ),
            Field("user", Text(200), "User for SCRAM-SHA-512."),
            Field("password_file", Text(4096), "File with the user's password."),
        ),
    ),
    "apprise": Form(
        "AppriseDestination",
        "Messages for people, by mail or chat.",
        (
            *COMMON,
            Field("urls", ListOf(Text(2048), 50), "Apprise URLs."),
            Field("urls_file", Text(4096), "File with one Apprise URL per line."),
        ),
    ),
}
#: Required packages of kinds, each with the extra that contains the package.
_NEEDS = {
    "nats": ("nats", "nats"),
    "kafka": ("aiokafka", "kafka"),
    "apprise": ("apprise", "notify"),
}


class DestinationInvalid(CallerError):
    """A destination in the settings is unusable."""

    code = "outbox-destination-invalid"
    status = 422
    message = "[outbox.{name}] {problem}."
    advice = "Correct the destination's options; see 'Outbox' in the documentation."


def make_destinations(tables: Mapping[str, Mapping[str, object]]) -> tuple[Destination, ...]:
    """Return the destinations from the tables of the settings.

    Raises:
        DestinationInvalid: options are unknown, missing, of the wrong type or contradictory, or a
            package is not installed.
    """
    if len(tables) > DESTINATIONS_MAX:
        problem = f"is one of {len(tables)} destinations; the limit is {DESTINATIONS_MAX}"
        raise DestinationInvalid(name=list(tables)[-1], problem=problem)
    return tuple([_destination(name, dict(options)) for name, options in tables.items()])


def _destination(name: str, options: dict[str, object]) -> Destination:
    kind = str(options.get("kind", ""))
    form = FORMS.get(kind)
    if form is None:
        problem = f"must have a kind, one of {', '.join(FORMS)}, not {kind!r}"
        raise DestinationInvalid(name=name, problem=problem)
    place = f"[outbox.{name}]"
    try:
        read = form.read(options, place)
    except ValidationFailed as error:
        raise DestinationInvalid(name=name, problem=error.without(place)) from error
    package, extra = _NEEDS.get(kind, ("", ""))
    if package and importlib.util.find_spec(package) is None:
        problem = f"needs the package {package}: pip install './forewarn[{extra}]', from a clone"
        raise DestinationInvalid(name=name, problem=problem)
    try:
        sink = _MAKERS[kind](name, read)
    except OSError as error:
        raise DestinationInvalid(name=name, problem=f"cannot be used: {error}") from error
    default = INCLUDE if kind == "apprise" else ("*",)
    return Destination(
        name,
        kind,
        sink,
        include=tuple(read.get("include", default)),
        exclude=tuple(read.get("exclude", ())),
        owner=read.get("owner", ""),
        source=read.get("source", ""),
    )


def _http_target(name: str, read: Mapping[str, Any]) -> HttpTarget:
    if not is_protected(read["url"]):
        raise DestinationInvalid(
            name=name, problem="must have an https url, or a url on this machine"
        )
    headers = {"user-agent": "forewarn"}
    if token := _secret(read, "token_file"):
        headers["authorization"] = f"Bearer {token}"
    if key := _secret(read, "key_file"):
        headers["aeg-sas-key"] = key
    secret = _secret(read, "secret_file").encode()
    if secret and len(secret) < SECRET_BYTES_MIN:
        problem = f"must have a secret of at least {SECRET_BYTES_MIN} bytes"
        raise DestinationInvalid(name=name, problem=problem)
    return HttpTarget(
        name,
        read["url"],
        headers,
        timeout_s=read.get("timeout_s", TIMEOUT_S),
        ca_file=read.get("ca_file", ""),
        secret=secret,
    )


def _webhook(name: str, read: Mapping[str, Any]) -> Sink:
    target = _http_target(name, read)
    return WebhookSink(target, batch=read.get("batch", 1), validate=read.get("validate", False))


def _event_grid(name: str, read: Mapping[str, Any]) -> Sink:
    base = read.get("callback", "").rstrip("/")
    return EventGridSink(
        _http_target(name, read),
        topic=read.get("topic", f"/forewarn/{name}"),
        batch=read.get("batch", 50),
        validate=read.get("validate", True),
        callback=f"{base}/v1/outbox/{name}/validate" if base else "",
    )


def _nats(name: str, read: Mapping[str, Any]) -> Sink:
    for server in read["servers"]:
        scheme, _, host = shown_url(server).partition("://")
        if scheme not in {"nats", "tls"}:
            raise DestinationInvalid(name=name, problem="must have servers with nats:// or tls://")
        secret = bool(read.get("token_file")) or "@" in urlsplit(server).netloc
        if secret and not (scheme == "tls" or is_protected(f"http://{host}")):
            problem = f"must have tls:// for {host}, to protect the token"
            raise DestinationInvalid(name=name, problem=problem)
    return NatsSink(
        NatsTarget(
            name,
            tuple(read["servers"]),
            read.get("subject", "forewarn"),
            credentials_file=read.get("credentials_file", ""),
            token=_secret(read, "token_file"),
            ca_file=read.get("ca_file", ""),
            timeout_s=read.get("timeout_s", TIMEOUT_S),
        )
    )


def _kafka(name: str, read: Mapping[str, Any]) -> Sink:
    if bool(read.get("user")) != bool(read.get("password_file")):
        raise DestinationInvalid(
            name=name, problem="must have both user and password_file, or neither"
        )
    away = [each for each in read["brokers"] if not is_protected(f"http://{each}")]
    if read.get("user") and away and not read.get("tls", False):
        problem = f"must have tls = true for {away[0]}, to protect the password"
        raise DestinationInvalid(name=name, problem=problem)
    return KafkaSink(
        KafkaTarget(
            name,
            tuple(read["brokers"]),
            read.get("topic", "forewarn"),
            partition=read.get("partition", 0),
            tls=read.get("tls", False),
            ca_file=read.get("ca_file", ""),
            user=read.get("user", ""),
            password=_secret(read, "password_file"),
            timeout_s=read.get("timeout_s", TIMEOUT_S),
        )
    )


def _apprise(name: str, read: Mapping[str, Any]) -> Sink:
    urls = [*read.get("urls", ()), *_secret(read, "urls_file").split()]
    if not urls:
        raise DestinationInvalid(name=name, problem="must have urls or urls_file")
    return AppriseSink(name, urls, timeout_s=read.get("timeout_s", 30.0))


def _secret(read: Mapping[str, Any], option: str) -> str:
    """Return the content of a file with a secret; empty if no file is named."""
    path = read.get(option, "")
    return Path(path).read_text("utf-8").strip() if path else ""


_MAKERS: dict[str, Callable[[str, Mapping[str, Any]], Sink]] = {
    "webhook": _webhook,
    "event-grid": _event_grid,
    "nats": _nats,
    "kafka": _kafka,
    "apprise": _apprise,
}
