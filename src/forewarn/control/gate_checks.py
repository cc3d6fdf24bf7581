"""Gates: checks between the waves of a maintenance. Source: F-5.

A gate runs a command, asks HTTP or Prometheus, or checks that the VMs of the wave's hosts poll
again.

Each check has limits on time and bytes read. The core interprets the result. Gates are
defined in the settings, because they run programs with the service's rights.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from typing import Annotated
from urllib.parse import urlencode

from forewarn.clock import SystemClock
from forewarn.errors import CallerError, clean_text
from forewarn.http_client import ClientRequest, exchange
from forewarn.programs import ProgramFailed, ProgramLimits, ProgramUndecided, program_output
from forewarn.urls import shown_url
from forewarn.validation.fields import Boolean, Integer, Number, Text, ValidationFailed
from forewarn.validation.forms import ListOf, form_of
from forewarn.values import value

#: Maximum bytes that a check reads.
ANSWER_BYTES_MAX = 1024 * 1024
#: Maximum samples of a query's result.
SAMPLES_MAX = 10_000
#: Default tries of a gate that waits for polls: ten minutes, 30 s apart.
POLL_GATE_TRIES = 20
#: Statuses of a proxy without an answer of the server behind it, or of a server that is asked too
#: often. The status 503 of a health check is an answer.
PROXY_STATUSES = frozenset({408, 429, 502, 504})
#: Time between two checks without an answer, in seconds.
UNANSWERED_EVERY_S = 2.0
#: Maximum groups in a reason.
NAMED_MAX = 5
#: Maximum length of a stored reason, in characters.
REASON_MAX = 300


class GateInvalid(CallerError):
    """A gate in the settings is invalid."""

    code = "gate-invalid"
    status = 422
    message = "[gates.{name}] {problem}."
    advice = "Correct its options; see 'Check between waves' in the documentation."


class GateUnknown(CallerError):
    """The settings have no gate of this name."""

    code = "gate-unknown"
    status = 422
    message = "There is no gate {name}."
    advice = "Gates are tables [gates.NAME] in the service's settings. Known gates: {known}."


@value
class Gate:
    """A check after each wave: one of `command`, `url`, `prometheus` and `polls`."""

    name: str
    #: Program and arguments; status 0 passes.
    command: Annotated[tuple[str, ...], ListOf(Text(4096), 100, 1)] = ()
    #: URL for a GET request; any status from 200 to 299 passes.
    url: Annotated[str, Text(4096)] = ""
    #: Address of a Prometheus server, for `query`.
    prometheus: Annotated[str, Text(4096)] = ""
    #: PromQL; passes if it has a result, and each value is between `min` and `max`.
    query: Annotated[str, Text(4096)] = ""
    min: Annotated[float, Number()] = -math.inf
    max: Annotated[float, Number()] = math.inf
    #: Groups that polled before the wave must poll again.
    polls: Annotated[bool, Boolean()] = False
    #: Trusted CA certificates; empty: the system's certificates.
    ca_file: Annotated[str, Text(4096)] = ""
    #: Time limit of one try, in seconds.
    timeout_s: Annotated[float, Number(0.1, 3600)] = 30.0
    #: Tries before the gate fails; `POLL_GATE_TRIES` with `polls`.
    tries: Annotated[int, Integer(1, 1000)] = 1
    #: Time between two tries, in seconds.
    every_s: Annotated[float, Number(0, 3600)] = 30.0
    #: How long a check without an answer is repeated before the gate fails, in seconds.
    unanswered_timeout_s: Annotated[float, Number(0, 86_400)] = 300.0


def make_gates(tables: Mapping[str, Mapping[str, object]]) -> dict[str, Gate]:
    """Return the gates in the settings, by name.

    Raises:
        GateInvalid: a gate contradicts itself, or an option is unknown or of the wrong type.
    """
    return {name: _gate(name, options) for name, options in tables.items()}


def _gate(name: str, options: Mapping[str, object]) -> Gate:
    tries = {"tries": POLL_GATE_TRIES} if options.get("polls") else {}
    place = f"[gates.{name}]"
    try:
        gate = Gate(name, **form_of(Gate).read({**tries, **options}, place))
    except ValidationFailed as error:
        raise GateInvalid(name=name, problem=error.without(place)) from error
    if sum(map(bool, (gate.command, gate.url, gate.prometheus, gate.polls))) != 1:
        problem = "must have exactly one of command, url, prometheus and polls"
        raise GateInvalid(name=name, problem=problem)
    if bool(gate.prometheus) != bool(gate.query):
        raise GateInvalid(name=name, problem="must have both prometheus and query, or neither")
    address = gate.url or gate.prometheus
    if address and not shown_url(address).startswith(("http://", "https://")):
        raise GateInvalid(name=name, problem="must have an address with http:// or https://")
    return gate


def run_gate(gate: Gate, subject: str, silent: Callable[[], Sequence[str]] = lambda: ()) -> str:
    """Check a gate of a maintenance with its tries; return why it fails, empty if it passes.

    A check without an answer does not count as a try until `unanswered_timeout_s` has passed.
    `silent` returns the groups that polled before the last wave and not since.
    """
    clock = SystemClock()
    tried, since_ms = 0, -1
    while True:
        begun_ms = clock.elapsed_ms()
        try:
            problem = _check(gate, subject) if not gate.polls else _polls(silent())
            since_ms = -1
        except _Unanswered as error:  # nothing is known, so this is not a failed try
            problem, since_ms = str(error), begun_ms if since_ms < 0 else since_ms
            if clock.elapsed_ms() - since_ms < gate.unanswered_timeout_s * 1000:
                threading.Event().wait(UNANSWERED_EVERY_S)
                continue
        tried += 1
        if not problem:
            return ""
        if tried >= gate.tries or since_ms >= 0:
            tries = f" (tried {tried} times)" if tried > 1 else ""
            return f"gate {gate.name}: {clean_text(problem, REASON_MAX)}{tries}"
        threading.Event().wait(gate.every_s)


class _Unanswered(Exception):
    """A check without an answer, and the reason."""


def _polls(silent: Sequence[str]) -> str:
    named = ", ".join(silent[:NAMED_MAX])
    more = f" and {len(silent) - NAMED_MAX} more" if len(silent) > NAMED_MAX else ""
    return f"no poll since the last wave from {named}{more}" if silent else ""


def _check(gate: Gate, subject: str) -> str:
    """Return why the gate fails; empty if it passes.

    Raises:
        _Unanswered: whether it passes is unknown.
    """
    try:
        return _checked(gate, subject)
    except ProgramUndecided as error:
        raise _Unanswered(error.clause) from error
    except ProgramFailed as error:
        return error.clause
    except (OSError, HTTPException) as error:
        address = shown_url(gate.url or gate.prometheus)
        raise _Unanswered(f"{address} cannot be reached: {error}") from error


def _checked(gate: Gate, subject: str) -> str:
    if gate.command:
        given = json.dumps({"maintenance": subject, "gate": gate.name}).encode() + b"\n"
        program_output(gate.command, given, ProgramLimits(gate.timeout_s, ANSWER_BYTES_MAX))
        return ""
    if gate.url:
        status, _ = _get(gate, gate.url)
        problem = "" if 200 <= status < 300 else f"{shown_url(gate.url)} answered {status}"
        if status in PROXY_STATUSES:
            raise _Unanswered(problem)
        return problem
    address = f"{gate.prometheus.rstrip('/')}/api/v1/query?{urlencode({'query': gate.query})}"
    status, body = _get(gate, address)
    problem = _of_query(gate, status, body)
    if status >= 500 or status in PROXY_STATUSES:
        raise _Unanswered(problem)
    return problem


def _get(gate: Gate, address: str) -> tuple[int, bytes]:
    """Return status and body of a GET; longer bodies are cut off.

    Raises:
        OSError, HTTPException: no complete answer arrived in time.
    """
    answer = exchange(
        ClientRequest("GET", address, {}),
        timeout_s=gate.timeout_s,
        ca_file=gate.ca_file,
        bytes_max=ANSWER_BYTES_MAX,
    )
    return answer.status, answer.body


def _of_query(gate: Gate, status: int, body: bytes) -> str:
    """Return why the answer to a query fails the gate; empty if it passes."""
    if len(body) > ANSWER_BYTES_MAX:
        return f"the query gives more than {ANSWER_BYTES_MAX} bytes"
    try:
        answer = json.loads(body)
        if answer["status"] != "success":
            return f"Prometheus refused the query: {answer.get('error', status)}"
        values = _values(answer["data"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return f"the answer ({status}) is not from Prometheus"
    if not values:
        return f"`{gate.query}` has no result"
    bad = [each for each in values if not gate.min <= each <= gate.max]
    return f"`{gate.query}` is {bad[0]:g}" if bad else ""


def _values(data: Mapping[str, object]) -> list[float]:
    """Return the values of an instant query: of a vector or a scalar."""
    result = data["result"]
    if not isinstance(result, list) or len(result) > SAMPLES_MAX:
        raise ValueError(result)
    if data["resultType"] == "scalar":
        return [float(result[1])]
    return [float(each["value"][1]) for each in result]
