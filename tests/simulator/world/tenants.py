"""Declared work in random worlds: operators declare, owners choose, defer and hand back.

What becomes of a word is decided by the product. Each activity draws from its own stream.
"""

from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.deferrals import DeferralState
from forewarn_core.fleet.draft import Draft, Terms
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.openings import Openings
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.stimulus import HostChoice
from forewarn_core.rules.blockers import every_waiver
from forewarn_core.rules.hand_back import Severity
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import HOUR_MS, MINUTE_MS
from tests.simulator.world.operators import Operators

#: How many maintenances in a thousand are declared.
DECLARED_PERMILLE = 500
#: Hand-back windows: from the notice of a reboot, in which nothing can be chosen, to half a day.
HAND_BACKS_S = (900, 3600, 4 * 3600, 12 * 3600)
#: How many declared maintenances in a thousand begin with the test of an owner.
TESTED_PERMILLE = 600
#: How long owners observe their test group.
OBSERVATIONS_S = (60, 1800, 3 * 3600)
#: By how much owners ask to defer.
DEFERRALS_MS = (10 * MINUTE_MS, HOUR_MS, 5 * HOUR_MS)


def begin(people: Operators, number: int, dice: Dice) -> None:
    """An operator declares a draft, or starts it without a declaration."""
    if not dice.chance(DECLARED_PERMILLE):
        people.submit(stimuli.StartMaintenance(number), "operator")
        return
    severity = dice.pick((Severity.ROUTINE, Severity.ROUTINE, Severity.URGENT, Severity.EMERGENCY))
    emergency = severity is Severity.EMERGENCY
    waived = dice.some(every_waiver(), dice.below(3)) if emergency else ()
    hand_back_s = None if dice.chance(200) else dice.pick(HAND_BACKS_S)
    reason = "a flaw is exploited" if emergency else ""
    word = stimuli.DeclareMaintenance(number, severity, hand_back_s, reason, tuple(waived))
    declared = people.submit(word, "admin" if emergency else "operator")
    maintenance = people.world.checker.state.maintenances.get(number)
    if declared and maintenance is not None and dice.chance(TESTED_PERMILLE):
        _test(people, maintenance, dice)


def answer(people: Operators, dice: Dice) -> None:
    """Owners choose when declared work starts on a host or two, or ask for a later deadline."""
    world = people.world
    known = world.checker.state.maintenances.values()
    declared = [each for each in known if each.declaration is not None]
    if not declared:
        return
    maintenance = dice.pick(declared)
    touched = {each.host for each in world.checker.state.targets.values()}
    left = [host for host in maintenance.hosts if host not in touched or dice.chance(50)]
    hosts = dice.some(left, dice.pick((1, 1, 2)))
    topology, groups, vms = world.topology, world.topology.groups, world.topology.vms
    places = [
        (host, owner)
        for host in hosts
        for owner in sorted({groups[vms[name].group].owner for name in topology.vms_on(host)})
    ]
    if not places:
        return
    if dice.chance(350):
        places = dice.some(places, 1)
    if dice.chance(150):
        _order(people, maintenance, places[0][1], dice)
    elif dice.chance(250):
        _defer(people, maintenance, places, dice)
    else:
        _choose(people, maintenance, places, dice)


def _choose(
    people: Operators, maintenance: Maintenance, places: list[tuple[str, str]], dice: Dice
) -> None:
    decision = dice.pick((*(Decision.AT,) * 5, Decision.NOW, Decision.RELEASE))
    start_ms = _start_ms(people, maintenance, places[0][0], dice)
    approves = dice.chance(300)
    choices = tuple(
        HostChoice(
            host,
            owner,
            Decision.RELEASE if dice.chance(100) else decision,
            start_ms if decision is Decision.AT else 0,
            approves,
        )
        for host, owner in places
    )
    by = places[0][1] or "operator"
    people.submit(stimuli.ChooseStarts(maintenance.number, choices, by), by)


def _start_ms(people: Operators, maintenance: Maintenance, host: str, dice: Dice) -> int:
    """Draw a start: most often within an opening, or one that others have chosen."""
    world = people.world
    state, now_ms = world.checker.state, world.service.clock.now_ms()
    chosen = [each.start_ms for each in state.choices.values() if each.start_ms > now_ms]
    if chosen and dice.chance(250):
        return dice.pick(chosen)
    terms = Terms(world.policy, "owner", lambda: "")
    openings = Openings(Draft(state, now_ms, terms), maintenance).of(host)
    if not openings or dice.chance(100):
        return now_ms + dice.between(10, 300) * MINUTE_MS
    opening = dice.pick(openings)
    return dice.pick((opening.start_ms, dice.between(opening.start_ms, opening.latest_ms)))


def _defer(
    people: Operators, maintenance: Maintenance, places: list[tuple[str, str]], dice: Dice
) -> None:
    assert maintenance.declaration is not None
    until_ms = maintenance.declaration.deadline_ms + dice.pick(DEFERRALS_MS)
    by = places[0][1] or "operator"
    word = stimuli.AskDeferral(maintenance.number, tuple(places), until_ms, "a sale", by)
    people.submit(word, by)


def _test(people: Operators, maintenance: Maintenance, dice: Dice) -> None:
    """An owner names a group that is on some of its hosts, and on those of the first wave."""
    topology, canaries = people.world.topology, {*maintenance.canary_hosts}
    hosts_of: dict[str, dict[str, set[str]]] = {}
    for host in maintenance.hosts:
        for name in topology.vms_on(host):
            group = topology.groups[topology.vms[name].group]
            hosts_of.setdefault(group.owner, {}).setdefault(group.name, set()).add(host)
    partial = [
        (owner, name)
        for owner, groups in sorted(hosts_of.items())
        for name, hosts in sorted(groups.items())
        if hosts < (own := set[str]().union(*groups.values())) and canaries.isdisjoint(own - hosts)
    ]
    if partial:
        owner, first = dice.pick(partial)
        by = owner or "operator"
        observation_s = dice.pick(OBSERVATIONS_S)
        word = stimuli.NameFirstGroup(maintenance.number, owner, first, observation_s, by)
        people.submit(word, by)


def _order(people: Operators, maintenance: Maintenance, owner: str, dice: Dice) -> None:
    """An owner names its test group, or holds its other hosts after it, or no longer."""
    by, number, topology = owner or "operator", maintenance.number, people.world.topology
    if dice.chance(200):
        reason = dice.pick(("errors on the test hosts", ""))
        people.submit(stimuli.HoldHosts(number, owner, reason, by), by)
        return
    there = {
        topology.vms[name].group for host in maintenance.hosts for name in topology.vms_on(host)
    }
    own = sorted(name for name in there if topology.groups[name].owner == owner)
    group = "" if not own or dice.chance(100) else dice.pick(own)
    word = stimuli.NameFirstGroup(number, owner, group, dice.pick(OBSERVATIONS_S), by)
    people.submit(word, by)


def decide(people: Operators, dice: Dice) -> None:
    """An operator grants or refuses a request for a later deadline."""
    requests = [
        each
        for each in people.world.checker.state.deferrals.values()
        if each.state is DeferralState.ASKED
    ]
    if not requests:
        return
    asked = dice.pick(requests)
    word = stimuli.DecideDeferral(
        *(asked.maintenance, asked.owner, dice.chance(600), "operator"),
        reason="spare parts" if dice.chance(800) else "",
        host=asked.host if dice.chance(500) else "",
    )
    people.submit(word, "operator")
