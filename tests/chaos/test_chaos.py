"""The short form of the fault campaign, and that its checker notices what must not be."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.__main__ import Gap, late, missing
from tests.chaos.checker import Begun, Evidence, begun_of, violations
from tests.chaos.clients import Record, Request, gap_ms
from tests.e2e.client_log import Approval, ClientLog, Read, Shown

ROOT = Path(__file__).resolve().parents[2]
SCHEDULED = {"E": Shown("Scheduled", 1_000_000, 900_000)}
STARTED = {"E": Shown("Started")}


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.netns
def test_a_few_faults_of_each_quick_kind_lose_nothing() -> None:
    """Three control planes, two nodes and a database, broken ten times. H-2, H-3, H-5, H-6."""
    if lacks := missing(("single",)):
        pytest.skip(lacks)
    words = [sys.executable, "-m", "tests.chaos", "--short", "--seed", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def operation() -> dict[str, Any]:
    """Return op-1 with one event, as the API shows them."""
    shown = {"id": "E", "operation": "op-1", "resources": ["web_0"], "approved_by": []}
    form = {"state": "succeeded", "cause": "host-reboot", "description": "key-1", "vms": ["web_0"]}
    return {"operation": form, "events": [shown]}


def evidence(
    *reads: Read, begun: tuple[Begun, ...] = (), approvals: tuple[Approval, ...] = ()
) -> Evidence:
    """Return what clients saw of op-1, which one of them asked for."""
    asked = Request("key-1", "/v1/operations", 0, 202, 1, ("op-1",))
    record = Record(ClientLog(list(reads), list(approvals)), [asked])
    return Evidence(record, begun, {"op-1": operation()})


SEEN = Read("web_0@c1", 100_000, 100_010, 1, SCHEDULED)
EMPTY = Read("web_0@c1", 99_000, 99_010, 0)
RUN = Begun("op-1", 1_000_000, ("web_0",), 1_001_000)


def test_sound_history_is_passed() -> None:
    """Announced, approved, begun once after it was seen."""
    approval = Approval("web_0@c1", "E", 100_020, 200)
    sound = evidence(EMPTY, SEEN, approvals=(approval,), begun=(RUN,))
    sound.operations["op-1"]["events"][0]["approved_by"] = ["web_0"]
    assert violations(sound) == []


def test_document_that_is_too_old_is_noticed() -> None:
    """Seven seconds after another VM of the group has read a newer one; a node may. H-3, M-2."""
    newer = Read("web_1@c2", 1, 2, 5)
    late = Read("web_0@c1", 7_000, 7_001, 4)
    assert violations(evidence(newer, late)) == ["web_0@c1 reads 4 after 5 was read"]
    node = replace(evidence(newer, late), may_be_old=frozenset({"c1"}))
    assert violations(node) == []


def test_work_begun_twice_early_or_unseen_is_noticed() -> None:
    """And not where an entry of history names the VM. R-2, N-1, H-7."""
    assert violations(evidence(SEEN, begun=(RUN, RUN)))[0] == "op-1 was begun 2 times"
    early = Begun("op-1", 900_000, ("web_0",), 901_000)
    assert "before the notice" in violations(evidence(EMPTY, SEEN, begun=(early,)))[0]
    blind = Read("web_0@n1", 1_000_100, 1_000_110, 0)
    assert "begun unseen by web_0" in violations(evidence(blind, begun=(RUN,)))[0]
    entry = {"action": "operation.not-shown", "operation": "op-1", "text": "VM web_0 may not know"}
    assert violations(replace(evidence(blind, begun=(RUN,)), history=(entry,))) == []


def test_notice_counts_from_no_answer_that_had_the_event() -> None:
    """The first answer of a new leader shows an event of its predecessor. N-1."""
    later = Read("web_0@c1", 103_000, 103_010, 1, SCHEDULED)
    begun = Begun("op-1", 998_500, ("web_0",), 999_500)
    assert violations(evidence(SEEN, later, begun=(begun,))) == []


def test_lost_approval_and_doubled_request_are_noticed() -> None:
    """An approval answered 200 counts; a key is done once. A-6, P-10."""
    approval = Approval("web_0@c1", "E", 100_020, 200)
    assert "that is lost" in violations(evidence(SEEN, approvals=(approval,)))[0]
    twice = replace(evidence(), operations={"op-1": operation(), "op-2": operation()})
    assert violations(twice)[0].startswith("key-1 was done 2 times")
    assert "there is []" in violations(replace(evidence(), operations={}))[0]


def test_lines_of_the_driver_are_read() -> None:
    """An end belongs to the last begin of its operation."""
    task = json.dumps({"operation": "op-1", "vms": ["web_0"]})
    assert begun_of([f"begin 1 {task}", f"end 5 {task}"]) == [Begun("op-1", 1, ("web_0",), 5)]


def test_gap_is_the_longest_time_without_an_answer() -> None:
    """Also where it began before the fault, or ended after it was looked for."""
    assert gap_ms([0, 100, 5000, 5100], 150, 5050) == 4900
    assert gap_ms([0, 100], 150, 950) == 850


def test_time_beyond_its_bound_is_noticed() -> None:
    """One in twenty may exceed it, none twice; a busy machine is not judged. H-2, H-3."""
    quick, slow = Gap(200, 300), Gap(1500, 300)
    assert late("stop", 1.0, [slow, *[quick] * 9]) == []
    assert "1.5, 1.5 s" in late("stop", 1.0, [slow, slow, *[quick] * 9])[0]
    assert "2.1 s" in late("stop", 1.0, [Gap(2100, 300), *[quick] * 99])[0]
    assert "no leader for 16.0 s" in late("stop", 1.0, [Gap(200, 16_000)])[0]
    assert late("stop", 1.0, [Gap(9000, 20_000, overloaded=True)]) == []


def test_only_what_a_database_has_lost_is_excused() -> None:
    """Lost requests and approvals are; work that began twice, and numbers that went back, not."""
    approval = Approval("web_0@c1", "E", 100_020, 200)
    of_lost = replace(evidence(SEEN, approvals=(approval,)), operations={}, lost_ms=((0, 200_000),))
    assert violations(of_lost) == []
    assert len(violations(replace(of_lost, lost_ms=((0, 50_000),)))) == 1
    twice = replace(of_lost, begun=(RUN, RUN), lost_ms=((0, 2_000_000),))
    assert violations(twice) == ["op-1 was begun 2 times"]
    older = Read("web_0@c1", 120_000, 120_010, 0)
    newer = Read("web_0@c1", 110_000, 110_010, 5)
    back = replace(evidence(newer, older), operations={}, lost_ms=((0, 200_000),))
    assert violations(back) == ["web_0@c1 reads 0 after 5 was read"]
