"""The habits of machines and their people, and the rules that their agents go by.

Nothing is done by habit in here (`machine.py`).
"""

from forewarn.agent.core.rules import Match, PreparationStep, Rule, default_rules
from forewarn_base.values import value


@value
class AgentHabits:
    """How a machine and its people behave; durations in seconds."""

    name: str
    weight: int
    polls: bool = True
    approves: bool = True
    hook_s: tuple[int, int] = (5, 90)
    #: How often in a thousand a hook fails.
    hook_fails: int = 10
    #: How often in a thousand the agent dies in the middle of a step.
    dies: int = 0
    #: Sends every approval a second time.
    twice: bool = False
    #: Tries to approve what is none of its business.
    probes: bool = False
    #: Approves when its preparation is done, whatever has begun by then.
    late: bool = False


HABITS: tuple[AgentHabits, ...] = (
    AgentHabits("good", 60),
    AgentHabits("never polls", 5, polls=False),
    AgentHabits("never approves", 8, approves=False),
    AgentHabits("approves late", 8, hook_s=(300, 2400), late=True),
    AgentHabits("approves twice", 6, twice=True),
    AgentHabits("approves what is not its own", 5, probes=True),
    AgentHabits("restarts in the middle", 8, dies=150, hook_fails=100),
)
GOOD = HABITS[0]

#: Least and longest pause after a poll that failed.
RETRY_MS = (1000, 30_000)

#: What becomes of approving late, which is counted apart.
BEFORE, AFTER = "approves late, before NotBefore", "approves late, after NotBefore"
_PLAIN = tuple(habit.name for habit in HABITS if habit is not GOOD and not habit.late)
#: What machines do by habit, as it is counted.
HABIT_EFFECTS = (*_PLAIN, BEFORE, AFTER)

DRAIN = "drain"
#: A hook that takes longer is stopped, and nothing is approved: beyond what any habit takes.
DRAIN_S_MAX = 3000
STEPS = (
    (
        PreparationStep(DRAIN, timeout_s=DRAIN_S_MAX, repeatable=True),
        PreparationStep("note", does=False, undoes=False),
    ),
)
RULES = default_rules(STEPS)
RULES_WITHOUT_APPROVAL = (
    Rule("prepare only", Match(), action="prepare", then="hold", steps=STEPS),
    *RULES,
)


def rules_of(habit: AgentHabits, *, together: bool) -> tuple[Rule, ...]:
    """What the agent of a machine goes by; `together`: it approves only when all are prepared."""
    rules = RULES if habit.approves else RULES_WITHOUT_APPROVAL
    if not together:
        return rules
    return tuple(
        Rule(
            rule.name,
            rule.match,
            action=rule.action,
            then=rule.then,
            steps=rule.steps,
            coordination="all",
        )
        for rule in rules
    )
