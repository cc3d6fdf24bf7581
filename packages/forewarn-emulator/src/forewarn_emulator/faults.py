"""Faults for tests of clients. Source: E-10.

The metadata service calls `FaultPlan.fault_for` for each request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from forewarn_base.errors import CallerError
from forewarn_base.protocol.versions import EVENTS_PATH, HOLD_S_MAX
from forewarn_base.values import value
from forewarn_metadata.endpoint.fault import InjectedFault
from forewarn_metadata.endpoint.http.request import HttpRequest
from forewarn_metadata.endpoint.http.response import Response, refusal
from forewarn_metadata.endpoint.responder import too_many

HOLD_S = 10.0
#: Longest duration of a fault, in real seconds.
LASTS_S_MAX = 86_400.0
TIMES_MAX = 1_000_000
#: Seconds of each unit of time.
_UNITS_S = {"s": 1, "m": 60, "h": 3600}
#: Header with the signature of Azure's guest proxy agent, in lower case. The emulator has no key to
#: check the signature with.
SIGNATURE_HEADER = "x-ms-azure-host-authorization"
UNSIGNED_TEXT = "The request is not signed by the guest proxy agent."
#: Most VMs with state of a fault.
VMS_MAX = 10_000


class FaultKind(Enum):
    """Kinds of faults; the values are their names on the command line."""

    SLOW_FIRST = "slow-first"
    EMPTY = "empty-200"
    GONE = "410"
    TOO_MANY = "429"
    BROKEN = "500"
    RESET = "reset"
    TRUNCATE = "truncate"
    INCARNATION = "incarnation"
    #: The Metadata Security Protocol in mode Enforce. Source: Z-10.
    UNSIGNED = "unsigned"


class FaultInvalid(CallerError):
    """The fault is invalid."""

    code = "fault-invalid"
    status = 422
    message = "Fault {text!r} is invalid: {problem}."
    advice = (
        "Write KIND or KIND=ARG,ARG: KIND is one of slow-first, empty-200, 410, 429, 500, reset,"
        " truncate, incarnation, unsigned; ARG is a share (10%), a time (30s, 2m), a number of"
        " requests (3x), get, post, or vm=NAME."
    )


class FaultNotSet(CallerError):
    """The fault to clear is not set."""

    code = "fault-unknown"
    status = 404
    message = "Fault {kind} is not set."
    advice = "Run `forewarn emulator fault list`."


@value
class FaultSpec:
    """One requested fault."""

    kind: FaultKind
    #: Share of affected requests, above 0 to 1.
    share: float = 1.0
    #: Duration in real seconds (slow-first: delay of the answer); 0: unlimited.
    lasts_s: float = 0.0
    #: Number of affected requests after which the fault ends; 0: no limit.
    times: int = 0
    #: Method of affected requests; empty: all methods of the kind of fault.
    method: str = ""
    #: VM of affected requests; empty: any.
    vm: str = ""

    def __str__(self) -> str:
        """Return the fault as written on the command line."""
        parts = [
            f"{self.share * 100:g}%" if self.share < 1 else "",
            f"{self.lasts_s:g}s" if self.lasts_s else "",
            f"{self.times}x" if self.times else "",
            self.method.lower(),
            f"vm={self.vm}" if self.vm else "",
        ]
        given = ",".join(part for part in parts if part)
        return f"{self.kind.value}={given}" if given else self.kind.value


def read_fault(text: str) -> FaultSpec:
    """Parse `KIND` or `KIND=ARG,ARG`.

    Raises:
        FaultInvalid: the kind or an argument is unknown.
    """
    name, _, given = text.strip().partition("=")
    try:
        kind = FaultKind(name.lower())
    except ValueError as error:
        raise FaultInvalid(text=text, problem=f"unknown fault {name!r}") from error
    spec = FaultSpec(kind, lasts_s=HOLD_S if kind is FaultKind.SLOW_FIRST else 0.0)
    for part in filter(None, (piece.strip() for piece in given.split(","))):
        spec = _with_argument(spec, part, text)
    if kind is FaultKind.SLOW_FIRST and spec.lasts_s > HOLD_S_MAX:
        raise FaultInvalid(text=text, problem=f"the longest delay is {HOLD_S_MAX:g}s")
    return spec


def _with_argument(spec: FaultSpec, part: str, text: str) -> FaultSpec:
    if part.lower() in {"get", "post"}:
        return replace(spec, method=part.upper())
    if part.startswith("vm="):
        return replace(spec, vm=part.removeprefix("vm="))
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(%|s|m|h|x)", part)
    number, unit = (float(match[1]), match[2]) if match else (0.0, "")
    if unit == "%" and 0 < number <= 100:
        return replace(spec, share=number / 100)
    if unit in _UNITS_S and 0 < number * _UNITS_S[unit] <= LASTS_S_MAX:
        return replace(spec, lasts_s=number * _UNITS_S[unit])
    if unit == "x" and number.is_integer() and 0 < number <= TIMES_MAX:
        return replace(spec, times=int(number))
    raise FaultInvalid(text=text, problem=f"{part!r} is not a share, time, number, method or VM")


class FaultPlan:
    """The active faults, for the metadata service; used only on its event loop."""

    def __init__(self, now_s: Callable[[], float], chance: Callable[[], float]) -> None:
        """`now_s` returns real seconds from any origin, `chance` a random number from 0 up to 1."""
        self._now_s = now_s
        self._chance = chance
        self._set: dict[FaultKind, _Active] = {}

    def __bool__(self) -> bool:
        """Whether a fault is active."""
        return bool(self.specs())

    def specs(self) -> tuple[FaultSpec, ...]:
        """Return the active faults in the order in which they apply."""
        now_s = self._now_s()
        self._set = {k: a for k, a in self._set.items() if not a.over(now_s)}
        return tuple(active.spec for active in self._set.values())

    def set(self, spec: FaultSpec) -> None:
        """Set a fault, which replaces a fault of the same kind."""
        self._set.pop(spec.kind, None)
        self._set[spec.kind] = _Active(spec, self._now_s())

    def clear(self, kind: FaultKind | None = None) -> None:
        """Clear a fault, or all faults.

        Raises:
            FaultNotSet: the fault is not set.
        """
        if kind is None:
            self._set.clear()
        elif self._set.pop(kind, None) is None:
            raise FaultNotSet(kind=kind.value)

    def fault_for(self, vm: str, request: HttpRequest) -> InjectedFault | None:
        """Return the fault to inject into a request of a VM, or None."""
        hold_s = 0.0
        for active in self._set.values():
            # Only the proxy agent stands before instance metadata, too.
            if request.path != EVENTS_PATH and active.spec.kind is not FaultKind.UNSIGNED:
                continue
            if active.spec.kind is FaultKind.SLOW_FIRST:
                hold_s = active.first(vm, request, self._chance)
                continue
            fault = active.fault_for(vm, request, now_s=self._now_s(), chance=self._chance)
            if fault is not None:
                return replace(fault, hold_s=hold_s)
        return InjectedFault(hold_s=hold_s) if hold_s else None


class _Active:
    """An active fault and its state."""

    def __init__(self, spec: FaultSpec, now_s: float) -> None:
        self.spec = spec
        self._ends_s = now_s + spec.lasts_s if spec.lasts_s else 0.0
        self._met = 0
        self._answered: set[str] = set()
        self._ahead: dict[str, int] = {}

    def over(self, now_s: float) -> bool:
        """Return whether the fault's time or number of requests is exhausted."""
        if self.spec.times and self._met >= self.spec.times:
            return self.spec.kind is not FaultKind.INCARNATION
        timed = self.spec.kind is not FaultKind.SLOW_FIRST
        return timed and bool(self._ends_s) and now_s >= self._ends_s

    def first(self, vm: str, request: HttpRequest, chance: Callable[[], float]) -> float:
        """Return the delay of a VM's first answer, in real seconds. Source: B-1."""
        if vm in self._answered or len(self._answered) >= VMS_MAX or not self._hits(vm, request):
            return 0.0
        self._answered.add(vm)
        if self._spent() or not self._lucky(chance):
            return 0.0
        self._met += 1
        return self.spec.lasts_s

    def fault_for(
        self, vm: str, request: HttpRequest, *, now_s: float, chance: Callable[[], float]
    ) -> InjectedFault | None:
        """Return the fault to inject into a request, or None."""
        if self.over(now_s) or not self._hits(vm, request):
            return None
        hit = not self._spent() and self._lucky(chance)
        self._met += hit
        if self.spec.kind is not FaultKind.INCARNATION:
            return _DISTURBANCES[self.spec.kind] if hit else None
        if hit and (vm in self._ahead or len(self._ahead) < VMS_MAX):
            self._ahead[vm] = self._ahead.get(vm, 0) + 1
        ahead = self._ahead.get(vm, 0)
        return InjectedFault(incarnation_ahead=ahead) if ahead else None

    def _spent(self) -> bool:
        return bool(self.spec.times) and self._met >= self.spec.times

    def _lucky(self, chance: Callable[[], float]) -> bool:
        return self.spec.share >= 1 or chance() < self.spec.share

    def _hits(self, vm: str, request: HttpRequest) -> bool:
        method = "GET" if request.method == "HEAD" else request.method
        only_reads = self.spec.kind in _ONLY_READS
        if self.spec.kind is FaultKind.UNSIGNED and request.headers.get(SIGNATURE_HEADER):
            return False
        return (
            self.spec.vm in {"", vm}
            and self.spec.method in {"", method}
            and (method == "GET" or not only_reads)
        )


#: Kinds that affect only polls, because answers to approvals have no body.
_ONLY_READS = frozenset(
    {FaultKind.SLOW_FIRST, FaultKind.EMPTY, FaultKind.TRUNCATE, FaultKind.INCARNATION}
)

_DISTURBANCES: dict[FaultKind, InjectedFault] = {
    FaultKind.EMPTY: InjectedFault(answer=Response()),
    FaultKind.GONE: InjectedFault(answer=refusal(410, "Gone. The service is being moved.")),
    FaultKind.TOO_MANY: InjectedFault(answer=too_many(1)),
    FaultKind.BROKEN: InjectedFault(answer=refusal(500, "Internal server error.")),
    FaultKind.UNSIGNED: InjectedFault(answer=refusal(401, UNSIGNED_TEXT)),
    FaultKind.RESET: InjectedFault(reset=True),
    FaultKind.TRUNCATE: InjectedFault(truncate=True),
}
