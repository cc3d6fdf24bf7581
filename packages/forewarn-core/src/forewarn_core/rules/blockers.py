"""Blockers: the reasons why work waits, each with a code and a sentence.

Source: F-4. `why`, the API, the page and the log show these values. The module of a rule has its
codes; `other_waits.py` has the codes of no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from forewarn_base.values import Word, value
from forewarn_core.rules.subjects import Scope, Subject


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
    #: Whether a new plan ends the wait of a due wave.
    renewed: bool = False
    #: The word by which the request of an emergency waives the rule; empty: it cannot. Source: T-6.
    waiver: str = ""


#: Word -> code, in the order in which the rules are imported.
_CODES: dict[str, Code] = {}


class Code:
    """The kind of a blocker; stable, documented, never reused. A rule's module has its codes."""

    __slots__ = ("meaning", "value")

    def __init__(self, value: str, meaning: Meaning) -> None:
        """Make the only code of a word."""
        assert value not in _CODES, f"two rules have the code {value}"
        self.value, self.meaning = value, meaning
        _CODES[value] = self

    def __reduce__(self) -> tuple[Callable[[str], Code], tuple[str]]:
        """Find the code again in another process, because codes are compared by identity."""
        return code_of, (self.value,)

    def __repr__(self) -> str:
        """Return a text that stays the same: ids of plans are digests of it."""
        return f"<Code.{self.value.upper().replace('-', '_')}: {self.value!r}>"


def code_of(word: str) -> Code:
    """Return the code of a word; raises ValueError if there is none."""
    code = _CODES.get(word)
    if code is None:
        raise ValueError(f"{word!r} is not the code of a blocker")
    return code


def every_code() -> list[Code]:
    """Return all codes, by their words."""
    return [_CODES[word] for word in sorted(_CODES)]


def every_waiver() -> list[str]:
    """Return the words by which the request of an emergency waives rules. Source: T-6."""
    return [each.meaning.waiver for each in every_code() if each.meaning.waiver]


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
        meaning = self.code.meaning
        template = meaning.sentence_of.get(self.subject, meaning.sentence)
        subject = with_article(self.subject)
        return template.format(who=f"{kind} {name}", name=name, subject=subject)


def with_article(subject: str) -> str:
    """Return a subject as a sentence names it."""
    return f"the {subject}" if subject == Scope.FLEET.value else subject
