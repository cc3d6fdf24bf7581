"""Rules: the agent's action for each kind of event, with the steps of a preparation; pure.

`agent/settings.py` builds rules from TOML.
"""

from __future__ import annotations

from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.core.identity import Identity
    from forewarn_base.protocol.documents import ScheduledEvent

#: Actions of a rule.
ACTIONS = ("ignore", "notify", "approve", "prepare")

#: Which VM approves an event that names several VMs. Source: C-5, A-7.
COORDINATIONS = ("first", "all", "self")

#: Reactions of the agent to a failed step.
FAILURES = ("go-on", "hold", "abort")

HOLD_STATUS = 75  # EX_TEMPFAIL of sysexits.h: "not now"
ABORT_STATUS = 77  # EX_NOPERM of sysexits.h: "do not do it"

TIMEOUT_S = 300.0  # a third of a reboot's shortest notice, so that three steps fit
FREEZE_TOLERATED_S = 9  # longest freeze that the agent approves at once. Source: C-4
STAND_IN_S = 120.0  # time after which a silent leader counts as absent


class PreparationStep(Value):
    """One step of a preparation, with the hook that undoes it."""

    #: Unique name of the step.
    name: str
    #: Longest time of each of its hooks, in seconds.
    timeout_s: float = TIMEOUT_S
    #: One of `FAILURES`.
    on_failure: str = "hold"
    #: Whether an interrupted preparation can be repeated.
    repeatable: bool = False
    #: Whether the step has a prepare hook; a step without a hook is prepared at once.
    does: bool = True
    #: Whether the step has a hook that undoes it.
    undoes: bool = True
    #: The commands, unused by the core. The journal stores the spec, so that a recovery after a
    #: reboot uses the configuration of the preparation.
    spec: str = ""


class Match(Value):
    """The conditions of a rule on an event; an omitted condition matches everything."""

    #: Event types, case ignored; empty for all.
    types: tuple[str, ...] = ()
    #: `Platform`, `User`, case ignored; empty for both.
    sources: tuple[str, ...] = ()
    #: Least and greatest expected interruption in seconds, inclusive; an unknown duration (-1) is
    #: outside every range.
    duration_s: tuple[float, float] | None = None
    #: Least and greatest seconds from now to NotBefore, inclusive; an event without a NotBefore is
    #: outside every range.
    notice_s: tuple[float, float] | None = None
    #: Text that the description contains, case ignored.
    description: str = ""
    #: `this` (the event names this VM), `others` (it names only other VMs) or `any`.
    about: str = "this"

    def matches(self, event: ScheduledEvent, identity: Identity, now_ms: int) -> bool:
        """Return whether an event matches all conditions for this VM at a time."""
        return not self.misses(event, identity, now_ms)

    def misses(self, event: ScheduledEvent, identity: Identity, now_ms: int) -> str:
        """Return the name of the first unmet condition for an event; empty if all match."""
        about = "this" if identity.named_in(event.resources) else "others"
        if self.about not in (about, "any"):
            return "resources"
        if not _is_among(event.event_type, self.types):
            return "type"
        if not _is_among(event.source, self.sources):
            return "source"
        known_s = None if event.duration_s < 0 else event.duration_s
        if not _in_range(known_s, self.duration_s):
            return "duration"
        left_s = None if event.not_before_ms is None else (event.not_before_ms - now_ms) / 1000
        if not _in_range(left_s, self.notice_s):
            return "notice"
        return "" if self.description.lower() in event.description.lower() else "description"


class Rule(Value):
    """The action for matching events; the first rule that matches decides."""

    #: Name of the rule in logs, `why` and `forewarn agent check`.
    name: str
    match: Match
    #: One of `ACTIONS`.
    action: str
    #: After `prepare`: `approve`, or `hold` to wait for the NotBefore.
    then: str = "approve"
    #: Groups of steps; the groups run one after another, the steps of a group in parallel.
    steps: tuple[tuple[PreparationStep, ...], ...] = ()
    #: Approve hooks, which run just before the approval and can refuse it.
    checks: tuple[PreparationStep, ...] = ()
    #: One of `COORDINATIONS`.
    coordination: str = "first"
    #: Seconds after which the next VM in Resources approves instead of the leader; 0: never.
    stand_in_s: float = STAND_IN_S


#: The impacts for which the agent prepares by default. Source: D-4.
KNOWN_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")

#: The agent's last rule, for events without another matching rule. Source: C-3.
IGNORE_OTHERS = Rule("events that do not name this VM", Match(about="any"), action="ignore")

#: The rule for an event with the status Advisory, which no approval changes. Source: V-4.
ADVISORY = Rule("recommendations", Match(), action="notify")

#: The rule for an event without an id, which the agent only reports.
NAMELESS = Rule("events without an id", Match(about="any"), action="notify")


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


def _is_among(word: str, words: tuple[str, ...]) -> bool:
    return not words or word.lower() in map(str.lower, words)


def _in_range(number: float | None, bounds: tuple[float, float] | None) -> bool:
    if bounds is None:
        return True
    return number is not None and bounds[0] <= number <= bounds[1]
