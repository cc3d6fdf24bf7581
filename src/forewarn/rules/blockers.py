"""Blockers: the reasons why work waits, each with a code and a sentence.

Source: F-4. `why`, the API, the page and the log show these values. The module of a rule describes
its codes; `other_waits.py` describes the codes of no rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from forewarn.rules.subjects import Scope, Subject
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
    HAND_BACK = "hand-back"
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


#: Every part judges the rule.
EVERYWHERE = frozenset(Judge)
#: Announced work has its own times, and what its notice or the pause had to wait for is over.
UNTIL_START = EVERYWHERE - {Judge.START}
#: A change of the time that is open, or of a deadline, leads to a new plan before any admission.
NOT_AT_ADMISSION = EVERYWHERE - {Judge.ADMISSION}
#: The rule is about plans, and holds as long as the plan is in force.
IN_PLANS = frozenset({Judge.PLANNER, Judge.CHECKER})


@value
class Meaning:
    """What a code means, and how work waits for it."""

    #: `{who}` is `host h1` or `wave 2`, `{name}` the bare name, `{subject}` what work waits for.
    sentence: str
    #: The meaning and the end of the wait, for the reference page of blockers.
    meaning: str
    end: str
    #: The parts that judge the rule of the code; empty: no rule of maintenances.
    judges: frozenset[Judge] = frozenset()
    #: Sentences about certain subjects.
    sentence_of: Mapping[str, str] = field(default_factory=dict)
    #: Whether the wait may end before its planned time: it is for other work or disturbances.
    clears_early: bool = False
    #: Whether the wait, in a plan made beside a wave at work, may end before that whole wave ends.
    ends_with_wave: bool = False
    #: Whether the wait of a host lasts until people change the policy or the maintenance.
    never_clears: bool = False
    #: Whether a draft with such a host cannot start.
    prevents_start: bool = False


#: Code -> its meaning, in the order of the rules.
MEANINGS: dict[Code, Meaning] = {}


def describe(code: Code, meaning: Meaning) -> None:
    """Give a code its meaning, once."""
    assert code not in MEANINGS, f"{code} is described twice"
    MEANINGS[code] = meaning


def judges_of(code: Code) -> frozenset[Judge]:
    """Return the parts that judge the rule of a code; empty: none judges it."""
    return MEANINGS[code].judges


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
        meaning = MEANINGS[self.code]
        template = meaning.sentence_of.get(self.subject, meaning.sentence)
        subject = with_article(self.subject)
        return template.format(who=f"{kind} {name}", name=name, subject=subject)


def with_article(subject: str) -> str:
    """Return a subject as a sentence names it."""
    return f"the {subject}" if subject == Scope.FLEET.value else subject
