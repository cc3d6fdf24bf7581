"""Peers: sends this VM's state to the other VMs of an event, and asks for their states.

This module runs in a background job; the core processes the answers. The job asks the other VMs at
their status endpoints, or reads a shared file, Consul, etcd or Kubernetes. Source: C-5.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import json
import sys
import threading
from pathlib import Path
from urllib.parse import quote

from forewarn.agent.core.values import PEER_WORDS
from forewarn.agent.preparations import kubernetes
from forewarn.agent.preparations.http_call import Called, CallFailed, call, expect, secret
from forewarn_base.errors import PeerError

AT_ONCE_MAX = 128  # VMs asked in parallel; an unresponsive VM takes 15 s
ASK_S_MAX = 50.0  # must end before the agent kills this job after a minute
NAMESPACE = "default"
HOLDS = ".holds"  # suffix of the name of a VM that has decided not to approve


def main(form: dict[str, object]) -> int:
    """Announce this VM's state, or print the states of the other VMs, as requested in `form`."""
    settings = form["settings"]
    assert isinstance(settings, dict)
    place = PLACES[str(settings.get("via", "status"))](settings, str(form["event_id"]).upper())
    name = str(form["name"])
    if form["what"] == "announce":
        place.put(name, prepared=bool(form["prepared"]))
        place.put(f"{name}{HOLDS}", prepared=bool(form["holds"]))
        return 0
    others = form["others"]
    assert isinstance(others, list)
    answers = _ask(place, [str(other) for other in others])
    words = {word: [other for other in answers if word in answers[other]] for word in PEER_WORDS}
    print(json.dumps(words))  # noqa: T201  the agent reads it
    return 0


def _ask(place: Place, others: list[str]) -> dict[str, tuple[str, ...]]:
    """Ask all VMs in parallel; omit VMs without an answer in time.

    Raises:
        PeerError: the shared place cannot be reached.
        OSError: the shared place cannot be read.
    """
    waiting = collections.deque(others)
    asking = others[:AT_ONCE_MAX]
    done = threading.Event()
    answers: dict[str, tuple[str, ...]] = {}
    failed: list[PeerError | OSError] = []

    def ask() -> None:
        try:
            while waiting and not failed:
                other = waiting.popleft()
                answers[other] = place.states(other)
        except IndexError:
            pass  # another thread has removed the last name
        except (PeerError, OSError) as error:
            failed.append(error)
        finally:
            asking.pop()
            if not asking:
                done.set()

    for _ in tuple(asking):
        threading.Thread(target=ask, daemon=True).start()
    done.wait(ASK_S_MAX if others else 0)
    if failed:
        raise failed[0]
    answered = dict(answers)  # copy, because a late thread may still add to `answers`
    return {other: answered.get(other, ()) for other in others}


class Place:
    """The place where the VMs of an event publish their states."""

    def __init__(self, settings: dict[str, object], event_id: str) -> None:
        self.settings = settings
        self.event_id = event_id

    def put(self, name: str, *, prepared: bool) -> None:
        """Publish or withdraw a VM's state."""

    def has(self, name: str) -> bool:
        """Return whether a VM's state is published."""
        raise NotImplementedError

    def states(self, name: str) -> tuple[str, ...]:
        """Return the published states of a VM, from `PEER_WORDS`."""
        holds = ("deciding",) if self.has(f"{name}{HOLDS}") else ()
        return (*holds, "prepared" if self.has(name) else "unprepared")

    def key(self, name: str) -> str:
        """Return the key of a VM's state for the event."""
        prefix = str(self.settings.get("prefix", "forewarn/prepared"))
        return f"{prefix}/{_escape(self.event_id)}/{_escape(name.lower())}"


class StatusEndpoints(Place):
    """The status endpoints of the agents, which need no separate publication."""

    def states(self, name: str) -> tuple[str, ...]:
        """Return the states that a VM's agent reports; empty without an answer."""
        known = self.settings.get("peers", {})
        assert isinstance(known, dict)
        by_name = {str(peer).lower(): str(url) for peer, url in known.items()}
        port = self.settings.get("port", 8471)
        url = by_name.get(name.lower().removeprefix("_"), f"http://{_escape(name)}:{port}")
        try:
            response = call("GET", f"{url}/prepared", ca_file=str(self.settings.get("ca_file", "")))
        except CallFailed as error:
            sys.stderr.write(f"{error}\n")
            return ()
        form = response.form()
        prepared, deciding = form.get("prepared"), form.get("deciding")
        if not isinstance(prepared, list) or not isinstance(deciding, list):
            return ()  # another program answers at the address
        holds = ("deciding",) if self.event_id in deciding else ()
        return (*holds, "prepared" if self.event_id in prepared else "unprepared")


class SharedFiles(Place):
    """A directory shared by all VMs."""

    def _path(self, name: str) -> Path:
        directory = Path(str(self.settings["directory"]))
        return directory / _escape(self.event_id) / _escape(name.lower())

    def put(self, name: str, *, prepared: bool) -> None:
        """Create or delete a file, without following symbolic links of other VMs."""
        path = self._path(name)
        if path.parent.is_symlink():
            raise NotADirectoryError(f"{path.parent} is a link")
        if prepared:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.open("x").close()
        else:
            path.unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        """Return whether the file exists."""
        return self._path(name).exists()


class ConsulKeys(Place):
    """Keys of Consul's KV store."""

    def _call(self, method: str, name: str) -> Called:
        address = str(self.settings.get("address", "http://127.0.0.1:8500")).rstrip("/")
        token = secret(self.settings.get("token_file"))
        headers = {"X-Consul-Token": token} if token else {}
        url = f"{address}/v1/kv/{quote(self.key(name))}"
        return call(method, url, form=True if method == "PUT" else None, headers=headers)

    def put(self, name: str, *, prepared: bool) -> None:
        """Put or delete the key."""
        method = "PUT" if prepared else "DELETE"
        expect(self._call(method, name), method, url=self.key(name), statuses=(200,))

    def has(self, name: str) -> bool:
        """Return whether the key exists."""
        return self._call("GET", name).status == 200


class EtcdKeys(Place):
    """Keys of etcd, through the JSON gateway of version 3."""

    def _call(self, what: str, form: dict[str, object]) -> dict[str, object]:
        address = str(self.settings.get("address", "http://127.0.0.1:2379")).rstrip("/")
        url = f"{address}/v3/kv/{what}"
        ca_file = str(self.settings.get("ca_file", ""))
        return expect(
            call("POST", url, form=form, ca_file=ca_file), "POST", url=url, statuses=(200,)
        ).form()

    def put(self, name: str, *, prepared: bool) -> None:
        """Put or delete the key."""
        key = _base64(self.key(name))
        if prepared:
            self._call("put", {"key": key, "value": _base64("prepared")})
        else:
            self._call("deleterange", {"key": key})

    def has(self, name: str) -> bool:
        """Return whether the key exists."""
        return bool(self._call("range", {"key": _base64(self.key(name))}).get("kvs"))


class KubernetesLeases(Place):
    """Leases of a Kubernetes namespace."""

    def _lease(self, name: str) -> str:
        text = f"forewarn-{_escape(self.event_id)}-{_escape(name)}"
        return text.lower().replace("_", "-").replace("%", "-x")

    def _call(self, method: str, path: str = "", *, form: object = None) -> Called:
        namespace = _escape(str(self.settings.get("namespace", NAMESPACE)))
        place = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{path}"
        return kubernetes.ask(self.settings, method, path=place, form=form)

    def put(self, name: str, *, prepared: bool) -> None:
        """Create or delete the lease."""
        lease = self._lease(name)
        if not prepared:
            done = self._call("DELETE", f"/{lease}")
            expect(done, "DELETE", url=lease, statuses=(200, 202, 404))
            return
        form = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": lease},
            "spec": {"holderIdentity": name},
        }
        expect(self._call("POST", form=form), "POST", url=lease, statuses=(200, 201, 409))

    def has(self, name: str) -> bool:
        """Return whether the lease exists."""
        return self._call("GET", f"/{self._lease(name)}").status == 200


#: `via` of `[coordination]` -> class of the place where the VMs of an event share their states.
PLACES: dict[str, type[Place]] = {
    "status": StatusEndpoints,
    "file": SharedFiles,
    "consul": ConsulKeys,
    "etcd": EtcdKeys,
    "kubernetes": KubernetesLeases,
}


def _escape(text: str) -> str:
    """Escape a name for use as a part of a URL, a key or a path."""
    return quote(text, safe="") if text.strip(".") else "%2E" * len(text)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
