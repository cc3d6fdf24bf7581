"""The topology of a cluster: nodes as hosts, KubeVirt's instances as VMs.

Without KubeVirt, each node is also a VM. Discovery changes nothing in the cluster.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from forewarn_base.errors import ForewarnError, PeerError
from forewarn_base.values import value
from forewarn_core.fleet.naming import ADDRESSES_MAX, DOMAIN_MAX, KEY_PATTERN, LABELS_MAX
from forewarn_core.fleet.naming import ZONE as OWN_ZONE
from forewarn_drivers.found import Found
from forewarn_kubernetes.client import (
    MISSING,
    Kubernetes,
    KubernetesBusy,
    KubernetesRefused,
    KubernetesUnreachable,
    VersionExpired,
)
from forewarn_kubernetes.config import KubernetesConfig, read_options
from forewarn_kubernetes.machines import API, ENDED

NODES, MACHINES = "/api/v1/nodes", f"{API}/virtualmachineinstances"
ZONE = "topology.kubernetes.io/zone"
#: Labels or annotations for facts without a Kubernetes field: the group of a VMI, the domains of a
#: node.
GROUP, FAULT_DOMAIN, UPDATE_DOMAIN = (
    "forewarn.dev/group",
    "forewarn.dev/fault-domain",
    "forewarn.dev/update-domain",
)
DOMAINS = ("fault_domain", "update_domain")
#: Controllers of similar VMIs: a set as the owner, or a pool from a label of its template.
SET, POOL = "VirtualMachineInstanceReplicaSet", "kubevirt.io/vmpool"
#: Annotations of a VMI that name its instance type.
TYPES = ("kubevirt.io/instancetype-name", "kubevirt.io/cluster-instancetype-name")
#: Prefixes of labels that are omitted from hosts: CPU features, and labels that duplicate other
#: members.
_IGNORED_LABELS = re.compile(
    r"([^/]*\.)?(kubevirt\.io|feature\.node\.kubernetes\.io|forewarn\.dev)/"
)
_KUBERNETES = re.compile(r"[^/]*kubernetes\.io/")
_KEY = re.compile(KEY_PATTERN)
#: Value for a label without a value, because selectors need a value.
PRESENT = "true"
#: First and longest pause before another attempt to reach the API server, in seconds.
RETRY_S, RETRY_MAX_S = 1.0, 30.0


@value
class NodeFacts:
    """The facts about a node."""

    name: str
    #: The node as a host of the topology, without default values.
    form: dict[str, Any]
    #: Reason why the node's state is unknown; empty: the node reports its state.
    silent: str
    #: The node as a VM of the topology, for clusters without KubeVirt.
    itself: dict[str, Any]


@value
class MachineFacts:
    """The facts about a VMI."""

    name: str
    host: str
    #: The VMI as a VM of the topology.
    form: dict[str, Any]


def create_source(name: str, options: Mapping[str, object]) -> KubernetesSource:
    """Create a source from the options of a driver.

    Raises:
        ValidationFailed: an option is unknown, missing or invalid.
    """
    return KubernetesSource(read_options(name, options), name)


class KubernetesSource:
    """A cluster as a source for `topology import`."""

    #: Interval of topology updates without changes in the cluster, in seconds.
    every_s = 10.0

    def __init__(self, config: KubernetesConfig, driver: str) -> None:
        self._driver = driver
        self._kubernetes = Kubernetes(config)
        self._watched: tuple[Watched[NodeFacts], Watched[MachineFacts]] | None = None
        #: Whether KubeVirt was seen before; the VMs then remain if its API disappears.
        self._has_machines = False
        self.lost_after_s = config.lost_after_s

    def discover(self) -> Found:
        """Query the API server, or return the followed state of the cluster.

        Raises:
            ForewarnError: the state of the cluster is unknown, or may be outdated.
        """
        if self._watched is None:
            return discover(self._kubernetes, self._driver)
        nodes, machines = self._watched[0].facts(), _unless_missing(self._watched[1].facts)
        if machines is None and self._has_machines:
            raise KubernetesUnreachable(reason="KubeVirt's API has disappeared")
        self._has_machines = machines is not None
        return found_of(nodes, machines, self._driver)

    def watch(self) -> threading.Event:
        """Follow the cluster; return an event that is set when the cluster changes."""
        changed = threading.Event()
        nodes = Watched(self._kubernetes, NODES, node_facts, changed=changed)
        machines = Watched(self._kubernetes, MACHINES, machine_facts, changed=changed)
        self._watched = nodes, machines
        nodes.start()
        machines.start()
        return changed

    def close(self) -> None:
        """Stop following the cluster."""
        for watched in self._watched or ():
            watched.close()


def discover(kubernetes: Kubernetes, driver: str) -> Found:
    """List the cluster's machines; send one request per 100 nodes or VMIs."""
    nodes = [node_facts(each) for each in kubernetes.all(NODES)]
    machines = _unless_missing(lambda: [machine_facts(each) for each in kubernetes.all(MACHINES)])
    return found_of(nodes, machines, driver)


def _unless_missing(read: Callable[[], list[MachineFacts]]) -> list[MachineFacts] | None:
    """Return the facts about VMIs; None if the cluster has no KubeVirt."""
    try:
        return read()
    except KubernetesRefused as error:
        if error.number != MISSING:
            raise
        return None


def found_of(
    nodes: Iterable[NodeFacts], machines: Iterable[MachineFacts] | None, driver: str
) -> Found:
    """Return a topology; without KubeVirt, each node is also a VM of the same name."""
    fleet = Found(host_facts=("driver", "zone", "labels", *DOMAINS))
    for place, node in enumerate(sorted(nodes, key=lambda each: each.name)):
        fleet.hosts[node.name] = {"driver": driver, **node.form}
        fleet.defaults[node.name] = dict.fromkeys(DOMAINS, place % (DOMAIN_MAX + 1))
        if node.silent:
            fleet.silent[node.name] = node.silent
        if machines is None:
            fleet.vms[node.name] = node.itself
    for machine in machines or ():
        if machine.host in fleet.hosts:
            fleet.vms[machine.name] = machine.form
    return fleet


def node_facts(node: dict[str, Any]) -> NodeFacts:
    """Return the facts about a node."""
    meta, status = node["metadata"], node.get("status") or {}
    labels: dict[str, str] = meta.get("labels") or {}
    form: dict[str, Any] = {"labels": _labels(labels)}
    if labels.get(ZONE):
        form["zone"] = labels[ZONE]
    for member, label in zip(DOMAINS, (FAULT_DOMAIN, UPDATE_DOMAIN), strict=True):
        text = labels.get(label, "")
        if text.isascii() and text.isdigit() and int(text) <= DOMAIN_MAX:
            form[member] = int(text)
    silent = ""
    for each in status.get("conditions") or []:
        if each["type"] == "Ready" and each["status"] == "Unknown":
            silent = "its kubelet does not report"
    kinds = {"InternalIP", "ExternalIP"}
    addresses = [e["address"] for e in status.get("addresses") or [] if e["type"] in kinds]
    itself: dict[str, Any] = {"host": meta["name"]}
    if addresses:
        itself["addresses"] = addresses[:ADDRESSES_MAX]
    if _label_or_annotation(meta, GROUP):
        itself["group"] = _label_or_annotation(meta, GROUP)
    return NodeFacts(meta["name"], form, silent, itself)


def machine_facts(machine: dict[str, Any]) -> MachineFacts:
    """Return the facts about a VMI, without a host unless the VMI runs."""
    meta, status = machine["metadata"], machine.get("status") or {}
    name = f"{meta['namespace']}.{meta['name']}"
    host = "" if status.get("phase") in ENDED else status.get("nodeName", "")
    uid = _uid(meta)
    form: dict[str, Any] = {"host": host, "vm_id": uid, "instance_id": uid}
    group = _group(meta)
    if group:
        form["group"] = f"{meta['namespace']}.{group}"
    size = next(
        (_label_or_annotation(meta, each) for each in TYPES if _label_or_annotation(meta, each)), ""
    )
    if size:
        form["size"] = size
    spec = machine.get("spec") or {}
    addresses = _addresses(spec, status)
    if addresses:
        form["addresses"] = addresses[:ADDRESSES_MAX]
    return MachineFacts(name, host, form)


def _uid(meta: dict[str, Any]) -> str:
    """Return the id of a VMI's VirtualMachine, or else of the VMI, which changes with each restart.

    The API server assigns the id, whereas a user can choose the firmware's UUID.
    """
    for owner in meta.get("ownerReferences") or []:
        named = owner.get("kind"), owner.get("name")
        if owner.get("controller") and named == ("VirtualMachine", meta["name"]):
            return str(owner["uid"])
    return str(meta["uid"])


def _addresses(spec: dict[str, Any], status: dict[str, Any]) -> list[str]:
    """Return the addresses of a VMI that its guest cannot forge.

    Behind masquerade, KubeVirt reports the addresses of the pod. For other bindings, KubeVirt
    reports addresses from an agent in the guest, with which the guest could pose as another VM.
    """
    devices = (spec.get("domain") or {}).get("devices") or {}
    kept = {each["name"] for each in devices.get("interfaces") or [] if "masquerade" in each}
    addresses: list[str] = []
    for each in status.get("interfaces") or []:
        if each.get("name") in kept:
            addresses += each.get("ipAddresses") or [a for a in [each.get("ipAddress")] if a]
    return addresses


def _group(meta: dict[str, Any]) -> str:
    """Return the group of a VMI in its namespace, from its label or its controller."""
    for owner in meta.get("ownerReferences") or []:
        if owner.get("controller") and owner["kind"] == SET:
            return _label_or_annotation(meta, GROUP) or str(owner["name"])
    return _label_or_annotation(meta, GROUP) or _label_or_annotation(meta, POOL)


def _label_or_annotation(meta: dict[str, Any], key: str) -> str:
    """Return a label's value, or else the value of the annotation with the same name."""
    for kind in ("labels", "annotations"):
        if (meta.get(kind) or {}).get(key):
            return str(meta[kind][key])
    return ""


def _labels(labels: dict[str, str]) -> dict[str, str]:
    """Return a host's labels from a node's labels: custom labels first, up to the limit."""
    shown = [
        each
        for each in labels
        if each != ZONE
        and _KEY.fullmatch(each)
        and not _IGNORED_LABELS.match(each)
        and each != OWN_ZONE
    ]
    shown.sort(key=lambda each: (bool(_KUBERNETES.match(each)), each))
    return {each: labels[each] or PRESENT for each in sorted(shown[:LABELS_MAX])}


class ListUnknown(PeerError):
    """A list of the cluster is unknown, because it is no longer followed."""

    code = "kubernetes-list-unknown"
    message = "What the cluster has at {path} is unknown: it is no longer followed."
    advice = "Ask again once the service has restarted."


Facts = TypeVar("Facts")


class Watched(Generic[Facts]):
    """Facts about each object of a list; the memory use grows with the number of objects."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        path: str,
        read: Callable[[dict[str, Any]], Facts],
        *,
        changed: threading.Event,
    ) -> None:
        self._kubernetes = kubernetes
        self._path = path
        self._read = read
        self._changed = changed
        self._lock = threading.Lock()
        #: Namespace and name -> facts.
        self._known: dict[tuple[str, str], Facts] = {}
        self._failed: ForewarnError | None = None
        #: Version of the list in `_known`; empty: list again.
        self._version = ""
        #: Whether `_known` or `_failed` is the answer; not set while a list replaces old facts.
        self._listed = threading.Event()
        self._closed = threading.Event()

    def start(self) -> None:
        """Follow the list on a separate thread."""
        threading.Thread(target=self._follow, name=f"watch {self._path}", daemon=True).start()

    def close(self) -> None:
        """Stop after the current request."""
        self._closed.set()

    def facts(self) -> list[Facts]:
        """Return the current facts; wait while a new list is read.

        Raises:
            ForewarnError: the facts are unknown, or may be outdated.
        """
        self._listed.wait()
        with self._lock:
            if self._failed is not None:
                raise self._failed
            return list(self._known.values())

    def _follow(self) -> None:
        pause_s, expired = RETRY_S, "none"
        while not self._closed.is_set():
            try:
                if not self._version:
                    self._list()
                pause_s = RETRY_S
                self._watch()
            except VersionExpired:
                # The next list has everything that the watch has missed. An API server that has
                # never the version that it has just named is not asked all the time.
                again_s = RETRY_S if self._version == expired else 0
                expired, self._version = self._version, ""
                self._listed.clear()
                self._closed.wait(again_s)
            except ForewarnError as error:
                self._fail(error)
                asked_s = error.retry_after_s if isinstance(error, KubernetesBusy) else 0
                self._closed.wait(max(pause_s, asked_s))
                pause_s = min(pause_s * 2, RETRY_MAX_S)
        if not self._listed.is_set():
            self._fail(ListUnknown(path=self._path))

    def _list(self) -> None:
        facts: dict[tuple[str, str], Facts] = {}
        version = ""
        for page in self._kubernetes.pages(self._path):
            facts |= {_key(each): self._read(each) for each in page.get("items") or []}
            version = page["metadata"]["resourceVersion"]
        with self._lock:
            self._known, self._failed, self._version = facts, None, version
        self._listed.set()
        self._changed.set()

    def _watch(self) -> None:
        for change in self._kubernetes.watch(self._path, self._version):
            self._note_up_to_date()
            if change:
                self._take(change["type"], change["object"])
            if self._closed.is_set():
                return

    def _take(self, kind: str, form: dict[str, Any]) -> None:
        key = _key(form)
        with self._lock:
            before = self._known.get(key)
            if kind == "DELETED":
                self._known.pop(key, None)
            elif kind != "BOOKMARK":
                self._known[key] = self._read(form)
            differs = self._known.get(key) != before
            self._version = form["metadata"]["resourceVersion"]
        if differs:
            self._changed.set()

    def _note_up_to_date(self) -> None:
        """Record that the facts are up to date."""
        with self._lock:
            was, self._failed = self._failed, None
        if was is not None:
            self._changed.set()

    def _fail(self, error: ForewarnError) -> None:
        with self._lock:
            self._failed = error
        self._listed.set()
        self._changed.set()


def _key(form: dict[str, Any]) -> tuple[str, str]:
    meta = form["metadata"]
    return meta.get("namespace", ""), meta.get("name", "")
