"""An owner's request for a later hand-back deadline of its VMs on a host. Source: T-4."""

from __future__ import annotations

from forewarn_base.values import Word, replace, value
from forewarn_core.fleet.lifecycle import IllegalMove


class DeferralState(Word):
    """The state of a request for a later hand-back deadline."""

    #: An operator decides.
    ASKED = "asked"
    GRANTED = "granted"
    REFUSED = "refused"
    #: Its owner no longer wants it.
    WITHDRAWN = "withdrawn"


@value
class Deferral:
    """One owner's request for its VMs on a host. Times are ms since the epoch UTC or None."""

    #: `12/h7/shop`: the maintenance's number, the host and the owner, as of a choice.
    key: str
    maintenance: int
    host: str
    owner: str
    asked_ms: int
    #: The principal who asked.
    asked_by: str
    #: The hand-back deadline that was asked for.
    until_ms: int
    #: The reason of the request, for people.
    reason: str = ""
    state: DeferralState = DeferralState.ASKED
    #: The hand-back deadline that was granted last; a later request that is refused leaves it.
    granted_ms: int | None = None
    #: When a request that nobody has decided is refused.
    decide_by_ms: int | None = None
    #: When and by whom it was answered, and the reason of the answer.
    answered_ms: int | None = None
    answered_by: str = ""
    answer: str = ""

    @property
    def deadline_ms(self) -> int | None:
        """When the request is refused by time alone, ms since the epoch UTC; None: never."""
        return self.decide_by_ms if self.state is DeferralState.ASKED else None


def answered(
    deferral: Deferral, state: DeferralState, now_ms: int, *, by: str, answer: str
) -> Deferral:
    """Return a request that nobody has decided with its answer.

    Raises:
        IllegalMove: it has its answer.
    """
    if deferral.state is not DeferralState.ASKED or state is DeferralState.ASKED:
        raise IllegalMove(subject=deferral.key, state=deferral.state.value, move=state.value)
    granted = state is DeferralState.GRANTED
    return replace(
        deferral,
        state=state,
        granted_ms=deferral.until_ms if granted else deferral.granted_ms,
        decide_by_ms=None,
        answered_ms=now_ms,
        answered_by=by,
        answer=answer,
    )
