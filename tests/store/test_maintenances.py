"""Maintenances, their plans and the hosts they have touched: loaded while live, read for ever."""

from collections.abc import Callable

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.lifecycle import Execution, OperationState
from forewarn_core.fleet.maintenance import (
    Maintenance,
    MaintenancePlan,
    MaintenanceState,
    Target,
    TargetState,
    target_key,
)
from forewarn_core.fleet.state import Changes
from forewarn_store import Store
from forewarn_store.maintenances import HostState
from tests.store.strategies import plan_saying
from tests.store.test_round_trip import OPERATION

STATES = (
    MaintenanceState.DONE,
    MaintenanceState.RUNNING,
    MaintenanceState.CANCELLED,
    MaintenanceState.PAUSED,
)
#: Numbers of those that have not ended.
LIVE = (2, 4)


def maintenance(number: int, state: MaintenanceState) -> Maintenance:
    """A maintenance of two hosts that has a plan."""
    return Maintenance(
        number,
        Cause.HOST_UPDATE,
        Impact.FREEZE,
        ("h0", "h1"),
        created_ms=number,
        actor="operator",
        duration_s=60,
        state=state,
        plan=f"{number:016}",
    )


MAINTENANCES = [maintenance(number, state) for number, state in enumerate(STATES, start=1)]
PLANS = [
    MaintenancePlan(
        f"{number:016}", number, parent="", made_ms=number, body=plan_saying(f"body {number}")
    )
    for number in (1, 2, 3, 4)
]
CHILD = MaintenancePlan(
    "c" * 16, 1, parent=f"{1:016}", made_ms=9, body=plan_saying("never in force")
)
TARGETS = [
    Target(target_key(number, host), number, host, wave=1, operation=7, state=TargetState.DONE)
    for number in (1, 2, 3, 4)
    for host in ("h1", "h0")
]


@pytest.fixture
def filled(store: Store) -> Store:
    """A store in which four maintenances were written, two of them ended."""
    store.commit(
        Changes(
            last_number=7,
            maintenances={each.number: each for each in MAINTENANCES},
            plans={each.id: each for each in (*PLANS, CHILD)},
            targets={each.key: each for each in TARGETS},
        )
    )
    return store


def test_only_live_maintenances_are_loaded(filled: Store) -> None:
    """Ended ones with their plans and hosts cost no start anything. Source: F-1, L-7."""
    state = filled.load()
    assert sorted(state.maintenances) == [*LIVE]
    assert sorted(state.plans) == [f"{number:016}" for number in LIVE]
    assert {each.maintenance for each in state.targets.values()} == {*LIVE}


def test_ended_maintenance_stays_readable(filled: Store) -> None:
    """It, its plans, also one that was replaced, and its hosts by name. Source: F-1, F-2."""
    reader = filled.maintenances
    assert [reader.get(number) for number in (1, 2, 3, 4)] == MAINTENANCES
    assert [reader.plan(each.id) for each in (*PLANS, CHILD)] == [*PLANS, CHILD]
    for number in (1, 2):
        assert [(each.host, each.state) for each in reader.work(number)] == [
            ("h0", HostState.DONE),
            ("h1", HostState.DONE),
        ]
        assert reader.counts(number) == {HostState.DONE: 2}
    assert (reader.get(9), reader.plan("9" * 16), reader.work(9)) == (None, None, [])


def test_hosts_of_a_cancelled_maintenance_stand_as_their_work_has_ended(filled: Store) -> None:
    """Work that ends after its maintenance is done or failed; withdrawn work is none. F-6."""
    states = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CANCELLED)
    ended = [replace(OPERATION, number=n, state=each) for n, each in enumerate(states, start=11)]
    working = [
        Target(target_key(3, f"w{each.number}"), 3, f"w{each.number}", 1, each.number)
        for each in ended
    ]
    filled.commit(
        Changes(
            last_number=13,
            operations={each.number: each for each in ended},
            targets={each.key: each for each in working},
        )
    )
    assert filled.maintenances.counts(3) == {HostState.DONE: 3, HostState.FAILED: 1}
    names = [(each.host, each.state.value) for each in filled.maintenances.work(3)]
    assert names[2:] == [("w11", "done"), ("w12", "failed")]


def test_host_whose_vms_returned_is_shown_with_its_own_work(filled: Store) -> None:
    """Its return ends it, and is listed neither as its work nor with its times. Source: F-1."""
    move = replace(OPERATION, number=21, maintenance=3, host="r", cause=Cause.LIVE_MIGRATION)
    back = replace(move, number=22, host="other", of_vm=True, destination="r")
    work = replace(move, number=23, cause=Cause.HOST_REBOOT, execution=Execution(started_ms=7))
    target = Target(target_key(3, "r"), 3, "r", 1, 22, TargetState.DONE, 9)
    operations = {each.number: each for each in (move, back, work)}
    filled.commit(Changes(last_number=23, operations=operations, targets={target.key: target}))
    [shown] = [each for each in filled.maintenances.work(3) if each.host == "r"]
    assert (shown.operation, shown.started_ms, shown.ended_ms) == (23, 7, 9)


@pytest.mark.parametrize(
    ("before", "limit", "expected"),
    [(0, 9, [4, 3, 2, 1]), (0, 2, [4, 3]), (3, 9, [2, 1]), (2, 1, [1]), (1, 9, [])],
)
def test_maintenances_are_paged_newest_first(
    filled: Store, before: int, limit: int, expected: list[int]
) -> None:
    """Pages follow one another by the last number of the one before. Source: F-1."""
    assert [each.number for each in filled.maintenances.page(before, limit)] == expected


def test_maintenances_begin_with_the_newest(
    filled: Store, address: str, opened: Callable[[str], Store]
) -> None:
    """Who names nothing gets the newest page, also after a restart. Source: F-1."""
    assert [each.number for each in filled.maintenances.page()] == [4, 3, 2, 1]
    filled.close()
    assert [each.number for each in opened(address).maintenances.page()] == [4, 3, 2, 1]
