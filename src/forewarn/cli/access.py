"""`forewarn access`, `confirmation` and `whoami`: manage roles, tokens and confirmations."""

from __future__ import annotations

import argparse

from forewarn.cli.api_client import Answer, client_of, part
from forewarn.cli.output import call_in_words, note, print_json, show_list
from forewarn.cli.parsing import CommandGroup, Parser
from forewarn.exit_codes import OK, REFUSED

ROLES = ("viewer", "owner", "operator", "admin", "node")


def add_commands(commands: CommandGroup) -> None:
    """Add `access`, `confirmation` and `whoami`."""
    access = commands.group("access")
    access.command("list", "list role bindings", run=_list)
    for name, line in (
        ("grant", "grant a role to a principal"),
        ("revoke", "revoke a role from a principal"),
    ):
        command = access.command(name, line, run=_change)
        command.add_argument("principal", metavar="PRINCIPAL", help="such as user:kim")
        command.add_argument("role", metavar="ROLE", choices=ROLES, help=", ".join(ROLES))
        _add_owner(command)
        command.set_defaults(act=name)
    can_i = access.command(
        "can-i", "check whether you may make a call; exit status 1 means no", run=_can_i
    )
    can_i.add_argument("method", metavar="METHOD", help="such as POST")
    can_i.add_argument("path", metavar="PATH", help="such as /v1/hosts/h7/reboot")
    can_i.option("--host NAME", "host that the call's body names")
    can_i.option("--vm NAME", "VM that the call's body names")
    token = access.group("token", "bearer tokens: create, list, revoke, resume")
    create = token.command("create", "create a token, and print it once", run=_create)
    create.add_argument(
        "principal", metavar="NAME", help="principal that uses the token and appears in history"
    )
    create.option("--role", ", ".join(ROLES), required=True, choices=ROLES)
    _add_owner(create)
    create.option("--expires TIME", "expiry time such as +7d, or never (default: +90d)")
    token.command("list", "list tokens, without their secrets", run=_tokens)
    revoke = token.command("revoke", "revoke a token", run=_revoke)
    revoke.add_argument("id", metavar="ID", help="id of the token: the middle part of fw_ID_SECRET")
    resume = token.command("resume", "accept tokens that a restore has suspended", run=_resume)
    resume.add_argument("ids", metavar="ID", nargs="+", help="id of a suspended token")
    commands.command("whoami", run=_whoami)
    confirmation = commands.group("confirmation")
    confirmation.command("list", "list calls that wait for a second operator", run=_waiting)
    confirm = confirmation.command(
        "confirm", "confirm another operator's call and execute it", run=_confirm
    )
    confirm.add_argument("id", metavar="ID", help="such as c-12")
    for name, line in (
        ("withdraw", "withdraw your own call; another operator's call is refused"),
        ("refuse", "refuse another operator's call before its execution"),
    ):
        drop = confirmation.command(name, line, run=_drop)
        drop.add_argument("id", metavar="ID", help="such as c-12")


def _add_owner(command: Parser) -> None:
    command.option("--owner OWNER", "only for VMs of this owner")


def _list(arguments: argparse.Namespace) -> int:
    return _print_bindings(arguments, client_of(arguments).get("/v1/access"))


def _change(arguments: argparse.Namespace) -> int:
    form = {name: getattr(arguments, name) for name in ("principal", "role", "owner")}
    answer = client_of(arguments).post(f"/v1/access/{arguments.act}", form)
    name, is_grant = arguments.principal, arguments.act == "grant"
    if is_grant and arguments.role != "node" and not set(":.@/").intersection(name):
        note(f"{name} is a name in a certificate or login; for the local user grant user:{name}")
    return _print_bindings(arguments, answer)


def _whoami(arguments: argparse.Namespace) -> int:
    return _print_bindings(arguments, client_of(arguments).get("/v1/whoami"))


def _waiting(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).get("/v1/confirmations")
    columns = ("id", ("asked by", "principal"), ("what", call_in_words), "expires")
    empty = "No call waits for a second operator."
    return show_list(arguments, answer, columns, name="confirmations", empty=empty)


def _confirm(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).post(f"/v1/confirmations/{part(arguments.id)}/confirm", {})
    if arguments.json:
        return print_json(answer)
    print(f"call {arguments.id} is confirmed and executed")
    if "token" in answer:
        _print_token(answer)
    return OK


def _drop(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    path = f"/v1/confirmations/{part(arguments.id)}"
    each, caller = client.get(path), client.get("/v1/whoami")["principal"]
    client.delete(path)
    own = each["principal"] == caller
    end = "is withdrawn" if own else f"of {each['principal']} is refused"
    note(f"{arguments.id} {end}: {call_in_words(each)}. Nothing was done.")
    return OK


def _print_bindings(arguments: argparse.Namespace, answer: Answer) -> int:
    empty = "No grants. `forewarn access token list` shows the tokens and their roles."
    if "principal" in answer:
        empty = f"{answer['principal']} has no role"
    columns = ("principal", "role", ("scope", _scope))
    return show_list(arguments, answer, columns, name="bindings", empty=empty)


def _scope(each: Answer) -> str:
    return f"owner {each['owner']}" if each["owner"] else "the whole fleet"


def _can_i(arguments: argparse.Namespace) -> int:
    query = {"method": arguments.method, "target": arguments.path}
    query |= {kind: name for kind in ("host", "vm") if (name := getattr(arguments, kind))}
    answer = client_of(arguments).get("/v1/access/can-i", **query)
    if arguments.json:
        print_json(answer)
    elif answer["allowed"]:
        print("yes")
    else:
        print(
            f"no: the permission {answer['permission']} is required"
            if answer["permission"]
            else "no such call"
        )
    return OK if answer["allowed"] else REFUSED


def _create(arguments: argparse.Namespace) -> int:
    form = {name: getattr(arguments, name) for name in ("principal", "role", "owner", "expires")}
    answer = client_of(arguments).post("/v1/access/tokens", form)
    if arguments.json:
        return print_json(answer)
    _print_token(answer)
    return OK


def _print_token(answer: Answer) -> None:
    print(answer["token"])
    note(f"this token is shown only once; {answer['principal']} sets it as FOREWARN_TOKEN")
    end = f"until {answer['expires']}" if answer["expires"] else "for ever"
    note(f"it is valid {end}, or until `forewarn access token revoke {answer['id']}`")


def _tokens(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).get("/v1/access/tokens")
    columns = (
        *("id", "principal", "role", ("scope", _scope)),
        ("state", lambda each: "suspended" if each["suspended"] else "valid"),
        ("expires", lambda each: each["expires"] or "never"),
        ("used", lambda each: each["used"] or "never"),
    )
    return show_list(arguments, answer, columns, name="tokens", empty="No tokens.")


def _revoke(arguments: argparse.Namespace) -> int:
    client_of(arguments).delete(f"/v1/access/tokens/{part(arguments.id)}")
    note(f"token {arguments.id} is revoked")
    return OK


def _resume(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    for each in arguments.ids:
        client.post(f"/v1/access/tokens/{part(each)}/resume", {})
        note(f"token {each} is accepted again")
    return OK
