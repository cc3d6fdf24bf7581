"""Libvirt hosts are emptied and refilled one after another, with real guests."""

import json
from pathlib import Path

import pytest

from libvirt_tests import film, laboratory
from libvirt_tests.guest_image import poller_image
from libvirt_tests.laboratory import Guest
from tests.waiting import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.netns]

#: Guests that a host has memory for, and the time limit of the maintenance in seconds.
GUESTS_MAX, LIMIT_S = 3, 240


def test_hosts_are_emptied_and_refilled(tmp_path: Path) -> None:
    """Each guest gets notice of both moves, stays on, and ends at home. Source: F-1, F-3, X-1."""
    if said := film.missing():
        pytest.skip(said)
    with laboratory.laboratory_in(tmp_path / "lab", ("h1", "h2", "h3")) as lab:
        image = poller_image(lab.directory)
        names = ("a", "b", "c", "d")
        guests = tuple(
            Guest(name, 21 + n, image, f"group-{name}", approves=True)
            for n, name in enumerate(names)
        )
        cloud = film.Film(lab, print, guests)
        with cloud.running():
            refilled(cloud, image.memory_mib)


def refilled(cloud: film.Film, guest_mib: int) -> None:
    """Have the full hosts maintained, and look at their guests all the time."""
    hosts, guests = cloud.lab.hosts, cloud.guests
    for host in hosts:
        memory = ("--memory-mib", str(GUESTS_MAX * guest_mib))
        cloud.forewarn("host", "add", host, *memory, "--replace")
    homes = {name: cloud.home(name) for name in guests}
    assert sorted(homes.values()) == ["h1", "h1", "h2", "h2"]
    moves = ("--move-vms", "2m", "--return-vms", "--duration", "1m")
    cloud.forewarn("maintenance", "create", "h1", "h2", *moves, "--start")  # h3 is empty
    crowds: list[int] = []

    def is_done() -> bool:
        for node in hosts.values():
            with cloud.power:
                crowds.append(len(node.run("virsh", "list", "--name", check=False).split()))
        return str(cloud.report("m-1")["maintenance"]["state"]) == "done"

    try:
        wait_until(is_done, what="the maintenance to end", limit_s=LIMIT_S)
    except AssertionError as error:
        show = cloud.forewarn("maintenance", "show", "m-1")
        raise AssertionError(f"{error}\n{show}\n{cloud.logs()}") from error
    print(cloud.forewarn("maintenance", "report", "m-1"))
    assert max(crowds) <= GUESTS_MAX
    assert {name: cloud.home(name) for name in guests} == homes
    operations = json.loads(cloud.forewarn("operation", "list", "--all", "--json"))["operations"]
    frozen = [vm for each in operations if each["cause"] == "live-migration" for vm in each["vms"]]
    assert sorted(frozen) == sorted([*guests, *guests])
    for name in guests:
        assert cloud.marks(name, " up ") == 1, cloud.logs()
        seen = {event for poll in cloud.polls(name) for event in poll.events}
        assert "Freeze Scheduled" in seen, cloud.logs()
    measured = [each["interruption_ms"] for each in cloud.report("m-1")["outcomes"]]
    assert len([each for each in measured if each]) >= len(guests), measured
