"""The phases of a maintenance: no move but those of the table. Source: F-1."""

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.lifecycle import IllegalMove
from forewarn_core.fleet.maintenance import (
    PHASE_MOVES,
    Announcing,
    Checking,
    Due,
    Halted,
    Phase,
    Planning,
    Working,
    move_phase,
)
from tests.core.maintenance import fleet

PHASES: tuple[Phase, ...] = (
    Planning(),
    Due(1, 2),
    Announcing(1, 2),
    Working(1),
    Checking("errors"),
    Halted(),
)


@pytest.mark.parametrize("after", PHASES, ids=repr)
@pytest.mark.parametrize("before", PHASES, ids=repr)
def test_phase_moves_by_its_table_alone(before: Phase, after: Phase) -> None:
    """A wave is announced only once it is due; what is halted may be taken up, never announced."""
    rig = fleet()
    maintenance = replace(rig.maintenance(rig.create("h0")), phase=before)
    if (type(before), type(after)) in PHASE_MOVES:
        assert move_phase(maintenance, after).phase == after
    else:
        with pytest.raises(IllegalMove, match=f"is {type(before).__name__}: it cannot become"):
            move_phase(maintenance, after)
