"""Parser of the destinations in the tables `[outbox.NAME]` of the settings.

A kind of destination is an entry point of the group `forewarn.sinks`, a `SinkKind`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping

from forewarn_base.errors import CallerError, ForewarnError
from forewarn_base.extensions import (
    Extension,
    ExtensionGroup,
    ExtensionMissing,
    ExtensionUnusable,
)
from forewarn_base.validation.fields import ValidationFailed
from forewarn_base.validation.forms import read_table
from forewarn_server.outbox.delivery import Destination
from forewarn_server.outbox.sink import AbsentSink, DestinationOptions, Sink, SinkKind

#: Most destinations; each destination has a task that reads history.
DESTINATIONS_MAX = 20
#: The kinds of destinations; a module is imported only for a destination of the kind.
SINKS = ExtensionGroup(
    "sink",
    {
        "webhook": "forewarn_server.outbox.webhook_sink:WEBHOOK",
        "event-grid": "forewarn_server.outbox.webhook_sink:EVENT_GRID",
    },
    dict.fromkeys(("nats", "kafka", "apprise"), "forewarn-sinks"),
    extras={"nats": "nats", "kafka": "kafka", "apprise": "notify"},
)
#: The members that every sink has.
_MEMBERS = ("open", "send", "close", "batch_max")


class DestinationInvalid(CallerError):
    """A destination in the settings is unusable."""

    code = "outbox-destination-invalid"
    status = 422
    message = "[outbox.{name}] {problem}."
    advice = "Correct the destination's options; see 'Outbox' in the documentation."


def make_destinations(tables: Mapping[str, Mapping[str, object]]) -> tuple[Destination, ...]:
    """Return the destinations from the tables of the settings.

    A destination whose kind or package is not installed receives nothing; see `not_installed`.

    Raises:
        DestinationInvalid: options are unknown, missing, of the wrong type or contradictory.
    """
    if len(tables) > DESTINATIONS_MAX:
        problem = f"is one of {len(tables)} destinations; the limit is {DESTINATIONS_MAX}"
        raise DestinationInvalid(name=list(tables)[-1], problem=problem)
    return tuple([_destination(name, dict(options)) for name, options in tables.items()])


def not_installed(destinations: Iterable[Destination]) -> list[ForewarnError]:
    """Return the errors of destinations whose kind or package is not installed."""
    return [
        DestinationInvalid(name=each.name, problem=each.sink.absent)
        for each in destinations
        if isinstance(each.sink, AbsentSink)
    ]


def _destination(name: str, options: dict[str, object]) -> Destination:
    kind = options.get("kind")
    if not isinstance(kind, str) or not kind:
        problem = f"must have a kind, one of {', '.join((*SINKS.built_in, *SINKS.packages))}"
        raise DestinationInvalid(name=name, problem=problem)
    try:
        extension = SINKS.find(kind)
        if extension is None:
            problem = f"has the kind {kind!r}, which is neither built in nor installed"
            return _absent(name, kind, f"{problem} (known: {', '.join(SINKS.names())})")
        return extension.use(lambda loaded: _create(name, options, extension, loaded))
    except (ExtensionMissing, ExtensionUnusable) as error:
        return _absent(name, kind, f"cannot be used: {error.clause}")
    except ValidationFailed as error:
        problem = error.without(f"[outbox.{name}]")
        raise DestinationInvalid(name=name, problem=problem) from error
    except ForewarnError as error:
        raise DestinationInvalid(name=name, problem=f"is invalid: {error.clause}") from error
    except OSError as error:
        raise DestinationInvalid(name=name, problem=f"cannot be used: {error}") from error
    except ValueError as error:  # of the kind's `create`
        raise DestinationInvalid(name=name, problem=str(error)) from error


def _create(
    name: str, options: dict[str, object], extension: Extension, loaded: object
) -> Destination:
    """Return a destination of a kind."""
    if not isinstance(loaded, SinkKind):
        raise extension.unusable(f"{type(loaded).__name__} is not a SinkKind")
    read = read_table(loaded.options, options, f"[outbox.{name}]")
    if loaded.module and importlib.util.find_spec(loaded.module) is None:
        extra = f"pip install './forewarn[{loaded.extra}]', from a clone"
        return Destination(
            name, AbsentSink(name, f"needs the package {loaded.module}: {extra}"), read
        )
    sink: Sink = loaded.create(name, read)
    if lacking := [each for each in _MEMBERS if not hasattr(sink, each)]:
        raise extension.unusable(f"its sink has no {' and no '.join(lacking)}")
    return Destination(name, sink, read)


def _absent(name: str, kind: str, problem: str) -> Destination:
    """Return a destination that keeps its place in history and receives nothing."""
    return Destination(name, AbsentSink(name, problem), DestinationOptions(kind=kind))
