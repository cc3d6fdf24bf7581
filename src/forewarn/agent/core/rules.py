"""Rules: which event is met with which action, and the steps of a preparation; pure.

`agent/settings.py` makes rules from TOML.
"""

from __future__ import annotations

from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from typing import Final

    from forewarn.agent.core.identity import Identity
    from forewarn.protocol.documents import ScheduledEvent

ACTIONS = ("ignore", "notify", "approve", "prepare")
"""What a rule can do with an event."""

COORDINATIONS = ("first", "all", "self")
"""Who approves an event that names several VMs. Source: C-5, A-7."""

FAILURES = ("go-on", "hold", "abort")
"""What a step's failure means for the rest of the preparation."""

HOLD_STATUS = 75  # EX_TEMPFAIL of sysexits.h: "not now"
ABORT_STATUS = 77  # EX_NOPERM of sysexits.h: "it must not be"

TIMEOUT_S = 300.0  # a third of the least notice of a reboot (N), so that three steps fit
FREEZE_TOLERATED_S = 9  # the longest freeze approved at once. Source: C-4
STAND_IN_S = 120.0  # a leader that has not approved two minutes after we could have is away


class PreparationStep(Value):
    """One step of a preparation, together with what undoes it."""

    __slots__ = ("does", "name", "on_failure", "repeatable", "spec", "timeout_s", "undoes")
    name: Final[str]
    timeout_s: Final[float]
    on_failure: Final[str]
    repeatable: Final[bool]
    does: Final[bool]
    undoes: Final[bool]
    spec: Final[str]

    def __init__(
        self,
        name: str,
        *,
        timeout_s: float = TIMEOUT_S,
        on_failure: str = "hold",
        repeatable: bool = False,
        does: bool = True,
        undoes: bool = True,
        spec: str = "",
    ) -> None:
        """Describe a step.

        Args:
            name: Unique among the steps; two events that need the same step share its effect.
            timeout_s: Seconds a hook of it may run, to prepare and again to undo.
            on_failure: One of `FAILURES`.
            repeatable: Whether a preparation that was cut off may simply be begun again.
            does: Whether anything is to be run to prepare; False counts as done at once.
            undoes: Whether anything is to be run to undo it.
            spec: What the runner needs to run it, opaque here; kept in the journal, so that a
                recovery after the reboot is the one that belonged to the preparation.
        """
        assert on_failure in FAILURES
        self.name = name
        self.timeout_s = timeout_s
        self.on_failure = on_failure
        self.repeatable = repeatable
        self.does = does
        self.undoes = undoes
        self.spec = spec


class Match(Value):
    """The conditions of a rule on an event; an omitted condition matches everything."""

    __slots__ = ("about", "description", "duration_s", "notice_s", "sources", "types")
    types: Final[tuple[str, ...]]
    sources: Final[tuple[str, ...]]
    duration_s: Final[tuple[float, float] | None]
    notice_s: Final[tuple[float, float] | None]
    description: Final[str]
    about: Final[str]

    def __init__(
        self,
        *,
        types: tuple[str, ...] = (),
        sources: tuple[str, ...] = (),
        duration_s: tuple[float, float] | None = None,
        notice_s: tuple[float, float] | None = None,
        description: str = "",
        about: str = "this",
    ) -> None:
        """Describe what to match.

        Args:
            types: Event types; empty for all. Compared without case, as are sources.
            sources: `Platform`, `User`; empty for both.
            duration_s: Least and greatest expected interruption in seconds, both included; an
                unknown one (-1) is in no range.
            notice_s: Least and greatest seconds from now to NotBefore, both included; an event
                without a NotBefore is in no range.
            description: A part of the description, compared without case.
            about: `this` (the event names this VM), `others` (it does not) or `any`.
        """
        self.types = tuple(name.lower() for name in types)
        self.sources = tuple(name.lower() for name in sources)
        self.duration_s = duration_s
        self.notice_s = notice_s
        self.description = description.lower()
        self.about = about

    def matches(self, event: ScheduledEvent, identity: Identity, now_ms: int) -> bool:
        """Return whether the event is as described, seen by this VM now."""
        return not self.misses(event, identity, now_ms)

    def misses(self, event: ScheduledEvent, identity: Identity, now_ms: int) -> str:
        """Return what does not fit, in a word, or nothing where all of it fits."""
        about = "this" if identity.named_in(event.resources) else "others"
        if self.about not in (about, "any"):
            return "resources"
        if self.types and event.event_type.lower() not in self.types:
            return "type"
        if self.sources and event.source.lower() not in self.sources:
            return "source"
        known_s = None if event.duration_s < 0 else event.duration_s
        if not _in_range(known_s, self.duration_s):
            return "duration"
        left_s = None if event.not_before_ms is None else (event.not_before_ms - now_ms) / 1000
        if not _in_range(left_s, self.notice_s):
            return "notice"
        return "" if self.description in event.description.lower() else "description"


class Rule(Value):
    """What is done with the events that match; the first rule that matches decides."""

    __slots__ = ("action", "checks", "coordination", "match", "name", "stand_in_s", "steps", "then")
    name: Final[str]
    match: Final[Match]
    action: Final[str]
    then: Final[str]
    steps: Final[tuple[tuple[PreparationStep, ...], ...]]
    checks: Final[tuple[PreparationStep, ...]]
    coordination: Final[str]
    stand_in_s: Final[float]

    def __init__(
        self,
        name: str,
        match: Match,
        *,
        action: str,
        then: str = "approve",
        steps: tuple[tuple[PreparationStep, ...], ...] = (),
        checks: tuple[PreparationStep, ...] = (),
        coordination: str = "first",
        stand_in_s: float = STAND_IN_S,
    ) -> None:
        """Describe a rule.

        Args:
            name: For people: logs, `why` and `forewarn agent check`.
            match: Which events it is for.
            action: One of `ACTIONS`.
            then: After `prepare`: `approve`, or `hold` to leave the start to NotBefore.
            steps: Groups of steps: the groups one after another, the steps of one together.
            checks: Steps that are run just before the approval and can refuse it.
            coordination: One of `COORDINATIONS`.
            stand_in_s: Seconds after which the next VM of Resources approves in the leader's
                place; 0 for never.
        """
        assert action in ACTIONS
        assert then in ("approve", "hold")
        assert coordination in COORDINATIONS
        self.name = name
        self.match = match
        self.action = action
        self.then = then
        self.steps = steps
        self.checks = checks
        self.coordination = coordination
        self.stand_in_s = stand_in_s


KNOWN_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
"""The impacts that are prepared for without being asked. Source: D-4."""

IGNORE_OTHERS = Rule("events that do not name this VM", Match(about="any"), action="ignore")
"""What applies where no rule matches; given rules are always followed by it. Source: C-3."""

NAMELESS = Rule("events without an id", Match(about="any"), action="notify")
"""An event without an id can be neither approved nor followed; it is only reported."""


def default_rules(
    steps: tuple[tuple[PreparationStep, ...], ...] = (),
    checks: tuple[PreparationStep, ...] = (),
    *,
    freeze_tolerated_s: int = FREEZE_TOLERATED_S,
) -> tuple[Rule, ...]:
    """Return the rules of an agent that was given none. Source: C-3, C-4.

    What is approved at once waits for no leader: nobody prepares for it, and an event may be
    approved by several (A-1). What users asked for is, where there is nothing to prepare; where
    there is, a user's deletion deserves its drain like any other.
    """

    def at_once(name: str, match: Match) -> Rule:
        return Rule(name, match, action="approve", checks=checks, coordination="self")

    by_users = at_once("events that users asked for", Match(sources=("User",)))
    return (
        *(() if steps else (by_users,)),
        at_once("short freezes", Match(types=("Freeze",), duration_s=(0, freeze_tolerated_s - 1))),
        Rule(
            "everything else that names this VM",
            Match(types=KNOWN_TYPES),
            action="prepare",
            steps=steps,
            checks=checks,
        ),
        Rule("impacts this agent does not know", Match(), action="notify"),
    )


def choose(
    rules: tuple[Rule, ...], event: ScheduledEvent, identity: Identity, *, now_ms: int
) -> Rule:
    """Return the first rule that matches the event."""
    for rule in rules:
        if rule.match.matches(event, identity, now_ms):
            return rule
    return IGNORE_OTHERS


def _in_range(number: float | None, bounds: tuple[float, float] | None) -> bool:
    if bounds is None:
        return True
    return number is not None and bounds[0] <= number <= bounds[1]
