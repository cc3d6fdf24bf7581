"""`forewarn maintenance plan` for people: the calendar, the groups, and 80 columns."""

from forewarn_base.protocol import timestamps
from forewarn_cli.plan_preview import (
    CHARTED_MAX,
    DAYS_MAX,
    GROUPS_MAX,
    WIDTH,
    calendar_lines,
    chart_lines,
    group_lines,
)
from tests.api.live import Live
from tests.cli.conftest import Run


def wave(number: int, starts: str, ends: str) -> dict[str, object]:
    """A wave as the API tells it."""
    return {"number": number, "earliest_start": starts, "latest_end": ends}


def test_calendar_shows_waves_in_their_half_hours() -> None:
    """Each wave is its digit from its start to its end; days between without work are counted."""
    lines = list(
        calendar_lines(
            [
                wave(1, "2028-02-28T23:30:00Z", "2028-02-29T00:30:00Z"),
                wave(2, "2028-02-29T00:40:00Z", "2028-02-29T01:00:00Z"),
                wave(3, "2028-02-29T00:50:00Z", "2028-02-29T02:00:00Z"),
                wave(12, "2028-03-04T12:00:00Z", "2028-03-04T12:10:00Z"),
            ]
        )
    )
    assert lines == [
        "UTC             00    03    06    09    12    15    18    21",
        f"Mon 2028-02-28  {'.' * 47}1",
        f"Tue 2028-02-29  1*33{'.' * 44}",
        f"{'':<15} (3 days without work)",
        f"Sat 2028-03-04  {'.' * 24}2{'.' * 23}",
    ]
    assert all(len(line) <= WIDTH for line in lines)


def test_calendar_of_a_long_maintenance_is_cut() -> None:
    """A wave that may start for a year draws its first days, and says that there are more."""
    lines = list(calendar_lines([wave(1, "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z")]))
    assert len(lines) == DAYS_MAX + 2
    assert lines[-1].strip() == "and further days"
    assert list(calendar_lines([])) == []


def charted(number: int, state: str, start: str, end: str) -> dict[str, object]:
    """A wave with its times, as `maintenance show` gets it."""
    wave = {"number": number, "state": state, "started": None, "ended": None}
    return {**wave, "latest_start": start, "latest_end": end}


def test_chart_shows_what_is_done_and_to_come() -> None:
    """Each wave is a bar in its time, drawn by its state; a line marks now."""
    waves = [
        charted(1, "done", "2028-02-28T00:00:00Z", "2028-02-28T01:00:00Z"),
        charted(2, "running", "2028-02-28T01:00:00Z", "2028-02-28T02:00:00Z"),
        charted(3, "planned", "2028-02-28T03:00:00Z", "2028-02-28T04:00:00Z"),
    ]
    lines = list(chart_lines(waves, timestamps.parse("2028-02-28T01:30:00Z")))
    bar = [line[17:] for line in lines[1:]]
    assert bar[0] == f"{'█' * 14}{' ' * 7}┊"
    assert bar[1] == f"{' ' * 14}{'▓' * 14}"
    assert bar[2] == f"{' ' * 21}┊{' ' * 20}{'░' * 14}"
    assert "Mon 28 00:00" in lines[0]
    assert all(len(line) <= WIDTH for line in lines)


def test_chart_of_many_waves_begins_near_the_first_unfinished_one() -> None:
    """What is over is left out; waves without times are not drawn."""
    times = "2028-02-28T00:00:00Z", "2028-02-28T01:00:00Z"
    waves = [charted(n, "done" if n < 50 else "planned", *times) for n in range(1, 100)]
    lines = list(chart_lines(waves, 0))
    assert lines[1].split()[0] == "48"
    assert lines[-1] == f"{CHARTED_MAX} of 99 waves"
    assert list(chart_lines([{**waves[0], "latest_start": None}], 0)) == []


def test_groups_are_told_the_worst_first() -> None:
    """This many groups are named, the others counted with what each keeps."""
    group = {
        "owner": "",
        "vms": 7,
        "up_before": 7,
        "waves": 2,
        "first_notice": "2028-02-28T23:30:00Z",
    }
    groups = [{**group, "group": f"g{n}" * 20, "up_least": 6} for n in range(GROUPS_MAX + 2)]
    lines = list(group_lines(groups))
    assert len(lines) == GROUPS_MAX + 2
    assert "100%" in lines[1]
    assert " 85%" in lines[1]
    assert lines[-1] == "and 2 more groups, each at least 85% available"
    assert all(len(line) <= WIDTH for line in lines)


def test_plan_is_shown_for_people_and_for_programs(run: Run, live: Live) -> None:
    """Waves, calendar, groups and blockers; `--json` has the same. Source: F-2."""
    hosts = {f"t{n}": {"fault_domain": n} for n in range(3)}
    vms = {f"till-{n}": {"host": f"t{n}", "group": "till"} for n in range(3)}
    live.fleet(hosts=hosts, groups={"till": {"owner": "shop"}}, vms=vms)
    words = ("maintenance", "plan", "t0", "t1", "t2")
    shown = run(*words)
    assert "3 hosts in 3 waves" in shown.err
    assert "UTC             00    03" in shown.out
    [line] = [line for line in shown.out.splitlines() if line.startswith("till ")]
    assert line.split()[1:5] == ["3", "100%", "66%", "3"]
    [group] = run(*words, "--json").json["groups"]
    assert (group["owner"], group["vms"], group["up_before"], group["up_least"]) == (
        "shop",
        3,
        3,
        2,
    )


def test_outlook_counts_what_is_disturbed_already(run: Run, live: Live) -> None:
    """A host that has failed is down before and during the work. Source: F-2."""
    hosts = {f"t{n}": {"fault_domain": n % 2} for n in range(3)}
    vms = {f"till-{n}": {"host": f"t{n}", "group": "till"} for n in range(3)}
    live.fleet(hosts=hosts, groups={"till": {}}, vms=vms)
    live.post("/v1/hosts/t2/fail")
    [group] = run("maintenance", "plan", "t0", "--json").json["groups"]
    assert (group["up_before"], group["up_least"]) == (2, 1)
