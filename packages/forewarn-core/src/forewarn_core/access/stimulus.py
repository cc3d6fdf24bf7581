"""Stimuli of access: changes of roles and tokens, and calls that wait for a second principal."""

from __future__ import annotations

from forewarn_base.values import value
from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.roles import Role
from forewarn_core.access.tokens import AccessToken


class AccessStimulus:
    """A change of access, or time that passes for its records."""

    __slots__ = ()


@value
class Grant(AccessStimulus):
    """A role is granted to a principal in a scope."""

    principal: str
    role: Role
    owner: str = ""


@value
class Revoke(AccessStimulus):
    """A principal's role in a scope is removed."""

    principal: str
    role: Role
    owner: str = ""


@value
class AddToken(AccessStimulus):
    """A token is created."""

    token: AccessToken


@value
class RevokeToken(AccessStimulus):
    """A token is revoked."""

    id: str


@value
class ResumeToken(AccessStimulus):
    """A suspended token is valid again. Source: U-5."""

    id: str


@value
class AskConfirmation(AccessStimulus):
    """A call is stored until a second principal confirms it. Source: P-8."""

    call: Confirmation


@value
class DropConfirmation(AccessStimulus):
    """The principal of a waiting call withdraws it, or another one refuses it. Source: P-8."""

    number: int
    principal: str


@value
class ConfirmCall(AccessStimulus):
    """The caller confirms another principal's call. Source: P-8."""

    number: int


@value
class ExpireCalls(AccessStimulus):
    """Calls that nobody has confirmed in time no longer wait. Source: P-8."""


@value
class SuspendAccess(AccessStimulus):
    """No token and no waiting call is accepted any more. Source: U-5."""

    #: Why, as a clause for history.
    reason: str
