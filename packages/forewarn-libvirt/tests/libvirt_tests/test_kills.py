"""libvirtd is killed while the driver works: a retry ends the work, and nothing is done twice.

With LIBVIRT_KILLS=300 and `-m nightly`, it kills more often than 20 times.
"""

import itertools
import os
import random

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import with_execution
from forewarn_drivers import Task
from forewarn_libvirt.config import LibvirtConfig
from forewarn_libvirt.driver import LibvirtDriver
from libvirt_tests.laboratory import WAIT_S, Laboratory
from libvirt_tests.test_driver import boots, carried_out, config, guest, home, task
from tests.waiting import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.netns]

__all__ = ["config", "guest"]
KILLS = int(os.environ.get("LIBVIRT_KILLS", "20"))
#: Progress is asked for up to so often before the kill: from the first step to the last.
LOOKS_MAX = 300
#: Retries until the work ends; one is enough where nothing else goes wrong.
RETRIES_MAX = 5


@pytest.mark.parametrize("seed", range(KILLS))
def test_work_ends_once_though_libvirtd_is_killed(
    lab: Laboratory, guest: str, config: LibvirtConfig, seed: int
) -> None:
    """A killed libvirtd fails the attempt at most; the next one finds what was done. R-2."""
    chance = random.Random(seed)
    cause = (Cause.REBOOT, Cause.LIVE_MIGRATION)[seed % 2]
    given, before = task(lab, cause), boots(lab)
    driver = LibvirtDriver(config)
    driver.begin(given)
    looks, last = itertools.count(), chance.randrange(LOOKS_MAX)
    wait_until(lambda: driver.progress(given, 0).done or next(looks) >= last, what="the moment")
    victim = chance.choice(sorted(lab.hosts))
    lab.kill_libvirtd(victim)
    lab.start_libvirtd(victim)
    ended = carried_out(driver, given)
    for attempt in range(2, RETRIES_MAX):
        if ended.done:
            break
        given = Task(with_execution(given.operation, attempt=attempt))
        ended = carried_out(driver, given)
    assert ended.done, ended
    wanted = before + (cause is Cause.REBOOT)
    wait_until(lambda: boots(lab) >= wanted, what="its boot", limit_s=WAIT_S)
    assert boots(lab) == wanted
    assert (home(lab) == given.operation.host) == (cause is Cause.REBOOT)
    listed = [each for each in lab.hosts.values() if guest in each.run("virsh", "list", "--name")]
    assert len(listed) == 1
