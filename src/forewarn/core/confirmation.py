"""A call that waits for a second principal, as the store has it. Source: P-8."""

from __future__ import annotations

from forewarn.values import value


@value
class Confirmation:
    """A call that waits for a second principal."""

    #: 0 until it is kept.
    number: int
    #: Who asked, and the same as history names it.
    principal: str
    actor: str
    #: Method and path.
    request: str
    #: The body as it came, and its media type.
    body: str
    media: str
    asked_ms: int
    expires_ms: int

    @property
    def id(self) -> str:
        """Its name for people: `c-12`."""
        return f"c-{self.number}"

    def is_same_as(self, other: Confirmation) -> bool:
        """Whether the same principal asks for the same."""
        mine, theirs = (
            (each.principal, each.request, each.body, each.media) for each in (self, other)
        )
        return mine == theirs
