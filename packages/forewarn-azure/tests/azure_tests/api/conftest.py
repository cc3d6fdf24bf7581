"""An emulator with Azure Resource Manager, and the SDK that talks to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import requests
from azure.core.credentials import AccessToken
from azure.mgmt.compute import ComputeManagementClient

from forewarn.testing import EmulatorThread
from forewarn_emulator.options import Options
from tests.api.live import Json
from tests.waiting import LIMIT_S

ANYWHERE = "127.0.0.1:0"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
GROUP = "emulator"
TOPOLOGY = f"""
[hosts]
h0 = {{}}
h1 = {{fault_domain = 1}}
h2 = {{fault_domain = 2}}

[groups]
web = {{kind = "scale-set"}}
db = {{}}

[vms.web_0]
host = "h0"
group = "web"
subscription = "{SUBSCRIPTION}"
resource_group = "{GROUP}"
spot = true

[vms.web_1]
host = "h1"
group = "web"
subscription = "{SUBSCRIPTION}"
resource_group = "{GROUP}"

[vms.db-0]
host = "h2"
group = "db"
subscription = "{SUBSCRIPTION}"
resource_group = "{GROUP}"
tags = {{role = "primary"}}
"""


class Password:
    """A credential of the SDK: a name and a secret, by the login that Azure's tools use."""

    def __init__(self, arm: Arm) -> None:
        """Log in at this server."""
        self._arm = arm

    def get_token(self, *scopes: str, **_options: object) -> AccessToken:
        """Return a token, as `azure-identity` gets it."""
        form = {
            "grant_type": "client_credentials",
            "client_id": "anna",
            "client_secret": "any",
            "scope": scopes[0],
        }
        answer = self._arm.http("POST", "/adfs/oauth2/token", data=form).json()
        return AccessToken(answer["access_token"], int(time.time()) + int(answer["expires_in"]))


class Arm:
    """An emulator with Azure Resource Manager, whose clock stands."""

    def __init__(self, **options: object) -> None:
        """Start it."""
        given: dict[str, Json] = {
            "listen": (ANYWHERE,),
            "operator": "",
            "azure": ANYWHERE,
            "topology": TOPOLOGY,
            "topology_name": "fleet.toml",
        }
        self.emulator = EmulatorThread(Options(**(given | options))).start()
        bound = self.emulator.emulator.bound
        assert bound is not None
        self._clients: list[ComputeManagementClient] = []
        self.url, self.certificate = bound.azure, bound.azure_certificate

    def http(self, method: str, path: str, **given: Json) -> requests.Response:
        """Send one request, without the SDK."""
        return requests.request(
            method, self.url + path, verify=self.certificate, timeout=20, **given
        )

    def get(self, path: str) -> Json:
        """Return what a path answers, with an api-version."""
        answer = self.http("GET", path, params={"api-version": "2024-07-01"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def sdk(self) -> Json:
        """Return the SDK's client, logged in."""
        client = ComputeManagementClient(
            Password(self),
            SUBSCRIPTION,
            base_url=self.url,
            credential_scopes=[f"{self.url}/.default"],
            connection_verify=self.certificate,
        )
        self._clients.append(client)
        return client

    def stop(self) -> None:
        """Close the clients and stop the emulator."""
        for client in self._clients:
            client.close()
        self.emulator.stop()

    def sees(self, vm: str) -> list[str]:
        """Return what a VM sees, one line an event."""
        return [
            f"{event.event_type} {event.status} {'+'.join(event.resources)} {event.source}"
            for event in self.emulator.document(vm).events
        ]

    def approve(self, vm: str, by: str = "1h") -> None:
        """Approve everything a VM sees, as the VM, and let the work be done."""
        document = self.emulator.document(vm)
        self.emulator.approve(*(event.event_id for event in document.events), vm=vm)
        self.emulator.advance(by)

    def wait(self, poller: Json) -> str:
        """Return how a long-running operation ended."""
        done = threading.Event()
        poller.add_done_callback(lambda _: done.set())
        assert done.wait(LIMIT_S), poller.status()
        return str(poller.status())


@pytest.fixture
def arms() -> Iterator[Callable[..., Arm]]:
    """Start servers; they are stopped with the test."""
    started: list[Arm] = []

    def start(**options: object) -> Arm:
        started.append(Arm(**options))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def arm(arms: Callable[..., Arm]) -> Arm:
    """One server of the test's own."""
    return arms()


@pytest.fixture(scope="session")
def shared_arm() -> Iterator[Arm]:
    """A server for tests that change nothing."""
    started = Arm()
    yield started
    started.stop()
