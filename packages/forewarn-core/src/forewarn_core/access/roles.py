"""Roles and their permissions, and principals with their role bindings.

Each route names its permission (`api/routes.py`). The API authenticates the callers. Source: P-1,
P-2.
"""

from __future__ import annotations

from collections.abc import Container

from forewarn_base.errors import CallerError
from forewarn_base.values import Word, value

#: Maximum length of a principal's name, which may be the URI of a certificate.
PRINCIPAL_LENGTH_MAX = 256
#: Beginning of `kubernetes:CLUSTER:NAMESPACE`, the users of one namespace. Source: K-4.
CLUSTER_PRINCIPAL = "kubernetes:"


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
    #: Declare emergencies, which override what owners and the policy asked for. Source: T-6.
    DECLARE_EMERGENCY = "declare-emergency"
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
    Role.ADMIN: _OPERATES | {Permission.DECLARE_EMERGENCY, Permission.ADMINISTER},
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
