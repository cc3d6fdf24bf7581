"""Roles and their permissions, principals and their role bindings, and bearer tokens.

Each route names its permission (`api/routes.py`). The API authenticates the callers. Source: P-1,
P-2, P-4.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Container
from hashlib import sha256

from forewarn.errors import CallerError
from forewarn.values import Word, value

#: Maximum length of a principal's name, which may be the URI of a certificate.
PRINCIPAL_LENGTH_MAX = 256


class Permission(Word):
    """A right that a route requires."""

    #: For every caller, authenticated or not.
    PUBLIC = "public"
    #: For every authenticated caller, to read its own access.
    SIGNED_IN = "signed-in"
    READ = "read"
    #: Read objects without an owner: maintenances, policy, drivers, destinations.
    READ_FLEET = "read-fleet"
    #: Approve and postpone announced work.
    APPROVE = "approve"
    #: Request work on VMs, as their user.
    REQUEST = "request"
    #: Change a group's options.
    SET_APPROVAL = "set-approval"
    #: Manage the fleet, work on it, maintenances and policy.
    OPERATE = "operate"
    #: Manage principals, bindings and tokens, and read the audit.
    ADMINISTER = "administer"
    #: Follow the feed, for the hosts that `[feed] hosts` assigns to a node.
    FOLLOW = "follow"


class Role(Word):
    """A set of permissions that a binding grants. Source: P-2."""

    VIEWER = "viewer"
    OWNER = "owner"
    OPERATOR = "operator"
    ADMIN = "admin"
    #: A metadata node without a certificate; it may only read the feed.
    NODE = "node"


_READS = frozenset({Permission.READ})
_OWNS = _READS | {Permission.APPROVE, Permission.REQUEST, Permission.SET_APPROVAL}
_OPERATES = _OWNS | {Permission.READ_FLEET, Permission.OPERATE}
#: Permissions of each role within one owner's scope, and in the whole fleet. A role that a table
#: lacks cannot be granted in the table's scope.
WITHIN_OWNER: dict[Role, frozenset[Permission]] = {Role.VIEWER: _READS, Role.OWNER: _OWNS}
IN_FLEET: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: _READS | {Permission.READ_FLEET},
    Role.OPERATOR: _OPERATES,
    Role.ADMIN: _OPERATES | {Permission.ADMINISTER},
    Role.NODE: frozenset({Permission.FOLLOW}),
}


class ScopeInvalid(CallerError):
    """The role cannot be granted in this scope."""

    code = "scope-invalid"
    status = 422
    message = "The role {role} is for {wanted}."
    advice = "Nothing was changed. See 'Access for a team' in the documentation."


class UnknownBinding(CallerError):
    """The binding or token to remove does not exist."""

    code = "unknown-binding"
    status = 404
    message = "There is no {what}."
    advice = "See `forewarn access list` and `forewarn access token list`."


@value
class Principal:
    """An authenticated caller with its roles."""

    #: A token's name, `user:NAME` at the Unix socket, a certificate's name, or an OIDC identity.
    name: str
    #: Pairs of role and owner; an empty owner means the whole fleet.
    bindings: tuple[tuple[str, str], ...] = ()

    def owners_for(self, permission: Permission) -> frozenset[str] | None:
        """Return the owners for whom a permission holds; None means the whole fleet."""
        if permission is Permission.PUBLIC or (permission is Permission.SIGNED_IN and self.name):
            return None
        owners = set()
        for role, owner in self.bindings:
            if not owner and permission in IN_FLEET[Role(role)]:
                return None
            if owner and permission in WITHIN_OWNER[Role(role)]:
                owners.add(owner)
        return frozenset(owners)


@value
class Authority:
    """What proves a caller's identity, so that the caller's permissions can be checked again."""

    principal: str
    #: Id of the caller's token; empty: another proof.
    token: str = ""
    #: Principals whose bindings apply: the caller's own name, and the groups of a login. None for
    #: a token, which has a role of its own.
    names: tuple[str, ...] = ()
    #: Whether the caller is a built-in admin: root at the Unix socket, or anybody in an emulator.
    built_in: bool = False


@value
class AccessToken:
    """A bearer token `fw_ID_SECRET`, stored without its secret. Source: P-4."""

    id: str
    #: The holder of the token; history names this principal.
    principal: str
    role: Role
    #: Scope of the token; empty: the whole fleet.
    owner: str
    #: SHA-256 of the secret, in hexadecimal. The secret has 256 random bits, so a fast hash is
    #: safe.
    digest: str
    created_ms: int
    #: Expiry, ms since the epoch UTC; None: the token never expires.
    expires_ms: int | None
    #: Whether the token is refused until an administrator resumes it, as after a restore. U-5.
    suspended: bool = False
    #: Principals who may know the secret besides the holder, sorted: the one who received it, and
    #: those who may know the secret of that one's own token. Source: P-8.
    makers: tuple[str, ...] = ()

    def is_accepted(self, now_ms: int) -> bool:
        """Whether calls with the token are accepted: it is neither suspended nor expired."""
        return not self.suspended and (self.expires_ms is None or now_ms < self.expires_ms)

    @property
    def bearer(self) -> Principal:
        """Return the token's holder with only the permissions of the token."""
        return Principal(self.principal, ((self.role.value, self.owner),))


#: Prefix of a token, so that people and secret scanners recognise it.
TOKEN_PREFIX = "fw"  # noqa: S105 - no secret


def written_token(token_id: str, secret: str) -> str:
    """Return the text of a token, `fw_ID_SECRET`."""
    return f"{TOKEN_PREFIX}_{token_id}_{secret}"


def id_of(given: str) -> str:
    """Return the id in a text of the form `fw_ID_SECRET`; empty: another text."""
    prefix, _, rest = given.partition("_")
    return rest.partition("_")[0] if prefix == TOKEN_PREFIX else ""


def digest_of(secret: str) -> str:
    """Return the digest of a secret, for storage."""
    return sha256(secret.encode()).hexdigest()


def proved(
    given: str, find: Callable[[str], AccessToken | None], now_ms: int
) -> AccessToken | None:
    """Return the token of `fw_ID_SECRET`; None if it is unknown, suspended or expired."""
    token_id = id_of(given)
    secret = given.removeprefix(f"{TOKEN_PREFIX}_{token_id}_")
    token = find(token_id) if token_id else None
    # Compare digests even for an unknown id, so that timing does not reveal which ids exist.
    right = hmac.compare_digest(token.digest if token else "", digest_of(secret))
    if token is None or not right or not token.is_accepted(now_ms):
        return None
    return token


#: Shown to an owner in place of a principal of another owner.
HIDDEN_PRINCIPAL = "operator"


def actor_for_owner(actor: str, vms: Container[str]) -> str:
    """Return the actor of a history entry as the owner of these VMs may see it. Source: P-3."""
    kind, _, rest = actor.partition(" ")
    if kind == "vm" and rest.partition(" ")[0] in vms:
        return actor
    return HIDDEN_PRINCIPAL if kind in {"vm", "operator", "azure"} else kind


#: An unauthenticated caller.
NOBODY, NO_AUTHORITY = Principal(""), Authority("")
#: The built-in user of an emulator, and of the Unix socket when the service's own user calls.
BUILT_IN = ((Role.ADMIN.value, ""),)


@value
class Confirmation:
    """A call that waits for a second principal."""

    #: Number of the call; 0 until the call is stored.
    number: int
    #: The caller, and the name under which history records the caller.
    principal: str
    actor: str
    #: HTTP method and path.
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

    @property
    def id(self) -> str:
        """The name shown to people: `c-12`."""
        return f"c-{self.number}"

    @property
    def authority(self) -> Authority:
        """The caller's authority."""
        return Authority(self.principal, self.token, self.names, self.built_in)

    @property
    def words(self) -> str:
        """The call as people say it: `fail host h1 (reason smoke)`."""
        method, _, target = self.request.partition(" ")
        path, _, query = target.partition("?")
        parts = path.split("/")[2:]
        form = {} if parts in (["policy"], ["topology"]) else _form(self.body)
        pairs = (each.partition("=") for each in query.split("&") if each)
        form |= {name: text or True for name, _, text in pairs}
        if parts == ["access", "grant"]:
            text = f"grant {form.pop('role', 'a role')} to {form.pop('principal', 'somebody')}"
        elif parts == ["access", "tokens"]:
            text = f"create a token of {form.pop('principal', 'somebody')}"
        elif parts[:2] == ["access", "tokens"] and len(parts) == 4:
            text = f"{parts[3]} token {parts[2]}"
        elif len(parts) == 3:
            kind, name, verb = parts
            text = f"{verb} {kind.removesuffix('s')} {name}"
        elif parts == ["operations"]:
            text = f"request {form.pop('cause', 'work')} of {_member(form.pop('targets', ''))}"
        else:
            verb = {"PUT": "change", "DELETE": "remove"}.get(method, "request")
            text = " ".join((verb, *(each.removesuffix("s") for each in parts[:1]), *parts[1:]))
        more = [f"{name} {_member(each)}".strip() for name, each in form.items() if each]
        return f"{text} ({', '.join(more)})" if more else text

    def is_same_as(self, other: Confirmation) -> bool:
        """Whether another call has the same principal and request."""
        mine, theirs = (
            (each.principal, each.request, each.body, each.media) for each in (self, other)
        )
        return mine == theirs


def _form(body: str) -> dict[str, object]:
    """Return the members of a JSON form; of other text, none."""
    try:
        form = json.loads(body or "{}")
    except ValueError:
        return {}
    return form if isinstance(form, dict) else {}


def _member(member: object) -> str:
    """Return a member in words; a flag needs none but its name."""
    if isinstance(member, list):
        return ", ".join(map(str, member))
    return "" if member is True else str(member)
