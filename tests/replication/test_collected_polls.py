"""Polls that wait for a report."""

from forewarn_metadata.replication.collected_polls import CollectedPolls
from forewarn_metadata.replication.messages import POLLED_MAX, PollReport, VmPoll
from tests.metadata.feeds import run


def poll(vm: str) -> VmPoll:
    """Return a VM's poll."""
    return VmPoll(vm, "agent", 0)


def test_polls_that_could_not_be_reported_replace_no_newer_ones() -> None:
    """Of a group the last poll counts, and a report that failed is repeated. Source: F-5."""

    async def story() -> None:
        polls = CollectedPolls(3)
        polls.add(PollReport({"web": 60_000, "db": 60_000}, (poll("web_0"), poll("web_1"))))
        taken = polls.take()
        assert not polls
        polls.add(PollReport({"web": 0}, (poll("web_2"), poll("web_3"))))
        polls.put_back(taken)
        [report] = polls.reports()
        assert report.groups["web"] < 60_000 <= report.groups["db"]
        assert [each.vm for each in report.vms] == ["web_0", "web_1", "web_2"]

    run(story())


def test_many_polls_are_several_reports() -> None:
    """No report exceeds its limit, and none is left out."""

    async def story() -> None:
        polls = CollectedPolls(0)
        polls.add(PollReport({f"g{number}": 0 for number in range(POLLED_MAX + 1)}))
        assert [len(each.groups) for each in polls.reports()] == [POLLED_MAX, 1]

    run(story())
