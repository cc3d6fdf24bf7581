"""The nouns of the command line: the module and the help of each."""

from __future__ import annotations

#: Each noun, and each command without a noun: its module and its help. Without a module, another
#: package of Forewarn has the command; see `installed_commands.py`.
NOUNS: dict[str, tuple[str, str]] = {
    "emulate": ("", "run a metadata service on this machine, for trials and tests"),
    "status": ("status", "show the service and waiting work"),
    "show": ("status", "show a record by its id or name"),
    "host": ("fleet", "physical machines: add, list, and work on them"),
    "group": ("fleet", "groups of VMs that share a document"),
    "vm": ("fleet", "virtual machines: add, list, and work on them"),
    "topology": ("topology", "the whole fleet as one file: apply, show, import"),
    "operation": ("operations", "work on hosts and VMs: list, explain, approve, cancel"),
    "event": ("events", "events shown to VMs"),
    "maintenance": ("maintenance", "work on many hosts, in waves"),
    "declaration": (
        "declarations",
        "declared maintenances: list, show, choose, defer, release, test-first",
    ),
    "deferral": ("deferrals", "requests for later hand-back deadlines: list, grant, refuse"),
    "availability": ("availability", "availability of VMs over a period: show, export"),
    "ticket": ("tickets", "incidents, reports of faults, retirements: list, open, answer, close"),
    "promises": ("promises", "how promises were kept over a period: show, report"),
    "policy": ("policy", "limits and windows of maintenances"),
    "history": ("history", "changes and who made them: list, export"),
    "watch": ("history", "follow new entries of history"),
    "wait": ("wait", "wait until work has reached a state"),
    "serve": ("serve", "run the service"),
    "node": ("node", "run a metadata node, one on every hypervisor"),
    "agent": ("agent", "the agent in a VM: prepare the VM's workload for events"),
    "document": ("events", "show a VM's document"),
    "emulator": ("", "the emulator: run it, move its clock, play scenarios, set faults"),
    "conformance": ("", "check a server or a client of Scheduled Events"),
    "access": ("access", "roles and tokens of principals"),
    "login": ("sign_in", "sign in at the service's issuer"),
    "logout": ("sign_in", "end the login"),
    "whoami": ("access", "show your identity and roles"),
    "confirmation": ("access", "calls that wait for a second operator"),
    "audit": ("audit", "audit of changes and refused calls: list, export, verify"),
    "doctor": ("doctor", "find the faults of an installation"),
    "leader": ("serve", "the active process among several control planes"),
    "reload": ("serve", "reload the settings of the service"),
    "store": ("store", "the store of a service: back up, verify, restore, upgrade"),
    "upgrade": ("upgrade", "upgrade to this version: check the next step"),
    "driver": ("driver", "drivers of the settings: list, check, discover"),
    "outbox": ("outbox", "delivery of transitions to other systems"),
    "context": ("named_servers", "services by name, instead of --server: add, use, list"),
    "explain": ("explain", "explain an error code"),
    "completion": ("completion", "print a completion script for a shell"),
    "version": ("version_command", "show the version of this program"),
}

#: Rarely used commands, which `forewarn --help` lists without a description.
RARE = {
    "access": ("login", "logout", "access", "whoami", "confirmation", "audit"),
    "service": ("doctor", "leader", "reload", "store", "upgrade", "driver", "outbox"),
    "trials and tests": ("document", "emulator", "conformance"),
    "this program": ("context", "explain", "completion", "version"),
}
RARE_NAMES = frozenset(name for names in RARE.values() for name in names)
