"""The laboratory: guests run, move alive and end politely, without hardware virtualisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.libvirt.guest_image import poller_image
from tests.libvirt.laboratory import WAIT_S, Guest
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.libvirt.laboratory import Laboratory

pytestmark = [pytest.mark.slow, pytest.mark.netns]


def test_guest_moves_alive_and_shuts_down(lab: Laboratory, tmp_path: Path) -> None:
    """What the driver is tested with is real: memory goes along, and a power button is obeyed."""
    h1, h2 = lab.hosts.values()
    lab.define("h1", Guest("a1", 11, poller_image(tmp_path)))
    wait_until(lambda: polls(lab) > 1, what="the guest to poll", limit_s=WAIT_S)
    h1.run(
        "virsh",
        "migrate",
        "--live",
        "--unsafe",
        "--p2p",
        "--persistent",
        "--undefinesource",
        "a1",
        h2.uri,
    )
    before = polls(lab)
    wait_until(lambda: polls(lab) > before, what="the guest to poll on", limit_s=WAIT_S)
    assert sum(" up " in line for line in lab.console("a1")) == 1
    h2.run("virsh", "shutdown", "a1")
    wait_until(
        lambda: "shut off" in h2.run("virsh", "domstate", "a1"), what="its end", limit_s=WAIT_S
    )


def polls(lab: Laboratory) -> int:
    """How often the guest has asked."""
    return sum(" poll " in line for line in lab.console("a1"))
