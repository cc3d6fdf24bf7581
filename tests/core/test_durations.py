"""What the core takes as samples, and the work that it announces with a learned duration."""

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.topology import Host
from forewarn_core.planning.durations import SAMPLES_MAX
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.blockers import code_of
from forewarn_core.rules.hand_back import Severity
from forewarn_core.rules.local_time import Window
from tests.core.maintenance import MaintenanceRig, fleet

LEARNING = MaintenancePolicy(duration_percentile=50, duration_label="model", duration_samples=2)
REBOOT = Cause.HOST_REBOOT


def modelled(policy: MaintenancePolicy = LEARNING) -> MaintenanceRig:
    """Six hosts: h0, h2 and h4 of model x, the others of model y."""
    rig = fleet(policy=NoticePolicy(maintenance=policy))
    hosts = tuple(Host(f"h{n}", n % 3, n, labels=(("model", "xy"[n % 2]),)) for n in range(6))
    rig.tell(words.ChangeTopology(hosts=hosts))
    return rig


def rebooted(rig: MaintenanceRig, host: str, minutes: int, cause: Cause = REBOOT) -> int:
    """Have work done that takes so long; return its number."""
    operation = rig.ask(cause, host)
    rig.approve(f"web_{host[1:]}", operation)
    rig.show()
    rig.now_ms += minutes * 60_000
    rig.finish(operation)
    return operation.number


def test_ended_work_is_a_sample_of_its_kind() -> None:
    """With the labels of its host, from its start to its end. Source: F-9."""
    rig = modelled()
    number = rebooted(rig, "h0", 7)
    [sample] = rig.state.samples_of(REBOOT)
    assert (sample.operation, sample.duration_s) == (number, 420)
    assert "model=x" in sample.labels
    assert rig.state.samples_of(Cause.HOST_UPDATE) == ()
    rig.check_replay()


def test_failed_work_is_no_sample() -> None:
    """Nor is work that a person ended, whose driver was not done. Source: F-9."""
    rig = modelled()
    failed, completed = rig.ask(REBOOT, "h0"), rig.ask(REBOOT, "h3")
    rig.approve("web_0", failed)
    rig.approve("web_3", completed)
    rig.show()
    rig.now_ms += 60_000
    rig.tell(words.Complete(failed.number, failed=True), words.Complete(completed.number))
    assert rig.state.samples_of(REBOOT) == ()


def test_step_that_is_undone_takes_no_sample() -> None:
    """Source: F-9, L-7."""
    rig = modelled()
    rebooted(rig, "h0", 7)
    before = rig.state.samples_of(REBOOT)
    operation = rig.ask(REBOOT, "h2")
    rig.approve("web_2", operation)
    rig.show()
    copy = rig.state.copy()
    ended = rig.now(operation)
    rig.now_ms += 60_000
    rig.finish(operation)
    copy.put(ended)
    copy.put(rig.operations[operation.number])
    assert copy.samples_of(REBOOT) == rig.state.samples_of(REBOOT) != before
    copy.rollback()
    assert copy.samples_of(REBOOT) == before


def test_last_samples_are_kept() -> None:
    """A bounded number of each kind, whatever a fleet does. Source: F-9."""
    rig = modelled()
    rebooted(rig, "h0", 1)
    [sample] = rig.state.samples_of(REBOOT)
    for number in range(1_000, 1_000 + 2 * SAMPLES_MAX):
        rig.state.durations[REBOOT][number] = replace(sample, operation=number)
    rig.state.keep()
    kept = rig.state.samples_of(REBOOT)
    assert len(kept) == len(rig.state.durations[REBOOT]) == SAMPLES_MAX
    assert kept[-1].operation == 1_000 + 2 * SAMPLES_MAX - 1


def test_work_is_announced_for_what_was_learned() -> None:
    """VMs read the learned duration; hosts without samples keep the request. Source: F-9, D-9."""
    rig = modelled()
    for host in ("h0", "h2"):
        rebooted(rig, host, 42)
    number = rig.start("h0", "h1")
    work = rig.working(number)
    durations = {host: each.duration_s for host, each in work.items()}
    assert durations in ({"h0": 2520}, {"h1": 600}, {"h0": 2520, "h1": 600})
    rig.run()
    done = {
        each.host: each.duration_s for each in rig.operations.values() if each.maintenance == number
    }
    assert done == {"h0": 2520, "h1": 600}
    rig.check_replay()


def test_declared_work_has_the_duration_that_was_asked_for() -> None:
    """Owners were told of it; earlier work of its kind changes no plan of it. Source: F-9."""
    rig = modelled()
    for host in ("h0", "h2"):
        rebooted(rig, host, 42)
    number = rig.create("h0", "h2")
    rig.tell(words.DeclareMaintenance(number, Severity.ROUTINE))
    learned = rig.state.plans[rig.state.maintenances[number].plan].body.learned
    assert learned == (), f"F-9: declared work is planned by {learned}"
    undeclared = rig.start("h0", "h2")
    assert rig.state.plans[rig.state.maintenances[undeclared].plan].body.learned


def test_why_names_figure_and_request() -> None:
    """A window that what was asked fits into is too short for what was learned. Source: F-9."""
    night = Window("night", from_min=60, to_min=90)
    rig = modelled()
    for host in ("h0", "h2"):
        rebooted(rig, host, 42)
    rig.tell(words.ApplyPolicy(replace(LEARNING, windows=(night,))))
    number = rig.create("h0", "h1")
    waits = rig.waits(number, "h0")
    assert waits.code is code_of("window-too-short")
    assert waits.text.endswith(
        "; its work took at most 42 min in 50 % of 2 earlier operations of its kind on hosts with "
        "model=x; 10 min was asked"
    )


def test_announced_work_keeps_its_duration() -> None:
    """Later samples change later plans, and no work that owners were told of. Source: F-9."""
    rig = modelled()
    for host in ("h0", "h2"):
        rebooted(rig, host, 20)
    number = rig.start("h2", "h4")
    [(first, work)] = rig.working(number).items()
    assert work.duration_s == 1200
    samples = rig.state.durations[REBOOT]
    for each in tuple(samples):
        samples[each] = replace(samples[each], duration_s=2520)
    rig.run()
    other = {"h2", "h4"} - {first}
    durations = {
        each.host: each.duration_s for each in rig.operations.values() if each.maintenance == number
    }
    assert durations[first] == 1200
    assert durations[other.pop()] > 1200
