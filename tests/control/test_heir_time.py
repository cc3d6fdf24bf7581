"""A process on another machine, whose clock is wrong, goes on by the writer's time. Source: H-6."""

import time
from collections.abc import Iterator

import pytest

from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import ChangeTopology, Enable, RequestMaintenance
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.timekeeping import Timekeeping
from forewarn_store import Store, open_store
from forewarn_store.lease import Tenure

pytestmark = pytest.mark.postgres
FLEET = ChangeTopology((Host("h1"),), (Group("web"),), (Vm("web_0", "h1", "web"),))


@pytest.fixture
def stores(postgres_address: str) -> Iterator[tuple[Store, Store]]:
    """The stores of the writer and of its heir, on one database."""
    writer, heir = open_store(postgres_address), open_store(postgres_address)
    yield writer, heir
    writer.close()
    heir.close()


def clock_of(machine: str, ahead_s: float) -> SystemClock:
    """Return the clock of a machine, which is wrong by so much."""
    return SystemClock(lambda: time.time_ns() + int(ahead_s * 1e9), boot_id=lambda: machine)


def taken_up(store: Store, clock: SystemClock) -> ControlPlane:
    """Return a control plane that goes by a clock, as at a takeover."""
    plane = ControlPlane(store, NoticePolicy(), lambda: Ids().guid("event"))
    Timekeeping(clock, plane).take_up()
    return plane


@pytest.mark.parametrize("writer_s", [0, 20, -3600])
@pytest.mark.parametrize("heir_s", [20, -20, 3600, -3600])
def test_takeover_shortens_no_notice_by_a_wrong_clock(
    stores: tuple[Store, Store], writer_s: float, heir_s: float
) -> None:
    """Nor does it lengthen one by more than a second. Source: H-6, N-4."""
    clock, heir_clock = clock_of("one", writer_s), clock_of("two", heir_s)
    plane = taken_up(stores[0], clock)
    reboot = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h1",))
    for stimulus in (FLEET, Enable("web"), reboot):
        plane.commit(stimulus, actor="test", now_ms=clock.now_ms())
    stores[0].compare_clocks(clock.now_ms)
    assert Tenure(stores[0], 5000).attempt(0)
    taken_up(stores[1], heir_clock)
    late_ms = clock.now_ms() - heir_clock.now_ms()
    assert late_ms + 50 >= 0
    assert late_ms < 1000


def test_clock_that_differs_from_the_database_is_reported(
    stores: tuple[Store, Store], caplog: pytest.LogCaptureFixture
) -> None:
    """Once, however often the lease is renewed. Source: H-6."""
    stores[0].compare_clocks(clock_of("one", 7).now_ms)
    tenure = Tenure(stores[0], 5000)
    assert tenure.attempt(0)
    assert tenure.attempt(1)
    told = [each for each in caplog.records if getattr(each, "action", "") == "clock.off"]
    assert len(told) == 1
    assert "differs from the database's by" in told[0].getMessage()
