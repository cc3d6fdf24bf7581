"""Reading scenario files: what may stand there, and what is said of the rest."""

import pytest

from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_emulator.scenario import (
    Approval,
    Maintain,
    Pause,
    Remark,
    Repairing,
    RequestedWork,
    Resumption,
    Until,
    Wait,
)
from forewarn_emulator.scenario_files import (
    ScenarioInvalid,
    ScenarioUnknown,
    find_scenario,
    read_scenario,
    shipped,
    shipped_text,
)

WHOLE = """
title = "All there is"
about = "Everything a file may say."

[hosts.h2]
fault_domain = 1

[groups."$group"]
terminate_notice = "PT5M"

[vms.v2]
host = "h2"
group = "$group"

[[steps]]
at = "1m"
do = "host-update"
on = "$host"
as = "update"
impact = "Reboot"
source = "Platform"
description = "Now."
duration = "unknown"
notice = "20m"
to = "h2"

[[steps]]
after = "PT10S"
do = "reboot"
on = ["v2", "$vm"]
as = "restarts"
duration = 30
times = 3
every = "5s"
jitter = "2s"

[[steps]]
wait = "started"
for = "update"
within = "1h30m"

[[steps]]
approve = "restarts"
by = "v2"
only = ["v2"]

[[steps]]
cancel = "update"
reason = "why not"

[[steps]]
complete = "restarts"
failed = true

[[steps]]
repair = "$host"

[[steps]]
maintain = ["h2", "$host"]
as = "rolling"
cause = "host-update"
duration = "10m"
reason = "new kernel"
canary = "h2"
max_at_once = 2
max_failures = 1

[[steps]]
resume = "rolling"

[[steps]]
say = "so far"

[[steps]]
after = "5s"
"""


def test_file_says_all_there_is() -> None:
    """Every member that may stand in a file is read."""
    scenario = read_scenario("whole", WHOLE)
    acts = [step.act for step in scenario.steps]
    assert (scenario.steps[0].at_ms, scenario.steps[1].after_ms) == (60_000, 10_000)
    assert acts[0] == RequestedWork(
        cause=Cause.HOST_UPDATE,
        on=("$host",),
        label="update",
        impact=Impact.REBOOT,
        source=Source.PLATFORM,
        description="Now.",
        duration_s=-1,
        notice_ms=1_200_000,
        destination="h2",
    )
    second = acts[1]
    assert isinstance(second, RequestedWork)
    assert (second.times, second.every_ms, second.jitter_ms) == (3, 5000, 2000)
    assert second.duration_s == 30
    assert acts[2] == Wait(Until.STARTED, "update", 5_400_000)
    assert acts[3] == Approval("restarts", ("v2",), ("v2",))
    assert acts[6] == Repairing(("$host",))
    assert acts[7] == Maintain(
        hosts=("h2", "$host"),
        cause=Cause.HOST_UPDATE,
        duration_s=600,
        label="rolling",
        reason="new kernel",
        canary=("h2",),
        max_at_once=2,
        max_failures=1,
    )
    assert acts[8:] == [Resumption("rolling"), Remark("so far"), Pause()]
    assert scenario.machines.hosts == {"h2": {"fault_domain": 1}}


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenario_introduces_itself(name: str) -> None:
    """Each has a title, says what to expect, and ends by itself."""
    scenario = find_scenario(name)
    assert scenario.title[0].isupper()
    assert scenario.about
    assert len(scenario.title) < 80
    assert any(isinstance(step.act, Wait) for step in scenario.steps)
    assert shipped_text(name).startswith("title = ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the scenario has no [[steps]]"),
        ("steps = 3", "must be a list of tables"),
        ("nonsense = 1\n[[steps]]\nsay = 'x'", "unknown member 'nonsense'"),
        ("[[steps]]\nsay = 3", "must be a string"),
        ("[[steps]]\nnonsense = 1\nafter = '1s'", "unknown member 'nonsense'"),
        ("[[steps]]\n", "has no action"),
        ("[[steps]]\ndo = 'earthquake'\non = 'x'", "earthquake"),
        ("[[steps]]\ndo = 'reboot'", "on has 0 members"),
        ("[[steps]]\ndo = 'reboot'\non = []", "on has 0 members"),
        ("[[steps]]\ndo = 'reboot'\non = 'x'\nsay = 'y'", "make two steps of them"),
        (
            "[[steps]]\ndo = 'reboot'\non = 'x'\ntimes = 0",
            "must be an integer from 1 to 1000, not 0",
        ),
        ("[[steps]]\ndo = 'reboot'\non = 'x'\ntimes = true", "must be an integer"),
        ("[[steps]]\ndo = 'rebot'\non = 'x'", "must be one of live-migration, "),
        ("[[steps]]\ndo = 'reboot'\non = 'x'\nduration = 'long'", "duration"),
        ("[[steps]]\nat = '1s'\nafter = '1s'", "both 'at' and 'after'"),
        ("[[steps]]\nwait = 'ended'\nfor = 'nobody'", "an earlier step"),
        ("[[steps]]\nwait = 'over'\nfor = 'nobody'", "over"),
        (
            "[[steps]]\ndo='reboot'\non='x'\nas='a'\n[[steps]]\ncomplete='a'\nfailed='no'",
            "failed must be true or false",
        ),
        (
            "[[steps]]\ndo='reboot'\non='x'\nas='a'\n[[steps]]\ndo='reboot'\non='y'\nas='a'",
            "the label of two steps",
        ),
        ("hosts = 3\n[[steps]]\nsay = 'x'", "must be a table of tables"),
        ("policy = 3\n[[steps]]\nsay = 'x'", "written as [policy]"),
        ("[policy]\npauses = '1m'\n[[steps]]\nsay = 'x'", "unknown member 'pauses'"),
        ("[policy.windows.w]\nfrom = '+x'\n[[steps]]\nsay = 'x'", "windows.w.from"),
        (
            "[policy.windows.w]\nfrom='+1m'\ntime_zone='Asia/Tokyo'\n[[steps]]\nsay='x'",
            "must be omitted, because relative times are in UTC",
        ),
        ("[[steps]]\nmaintain = 'x'\ncause = 'reboot-it'", "cause must be one of"),
        ("[[steps]]\ndo='reboot'\non='x'\nas='a'\n[[steps]]\nresume='a'", "a `maintain` step"),
        (
            "[[steps]]\ndo='reboot'\non='x'\nas='a'\n[[steps]]\nwait='stopped'\nfor='a'",
            "the label of a `maintain` step",
        ),
        ("title = 'never closed", "end of document"),
        ("x" * 300_000, "longer than"),
    ],
)
def test_strange_file_is_refused_with_the_reason(text: str, problem: str) -> None:
    """What cannot be read is refused whole, and the sentence says where it is wrong."""
    with pytest.raises(ScenarioInvalid, match="strange") as refused:
        read_scenario("strange", text)
    assert problem in str(refused.value)


def test_name_of_nothing_is_unknown() -> None:
    """A name that is neither shipped nor a file is unknown."""
    for name in ("no-such", "/nowhere/no-such.toml", "../scenarios/storm", ""):
        with pytest.raises(ScenarioUnknown):
            find_scenario(name)
    with pytest.raises(ScenarioUnknown):
        shipped_text("../storm")
