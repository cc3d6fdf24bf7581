"""What holds after every step of the core, whatever was told: each test's rig looks at it."""

from contextlib import suppress
from dataclasses import dataclass

from forewarn_base.errors import CallerError
from forewarn_core.fleet.actions import ACTIONS
from forewarn_core.fleet.document import View
from forewarn_core.fleet.draft import Draft, Terms
from forewarn_core.fleet.indexes import Place, places_of
from forewarn_core.fleet.lifecycle import Alert, Event, EventState, Operation, OperationState
from forewarn_core.fleet.maintenance import (
    Checking,
    Halted,
    Maintenance,
    Target,
    TargetProgress,
    TargetState,
)
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.records import Columns, from_row, to_row
from forewarn_core.fleet.state import Entry, State
from forewarn_core.fleet.step import StepResult, next_deadline_ms, step
from forewarn_core.fleet.stimulus import PlaneStimulus, Proceed
from forewarn_core.fleet.ticket import Ticket
from forewarn_core.fleet.topology import Group, Host, Topology, Vm
from forewarn_core.fleet.usage import (
    UNCOUNTED_MAX,
    Disturbed,
    Share,
    Usage,
    share_of_host,
    share_of_vm,
)
from forewarn_core.fleet.why import blocker_of, why_host, why_maintenance
from forewarn_core.planning.policy import Subject
from forewarn_core.rules.blockers import Blocker, code_of
from tests.core.replay import Replay

S, E = OperationState, EventState


def check_history(outcome: StepResult, *, now_ms: int, actor: str) -> None:
    """Each line is known by its name, says something, and is found by what it is about. A-6."""
    for entry in outcome.changes.entries:
        assert entry.at_ms == now_ms
        assert entry.actor == actor or entry.action == "confirmation.given"
        assert entry.action in ACTIONS, entry
        assert entry.text, entry
        assert entry.text not in ACTIONS, entry
        _check_about(entry)


def _check_about(entry: Entry) -> None:
    first = entry.images[0]
    if first.row is None or entry.action == "document.updated":
        return
    match from_row(first.kind, first.row):
        case Operation() as operation:
            vm = operation.target if operation.of_vm else ""
            assert (entry.operation, entry.host, entry.vm) == (operation.number, operation.host, vm)
        case Event() as event:
            found = (entry.operation, entry.event, entry.group)
            assert found == (event.operation, event.id, event.group)
        case Target() as target:
            assert (entry.operation, entry.host) == (target.operation, target.host)
        case Vm() as machine:
            assert (entry.vm, entry.group, entry.host) == (
                machine.name,
                machine.group,
                machine.host,
            )
        case Host() as host:
            assert entry.host == host.name
        case Group() as group:
            assert entry.group == group.name
        case Ticket() as ticket:
            assert (entry.operation, entry.host) == (ticket.operation, ticket.host)
        case _:
            assert not entry.operation, entry


@dataclass(frozen=True)
class Before:
    """What a step may replace."""

    views: dict[str, View]
    maintenances: dict[int, Maintenance]


def check_images(outcome: StepResult, replay: Replay) -> None:
    """What is said of a record to have changed is all that differs from before it. A-6, L-7."""
    rows: dict[tuple[str, str | int], Columns | None] = {}
    for entry, image in [(one, each) for one in outcome.changes.entries for each in one.images]:
        place = image.kind, image.key
        record = replay.records[image.kind].get(image.key)
        known = rows.get(place, to_row(record) if record is not None else None)
        rows[place] = image.row
        if image.row is None:
            continue
        again = entry.action == "ticket.reopened"  # the state had no such ticket
        assert (image.changed is None) == (known is None or again), image
        if image.changed is not None and known is not None:
            differs = {name: new for name, new in image.row.items() if known[name] != new}
            assert image.changed == differs


def check_outcome(before: Before, outcome: StepResult, state: State) -> None:
    """What is to be published, begun, aborted and planned is what the step has made so. L-7."""
    changed = [key for key, view in state.views.items() if before.views.get(key) != view]
    assert sorted(key for key, view in outcome.changes.views.items() if view) == sorted(changed)
    assert all(each.state is S.RUNNING for each in outcome.begin)
    assert all(each.number in state.aborts for each in outcome.abort)
    for number, maintenance in state.maintenances.items():
        known = before.maintenances.get(number)
        is_wanted = maintenance.plan_wanted and not (known and known.plan_wanted)
        is_checking = isinstance(maintenance.phase, Checking)
        is_wanted |= is_checking and not (known and isinstance(known.phase, Checking))
        assert number in outcome.to_plan or not is_wanted, maintenance
    for entry in outcome.changes.entries:
        if entry.action.startswith("maintenance."):
            _check_due(entry)


def _check_due(entry: Entry) -> None:
    """What is planned again is due at no time; what is over has nothing left to come. F-2, F-6."""
    image = entry.images[0]
    maintenance = from_row(image.kind, image.row) if image.row else None
    if not isinstance(maintenance, Maintenance):
        return
    if entry.action in {"maintenance.replanning", "maintenance.wave-over", "maintenance.stopped"}:
        assert maintenance.due_ms is None
    if entry.action == "maintenance.cancelled":
        assert maintenance.phase == Halted(maintenance.halt_reason)
    if entry.action == "maintenance.done":
        assert maintenance.phase == Halted()


def check_rest(state: State, now_ms: int, terms: Terms) -> None:
    """Nothing follows from another look: what may go on has gone on. Source: L-1, F-3, F-4."""
    everything = Proceed((*state.operations, *state.maintenances))
    again = step(state, everything, now_ms=now_ms, terms=terms)
    state.rollback()
    assert not again.changes.entries, again.changes.entries
    assert (again.begin, again.abort, again.to_plan) == ((), (), ())
    _check_waits(state)


def check_undone(state: State, stimulus: PlaneStimulus, now_ms: int, terms: Terms) -> None:
    """A step that is thrown away, or refused, leaves the state bit for bit as it was. L-7.

    So does a later step of the same commit, which leaves the earlier one's.
    """
    before = everything_in(state)
    with suppress(CallerError):
        step(state, stimulus, now_ms=now_ms, terms=terms)
        between, savepoint = everything_in(state), state.savepoint()
        with suppress(CallerError):
            step(state, stimulus, now_ms=now_ms, terms=terms)
            state.rollback(savepoint)
        _check_same(between, everything_in(state))
        state.rollback()
    _check_same(before, everything_in(state))
    check_indexes(state)


def _check_same(before: dict[str, object], after: dict[str, object]) -> None:
    assert {name: found for name, found in after.items() if found != before[name]} == {}


def everything_in(state: State) -> dict[str, object]:
    """Copy all records, indexes and deadlines; caches of what is derived from them are left out."""
    found: dict[str, object] = {}
    for name in ("operations", "aborts", "events", "enrolments", "views", "maintenances", "plans"):
        found[name] = dict(getattr(state, name))
    for name in ("targets", "policies", "last_disturbed_ms", "waits"):
        found[name] = dict(getattr(state, name))
    for name in ("unconfirmed", "affected_ms"):
        found[name] = {who: dict(each) for who, each in getattr(state, name).items() if each}
    for name in ("hosts", "groups", "vms", "_on_host", "_in_group", "_known_by"):
        found[name] = dict(getattr(state.topology, name))
    for name in ("looks", "ends", "polls"):
        deadlines = getattr(state, name)
        found[name] = dict(deadlines._at), set(deadlines._passed), deadlines._passed_ms
    found["places"] = state.places.all()
    found["found at"] = {number: set(at) for number, at in state.places._places.items()}
    found["waiting"] = state.waiting.all()
    found["by group"] = {group: set(ids) for group, ids in state._by_group.items()}
    touched = {number: state.progress(number) for number in state._progress}
    found["progress"] = {
        number: (dict(each.targets), set(each.working), set(each.failed))
        for number, each in touched.items()
        if each.targets
    }
    found["usage"] = usage_of(state).taken
    found["numbers"] = state.last_number, state.mark, state.ticked_ms, len(state._undo)
    return found


def check_tick(state: State, now_ms: int) -> None:
    """What was due is not looked at with every tick from now on. Source: L-1."""
    assert state.looks.due(now_ms) == []


def check_indexes(state: State) -> None:
    """What is found by key is what is found by a look at everything."""
    keys = {key for group in state.enrolments for key in state.topology.views_of(group)}
    assert state.views.keys() == keys
    fleet = state.topology
    whole = Topology(dict(fleet.hosts), dict(fleet.groups), dict(fleet.vms))
    for table in ("_on_host", "_in_group", "_known_by"):
        assert getattr(fleet, table) == getattr(whole, table)
    operations = state.operations.values()
    announced = [each for each in operations if each.state is S.ANNOUNCED]
    running = [each for each in operations if each.state is S.RUNNING and each.alert is Alert.NONE]
    due = [each for each in state.maintenances.values() if each.running and each.due_ms is not None]
    looks = {(each.number, "start"): each.not_before_ms for each in announced}
    looks |= {
        (each.number, "earliest"): each.earliest_start_ms
        for each in announced
        if each.earliest_start_ms is not None
    }
    waits = {key: at_ms for key, at_ms in state.looks._at.items() if key[1] == "wait"}
    assert {number for number, _ in waits} <= {each.number for each in announced}
    looks |= waits  # set only by the attempt to start
    looks |= {(each.number, "wave"): each.due_ms for each in due if each.due_ms is not None}
    assert state.looks._at == looks
    assert state.ends._at == {each.number: each.overdue_ms(0) for each in running}
    assert state.polls._at == {group: each.polled_ms for group, each in state.enrolments.items()}
    by_group: dict[str, set[str]] = {}
    for event in state.events.values():
        by_group.setdefault(event.group, set()).add(event.id)
    assert {group: set(state.event_ids_of(group)) for group in state._by_group} == by_group
    assert state.places.all() == places_in(state)
    _check_usage(state)
    _check_progress(state)


def _check_usage(state: State) -> None:
    """What is counted of budgets is so, but for what is noted to be counted. Source: F-3."""
    usage, uncounted = state.usage, state.usage.uncounted
    assert len(uncounted) <= UNCOUNTED_MAX
    shares = shares_of(state)
    vms = [vm for host in uncounted if isinstance(host, str) for vm in state.topology.vms_on(host)]
    pending = uncounted.union(("vm", vm) for vm in vms)
    for each in {*shares, *usage._shares} - pending:
        assert usage._shares.get(each) == shares.get(each), each
    whole = Usage()
    for each, share in usage._shares.items():
        whole.put(each, share)
    assert (usage.taken, usage.running) == (whole.taken, whole.running)


def _check_waits(state: State) -> None:
    """Live work waits for live work, or, once announced, for room in a budget. Source: F-3."""
    waiting: dict[int | Subject, set[int]] = {}
    for number, blocker in state.waits.items():
        if isinstance(blocker, int):
            assert blocker in state.operations
        else:
            assert state.operations[number].state is S.ANNOUNCED
    assert state.waits.keys() <= state.operations.keys()
    for number, blocker in state.waits.items():
        waiting.setdefault(blocker, set()).add(number)
    assert state.waiting.all() == waiting


def _check_progress(state: State) -> None:
    """Maintenances, their plans and the hosts they have touched belong together. Source: F-1."""
    found: dict[int, TargetProgress] = {}
    for key, target in state.targets.items():
        assert key == f"{target.maintenance}/{target.host}"
        progress = found.setdefault(target.maintenance, TargetProgress())
        progress.targets[target.host] = target
        if target.state is TargetState.WORKING:
            progress.working[target.host] = None
        if target.state is TargetState.FAILED or target.reason:
            progress.failed[target.host] = None
    assert found.keys() <= state.maintenances.keys()
    for number, maintenance in state.maintenances.items():
        assert state.progress(number) == found.get(number, TargetProgress())
        assert not maintenance.plan or maintenance.plan in state.plans
    assert len(state.plans) == sum(bool(each.plan) for each in state.maintenances.values())


def places_in(state: State) -> dict[Place, set[int]]:
    """Where each live operation is found, by looking at everything."""
    found: dict[Place, set[int]] = {}
    for number, operation in state.operations.items():
        for place in places_of(operation, state.topology):
            found.setdefault(place, set()).add(number)
    return found


def shares_of(state: State) -> dict[Disturbed, Share]:
    """What each host and each VM's own work takes of budgets, by a look at everything."""
    found: dict[Disturbed, Share | None] = {}
    for name in state.topology.hosts:
        on = [each for each in state.operations.values() if each.host == name]
        found[name] = share_of_host(state.topology, name, on)
    shares = {disturbed: share for disturbed, share in found.items() if share is not None}
    vms = {each.target for each in state.operations.values() if each.of_vm}
    for vm in vms:
        on = [each for each in state.operations.values() if each.of_vm and each.target == vm]
        found["vm", vm] = share_of_vm(state.topology, vm, on, shares=shares)
    return {disturbed: share for disturbed, share in found.items() if share is not None}


def usage_of(state: State) -> Usage:
    """What is taken of each budget, by a look at everything."""
    usage = Usage()
    for disturbed, share in shares_of(state).items():
        usage.put(disturbed, share)
    return usage


def check_deadline(state: State, policy: NoticePolicy, now_ms: int) -> None:
    """The loop is woken for the next thing that time alone makes due, and for nothing else."""
    operations = state.operations.values()
    announced = [each for each in operations if each.state is S.ANNOUNCED]
    running = [each for each in operations if each.state is S.RUNNING and each.alert is Alert.NONE]
    times = [
        *(each.not_before_ms for each in announced),
        *(each.earliest_start_ms or 0 for each in announced),
        *(at_ms for (_, why), at_ms in state.looks._at.items() if why == "wait"),
        *(each.overdue_ms(policy.overdue_after_s) for each in running),
        *(each.due_ms or 0 for each in state.maintenances.values() if each.running),
        *(
            each.polled_ms + (policy.disable_after_s + 60) * 1000
            for each in state.enrolments.values()
        ),
        *(each.expires_ms for each in state.access.confirmations.values()),
        *(each.closes_ms + 1 for each in operations if each.closes_ms),
        *(each.deadline_ms or 0 for each in state.tickets.values()),
        *(each.deadline_ms or 0 for each in state.deferrals.values()),
    ]
    later = [at_ms for at_ms in times if at_ms > now_ms]
    assert next_deadline_ms(state, policy, now_ms) == min(later, default=None)


def check_why(state: State, now_ms: int, terms: Terms) -> None:
    """Whatever is not over says what it waits for, in words, since when and till when. F-4."""
    draft = Draft(state, now_ms, terms)
    for operation in state.operations.values():
        _check_said(blocker_of(draft, operation), now_ms)
    for number, maintenance in state.maintenances.items():
        _check_said(why_maintenance(draft, maintenance), now_ms)
        for host in maintenance.hosts:
            target = state.targets.get(f"{number}/{host}")
            if target is None or target.state is TargetState.WORKING:
                _check_said(why_host(draft, maintenance, host), now_ms)


def _check_said(blocker: Blocker | None, now_ms: int) -> None:
    assert blocker is not None
    assert blocker.subject or blocker.code is code_of("earliest-start"), blocker
    assert blocker.sentence("one of them")
    assert 0 < blocker.since_ms <= now_ms, blocker
    assert blocker.clears_ms >= 0
