"""The states of the service: the table, and what each comes from."""

import itertools

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.stimulus import ChangeTopology, Enable, RequestMaintenance
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_server.control.inbox import Stopping
from forewarn_server.control.service_state import MOVES, ServiceState, ServiceStatus
from forewarn_store.errors import StoreUnavailable
from tests.control.rig import Running, refuses
from tests.waiting import LIMIT_S

S = ServiceState
#: The shortest way into each state.
WAYS = {
    S.SETTLING: (),
    S.READY: (S.READY,),
    S.UNCERTAIN: (S.UNCERTAIN,),
    S.SUPERSEDED: (S.SUPERSEDED,),
    S.STOPPING: (S.STOPPING,),
}


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(S, 2)])
def test_state_moves_only_as_the_table_says(before: ServiceState, after: ServiceState) -> None:
    """An illegal move is a bug and changes nothing; what has ended stays so. Source: L-7."""
    status = ServiceStatus()
    for step in WAYS[before]:
        status.become(step)
    if after in MOVES[before]:
        assert status.become(after)
        assert status.state is after
    elif MOVES[before]:
        with pytest.raises(AssertionError):
            status.become(after)
        assert status.state is before
    else:
        assert not status.become(after)
        assert status.state is before


def test_service_whose_store_takes_nothing_is_uncertain_until_it_does() -> None:
    """It decides nothing meanwhile, and says so. Source: L-7."""
    running = Running()
    commit = running.store.commit

    def refuse(changes: Changes) -> int:
        raise StoreUnavailable(place="here", reason="it is away")

    running.publisher.late = True
    running.announce()  # and was never shown, so that it must be written at the next start
    running.loop.stop()
    running.store.commit = refuse  # type: ignore[method-assign]
    running.start()
    states = [running.loop.state]
    with pytest.raises(StoreUnavailable):
        running.ask(Enable("g"))
    running.store.commit = commit  # type: ignore[method-assign]
    running.pass_time()
    states.append(running.loop.state)
    running.loop.stop()
    assert [*states, running.loop.state] == [S.UNCERTAIN, S.READY, S.STOPPING]
    with pytest.raises(Stopping):
        running.loop.submit(Enable("g"), "test").result(LIMIT_S)
    running.store.close()


def test_service_that_decides_nothing_shows_no_new_notice() -> None:
    """One that nobody has seen is given again first; what was seen, or has begun, stays. L-7."""
    running = Running()
    for name in ("2", "3"):
        vm = Vm(f"v{name}", f"h{name}", f"g{name}")
        running.ask(ChangeTopology((Host(vm.host),), (Group(vm.group),), (vm,)))
        running.ask(Enable(vm.group))
    running.announce()
    running.ask(RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h3",)))
    running.settle()
    running.publisher.late = True
    running.ask(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h2",)))
    running.loop.stop()
    with pytest.MonkeyPatch.context() as patch:
        away = StoreUnavailable(place="here", reason="it is away")
        patch.setattr(running.store, "commit", refuses(away))
        running.start()
    publications = running.publisher.changes[-1].publications
    shown = {each.view: len(each.document.events) for each in publications}
    running.loop.stop()
    running.store.close()
    assert shown == {"g": 1, "g3": 1}
