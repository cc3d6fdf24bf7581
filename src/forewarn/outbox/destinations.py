"""Parser of the destinations in the tables `[outbox.NAME]` of the settings."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.drivers.webhook.signing import SECRET_BYTES_MIN
from forewarn.errors import CallerError
from forewarn.outbox.apprise_sink import AppriseOptions, AppriseSink
from forewarn.outbox.delivery import Destination
from forewarn.outbox.kafka_sink import KafkaOptions, KafkaSink
from forewarn.outbox.nats_sink import NatsOptions, NatsSink
from forewarn.outbox.sink import AbsentSink, DestinationOptions, Sink
from forewarn.outbox.webhook_sink import (
    EventGridOptions,
    EventGridSink,
    HttpOptions,
    HttpTarget,
    WebhookSink,
)
from forewarn.urls import is_protected, shown_url
from forewarn.validation.fields import ValidationFailed
from forewarn.validation.forms import read_table

#: Most destinations; each destination has a task that reads history.
DESTINATIONS_MAX = 20
#: Options of each kind of destination.
KINDS: dict[str, type[DestinationOptions]] = {
    "webhook": HttpOptions,
    "event-grid": EventGridOptions,
    "nats": NatsOptions,
    "kafka": KafkaOptions,
    "apprise": AppriseOptions,
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

    A destination whose package is not installed receives nothing; see `check_installed`.

    Raises:
        DestinationInvalid: options are unknown, missing, of the wrong type or contradictory.
    """
    if len(tables) > DESTINATIONS_MAX:
        problem = f"is one of {len(tables)} destinations; the limit is {DESTINATIONS_MAX}"
        raise DestinationInvalid(name=list(tables)[-1], problem=problem)
    return tuple([_destination(name, dict(options)) for name, options in tables.items()])


def check_installed(destinations: Iterable[Destination]) -> None:
    """Refuse destinations whose package is not installed.

    Raises:
        DestinationInvalid: a package is missing.
    """
    for each in destinations:
        if isinstance(each.sink, AbsentSink):
            raise DestinationInvalid(name=each.name, problem=each.sink.absent)


def _destination(name: str, options: dict[str, object]) -> Destination:
    kind = str(options.get("kind", ""))
    if kind not in KINDS:
        problem = f"must have a kind, one of {', '.join(KINDS)}, not {kind!r}"
        raise DestinationInvalid(name=name, problem=problem)
    place = f"[outbox.{name}]"
    try:
        read = read_table(KINDS[kind], options, place)
    except ValidationFailed as error:
        raise DestinationInvalid(name=name, problem=error.without(place)) from error
    package, extra = _NEEDS.get(kind, ("", ""))
    if package and importlib.util.find_spec(package) is None:
        problem = f"needs the package {package}: pip install './forewarn[{extra}]', from a clone"
        return Destination(name, AbsentSink(name, problem), read)
    try:
        sink = _sink(name, read)
    except OSError as error:
        raise DestinationInvalid(name=name, problem=f"cannot be used: {error}") from error
    return Destination(name, sink, read)


def _sink(name: str, read: DestinationOptions) -> Sink:
    """Return the sink of a destination, once its options are checked."""
    if isinstance(read, EventGridOptions):
        return EventGridSink(_http_target(name, read, read.key_file), read)
    if isinstance(read, HttpOptions):
        return WebhookSink(_http_target(name, read))
    if isinstance(read, NatsOptions):
        return _nats(name, read)
    if isinstance(read, KafkaOptions):
        return _kafka(name, read)
    assert isinstance(read, AppriseOptions), read
    urls = [*read.urls, *_secret(read.urls_file).split()]
    if not urls:
        raise DestinationInvalid(name=name, problem="must have urls or urls_file")
    return AppriseSink(name, urls, timeout_s=read.timeout_s)


def _http_target(name: str, read: HttpOptions, key_file: str = "") -> HttpTarget:
    if not is_protected(read.url):
        raise DestinationInvalid(
            name=name, problem="must have an https url, or a url on this machine"
        )
    headers = {"user-agent": "forewarn"}
    if token := _secret(read.token_file):
        headers["authorization"] = f"Bearer {token}"
    if key := _secret(key_file):
        headers["aeg-sas-key"] = key
    secret = _secret(read.secret_file).encode()
    if secret and len(secret) < SECRET_BYTES_MIN:
        problem = f"must have a secret of at least {SECRET_BYTES_MIN} bytes"
        raise DestinationInvalid(name=name, problem=problem)
    return HttpTarget(name, read, headers, secret)


def _nats(name: str, read: NatsOptions) -> Sink:
    for server in read.servers:
        scheme, _, host = shown_url(server).partition("://")
        if scheme not in {"nats", "tls"}:
            raise DestinationInvalid(name=name, problem="must have servers with nats:// or tls://")
        secret = bool(read.token_file) or "@" in urlsplit(server).netloc
        if secret and not (scheme == "tls" or is_protected(f"http://{host}")):
            problem = f"must have tls:// for {host}, to protect the token"
            raise DestinationInvalid(name=name, problem=problem)
    return NatsSink(name, read, _secret(read.token_file))


def _kafka(name: str, read: KafkaOptions) -> Sink:
    if bool(read.user) != bool(read.password_file):
        raise DestinationInvalid(
            name=name, problem="must have both user and password_file, or neither"
        )
    away = [each for each in read.brokers if not is_protected(f"http://{each}")]
    if read.user and away and not read.tls:
        problem = f"must have tls = true for {away[0]}, to protect the password"
        raise DestinationInvalid(name=name, problem=problem)
    return KafkaSink(name, read, _secret(read.password_file))


def _secret(path: str) -> str:
    """Return the content of a file with a secret; empty if no file is named."""
    return Path(path).read_text("utf-8").strip() if path else ""
