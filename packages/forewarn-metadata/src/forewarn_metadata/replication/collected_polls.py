"""Polls that a node, a worker or a follower collects for its next report. Source: B-2, B-5."""

from __future__ import annotations

import asyncio

from forewarn_metadata.replication.messages import POLLED_MAX, PollReport, VmPoll


class CollectedPolls:
    """Polls that no report has; of a group the last one. Use it on one event loop.

    Each poll has its time, so that a poll before a wave does not count after the wave. Source: F-5.
    """

    def __init__(self, vms_max: int) -> None:
        """Collect at most `vms_max` VMs' polls; further ones are dropped."""
        self._vms_max = vms_max
        #: Group -> time of its VMs' last poll, by the event loop's clock, in seconds.
        self._polled_s: dict[str, float] = {}
        self._vms: tuple[VmPoll, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._polled_s or self._vms)

    def add(self, report: PollReport) -> None:
        """Add polls, with their age now."""
        now_s = asyncio.get_running_loop().time()
        self._add({group: now_s - age_ms / 1000 for group, age_ms in report.groups.items()})
        self._vms = (self._vms + report.vms)[: self._vms_max]

    def take(self) -> CollectedPolls:
        """Return all polls, and begin without any."""
        polls = CollectedPolls(self._vms_max)
        polls._polled_s, self._polled_s = self._polled_s, {}
        polls._vms, self._vms = self._vms, ()
        return polls

    def put_back(self, polls: CollectedPolls) -> None:
        """Add polls again that could not be reported."""
        self._add(polls._polled_s)
        self._vms = (polls._vms + self._vms)[: self._vms_max]

    def reports(self) -> tuple[PollReport, ...]:
        """Return the polls with their age now, in reports of the largest size."""
        now_s = asyncio.get_running_loop().time()
        groups = [(each, int((now_s - at_s) * 1000)) for each, at_s in self._polled_s.items()]
        return tuple(
            PollReport(dict(groups[at : at + POLLED_MAX]), self._vms[at : at + POLLED_MAX])
            for at in range(0, max(len(groups), len(self._vms)), POLLED_MAX)
        )

    def _add(self, polled_s: dict[str, float]) -> None:
        for group, at_s in polled_s.items():
            self._polled_s[group] = max(self._polled_s.get(group, at_s), at_s)
