"""What the store would not take and nobody waits for: reports in their order, and polls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.stimulus import GroupsPolled, Reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.core.stimulus import Stimulus


class KeptReports:
    """Reports to be committed once the store takes them; on the writer's thread only."""

    def __init__(self) -> None:
        """Begin with none."""
        self._reports: list[tuple[Stimulus, str]] = []
        #: Group -> when it last polled, ms since the epoch UTC: one for each group, however long
        #: the store takes nothing.
        self._polled_ms: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._reports or self._polled_ms)

    def keep(self, stimulus: Stimulus, actor: str, now_ms: int) -> None:
        """Keep a report; of a group's polls the last one counts."""
        if not isinstance(stimulus, GroupsPolled):
            self._reports.append((stimulus, actor))
            return
        at_ms = now_ms - stimulus.age_ms
        for group in stimulus.groups:
            self._polled_ms[group] = max(self._polled_ms.get(group, 0), at_ms)

    def take(self) -> list[tuple[Stimulus, str]]:
        """Return all reports but polls, in their order, and keep them no longer."""
        reports, self._reports = self._reports, []
        return reports

    def write_polls(self, commit: Callable[..., object], now_ms: int) -> bool:
        """Have the polls committed at once, each with its own time; what fails stays kept.

        Args:
            commit: is given a stimulus and its `actor`.
            now_ms: the service's time, ms since the epoch UTC.

        Returns:
            whether there were any.
        """
        if not self._polled_ms:
            return False
        groups: dict[int, set[str]] = {}
        for group, at_ms in self._polled_ms.items():
            groups.setdefault(max(now_ms - at_ms, 0), set()).add(group)
        polls = (GroupsPolled(frozenset(each), age_ms) for age_ms, each in groups.items())
        commit(Reports(tuple(polls)), actor="metadata")
        self._polled_ms.clear()
        return True
