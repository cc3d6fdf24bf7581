"""Blockers: the reasons why work waits, each with a code and a sentence.

Source: F-4. `why`, the API, the page and the log show these values.
"""

from __future__ import annotations

from dataclasses import field

from forewarn.planning.policy import Subject
from forewarn.values import Word, value


class Code(Word):
    """The kind of a blocker; stable, documented, never reused."""

    UNKNOWN_HOST = "unknown-host"
    HOST_FAILED = "host-failed"
    HOST_BUSY = "host-busy"
    VM_BUSY = "vm-busy"
    FAULT_DOMAIN = "fault-domain"
    ARRIVALS = "arrivals"
    BUDGET = "budget"
    CAPACITY = "capacity"
    OWN_MOVES = "own-moves"
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
    GATE = "gate"
    UNSEEN = "unseen"


class Judge(Word):
    """A part of the program that judges a rule of maintenances, in the order of a host's way."""

    #: The planner gives the host a blocker, or its wave a later time.
    PLANNER = "planner"
    #: The independent checker refuses a plan that breaks the rule.
    CHECKER = "checker"
    #: Before a host of a due wave is announced.
    ADMISSION = "admission"
    #: Before announced work starts: it waits, or it is withdrawn.
    START = "start"


_EVERYWHERE = frozenset(Judge)
_PLANS = frozenset({Judge.PLANNER, Judge.CHECKER})
#: Announced work has its own times, and what its notice or the pause had to wait for is over. A
#: change of the time that is open, or of a deadline, leads to a new plan before any admission.
_UNTIL_START, _NOT_AT_ADMISSION = _EVERYWHERE - {Judge.START}, _EVERYWHERE - {Judge.ADMISSION}
#: Code -> the parts that judge its rule; empty: no rule of maintenances.
JUDGES: dict[Code, frozenset[Judge]] = {
    Code.UNKNOWN_HOST: _UNTIL_START,
    Code.HOST_FAILED: _EVERYWHERE,
    Code.HOST_BUSY: _EVERYWHERE,
    Code.VM_BUSY: frozenset({Judge.START}),
    Code.FAULT_DOMAIN: _EVERYWHERE,
    Code.ARRIVALS: _EVERYWHERE,
    Code.BUDGET: _EVERYWHERE,
    Code.CAPACITY: _EVERYWHERE,
    Code.OWN_MOVES: frozenset({Judge.PLANNER}),
    Code.WINDOW: _NOT_AT_ADMISSION,
    Code.WINDOW_TOO_SHORT: _NOT_AT_ADMISSION,
    Code.DEADLINE: _NOT_AT_ADMISSION,
    Code.OWNER_REST: _EVERYWHERE,
    Code.PREVIOUS_WAVE: _PLANS,
    Code.PAUSE: _UNTIL_START,
    Code.NOTICE: _UNTIL_START,
    Code.POSTPONED: _EVERYWHERE,
    Code.EARLIEST_START: _UNTIL_START,
    Code.APPROVAL: frozenset(),
    Code.COUPLED: frozenset(),
    Code.TIME: frozenset(),
    Code.DRIVER: frozenset(),
    Code.OPERATOR: frozenset({Judge.START}),
    Code.PLANNING: frozenset({Judge.ADMISSION, Judge.START}),
    Code.GATE: frozenset(),
    Code.UNSEEN: frozenset(),
}
#: Blockers of a wave that may clear before the planned time: other work and disturbances.
CLEARS_EARLY = frozenset(
    {Code.HOST_BUSY, Code.FAULT_DOMAIN, Code.ARRIVALS, Code.BUDGET, Code.OWNER_REST}
)
#: Code -> its sentence; `{who}` is `host h1` or `wave 2`, `{name}` the bare name.
SENTENCES: dict[Code, str] = {
    Code.UNKNOWN_HOST: "{who} is not in the fleet",
    Code.HOST_FAILED: "{who} has failed; repair it first, then it is planned again",
    Code.HOST_BUSY: "{who} waits for {subject} to end",
    Code.VM_BUSY: "{name} waits for {subject} to end",
    Code.FAULT_DOMAIN: "{subject} disturbs a group of {who} in another fault domain",
    Code.ARRIVALS: "VMs are about to arrive on {who} with {subject}",
    Code.BUDGET: "the budget of {subject} has no room for {who}",
    Code.CAPACITY: "the VMs of {who} fit nowhere; most room is left on {subject}",
    Code.OWN_MOVES: "other moves of the plan keep {who} from being done: {subject}",
    Code.WINDOW: "{who} waits for {subject} to open",
    Code.WINDOW_TOO_SHORT: "{subject} never opens long enough for {who}",
    Code.DEADLINE: "{who} cannot be done before the deadline because of {subject}",
    Code.OWNER_REST: "{who} has VMs of owner {subject}, who is disturbed or was disturbed recently",
    Code.PREVIOUS_WAVE: "{who} waits for {subject} to end",
    Code.PAUSE: "{who} waits for the pause after {subject}",
    Code.NOTICE: "the VMs of {who} must get their notice first",
    Code.POSTPONED: "{who} is postponed at the request of {subject}",
    Code.EARLIEST_START: "{who} waits for the earliest start of the maintenance",
    Code.APPROVAL: "{name} waits for group {subject} to approve",
    Code.COUPLED: "{name} waits until {subject}, from the same request, is approved",
    Code.TIME: "{name} waits for its NotBefore",
    Code.DRIVER: "the driver works on {subject}",
    Code.OPERATOR: "{name} waits for an operator: {subject}",
    Code.PLANNING: "a plan of {subject} is being made",
    Code.GATE: "gate {subject} is being checked",
    Code.UNSEEN: "{name} waits until {subject} can see its notice",
}
#: Code -> its meaning and its end, for the reference page of blockers.
MEANINGS: dict[Code, tuple[str, str]] = {
    Code.UNKNOWN_HOST: (
        "A maintenance names a host that has left the fleet.",
        "The host is added again, or the maintenance is cancelled.",
    ),
    Code.HOST_FAILED: (
        "The host has failed, or its VMs would move to a failed host.",
        "An operator repairs the host: `forewarn host repair`.",
    ),
    Code.HOST_BUSY: ("Other work is announced or runs on the host.", "That work ends."),
    Code.VM_BUSY: ("Other work runs on the VM.", "That work ends."),
    Code.FAULT_DOMAIN: (
        "A group on the host is disturbed in another fault domain.",
        "The work there ends.",
    ),
    Code.ARRIVALS: ("Work moves VMs to the host.", "That work ends."),
    Code.BUDGET: (
        "A budget, or `[lifecycle] max_operations`, leaves no room.",
        "Other work ends, a failed host is repaired, or a new policy is applied.",
    ),
    Code.CAPACITY: (
        "No host has room for the VMs that must leave, or their memory is unknown.",
        "Room becomes free on other hosts, or `memory_mib` is set.",
    ),
    Code.OWN_MOVES: (
        "The host could be done first, but not after the plan's other moves, in any order tried.",
        "Room becomes free, a new policy is applied, or a maintenance of fewer hosts is created.",
    ),
    Code.WINDOW: (
        "No window is open for the host, its time zone is unknown here, or a freeze is active.",
        "The next window opens, or the time zone's data is installed and the service restarts.",
    ),
    Code.WINDOW_TOO_SHORT: (
        "No window of the host is ever long enough for the work.",
        "A new policy is applied, or a maintenance with a shorter duration is created.",
    ),
    Code.DEADLINE: (
        "The host cannot be done before the maintenance's deadline.",
        "A maintenance with a later deadline is created.",
    ),
    Code.OWNER_REST: (
        "An owner with VMs on the host is disturbed, or was within the last `owner_rest`.",
        "The owner's rest period is over.",
    ),
    Code.PREVIOUS_WAVE: ("An earlier wave is not over.", "The last host of that wave is done."),
    Code.PAUSE: ("The policy's pause after the last wave is not over.", "The pause is over."),
    Code.NOTICE: ("The VMs' notice period is not over.", "The notice is over."),
    Code.POSTPONED: ("The host was postponed on request.", "The postponed start is reached."),
    Code.EARLIEST_START: ("The maintenance has an earliest start.", "That time comes."),
    Code.APPROVAL: (
        "A group has not approved its event.",
        "The group or an operator (`forewarn operation approve`) approves, or NotBefore passes.",
    ),
    Code.COUPLED: (
        "Another deletion of the same request is not approved.",
        "That deletion is approved, or NotBefore is reached.",
    ),
    Code.TIME: ("NotBefore, or an earliest start, is not reached.", "That time comes."),
    Code.DRIVER: ("The driver is at work.", "The driver reports that the work has ended."),
    Code.OPERATOR: (
        "The driver has failed, is missing or waits for an operator, or the maintenance is halted.",
        "An operator acts on the operation, the driver or the maintenance.",
    ),
    Code.PLANNING: (
        "A plan is being made, or could not be made.",
        "The plan comes into force; after a failure, planning is tried again within a minute.",
    ),
    Code.GATE: (
        "The gate after the last wave is being checked, up to `tries` times.",
        "The gate passes; if its last try fails, the maintenance is stopped.",
    ),
    Code.UNSEEN: (
        "A metadata node is cut off, so VMs cannot be shown the notice of the work.",
        "The node shows the notice, somebody approves for the VMs, or a new policy is applied.",
    ),
}
#: Subject of a window's blocker if only freezes close the time, and its sentences.
FREEZE = "a freeze"
_OF_FREEZES = {
    Code.WINDOW: "{who} waits for a freeze to end",
    Code.WINDOW_TOO_SHORT: "the freezes leave no time that is long enough for {who}",
}
#: Subjects of the blocker `capacity` that are not hosts, and their sentences.
UNSIZED, NO_OTHER_HOST = "a VM with an unknown memory size", "no other host"
_OF_CAPACITY = {
    UNSIZED: "{who} has a VM with an unknown memory size, which cannot be moved",
    NO_OTHER_HOST: "no other host with a known memory size has room for the VMs of {who}",
}
#: Subjects that need an article in a sentence.
_WITH_ARTICLE = {"fleet": "the fleet"}
assert set(SENTENCES) == set(MEANINGS) == set(JUDGES) == set(Code), "a code is described nowhere"


@value
class Blocker:
    """Why an operation, a host, a wave or a maintenance waits."""

    code: Code
    #: The cause of the wait: an operation, a budget, a window, a wave, an owner; several are joined
    #: by commas.
    subject: str
    #: Start of the wait, ms since the epoch UTC.
    since_ms: int
    #: The earliest time at which the wait can end, ms since the epoch UTC; 0: unknown.
    clears_ms: int = 0
    #: A more specific sentence than the code's; empty: the code's sentence.
    text: str = ""
    #: What wakes the work: the end of the operation of this number, or room in this budget; None
    #: for other blockers.
    wakes: int | Subject | None = field(default=None, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The words of the subject, such as the hosts with the most room."""
        return tuple(self.subject.replace(",", " ").split())

    def sentence(self, name: str, kind: str = "host") -> str:
        """Return the sentence about a host, or about a wave by its number."""
        if self.text:
            return self.text
        text = _OF_FREEZES.get(self.code) if self.subject == FREEZE else None
        text = _OF_CAPACITY.get(self.subject) if self.code is Code.CAPACITY else text
        subject = _WITH_ARTICLE.get(self.subject, self.subject)
        template = text or SENTENCES[self.code]
        return template.format(who=f"{kind} {name}", name=name, subject=subject)


def own_moves(blocker: Blocker) -> Blocker:
    """Return the blocker of a host that only moves of its own plan keep from being done."""
    subject = blocker.subject
    if blocker.code is Code.BUDGET:
        subject = f"the budget of {_WITH_ARTICLE.get(subject, subject)}"
    elif blocker.code is Code.CAPACITY:
        room = f"most room is left on {subject}"
        subject = f"{subject} has room" if subject == NO_OTHER_HOST else room
    return Blocker(Code.OWN_MOVES, subject, blocker.since_ms)
