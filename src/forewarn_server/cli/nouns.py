"""The nouns of the command line: the module and the help of each."""

from __future__ import annotations

#: Each noun, and each command without a noun: the module of its application, and its help. Modules
#: of Forewarn's other packages may be missing; see `installed_commands.py`.
NOUNS: dict[str, tuple[str, str]] = {
    "emulate": (
        "forewarn_emulator.run_command",
        "run a metadata service on this machine, for trials and tests",
    ),
    "status": ("forewarn_cli.status", "show the service and waiting work"),
    "show": ("forewarn_cli.status", "show a record by its id or name"),
    "host": ("forewarn_cli.fleet", "physical machines: add, list, and work on them"),
    "group": ("forewarn_cli.fleet", "groups of VMs that share a document"),
    "vm": ("forewarn_cli.fleet", "virtual machines: add, list, and work on them"),
    "topology": ("forewarn_cli.topology", "the whole fleet as one file: apply, show, import"),
    "operation": (
        "forewarn_cli.operations",
        "work on hosts and VMs: list, explain, approve, cancel",
    ),
    "event": ("forewarn_cli.events", "events shown to VMs"),
    "maintenance": ("forewarn_cli.maintenance", "work on many hosts, in waves"),
    "declaration": (
        "forewarn_cli.declarations",
        "declared maintenances: list, show, choose, defer, release, test-first",
    ),
    "deferral": (
        "forewarn_cli.deferrals",
        "requests for later hand-back deadlines: list, grant, refuse",
    ),
    "availability": (
        "forewarn_cli.availability",
        "availability of VMs over a period: show, export",
    ),
    "ticket": (
        "forewarn_cli.tickets",
        "incidents, reports of faults, retirements: list, open, answer, close",
    ),
    "promises": ("forewarn_cli.promises", "how promises were kept over a period: show, report"),
    "policy": ("forewarn_cli.policy", "limits and windows of maintenances"),
    "history": ("forewarn_cli.history", "changes and who made them: list, export"),
    "watch": ("forewarn_cli.history", "follow new entries of history"),
    "wait": ("forewarn_cli.wait", "wait until work has reached a state"),
    "serve": ("forewarn_server.cli.serve", "run the service"),
    "node": ("forewarn_server.cli.node", "run a metadata node, one on every hypervisor"),
    "agent": (
        "forewarn_server.cli.agent",
        "the agent in a VM: prepare the VM's workload for events",
    ),
    "document": ("forewarn_cli.events", "show a VM's document"),
    "emulator": (
        "forewarn_emulator.commands",
        "the emulator: run it, move its clock, play scenarios, set faults",
    ),
    "conformance": (
        "forewarn_conformance.command",
        "check a server or a client of Scheduled Events",
    ),
    "access": ("forewarn_cli.access", "roles and tokens of principals"),
    "login": ("forewarn_cli.sign_in", "sign in at the service's issuer"),
    "logout": ("forewarn_cli.sign_in", "end the login"),
    "whoami": ("forewarn_cli.access", "show your identity and roles"),
    "confirmation": ("forewarn_cli.access", "calls that wait for a second operator"),
    "audit": ("forewarn_cli.audit", "audit of changes and refused calls: list, export, verify"),
    "doctor": ("forewarn_server.cli.doctor", "find the faults of an installation"),
    "leader": ("forewarn_cli.leader", "the active process among several control planes"),
    "reload": ("forewarn_cli.leader", "reload the settings of the service"),
    "store": (
        "forewarn_server.cli.store",
        "the store of a service: back up, verify, restore, upgrade",
    ),
    "upgrade": ("forewarn_server.cli.upgrade", "upgrade to this version: check the next step"),
    "driver": ("forewarn_server.cli.driver", "drivers of the settings: list, check, discover"),
    "outbox": ("forewarn_cli.outbox", "delivery of transitions to other systems"),
    "context": (
        "forewarn_cli.named_servers",
        "services by name, instead of --server: add, use, list",
    ),
    "explain": ("forewarn_server.cli.explain", "explain an error code"),
    "completion": ("forewarn_server.cli.completion", "print a completion script for a shell"),
    "version": ("forewarn_server.cli.version_command", "show the version of this program"),
}

#: Rarely used commands, which `forewarn --help` lists without a description.
RARE = {
    "access": ("login", "logout", "access", "whoami", "confirmation", "audit"),
    "service": ("doctor", "leader", "reload", "store", "upgrade", "driver", "outbox"),
    "trials and tests": ("document", "emulator", "conformance"),
    "this program": ("context", "explain", "completion", "version"),
}
RARE_NAMES = frozenset(name for names in RARE.values() for name in names)


def package_of(noun: str) -> str:
    """Return the package beside Forewarn that has a noun; empty: Forewarn itself has it."""
    name = NOUNS[noun][0].partition(".")[0]
    return "" if name == "forewarn_server" else name.replace("_", "-")
