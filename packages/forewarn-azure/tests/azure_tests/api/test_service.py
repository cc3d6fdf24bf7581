"""Azure Resource Manager of the service: a token on every call, and nothing merely booked."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import requests

from forewarn_base.settings import AzureSettings, OperatorSettings
from forewarn_core.access.roles import Role
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live

VERSION = {"api-version": "2024-07-01"}
PLACE = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default"
    "/providers/Microsoft.Compute/virtualMachines"
)


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    """A service whose operators need a token."""
    closed = OperatorSettings()
    served = AzureSettings(listen="127.0.0.1:0")
    with Live(replace(SETTINGS, operator=closed, azure=served)) as started:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert started.call("PUT", "/v1/topology", FLEET, headers=headers).status == 200
        yield started


def ask(service: Live, method: str, path: str, **given: Json) -> requests.Response:
    """Send one request over TLS."""
    bound = service.daemon.bound
    assert bound is not None
    return requests.request(
        method, bound.azure + path, verify=bound.azure_certificate, timeout=20, **given
    )


def token(service: Live, secret: str) -> requests.Response:
    """Log in."""
    form = {"grant_type": "client_credentials", "client_id": "anna", "client_secret": secret}
    return ask(service, "POST", "/adfs/oauth2/token", data=form)


@pytest.mark.parametrize("authorization", ["", "Bearer a.b.c", "Basic eDp5", "Bearer x"])
def test_service_wants_a_token_on_every_call(service: Live, authorization: str) -> None:
    """Without a token of its own the service tells nothing. Source: Z-3."""
    headers = {"Authorization": authorization} if authorization else {}
    for path in ("/subscriptions", PLACE, f"{PLACE}/web-0"):
        answer = ask(service, "GET", path, params=VERSION, headers=headers)
        assert answer.status_code == 401
        assert "error" in answer.json()


def test_service_gives_a_token_for_an_operators_own(service: Live) -> None:
    """The secret is the operator's token; what it gives out is good for calls. Source: Z-3."""
    refused = token(service, "wrong-wrong-wrong-wrong")
    assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")
    given = token(service, TOKEN).json()["access_token"]
    headers = {"Authorization": f"Bearer {given}"}
    answer = ask(service, "GET", PLACE, params=VERSION, headers=headers)
    assert "web-0" in [vm["name"] for vm in answer.json()["value"]]


@pytest.mark.parametrize("act", ["powerOff", "deallocate", "start", "reapply"])
def test_service_does_not_book_what_no_driver_does(service: Live, act: str) -> None:
    """A VM that goes on running is not said to have stopped."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = ask(service, "POST", f"{PLACE}/web-0/{act}", params=VERSION, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "OperationNotAllowed")


def test_audit_names_the_vm_of_a_call(service: Live) -> None:
    """A change by Azure's tools is recorded like an operator's. Source: P-7."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    ask(service, "POST", f"{PLACE}/db-0/powerOff", params=VERSION, headers=headers)
    service.settle()
    [newest] = service.daemon.store.audit.newest(1)
    assert (newest.record.principal, newest.record.object) == ("anna", "db-0")
    assert newest.record.outcome == "arm-not-supported"


def test_service_creates_no_vm(service: Live) -> None:
    """Nothing here can make a machine."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = ask(service, "PUT", f"{PLACE}/new", params=VERSION, headers=headers, json={})
    assert answer.status_code == 409


def test_service_refuses_what_it_cannot_carry_out(service: Live) -> None:
    """It names the member and breaks no promise; what is shown may be sent back. Source: Z-1."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    given: Json = {"params": VERSION, "headers": headers}
    body = {"properties": {"evictionPolicy": "Delete"}}
    refused = ask(service, "PATCH", f"{PLACE}/web-0", json=body, **given)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "OperationNotAllowed")
    assert "properties.evictionPolicy" in refused.json()["error"]["message"]
    shown = ask(service, "GET", f"{PLACE}/web-0", **given).json()
    changed = ask(service, "PUT", f"{PLACE}/web-0", json=shown | {"tags": {"a": "b"}}, **given)
    assert changed.json() == shown | {"tags": {"a": "b"}}


def test_owner_sees_only_its_own(service: Live) -> None:
    """A VM of somebody else is answered like one that is missing. Source: P-3."""
    secret = service.add_token("shop", Role.OWNER, "shop")
    given: Json = {"params": VERSION, "headers": {"Authorization": f"Bearer {secret}"}}
    listed = ask(service, "GET", PLACE, **given).json()["value"]
    assert [vm["name"] for vm in listed] == ["web-0", "web-1"]
    for method, path in (("GET", ""), ("POST", "/restart"), ("DELETE", "")):
        foreign, missing = (
            ask(service, method, f"{PLACE}/{name}{path}", **given) for name in ("db-0", "no-0")
        )
        assert foreign.status_code == missing.status_code
        assert foreign.status_code in {204, 404}  # what is not there is deleted
        assert foreign.text.replace("db-0", "no-0") == missing.text
    created = ask(service, "PUT", f"{PLACE}/new", json={}, **given)
    assert created.status_code == 403
    assert ask(service, "POST", f"{PLACE}/web-1/restart", **given).status_code == 202


def test_operator_asks_about_permission_for_a_request_to_azure(service: Live) -> None:
    """`access can-i` knows the routes of Azure Resource Manager while they are served."""
    query = f"method=POST&target={PLACE}/web-0/restart"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = service.call("GET", f"/v1/access/can-i?{query}", headers=headers).json
    assert answer == {"allowed": True, "permission": "request"}


def test_second_person_is_needed_by_azures_tools_as_well(service: Live) -> None:
    """They cannot have a call wait, so it is refused and named. Source: P-8."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    policy = {"confirm": ["start-maintenance"]}
    assert service.call("PUT", "/v1/policy", policy, headers=headers).status == 200
    answer = ask(service, "POST", f"{PLACE}/web-0/restart", params=VERSION, headers=headers)
    assert answer.status_code == 409
    assert "second operator" in answer.json()["error"]["message"]
    assert service.call("PUT", "/v1/policy", {}, headers=headers).code == "confirmation-awaited"
    waiting = service.call("GET", "/v1/confirmations", headers=headers).json["confirmations"]
    cleo = {"Authorization": f"Bearer {service.add_token('cleo', Role.ADMIN)}"}
    path = f"/v1/confirmations/{waiting[0]['id']}/confirm"
    assert service.call("POST", path, headers=cleo).status == 200
