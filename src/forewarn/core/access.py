"""Access: roles and their permissions, principals with their bindings, and tokens.

What a route needs is in `api/permissions.py`; who calls is found out where calls arrive.
Source: P-1, P-2, P-4.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

from forewarn.errors import CallerError
from forewarn.values import Word, value

if TYPE_CHECKING:
    from collections.abc import Callable, Container


#: Longest name of a principal: a certificate's URI may be one.
PRINCIPAL_LENGTH_MAX = 256


class Permission(Word):
    """A right that a route requires."""

    #: Every caller, recognised or not.
    PUBLIC = "public"
    #: Every recognised caller, about itself.
    SIGNED_IN = "signed-in"
    READ = "read"
    #: Reading what belongs to no owner: maintenances, policy, drivers, destinations.
    READ_FLEET = "read-fleet"
    #: Approving and postponing announced work.
    APPROVE = "approve"
    #: Asking for work on VMs, as their user.
    REQUEST = "request"
    #: Changing how a group is asked.
    SET_APPROVAL = "set-approval"
    #: The fleet, work on it, maintenances and policy.
    OPERATE = "operate"
    #: Principals, bindings, tokens and the audit.
    ADMINISTER = "administer"
    #: Following the feed, for the hosts that [feed] hosts gives a node.
    FOLLOW = "follow"


class Role(Word):
    """A set of permissions that a binding grants. Source: P-2."""

    VIEWER = "viewer"
    OWNER = "owner"
    OPERATOR = "operator"
    ADMIN = "admin"
    #: A metadata node that has no certificate; nothing but the feed.
    NODE = "node"


_READS = frozenset({Permission.READ})
_OWNS = _READS | {Permission.APPROVE, Permission.REQUEST, Permission.SET_APPROVAL}
_OPERATES = _OWNS | {Permission.READ_FLEET, Permission.OPERATE}
#: What a role permits within one owner's scope, and in the whole fleet; a role that is in one of
#: them only cannot have the other scope.
WITHIN_OWNER: dict[Role, frozenset[Permission]] = {Role.VIEWER: _READS, Role.OWNER: _OWNS}
IN_FLEET: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: _READS | {Permission.READ_FLEET},
    Role.OPERATOR: _OPERATES,
    Role.ADMIN: _OPERATES | {Permission.ADMINISTER},
    Role.NODE: frozenset({Permission.FOLLOW}),
}


# The same by the roles' words, as bindings have them: every call looks here.
_WITHIN_OWNER = {role.value: permitted for role, permitted in WITHIN_OWNER.items()}
_IN_FLEET = {role.value: permitted for role, permitted in IN_FLEET.items()}


class ScopeInvalid(CallerError):
    """A role with a scope it cannot have."""

    code = "scope-invalid"
    status = 422
    message = "The role {role} is for {wanted}."
    advice = "Nothing was changed. See 'Access for a team' in the documentation."


class UnknownBinding(CallerError):
    """A binding or token that cannot be removed because it does not exist."""

    code = "unknown-binding"
    status = 404
    message = "There is no {what}."
    advice = "See `forewarn access list` and `forewarn access token list`."


@value
class Principal:
    """A caller with its roles: as stored, and as recognised."""

    #: A token's name; `user:NAME` at the Unix socket; a certificate's name; an OIDC identity.
    name: str
    #: Pairs of role and owner; an empty owner is the whole fleet.
    bindings: tuple[tuple[str, str], ...] = ()

    def owners_for(self, permission: Permission) -> frozenset[str] | None:
        """Return the owners for whom a permission holds; None: the whole fleet."""
        if permission is Permission.PUBLIC or (permission is Permission.SIGNED_IN and self.name):
            return None
        owners = set()
        for role, owner in self.bindings:
            if not owner and permission in _IN_FLEET[role]:
                return None
            if owner and permission in _WITHIN_OWNER[role]:
                owners.add(owner)
        return frozenset(owners)


@value
class AccessToken:
    """A bearer token `fw_ID_SECRET`, without its secret. Source: P-4."""

    id: str
    #: Its holder; history names it.
    principal: str
    role: Role
    #: Its scope; empty: the whole fleet.
    owner: str
    #: SHA-256 of the secret, in hexadecimal: 256 random bits need no slow hash.
    digest: str
    created_ms: int
    #: Ms since the epoch UTC; None: never.
    expires_ms: int | None

    def has_expired(self, now_ms: int) -> bool:
        """Whether it is no longer valid."""
        return self.expires_ms is not None and self.expires_ms <= now_ms

    @property
    def bearer(self) -> Principal:
        """The caller who sends it: its holder, with no more than the token permits."""
        return Principal(self.principal, ((self.role.value, self.owner),))


#: Prefix of a token, for people and for scanners of repositories.
TOKEN_PREFIX = "fw"  # noqa: S105 - no secret


def written_token(token_id: str, secret: str) -> str:
    """Return a token as its holder sends it."""
    return f"{TOKEN_PREFIX}_{token_id}_{secret}"


def digest_of(secret: str) -> str:
    """Return the digest under which a secret is stored."""
    return sha256(secret.encode()).hexdigest()


def proved(
    given: str, find: Callable[[str], AccessToken | None], now_ms: int
) -> AccessToken | None:
    """Return the token that was sent as `fw_ID_SECRET`; None if it is unknown or has expired."""
    prefix, _, rest = given.partition("_")
    token_id, _, secret = rest.partition("_")
    token = find(token_id) if prefix == TOKEN_PREFIX else None
    # Compared in any case: the time taken does not show whether there is such an id.
    right = hmac.compare_digest(token.digest if token else "", digest_of(secret))
    if token is None or not right or token.has_expired(now_ms):
        return None
    return token


#: Shown to an owner in place of a principal that is not theirs.
SOMEBODY = "operator"


def actor_for_owner(actor: str, vms: Container[str]) -> str:
    """Return the actor of an entry as an owner reads it, who has these VMs. Source: P-3."""
    kind, _, rest = actor.partition(" ")
    if kind == "vm" and rest.partition(" ")[0] in vms:
        return actor
    return SOMEBODY if kind in {"vm", "operator", "azure"} else kind


#: A caller who has not been recognised.
NOBODY = Principal("")
#: The built-in user of an emulator, and the service's own user at the Unix socket.
BUILT_IN = ((Role.ADMIN.value, ""),)


@value
class Grant:
    """A principal gets a role in a scope."""

    principal: str
    role: Role
    owner: str = ""


@value
class Revoke:
    """A principal loses a role in a scope."""

    principal: str
    role: Role
    owner: str = ""


@value
class AddToken:
    """A token becomes valid."""

    token: AccessToken


@value
class RevokeToken:
    """A token becomes invalid."""

    id: str


AccessStimulus: TypeAlias = Grant | Revoke | AddToken | RevokeToken


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
