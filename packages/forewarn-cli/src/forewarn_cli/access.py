"""`forewarn access`, `confirmation` and `whoami`: manage roles, tokens and confirmations."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from forewarn_base.exit_codes import OK, REFUSED
from forewarn_server.cli.api_client import Answer, client_of, part
from forewarn_server.cli.application import application, noun_app
from forewarn_server.cli.output import call_in_words, note, print_structured, show_done, show_list
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    ListOptions,
    Moment,
    ServerOptions,
)

#: The roles of a principal.
Role: TypeAlias = Literal["viewer", "owner", "operator", "admin", "node"]

access = noun_app("access")
token = application("token", "bearer tokens: create, list, revoke, resume")
access.command(token)
whoami = noun_app("whoami")
confirmation = noun_app("confirmation")


@access.default
@access.command(name="list")
def _access_list(
    *,
    common: ListOptions = LISTED,
) -> int:
    """List role bindings."""
    return _print_bindings(common, client_of(common).get("/v1/access"))


@access.command(name="grant")
def _grant(
    principal: Annotated[str, Parameter(name="PRINCIPAL", help="such as user:kim")],
    role: Annotated[
        Role,
        Parameter(name="ROLE", help="viewer, owner, operator, admin, node"),
    ],
    /,
    *,
    owner: Annotated[
        str | None, Parameter(metavar="OWNER", help="only for VMs of this owner")
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Grant a role to a principal."""
    form = {"principal": principal, "role": role, "owner": owner}
    answer = client_of(common).post("/v1/access/grant", form)
    if role != "node" and not set(":.@/").intersection(principal):
        note(
            f"{principal} is a name in a certificate or login; for the local user grant"
            f" user:{principal}"
        )
    return _print_bindings(common, answer)


@access.command(name="revoke")
def _access_revoke(
    principal: Annotated[str, Parameter(name="PRINCIPAL", help="such as user:kim")],
    role: Annotated[
        Role,
        Parameter(name="ROLE", help="viewer, owner, operator, admin, node"),
    ],
    /,
    *,
    owner: Annotated[
        str | None, Parameter(metavar="OWNER", help="only for VMs of this owner")
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Revoke a role from a principal."""
    form = {"principal": principal, "role": role, "owner": owner}
    return _print_bindings(common, client_of(common).post("/v1/access/revoke", form))


@whoami.default
def _whoami(
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Show your identity and roles."""
    return _print_bindings(common, client_of(common).get("/v1/whoami"))


@confirmation.default
@confirmation.command(name="list")
def _confirmation_list(
    *,
    common: ListOptions = LISTED,
) -> int:
    """List calls that wait for a second operator."""
    answer = client_of(common).get("/v1/confirmations")
    columns = ("id", ("asked by", "principal"), ("what", call_in_words), "expires")
    empty = "No call waits for a second operator."
    return show_list(common, answer, columns, name="confirmations", empty=empty)


@confirmation.command(name="confirm")
def _confirm(
    id_: Annotated[str, Parameter(name="ID", help="such as c-12")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Confirm another operator's call and execute it."""
    answer = client_of(common).post(f"/v1/confirmations/{part(id_)}/confirm", {})
    if common.structured:
        return print_structured(common, answer)
    print(f"call {id_} is confirmed and executed")
    if "token" in answer:
        _print_token(answer)
    return OK


@confirmation.command(name="lift")
def _lift(
    act: Annotated[
        Literal["answer", "fail-host", "start-maintenance"],
        Parameter(name="ACT", help="answer, fail-host, start-maintenance"),
    ],
    /,
    *,
    until: Annotated[Moment, Parameter(help="when a second operator is needed again: 1h")],
    reason: Annotated[str, Parameter(help="why nobody can confirm now")],
    common: ServerOptions = COMMON,
) -> int:
    """Make calls of your own without a second operator for a while; opens a review."""
    form = {"act": act, "until": until, "reason": reason}
    answer = client_of(common).post("/v1/lifts", form)
    text = f"{act} needs no second operator until {answer['due']}; review {answer['id']} is open"
    return show_done(common, answer, text)


@confirmation.command(name="withdraw")
def _withdraw(
    id_: Annotated[str, Parameter(name="ID", help="such as c-12")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Withdraw your own call; another operator's call is refused."""
    return _drop(id_, common)


@confirmation.command(name="refuse")
def _refuse(
    id_: Annotated[str, Parameter(name="ID", help="such as c-12")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Refuse another operator's call before its execution."""
    return _drop(id_, common)


def _drop(name: str, common: ServerOptions) -> int:
    client = client_of(common)
    path = f"/v1/confirmations/{part(name)}"
    each, caller = client.get(path), client.get("/v1/whoami")["principal"]
    client.delete(path)
    own = each["principal"] == caller
    end = "is withdrawn" if own else f"of {each['principal']} is refused"
    note(f"{name} {end}: {call_in_words(each)}. Nothing was done.")
    return OK


def _print_bindings(common: ServerOptions, answer: Answer) -> int:
    empty = "No grants. `forewarn access token list` shows the tokens and their roles."
    if "principal" in answer:
        empty = f"{answer['principal']} has no role"
    columns = ("principal", "role", ("scope", _scope))
    return show_list(common, answer, columns, name="bindings", empty=empty)


def _scope(each: Answer) -> str:
    return f"owner {each['owner']}" if each["owner"] else "the whole fleet"


@access.command(name="can-i")
def _can_i(
    method: Annotated[str, Parameter(name="METHOD", help="such as POST")],
    path: Annotated[str, Parameter(name="PATH", help="such as /v1/hosts/h7/reboot")],
    /,
    *,
    host: Annotated[
        str | None, Parameter(metavar="NAME", help="host that the call's body names")
    ] = None,
    vm: Annotated[
        str | None, Parameter(metavar="NAME", help="VM that the call's body names")
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Check whether you may make a call; exit status 1 means no."""
    query = {"method": method, "target": path}
    query |= {kind: name for kind, name in (("host", host), ("vm", vm)) if name}
    answer = client_of(common).get("/v1/access/can-i", **query)
    if common.structured:
        print_structured(common, answer)
    elif answer["allowed"]:
        print("yes")
    else:
        print(
            f"no: the permission {answer['permission']} is required"
            if answer["permission"]
            else "no such call"
        )
    return OK if answer["allowed"] else REFUSED


@token.command(name="create")
def _create(
    principal: Annotated[
        str, Parameter(name="NAME", help="principal that uses the token and appears in history")
    ],
    /,
    *,
    role: Annotated[
        Role,
        Parameter(help="viewer, owner, operator, admin, node"),
    ],
    owner: Annotated[
        str | None, Parameter(metavar="OWNER", help="only for VMs of this owner")
    ] = None,
    expires: Annotated[
        Moment | None,
        Parameter(metavar="TIME", help="expiry time such as +7d, or never (default: +90d)"),
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Create a token, and print it once."""
    form = {"principal": principal, "role": role, "owner": owner, "expires": expires}
    answer = client_of(common).post("/v1/access/tokens", form)
    if common.structured:
        return print_structured(common, answer)
    _print_token(answer)
    return OK


def _print_token(answer: Answer) -> None:
    print(answer["token"])
    note(f"this token is shown only once; {answer['principal']} sets it as FOREWARN_TOKEN")
    end = f"until {answer['expires']}" if answer["expires"] else "for ever"
    note(f"it is valid {end}, or until `forewarn access token revoke {answer['id']}`")


@token.default
@token.command(name="list")
def _access_token_list(
    *,
    common: ListOptions = LISTED,
) -> int:
    """List tokens, without their secrets."""
    answer = client_of(common).get("/v1/access/tokens")
    columns = (
        *("id", "principal", "role", ("scope", _scope)),
        ("state", lambda each: "suspended" if each["suspended"] else "valid"),
        ("expires", lambda each: each["expires"] or "never"),
        ("used", lambda each: each["used"] or "never"),
    )
    return show_list(common, answer, columns, name="tokens", empty="No tokens.")


@token.command(name="revoke")
def _access_token_revoke(
    id_: Annotated[
        str, Parameter(name="ID", help="id of the token: the middle part of fw_ID_SECRET")
    ],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Revoke a token."""
    client_of(common).delete(f"/v1/access/tokens/{part(id_)}")
    note(f"token {id_} is revoked")
    return OK


@token.command(name="resume")
def _resume(
    *ids: Annotated[str, Parameter(name="ID", help="id of a suspended token")],
    common: ServerOptions = COMMON,
) -> int:
    """Accept tokens that a restore has suspended."""
    client = client_of(common)
    for each in ids:
        client.post(f"/v1/access/tokens/{part(each)}/resume", {})
        note(f"token {each} is accepted again")
    return OK
