"""Why work waits: the one vocabulary of codes, and the sentence of each.

Source: F-4. `why`, the API, the page and the log show these values. No decision is made in here.
"""

from __future__ import annotations

from forewarn.values import Word, value


class Code(Word):
    """The kind of a blocker; stable, documented, never reused."""

    UNKNOWN_HOST = "unknown-host"
    HOST_FAILED = "host-failed"
    HOST_BUSY = "host-busy"
    FAULT_DOMAIN = "fault-domain"
    ARRIVALS = "arrivals"
    BUDGET = "budget"
    CAPACITY = "capacity"
    WINDOW = "window"
    WINDOW_TOO_SHORT = "window-too-short"
    DEADLINE = "deadline"
    OWNER_REST = "owner-rest"
    PREVIOUS_WAVE = "previous-wave"
    PAUSE = "pause"
    NOTICE = "notice"
    POSTPONED = "postponed"
    EARLIEST_START = "earliest-start"
    APPROVAL = "approval"
    COUPLED = "coupled"
    TIME = "time"
    DRIVER = "driver"
    OPERATOR = "operator"
    PLANNING = "planning"
    WAVE = "wave"
    GATE = "gate"


#: Code -> its sentence; `{host}`, or whatever waits, waits for `{subject}`.
SENTENCES: dict[Code, str] = {
    Code.UNKNOWN_HOST: "host {host} is not in the fleet",
    Code.HOST_FAILED: "host {host} has failed; repair it first",
    Code.HOST_BUSY: "host {host} is occupied by {subject}",
    Code.FAULT_DOMAIN: "{subject} disturbs a group of host {host} in another fault domain",
    Code.ARRIVALS: "VMs are about to arrive on host {host} with {subject}",
    Code.BUDGET: "the budget of {subject} has no room for host {host}",
    Code.CAPACITY: "the VMs of host {host} fit nowhere else in {subject}",
    Code.WINDOW: "{subject} is closed for host {host}",
    Code.WINDOW_TOO_SHORT: "no opening of {subject} is long enough for host {host}",
    Code.DEADLINE: "host {host} cannot be done before the deadline: {subject} comes too late",
    Code.OWNER_REST: "owner {subject} has VMs on host {host} and was disturbed a short time ago",
    Code.PREVIOUS_WAVE: "host {host} waits for {subject} to end",
    Code.PAUSE: "host {host} waits for the pause after {subject}",
    Code.NOTICE: "the owners of host {host} must be told in advance",
    Code.POSTPONED: "host {host} is postponed at the request of {subject}",
    Code.EARLIEST_START: "the maintenance may not disturb host {host} yet",
    Code.APPROVAL: "{host} waits for group {subject} to approve",
    Code.COUPLED: "{host} waits for {subject} of the same request to be approved",
    Code.TIME: "{host} waits for its NotBefore",
    Code.DRIVER: "the driver works on {subject}",
    Code.OPERATOR: "{host} waits for an operator: {subject}",
    Code.PLANNING: "a plan of {subject} is being made",
    Code.WAVE: "{host} waits for the hosts of {subject}",
    Code.GATE: "gate {subject} is being checked",
}
assert set(SENTENCES) == set(Code), "every code has a sentence"


@value
class Blocker:
    """What one host, or a wave of hosts, waits for first."""

    code: Code
    #: What it waits for: an operation, a budget, a window, a wave, an owner.
    subject: str
    #: Since when it has waited, ms since the epoch UTC.
    since_ms: int
    #: The earliest time at which it can clear, ms since the epoch UTC; 0 if nobody can say.
    clears_ms: int = 0
    #: The sentence, where it says more than that of its code.
    text: str = ""

    def sentence(self, host: str) -> str:
        """Say it for people."""
        return self.text or SENTENCES[self.code].format(host=host, subject=self.subject)
