"""Requests as OpenStack's metadata proxies pass them on: Neutron's agent, and metadata providers.

What they send is as Neutron's `MetadataProxyHandler` and Nova's metadata handler have it.
"""

import hmac
import json

import pytest
from msgspec.structs import replace

from forewarn_base.protocol.identity import CallerIdentity
from forewarn_metadata.replication.messages import Caller, DocumentChange
from tests.metadata.live import EVENTS, FREEZE, VM_A, VM_C, approval, serving, with_settings

SECRET = "a-shared-secret"
PROXY = with_settings(
    proxy_addresses=("127.0.0.1",), proxy_secret=SECRET, proxy_without_header=True
)
PROVIDER = "edge-7"
#: Two VMs with the same address, behind different providers.
NEAR = Caller("vm-a", "group-1", "group-1", ("10.0.0.7",), interface=PROVIDER)
FAR = Caller("vm-c", "group-2", "group-2", ("10.0.0.7",), interface="edge-8")


def signature(of: str, secret: str = SECRET) -> str:
    """Return what a proxy signs with."""
    return hmac.digest(secret.encode(), of.encode(), "sha256").hex()


def by_agent(instance_id: str) -> dict[str, str]:
    """Return all headers that Neutron's agent sends; none of the VM's own is among them."""
    return {
        "x_forwarded_for": "10.0.0.7",
        "x_instance_id": instance_id,
        "x_tenant_id": "a-project",
        "x_instance_id_signature": signature(instance_id),
        "metadata": "",
    }


def by_provider(provider: str, address: str = "10.0.0.7") -> dict[str, str]:
    """Return the headers of a metadata provider."""
    return {
        "x_forwarded_for": address,
        "x_metadata_provider": provider,
        "x_metadata_provider_signature": signature(provider),
    }


def test_agent_of_neutron_may_drop_the_header(portable: bool) -> None:
    """It asks and approves in a VM's name, by all api-versions. Source: S-6, E-2."""
    with serving(PROXY, portable=portable) as live:
        live.show(FREEZE)
        headers = by_agent("instance-a")
        assert json.loads(live.get(**headers).body)["Events"]
        path = "/metadata/instance?api-version=2021-02-01"
        assert json.loads(live.get(path, **headers).body)["compute"]
        reply = live.post(approval(FREEZE.event_id), **headers)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("application/json")  # the agent wants one
        (asked,) = live.control.approvals
        assert asked.identity == CallerIdentity(instance_id="instance-a")


@pytest.mark.parametrize(
    "headers",
    [
        {"x_forwarded_for": "", "metadata": ""},
        {**by_agent("instance-a"), "x_instance_id_signature": signature("instance-a", "wrong")},
    ],
    ids=["no proxy", "wrong signature"],
)
def test_unsigned_request_still_needs_the_header(portable: bool, headers: dict[str, str]) -> None:
    """Whose signature is not right gets what it would have got. Source: E-2, S-6."""
    with serving(PROXY, portable=portable) as live:
        live.show(FREEZE)
        reply = live.get(**headers)
        assert reply.status in {400, 404}
        assert b"Freeze" not in reply.body


def test_wrong_signature_cuts_off_nobody_else(portable: bool) -> None:
    """The proxy's connection carries the requests of other VMs, too. Source: S-6."""
    with serving(PROXY, portable=portable) as live:
        wrong = {**by_agent("instance-a"), "x_instance_id_signature": "0"}
        reply = live.get(**{**wrong, "metadata": "true"})
        assert reply.status == 404
        assert "connection" not in reply.headers


def test_signed_request_needs_the_header_unless_the_setting_says_so(portable: bool) -> None:
    """As for everybody else. Source: E-2."""
    settings = with_settings(proxy_addresses=("127.0.0.1",), proxy_secret=SECRET)
    with serving(settings, portable=portable) as live:
        assert live.get(**by_agent("instance-a")).status == 400
        assert live.get(**{**by_agent("instance-a"), "metadata": "true"}).status == 200


def test_provider_tells_vms_of_one_address_apart(portable: bool) -> None:
    """Its id is what the VM's addresses count on, as an interface is elsewhere. Source: S-6."""
    with serving(PROXY, portable=portable) as live:
        live.apply(DocumentChange(99, whole=True, callers=(NEAR, FAR)))
        live.show(FREEZE)
        live.show(incarnation=5, view="group-2")
        for provider, incarnation in ((PROVIDER, 1), ("edge-8", 5), (PROVIDER, 1)):
            found = json.loads(live.get(**by_provider(provider)).body)
            assert found["DocumentIncarnation"] == incarnation
        assert live.post(approval(FREEZE.event_id), **by_provider(PROVIDER)).status == 200
        (asked,) = live.control.approvals
        assert (asked.vm, asked.identity) == ("vm-a", CallerIdentity("10.0.0.7", PROVIDER))


@pytest.mark.parametrize(
    "headers",
    [
        by_provider("edge-9"),
        by_provider(PROVIDER, "10.0.0.8"),
        by_provider(PROVIDER, "10.0.0.8, 10.0.0.7"),
        by_provider(PROVIDER, "10.0.0.7, 10.0.0.8"),
        by_provider(PROVIDER, ""),
        by_provider(""),
        {**by_provider(PROVIDER), "x_metadata_provider_signature": signature("edge-8")},
        {**by_provider(PROVIDER), "x_metadata_provider_signature": ""},
    ],
    ids=[
        "unknown provider", "unknown address", "forged address", "two addresses", "no address",
        "no provider", "of another", "unsigned",
    ],
)  # fmt: skip
def test_wrong_provider_is_nobody(portable: bool, headers: dict[str, str]) -> None:
    """Nobody learns anything of a VM that is elsewhere. Source: S-6."""
    anywhere = replace(VM_C, addresses=("10.0.0.8",))
    with serving(PROXY, portable=portable) as live:
        live.apply(DocumentChange(99, whole=True, callers=(NEAR, FAR, anywhere)))
        assert live.get(**headers).status == 404


def test_provider_counts_only_from_a_proxy(portable: bool) -> None:
    """From any other address its headers mean nothing. Source: S-6."""
    with serving(with_settings(proxy_secret=SECRET), portable=portable) as live:
        live.know(VM_A)
        assert live.get(EVENTS, **by_provider(PROVIDER)).status == 400  # forwarded
        headers = {**by_provider(PROVIDER), "x_forwarded_for": ""}
        assert live.get(EVENTS, **headers).status == 200  # by its own address
