"""Enabling in the emulator: from the start, or as the real service does it; and who comes back.

The rules of enabling themselves are tested with the core.
"""

import socket
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from emulator_tests.conftest import Stage
from forewarn_core.fleet.refusals import Unknown
from forewarn_emulator.options import METADATA
from forewarn_server.cli.api_client import ApiRefused
from tests.waiting import LIMIT_S

#: The usual VM, as one that may be evicted.
SPOT = {"host": "host-1", "group": "group-1", "spot": True}


def test_groups_are_enabled_from_the_start(stage: Stage) -> None:
    """The very first thing a VM asks may already show an event. Source: B-4."""
    stage.run("host-reboot")
    assert stage.sees() == ["Reboot Scheduled vm-1 Platform 300"]


def test_group_that_comes_later_is_enabled_too(stage: Stage) -> None:
    """A group added by an operator is enabled before its first request. Source: B-4."""
    stage.api.put("/v1/groups/late", {})
    stage.api.put("/v1/vms/late-1", {"host": "host-1", "group": "late"})
    stage.api.post("/v1/vms/late-1/reboot")
    assert stage.sees("late-1") == ["Reboot Scheduled late-1 User -1"]


def test_silence_does_not_disable_a_group(stage: Stage) -> None:
    """Moving the clock a week ahead is not silence of a week. Source: B-2, B-4."""
    stage.run("host-reboot")
    stage.advance("7d")
    assert stage.api.get("/v1/groups/group-1")["polled"] is None, "no VM has polled"
    assert stage.emulator.document().incarnation == 3


def test_flag_gives_the_real_behaviour(staged: Callable[..., Stage]) -> None:
    """Nobody asked yet, so nobody is waited for; after the first GET they are. Source: B-1, B-3."""
    stage = staged(enable_on_first_request=True)
    stage.api.post("/v1/vms/vm-1/reboot")
    stage.advance("1s")
    assert stage.api.get("/v1/operations/op-1")["operation"]["state"] == "running"
    assert stage.sees() == ["Reboot Started vm-1 User -1"]
    stage.advance("5m")
    stage.api.post("/v1/vms/vm-1/reboot")
    assert stage.sees() == ["Reboot Scheduled vm-1 User -1"]


def test_flag_disables_after_a_silent_day(staged: Callable[..., Stage]) -> None:
    """A day without a request begins the incarnation again. Source: B-2."""
    stage = staged(enable_on_first_request=True)
    assert stage.emulator.document().incarnation == 0
    stage.run("user-reboot")
    stage.advance("20m")
    assert stage.emulator.document().incarnation == 3
    stage.advance("25h")
    assert stage.emulator.document().incarnation == 0


def test_day_of_silence_counts_from_the_last_poll(staged: Callable[..., Stage]) -> None:
    """Also if the clock moves right after the poll, before it is reported. Source: B-2."""
    stage = staged(enable_on_first_request=True)
    stage.sees()
    stage.run("user-reboot")
    stage.advance("20m")
    for _ in range(3):
        assert stage.emulator.document().incarnation == 3
        stage.advance("23h")
    assert stage.emulator.document().incarnation == 3
    stage.advance("24h2m")
    assert stage.emulator.document().incarnation == 0


def test_first_answer_is_held_with_a_delay(staged: Callable[..., Stage]) -> None:
    """With a delay the first answer is held, not refused. Source: B-1, B-4."""
    stage = staged(enable_on_first_request=True, metadata=replace(METADATA, enable_delay_s=0.3))
    split = urlsplit(stage.emulator.url)
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    ask = f"GET {path} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\nConnection: close\r\n\r\n"
    address = (split.hostname or "", split.port or 0)
    with socket.create_connection(address, timeout=LIMIT_S) as first:
        first.sendall(ask.encode())
        assert first.makefile("rb").read().endswith(b'{"DocumentIncarnation":0,"Events":[]}')


def test_evicted_vm_comes_back_after_a_minute(stage: Stage) -> None:
    """The emulator stays usable: what an eviction took is given back. Source: D-4, S-6."""
    stage.api.put("/v1/vms/vm-1", SPOT)
    stage.api.post("/v1/vms/vm-1/evict", {"duration": "5s"})
    stage.advance("32s")
    stage.advance("5s")
    with pytest.raises(Unknown):
        stage.sees()
    stage.advance("60s")
    assert stage.sees() == []
    stage.run("host-reboot")
    assert stage.sees() == ["Reboot Scheduled vm-1 Platform 300"]


def test_scenario_does_not_wait_for_a_vm_that_is_away(stage: Stage) -> None:
    """A scenario run while its VM is away has it back at once."""
    stage.api.put("/v1/vms/vm-1", SPOT)
    stage.api.post("/v1/vms/vm-1/evict", {"duration": "5s"})
    stage.advance("40s")
    stage.run("host-reboot")
    assert stage.sees() == ["Reboot Scheduled vm-1 Platform 300"]


def test_removed_vm_stays_away(stage: Stage) -> None:
    """What an operator removes does not come back, and scenarios say so."""
    stage.api.delete("/v1/vms/vm-1")
    stage.advance("1h")
    with pytest.raises(Unknown):
        stage.sees()
    with pytest.raises(ApiRefused, match="does not exist"):
        stage.run("host-reboot")


def test_vm_whose_host_is_gone_does_not_come_back(stage: Stage) -> None:
    """A comeback that cannot be is left alone, and the emulator goes on."""
    stage.api.put("/v1/hosts/h9", {})
    stage.api.put("/v1/vms/v9", {"host": "h9", "group": "group-1", "spot": True})
    stage.api.post("/v1/vms/v9/evict", {"duration": "5s"})
    stage.advance("40s")
    stage.api.delete("/v1/hosts/h9")
    stage.advance("2m")
    assert [vm["name"] for vm in stage.api.get("/v1/vms")["vms"]] == ["vm-1"]
    assert stage.sees() == []
