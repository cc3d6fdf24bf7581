"""Calls that wait for a second principal, and the refusals about them. Source: P-8.

A call that needs confirmation is stored as received, with the sentence that people read. The
confirmation removes and executes the call in one transaction. So each call is executed at most
once, even across a restart.
"""

from __future__ import annotations

from forewarn_base.errors import CallerError
from forewarn_base.values import value
from forewarn_core.access.roles import Authority

#: Maximum number of calls that wait for confirmation, of all principals and of one.
WAITING_MAX, OF_PRINCIPAL_MAX = 100, 10


@value
class Confirmation:
    """A call that waits for a second principal."""

    #: Number of the call; 0 until the call is stored.
    number: int
    #: The caller, and the name under which history records the caller.
    principal: str
    actor: str
    #: The call as the API received it, for the API alone: method, path and query.
    request: str
    #: The body as received, and its media type.
    body: str
    media: str
    asked_ms: int
    expires_ms: int
    #: The caller's authority, in the fields of `Authority`, and the permission that the call needs.
    #: Empty in a call of an earlier release.
    token: str = ""
    names: tuple[str, ...] = ()
    built_in: bool = False
    permission: str = ""
    #: The call as people say it: `fail host h1 (reason smoke)`. Empty in a call of an earlier
    #: release.
    sentence: str = ""

    @property
    def id(self) -> str:
        """The name shown to people: `c-12`."""
        return f"c-{self.number}"

    @property
    def authority(self) -> Authority:
        """The caller's authority."""
        return Authority(self.principal, self.token, self.names, self.built_in)

    @property
    def text(self) -> str:
        """The call for people: its sentence, or the request in a call of an earlier release."""
        return self.sentence or self.request

    def is_same_as(self, other: Confirmation) -> bool:
        """Whether another call has the same principal and request."""
        mine, theirs = (
            (each.principal, each.request, each.body, each.media) for each in (self, other)
        )
        return mine == theirs


class ConfirmationsFull(CallerError):
    """Too many calls wait for confirmation."""

    code = "confirmations-full"
    status = 429
    message = "{limit} calls{whose} wait for confirmation already."
    advice = "Confirm some (`forewarn confirmation list`), or wait until they expire."


class UnknownConfirmation(CallerError):
    """The call to confirm does not wait for confirmation."""

    code = "unknown-confirmation"
    status = 404
    message = "No call {id} waits for confirmation: it was confirmed, dropped or never made."
    advice = "See `forewarn confirmation list` and `forewarn history`."


class OwnConfirmation(CallerError):
    """The caller and the second principal may be the same person."""

    code = "own-confirmation"
    status = 403
    message = "{principal} cannot confirm the call {id} of {asker}: {reason}."
    advice = (
        "Ask another operator, who signs in (a login, a certificate, the Unix socket) or has a "
        "token from somebody else. See 'Access for a team' in the documentation."
    )


class AskerNotPermitted(CallerError):
    """The caller of a waiting call has lost the permission for the call, or the token."""

    code = "asker-not-permitted"
    status = 409
    message = "{asker}, who made the call {id}, may not make it any more."
    advice = "Refuse it (`forewarn confirmation refuse {id}`), or make the call yourself."
