"""Plans as JSON text, for the store and for history.

Each entry's times come from its wave. The fleet determines the groups that get notice.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from forewarn_base.values import value
from forewarn_core.planning.durations import LearnedDuration
from forewarn_core.planning.plan import Wave, WaveBound
from forewarn_core.planning.policy import Scope, Subject
from forewarn_core.rules.blockers import Blocker, code_of
from forewarn_core.rules.hand_back import HAND_BACK
from forewarn_core.rules.other_waits import EARLIEST_START
from forewarn_core.rules.test_first import TEST, TEST_FIRST


@value
class PlanBody:
    """The content of a stored plan."""

    #: The remaining waves at the time of planning.
    waves: tuple[Wave, ...]
    #: Host -> destinations of its VMs, as (VM, host); the host is empty if a driver chooses.
    moves: dict[str, tuple[tuple[str, str], ...]]
    #: Hosts that could not be done, ordered by name, each with its blocker.
    blocked: tuple[tuple[str, Blocker], ...]
    #: The lower bound on the number of waves, with the reason.
    bound: WaveBound
    #: The budgets that could limit the plan, as numbers at the time of planning.
    limits: dict[Subject, int]
    #: Durations that count instead of what was asked. Source: F-9.
    learned: tuple[LearnedDuration, ...] = ()

    def __reduce__(self) -> tuple[Callable[[str], PlanBody], tuple[str]]:
        """Pickle only the text: an object for each host takes far longer to send to a process."""
        return read_plan, (plan_text(self),)


#: Codes that the release before cannot read, as that release knows them; an earliest start of a
#: maintenance has no subject. Source: H-8.
_FIRST_CODES = {HAND_BACK: EARLIEST_START, TEST_FIRST: EARLIEST_START}

#: Placeholder before a first plan.
NO_PLAN = PlanBody((), {}, (), WaveBound(0, ""), {})


def plan_text(body: PlanBody) -> str:
    """Encode a plan; O(its hosts and moves)."""
    waves = [
        [
            wave.number,
            wave.shown_ms,
            wave.earliest_start_ms,
            wave.latest_start_ms,
            wave.latest_end_ms,
            int(wave.canary),
            _blocker_list(wave.waits),
            list(wave.hosts),
        ]
        for wave in body.waves
    ]
    blocked = [[host, *_blocker_list(blocker)] for host, blocker in body.blocked]
    bound = [body.bound.waves, body.bound.argument]
    limits = [[scope.value, name, limit] for (scope, name), limit in body.limits.items()]
    form: dict[str, object] = {
        "waves": waves,
        "moves": body.moves,
        "blocked": blocked,
        "bound": bound,
        "limits": limits,
    }
    if body.learned:  # the release before ignores it
        form["learned"] = [
            [each.label, each.percent, each.samples, each.duration_s] for each in body.learned
        ]
    return json.dumps(form, separators=(",", ":"))


def read_plan(text: str) -> PlanBody:
    """Decode a plan; O(its hosts).

    Raises:
        KeyError: a member is missing.
        TypeError: a member has the wrong type.
        ValueError: the text is not JSON, or has an unknown word.
    """
    form = json.loads(text)
    waves = tuple(
        Wave(number, shown_ms, early, late, end, tuple(hosts), _blocker(*waits), bool(canary))
        for number, shown_ms, early, late, end, canary, waits, hosts in form["waves"]
    )
    moves = {host: tuple((vm, to) for vm, to in each) for host, each in form["moves"].items()}
    blocked = tuple((host, _blocker(*each)) for host, *each in form["blocked"])
    limits = {(Scope(scope), name): limit for scope, name, limit in form["limits"]}
    learned = tuple(LearnedDuration(*each) for each in form.get("learned", ()))
    return PlanBody(waves, moves, blocked, WaveBound(*form["bound"]), limits, learned)


def _blocker_list(blocker: Blocker) -> list[object]:
    code = _FIRST_CODES.get(blocker.code, blocker.code)
    return [code.value, blocker.subject, blocker.since_ms, blocker.clears_ms]


def _blocker(word: str, subject: str, since_ms: int, clears_ms: int) -> Blocker:
    code = code_of(word)
    if code is EARLIEST_START and subject:
        code = TEST_FIRST if subject == TEST else HAND_BACK
    return Blocker(code, subject, since_ms, clears_ms)
