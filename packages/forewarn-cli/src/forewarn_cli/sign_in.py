"""`forewarn login` and `logout`: sign in at the issuer of a service, and end the session."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from forewarn_base.errors import ForewarnError
from forewarn_base.exit_codes import OK
from forewarn_cli.device_flow import LoginFailed, begin_login, token_of
from forewarn_server.cli.api_client import ApiClient, ApiRefused, client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.logins_file import read_logins, write_logins
from forewarn_server.cli.output import note, offset, print_structured
from forewarn_server.cli.parameters import COMMON, ServerOptions

login = noun_app("login")
logout = noun_app("logout")


@login.default
def _login(
    *,
    web: Annotated[bool, Parameter(help="open the issuer's page in a browser")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Sign in at the issuer of the service; later commands use the login."""
    known = client_of(common)
    client = ApiClient(known.server)
    client.ca = known.ca
    facts = client.get("/v1/sign-in")
    begun = begin_login(facts["issuer"], facts["client_id"])
    until = offset(begun.valid_s * 1000)
    note(f"Open {begun.page} and type the code {begun.user_code} (it expires {until}).")
    if web:
        import webbrowser  # noqa: PLC0415 - seldom wanted

        webbrowser.open(begun.page_with_code)
    token = token_of(begun)
    signed_in = ApiClient(client.server, token)
    signed_in.ca = client.ca
    try:
        answer = signed_in.get("/v1/whoami")
    except ApiRefused as refusal:
        raise LoginFailed(issuer=begun.issuer, reason=str(refusal).rstrip(".")) from refusal
    write_logins({**read_logins(), client.server: token})
    if common.structured:
        return print_structured(common, answer)
    roles = ", ".join(dict.fromkeys(each["role"] for each in answer["bindings"])) or "none yet"
    note(f"signed in at {client.server} as {answer['principal']}; roles: {roles}")
    if common.token_file or os.environ.get("FOREWARN_TOKEN"):
        note("--token-file and FOREWARN_TOKEN go before this login")
    return OK


@logout.default
def _logout(*, common: ServerOptions = COMMON) -> int:
    """End the login at a service, there and here."""
    known, logins = client_of(common), read_logins()
    token = logins.pop(known.server, "")
    if not token:
        note(f"not signed in at {known.server}")
        return OK
    client = ApiClient(known.server, token)
    client.ca = known.ca
    write_logins(logins)
    try:
        client.send("POST", "/v1/sign-out")
    except ForewarnError as error:  # the session has ended, or the service is away
        note(f"the login is deleted here, but the service did not confirm: {error}")
    else:
        note(f"signed out at {known.server}")
    return OK
