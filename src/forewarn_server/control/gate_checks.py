"""Gates: checks between the waves of a maintenance. Source: F-5.

A kind of gate is an entry point of the group `forewarn.gates`: a callable with the gate's name and
the options of its table `[gates.NAME]`, which returns a `Check`. Forewarn's own kinds run a
command, ask HTTP or Prometheus, or check that the VMs of the wave's hosts poll again.

Each check has limits on time and bytes read. The core interprets the result. Gates are
defined in the settings, because they run programs with the service's rights.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.client import HTTPException
from typing import Annotated, TypeAlias
from urllib.parse import urlencode

from forewarn_base.clock import SystemClock
from forewarn_base.errors import CallerError, ForewarnError, PeerError, clean_text
from forewarn_base.extensions import Extension, ExtensionGroup, ExtensionUnusable, ThreadCall
from forewarn_base.http_client import ClientRequest, exchange
from forewarn_base.programs import ProgramFailed, ProgramLimits, ProgramUndecided, program_output
from forewarn_base.urls import shown_url
from forewarn_base.validation.fields import Boolean, Integer, Number, Text, ValidationFailed
from forewarn_base.validation.forms import ListOf, form_of, read_table, unknown_member
from forewarn_base.values import value

#: The kinds of gates. A table without `kind` has the kind whose option it sets.
GATES = ExtensionGroup(
    "gate",
    {
        "command": "forewarn_server.control.gate_checks:command_check",
        "url": "forewarn_server.control.gate_checks:url_check",
        "prometheus": "forewarn_server.control.gate_checks:prometheus_check",
        "polls": "forewarn_server.control.gate_checks:polls_check",
    },
)
#: Option with the kind of a gate of another package.
KIND = "kind"
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


class GateKindUnknown(CallerError):
    """A kind of gate is neither built in nor installed."""

    code = "gate-kind-unknown"
    status = 422
    message = "[gates.{name}] has the kind {kind}, which is neither built in nor installed."
    advice = "Use one of: {known}. Or install the package with this kind."


class GateUnknown(CallerError):
    """The settings have no gate of this name."""

    code = "gate-unknown"
    status = 422
    message = "There is no gate {name}."
    advice = "Gates are tables [gates.NAME] in the service's settings. Known gates: {known}."


class GateUnanswered(PeerError):
    """A check of a gate has no answer, so it neither passes nor fails."""

    code = "gate-unanswered"
    message = "Gate {name} has no answer: {reason}."
    advice = "Forewarn repeats the check for `unanswered_timeout_s`."


@value
class GateCall:
    """One check of a gate, after a wave."""

    #: Name of the gate in the settings, and the maintenance, such as `m-12`.
    gate: str
    maintenance: str
    #: Time limit of the check, in seconds.
    timeout_s: float
    #: Returns the groups that polled before the last wave and not since.
    silent: Callable[[], Sequence[str]]
    #: Host to be validated after its work, and the operation; empty: a check after a wave.
    host: str = ""
    operation: str = ""

    def filled(self, text: str) -> str:
        """Return a text of the settings with the host's name in the place of `{host}`."""
        return text.replace("{host}", self.host) if self.host else text


#: Checks a gate once. It returns why the gate fails, as a clause, and an empty text if it passes.
#: It raises `GateUnanswered` if the check has no answer.
Check: TypeAlias = Callable[[GateCall], str]


@value
class Gate:
    """A gate of the settings: its check, and the options of every kind."""

    name: str
    kind: str
    check: Check
    #: Why the gate cannot be used; None if it can.
    absent: ForewarnError | None = None
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

    A gate whose kind is not installed, or cannot be loaded, has the reason in `absent`.

    Raises:
        GateInvalid: a gate contradicts itself, or an option is unknown or of the wrong type.
    """
    return {name: _gate(name, options) for name, options in tables.items()}


def _gate(name: str, options: Mapping[str, object]) -> Gate:
    place, common = f"[gates.{name}]", form_of(Gate)
    names = {each.name for each in common.fields}
    own = {key: each for key, each in options.items() if key not in names and key != KIND}
    try:
        kind = _kind(name, options, own, names)
        extension = _extension(name, kind)
        tries = {"tries": POLL_GATE_TRIES} if kind == "polls" else {}
        limits = {key: each for key, each in options.items() if key in names}
        read = common.read({**tries, **limits}, place)
        check = extension.use(lambda create: create(name, own))
        if not callable(check):
            raise extension.unusable(f"its check is not a function but {type(check).__name__}")
    except (GateKindUnknown, ExtensionUnusable) as error:
        return Gate(name, str(options.get(KIND)), _absent_check, error)
    except ValidationFailed as error:
        raise GateInvalid(name=name, problem=error.without(place)) from error
    except ForewarnError as error:
        raise GateInvalid(name=name, problem=f"is invalid: {error.clause}") from error
    except (ValueError, OSError) as error:  # of the kind
        raise GateInvalid(name=name, problem=str(error)) from error
    return Gate(name, kind, _LimitedCheck(check) if extension.package else check, **read)


def _kind(
    name: str, options: Mapping[str, object], own: Mapping[str, object], common: set[str]
) -> str:
    """Return the kind of a gate: by its name, or by the one option that is the name of a kind."""
    if KIND in options:
        kind = options[KIND]
        if not isinstance(kind, str):
            raise ValueError(f"must have a kind, one of {', '.join(GATES.names())}")
        return kind
    members = {"command", "url", "prometheus", "query", "min", "max", "polls", "ca_file"}
    for option in own:
        if option not in members:
            raise unknown_member(f"[gates.{name}]", option, sorted(members | common | {KIND}))
    kinds = [kind for kind in GATES.built_in if own.get(kind)]
    if len(kinds) != 1:
        raise ValueError("must have exactly one of command, url, prometheus and polls, or a kind")
    return kinds[0]


def _extension(name: str, kind: str) -> Extension:
    extension = GATES.find(kind)
    if extension is None:
        raise GateKindUnknown(name=name, kind=kind, known=", ".join(GATES.names()))
    return extension


def _absent_check(_: GateCall) -> str:
    raise NotImplementedError


class _LimitedCheck:
    """The check of another package, which may hang; one thread for each maintenance."""

    def __init__(self, check: Check) -> None:
        self._check = check
        #: Maintenance or operation -> its check that has not ended within its time.
        self._hanging: dict[str, ThreadCall] = {}

    def __call__(self, call: GateCall) -> str:
        """Return the result of a check that ends within its time limit."""
        about = call.operation or call.maintenance
        running = self._hanging.pop(about, None)
        if running is None or running.wait(call.timeout_s):
            running = ThreadCall(partial(self._check, call), f"gate {call.gate}")
        if not running.wait(call.timeout_s):
            self._hanging[about] = running
            raise GateUnanswered(name=call.gate, reason=f"it takes more than {call.timeout_s:g} s")
        problem = running.result()
        return problem if isinstance(problem, str) else f"its check returned {problem!r}"


def run_gate(
    gate: Gate,
    subject: str,
    silent: Callable[[], Sequence[str]] = lambda: (),
    *,
    host: str = "",
    operation: str = "",
) -> str:
    """Check a gate of a maintenance with its tries; return why it fails, empty if it passes.

    A check without an answer does not count as a try until `unanswered_timeout_s` has passed.
    `silent` returns the groups that polled before the last wave and not since. `host` and
    `operation` name the host to be validated after its work.
    """
    if gate.absent is not None:
        return f"gate {gate.name}: {clean_text(gate.absent.clause, REASON_MAX)}"
    clock = SystemClock()
    call = GateCall(gate.name, subject, gate.timeout_s, silent, host, operation)
    tried, since_ms = 0, -1
    while True:
        begun_ms = clock.elapsed_ms()
        try:
            problem = gate.check(call)
            since_ms = -1
        except GateUnanswered as error:  # nothing is known, so this is not a failed try
            problem = str(error.facts["reason"])
            since_ms = begun_ms if since_ms < 0 else since_ms
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


@value
class PollsOptions:
    """The kind `polls`."""

    #: Groups that polled before the wave must poll again.
    polls: Annotated[bool, Boolean()] = True


def polls_check(name: str, options: Mapping[str, object]) -> Check:
    """Return a check that groups poll."""
    if not read_table(PollsOptions, options, f"[gates.{name}]").polls:
        raise ValueError("must have polls = true")

    def check(call: GateCall) -> str:
        silent = call.silent()
        named = ", ".join(silent[:NAMED_MAX])
        more = f" and {len(silent) - NAMED_MAX} more" if len(silent) > NAMED_MAX else ""
        return f"no poll since the last wave from {named}{more}" if silent else ""

    return check


@value
class CommandOptions:
    """The kind `command`."""

    #: Program and arguments; status 0 passes.
    command: Annotated[tuple[str, ...], ListOf(Text(4096), 100, 1)]


def command_check(name: str, options: Mapping[str, object]) -> Check:
    """Return a check by a program."""
    command = read_table(CommandOptions, options, f"[gates.{name}]").command

    def check(call: GateCall) -> str:
        about = {"host": call.host, "operation": call.operation} if call.host else {}
        text = json.dumps({"maintenance": call.maintenance, "gate": call.gate, **about})
        try:
            program_output(
                command, f"{text}\n".encode(), ProgramLimits(call.timeout_s, ANSWER_BYTES_MAX)
            )
        except ProgramUndecided as error:
            raise GateUnanswered(name=name, reason=error.clause) from error
        except ProgramFailed as error:
            return error.clause
        return ""

    return check


@value
class UrlOptions:
    """The kind `url`."""

    #: URL for a GET request; any status from 200 to 299 passes.
    url: Annotated[str, Text(4096)]
    #: Trusted CA certificates; empty: the system's certificates.
    ca_file: Annotated[str, Text(4096)] = ""


def url_check(name: str, options: Mapping[str, object]) -> Check:
    """Return a check by a GET."""
    read = read_table(UrlOptions, options, f"[gates.{name}]")
    _check_address(read.url)

    def check(call: GateCall) -> str:
        status, _ = _get(call, call.filled(read.url), read.ca_file)
        problem = "" if 200 <= status < 300 else f"{shown_url(read.url)} answered {status}"
        if status in PROXY_STATUSES:
            raise GateUnanswered(name=name, reason=problem)
        return problem

    return check


@value
class PrometheusOptions:
    """The kind `prometheus`."""

    #: Address of a Prometheus server, for `query`.
    prometheus: Annotated[str, Text(4096)]
    #: PromQL; passes if it has a result, and each value is between `min` and `max`.
    query: Annotated[str, Text(4096)] = ""
    min: Annotated[float, Number()] = -math.inf
    max: Annotated[float, Number()] = math.inf
    #: Trusted CA certificates; empty: the system's certificates.
    ca_file: Annotated[str, Text(4096)] = ""


def prometheus_check(name: str, options: Mapping[str, object]) -> Check:
    """Return a check by a query."""
    read = read_table(PrometheusOptions, options, f"[gates.{name}]")
    if not read.query:
        raise ValueError("must have both prometheus and query, or neither")
    _check_address(read.prometheus)
    base = f"{read.prometheus.rstrip('/')}/api/v1/query"

    def check(call: GateCall) -> str:
        address = f"{base}?{urlencode({'query': call.filled(read.query)})}"
        status, body = _get(call, address, read.ca_file)
        problem = _of_query(read, status, body)
        if status >= 500 or status in PROXY_STATUSES:
            raise GateUnanswered(name=name, reason=problem)
        return problem

    return check


def _check_address(address: str) -> None:
    if not shown_url(address).startswith(("http://", "https://")):
        raise ValueError("must have an address with http:// or https://")


def _get(call: GateCall, address: str, ca_file: str) -> tuple[int, bytes]:
    """Return status and body of a GET; longer bodies are cut off.

    Raises:
        GateUnanswered: no complete answer arrived in time.
    """
    try:
        response = exchange(
            ClientRequest("GET", address, {}),
            timeout_s=call.timeout_s,
            ca_file=ca_file,
            bytes_max=ANSWER_BYTES_MAX,
        )
    except (OSError, HTTPException) as error:
        reason = f"{shown_url(address)} cannot be reached: {error}"
        raise GateUnanswered(name=call.gate, reason=reason) from error
    return response.status, response.body


def _of_query(gate: PrometheusOptions, status: int, body: bytes) -> str:
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
