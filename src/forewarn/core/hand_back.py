"""When declared work may begin on a host: at its hand-back deadline. Source: T-3."""

from __future__ import annotations

from forewarn.core.maintenance import Maintenance
from forewarn.core.state import State

#: What declared work waits for while its owners have not chosen.
DEADLINE = "the hand-back deadline"


def hand_back_of(state: State, maintenance: Maintenance, host: str) -> tuple[int, str]:
    """Return the earliest start of declared work on a host, and what that time is.

    In ms since the epoch UTC; 0: any time, since nobody is disturbed or the work is not declared.
    """
    declaration = maintenance.declaration
    if declaration is None or not state.topology.vms_on(host):
        return 0, ""
    return declaration.deadline_ms, DEADLINE


def hand_backs_of(state: State, maintenance: Maintenance) -> tuple[tuple[str, int, str], ...]:
    """Return the hosts of declared work, each with its earliest start and what that time is."""
    if maintenance.declaration is None:
        return ()
    every = ((host, *hand_back_of(state, maintenance, host)) for host in maintenance.hosts)
    return tuple([each for each in every if each[1]])
