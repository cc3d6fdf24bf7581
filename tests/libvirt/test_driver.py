"""The libvirt driver carries each impact out on real guests, once, also after a crash."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from forewarn.core.impact import TRAITS, Cause, Impact
from forewarn.core.lifecycle import Operation
from forewarn.drivers import Progress, Task
from forewarn.drivers.libvirt.config import HostConfig, LibvirtConfig
from forewarn.drivers.libvirt.driver import LibvirtDriver, TaskCalledOff, TaskUnknown
from tests.libvirt.guest_image import poller_image
from tests.libvirt.laboratory import WAIT_S, Guest
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.libvirt.laboratory import Laboratory

pytestmark = [pytest.mark.slow, pytest.mark.netns]

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def guest(lab: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A guest that runs on one of the hosts."""
    lab.define("h1", Guest("a1", 11, poller_image(tmp_path_factory.mktemp("image"))))
    wait_until(lambda: boots(lab) == 1, what="the guest to be up", limit_s=WAIT_S)
    return "a1"


@pytest.fixture
def config(lab: Laboratory, tmp_path: Path) -> LibvirtConfig:
    """What the driver is told of the laboratory."""
    hosts = {name: HostConfig(each.local_uri, each.uri) for name, each in lab.hosts.items()}
    return LibvirtConfig(
        hosts, directory=str(tmp_path), shutdown_timeout_s=20, storage_is_shared=True
    )


def boots(lab: Laboratory) -> int:
    """How often the guest has been up."""
    return sum(" up " in line for line in lab.console("a1"))


def home(lab: Laboratory) -> str:
    """The host on which the guest runs."""
    return next(
        name for name, node in lab.hosts.items() if "a1" in node.run("virsh", "list", "--name")
    )


def task(lab: Laboratory, cause: Cause, impact: Impact | None = None) -> Task:
    """An operation on the guest, or on its host."""
    traits = TRAITS[cause]
    number = next(NUMBERS)
    return Task(
        Operation(
            number=number,
            request=number,
            cause=cause,
            impact=impact or traits.impact,
            source=traits.source,
            routine=traits.routine,
            host=home(lab),
            vms=("a1",),
            of_vm=traits.target.value == "vm",
            description=traits.description,
            attempt=1,
        )
    )


def carried_out(driver: LibvirtDriver, given: Task) -> Progress:
    """Begin a task, and ask after it until it has ended."""
    driver.begin(given)
    driver.begin(given)
    said: list[Progress] = []

    def ended() -> bool:
        said.append(driver.progress(given, 0))
        return said[-1].done or bool(said[-1].failed)

    wait_until(ended, what="the task", limit_s=60)
    return said[-1]


def test_freeze_moves_the_guest_alive(lab: Laboratory, guest: str, config: LibvirtConfig) -> None:
    """A live migration keeps the guest's memory. Source: R-5, D-4."""
    given = task(lab, Cause.LIVE_MIGRATION)
    with pytest.raises(TaskUnknown):
        LibvirtDriver(config).progress(given, 0)
    said = carried_out(LibvirtDriver(config), given)
    assert home(lab) != given.operation.host
    assert said == Progress(done=True, placements={"a1": home(lab)})
    assert boots(lab) == 1


def test_ended_move_is_not_repeated_by_a_driver_that_starts_anew(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """What has been done is known at the hypervisor. Source: R-2."""
    given = task(lab, Cause.LIVE_MIGRATION)
    assert carried_out(LibvirtDriver(config), given).done
    there = home(lab)
    assert carried_out(LibvirtDriver(config), given).done
    assert home(lab) == there


def test_reboot_ends_one_run_and_begins_another_once(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """A guest is rebooted once, also if the driver forgets that it was. Source: R-2, R-5."""
    before, given = boots(lab), task(lab, Cause.REBOOT)
    assert carried_out(LibvirtDriver(config), given).done
    wait_until(lambda: boots(lab) == before + 1, what="its boot", limit_s=WAIT_S)
    assert carried_out(LibvirtDriver(config), given).done
    assert home(lab) == given.operation.host
    assert boots(lab) == before + 1


def test_redeploy_starts_the_guest_elsewhere(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """It is defined and runs on one host only. Source: R-5."""
    before, given = boots(lab), task(lab, Cause.REDEPLOY)
    assert carried_out(LibvirtDriver(config), given).done
    wait_until(lambda: boots(lab) == before + 1, what="its boot", limit_s=WAIT_S)
    there = [name for name, node in lab.hosts.items() if "a1" in node.run("virsh", "list", "--all")]
    assert there == [home(lab)] != [given.operation.host]


def test_update_suspends_and_resumes(lab: Laboratory, guest: str, config: LibvirtConfig) -> None:
    """A memory-preserving update runs its command between the two. Source: R-5."""
    given = task(lab, Cause.HOST_UPDATE)
    assert "update_command is not set" in carried_out(LibvirtDriver(config), given).failed
    node = lab.hosts[home(lab)]
    from forewarn.values import replace

    seen = node.directory / "state"
    look = ("sh", "-c", f"virsh -c '{node.local_uri}' domstate a1 >{seen}")
    updating = replace(config, update_command=look)
    assert carried_out(LibvirtDriver(updating), task(lab, Cause.HOST_UPDATE)).done
    assert seen.read_text().strip() == "paused"
    assert node.run("virsh", "domstate", "a1").strip() == "running"


def test_abort_of_a_migration_leaves_the_guest_where_it_was(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """An operation that ended without its driver moves nothing any more. Source: L-7, R-5."""
    from forewarn.values import replace

    given = task(lab, Cause.LIVE_MIGRATION)
    driver = LibvirtDriver(replace(config, migration_mib_s=1))
    driver.begin(given)
    node = lab.hosts[given.operation.host]
    wait_until(
        lambda: (
            "Unbounded" in node.run("virsh", "domjobinfo", "a1", check=False)
            or "remaining" in node.run("virsh", "domjobinfo", "a1", check=False)
        ),
        what="the migration to be under way",
        limit_s=WAIT_S,
    )
    driver.abort(given)
    assert home(lab) == given.operation.host
    assert node.run("virsh", "domstate", "a1").strip() == "running"
    with pytest.raises(TaskCalledOff):
        driver.begin(given)
    assert home(lab) == given.operation.host


def test_preempt_removes_the_guest(lab: Laboratory, guest: str, config: LibvirtConfig) -> None:
    """It is shut down and forgotten; a second time changes nothing. Source: R-5."""
    given = task(lab, Cause.EVICTION)
    assert carried_out(LibvirtDriver(config), given).done
    assert not [n for n in lab.hosts.values() if "a1" in n.run("virsh", "list", "--all")]
    assert carried_out(LibvirtDriver(config), given).done
