"""Rules: the agent's action for each kind of event, with the steps of a preparation; pure.

`agent/settings.py` builds rules from TOML.
"""

from __future__ import annotations

from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from typing import Final

    from forewarn.agent.core.identity import Identity
    from forewarn.protocol.documents import ScheduledEvent

ACTIONS = ("ignore", "notify", "approve", "prepare")
"""Actions of a rule."""

COORDINATIONS = ("first", "all", "self")
"""Which VM approves an event that names several VMs. Source: C-5, A-7."""

FAILURES = ("go-on", "hold", "abort")
"""Reactions of the agent to a failed step."""

HOLD_STATUS = 75  # EX_TEMPFAIL of sysexits.h: "not now"
ABORT_STATUS = 77  # EX_NOPERM of sysexits.h: "do not do it"

TIMEOUT_S = 300.0  # a third of a reboot's shortest notice, so that three steps fit
FREEZE_TOLERATED_S = 9  # longest freeze that the agent approves at once. Source: C-4
STAND_IN_S = 120.0  # time after which a silent leader counts as absent


class PreparationStep(Value):
    """One step of a preparation, with the hook that undoes it."""

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
            name: Unique name of the step.
            timeout_s: Longest time of each of its hooks, in seconds.
            on_failure: One of `FAILURES`.
            repeatable: Whether an interrupted preparation can be repeated.
            does: Whether the step has a prepare hook; a step without a hook is prepared at once.
            undoes: Whether the step has a hook that undoes it.
            spec: The commands, unused by the core. The journal stores the spec, so that a recovery
                after a reboot uses the configuration of the preparation.
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
        """Store the conditions.

        Args:
            types: Event types, case ignored; empty for all.
            sources: `Platform`, `User`, case ignored; empty for both.
            duration_s: Least and greatest expected interruption in seconds, inclusive; an unknown
                duration (-1) is outside every range.
            notice_s: Least and greatest seconds from now to NotBefore, inclusive; an event without
                a NotBefore is outside every range.
            description: Text that the description contains, case ignored.
            about: `this` (the event names this VM), `others` (it names only other VMs) or `any`.
        """
        self.types = tuple(name.lower() for name in types)
        self.sources = tuple(name.lower() for name in sources)
        self.duration_s = duration_s
        self.notice_s = notice_s
        self.description = description.lower()
        self.about = about

    def matches(self, event: ScheduledEvent, identity: Identity, now_ms: int) -> bool:
        """Return whether an event matches all conditions for this VM at a time."""
        return not self.misses(event, identity, now_ms)

    def misses(self, event: ScheduledEvent, identity: Identity, now_ms: int) -> str:
        """Return the name of the first unmet condition for an event; empty if all match."""
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
    """The action for matching events; the first rule that matches decides."""

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
            name: Name of the rule in logs, `why` and `forewarn agent check`.
            match: Conditions of the rule.
            action: One of `ACTIONS`.
            then: After `prepare`: `approve`, or `hold` to wait for the NotBefore.
            steps: Groups of steps; the groups run one after another, the steps of a group in
                parallel.
            checks: Approve hooks, which run just before the approval and can refuse it.
            coordination: One of `COORDINATIONS`.
            stand_in_s: Seconds after which the next VM in Resources approves instead of the leader;
                0: never.
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
"""The impacts for which the agent prepares by default. Source: D-4."""

IGNORE_OTHERS = Rule("events that do not name this VM", Match(about="any"), action="ignore")
"""The agent's last rule, for events without another matching rule. Source: C-3."""

NAMELESS = Rule("events without an id", Match(about="any"), action="notify")
"""The rule for an event without an id, which the agent only reports."""


def default_rules(
    steps: tuple[tuple[PreparationStep, ...], ...] = (),
    checks: tuple[PreparationStep, ...] = (),
    *,
    freeze_tolerated_s: int = FREEZE_TOLERATED_S,
) -> tuple[Rule, ...]:
    """Return the default rules, for a configuration that defines none. Source: C-3, C-4.

    Immediate approvals use `self`, because no VM prepares, and several VMs may approve one event
    (A-1). Without steps, the agent approves events requested by users at once. With steps, the
    agent prepares for all events except short freezes.
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


def matching_rule(
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
