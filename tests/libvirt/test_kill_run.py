"""Two rounds of the run that kills every part of a private cloud; `make kill-libvirt` plays 300."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.libvirt import film, laboratory
from tests.libvirt.kill_run import KillRun

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nightly, pytest.mark.netns]

#: The control plane dies while it moves a guest alive, then a node while a guest is redeployed.
SEED, ROUNDS = 585, 2


def test_nothing_is_lost_or_done_twice_whoever_is_killed(tmp_path: Path) -> None:
    """Operations end once, approvals count, no incarnation goes back. Source: R-2, M-3, L-7."""
    said = laboratory.missing()
    if said:
        pytest.skip(said)
    film.in_laboratory(tmp_path, lambda lab: KillRun(lab, print, SEED).play(ROUNDS))
