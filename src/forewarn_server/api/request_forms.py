"""Request forms of hosts, groups, VMs, fleets, work and maintenances.

`fields.py` parses the values.
"""

from __future__ import annotations

from typing import Final

from forewarn_base.protocol.versions import VERSIONS
from forewarn_base.validation.fields import (
    NAME,
    Boolean,
    Choice,
    Duration,
    Integer,
    IpAddress,
    Subnet,
    Text,
    Timestamp,
)
from forewarn_base.validation.forms import Field, Form, ListOf, Named
from forewarn_core.fleet.impact import (
    DURATION_S_MAX,
    DURATION_UNKNOWN_S,
    TERMINATE_NOTICE_S_MAX,
    TRAITS,
    Cause,
    Impact,
    Source,
    TargetKind,
)
from forewarn_core.fleet.maintenance import HOSTS_MAX
from forewarn_core.fleet.naming import (
    ADDRESSES_MAX,
    DOMAIN_MAX,
    INSTANCE_LENGTH_MAX,
    KEY_PATTERN,
    LABELS_MAX,
    MEMORY_MIB_MAX,
    TAGS_MAX,
    VALUE_PATTERN,
)
from forewarn_core.fleet.topology import GroupKind
from forewarn_core.rules.blockers import every_waiver
from forewarn_core.rules.hand_back import Severity
from forewarn_metadata.endpoint.instance_fields import COMPUTE, DATA_DISKS_PATTERN, SETTABLE

#: Maximum number of hosts, groups or VMs in one topology, above a control plane's design limit.
FLEET_MAX = 100_000
#: Longest reason from an operator, in characters.
REASON_LENGTH_MAX = 256

IMPACTS: Final = Choice({impact.value: impact for impact in Impact})
SOURCES: Final = Choice({source.value: source for source in Source})
CAUSES: Final = Choice({cause.value: cause for cause in Cause})
_AUTOMATIC_APPROVAL: Final = Choice({i.value: i for i in (Impact.REBOOT, Impact.REDEPLOY)})

_REASON: Final = Text(REASON_LENGTH_MAX, r".*\S.*", "a reason")
_LABEL: Final = Text(64, VALUE_PATTERN, "a label's value, without comma, equals sign or space")
_KEY_WANTED = "1 to 63 letters, digits, `.`, `_`, `/`, `-`, and begin with a letter or digit"
_KEY: Final = Text(64, KEY_PATTERN, _KEY_WANTED)
_DISKS = "data disks, one per line, such as lun=0 name=data diskSizeGB=128"
SELECTOR: Final = Field(
    "selector", Text(), "Only hosts with this zone and these labels, such as zone=2,rack=r7."
)

HOST = Form(
    "HostForm",
    "A physical machine.",
    (
        Field(
            "fault_domain",
            Integer(0, DOMAIN_MAX),
            "Fault domain: hosts with the same number may fail together.",
        ),
        Field(
            "update_domain",
            Integer(0, DOMAIN_MAX),
            "Update domain: hosts with the same number are serviced together.",
        ),
        Field(
            "zone", Text(), "Availability zone; fault domains are counted separately in each zone."
        ),
        Field(
            "driver", Text(), "Driver that carries out work on the host; empty: the default driver."
        ),
        Field(
            "labels",
            Named(_LABEL, LABELS_MAX, _KEY),
            "Labels of the host for selectors, windows and budgets; `rack` names its rack.",
        ),
        Field(
            "memory_mib",
            Integer(0, MEMORY_MIB_MAX),
            "Memory of the host for VMs, in MiB; 0: unknown, so no maintenance moves a VM to the "
            "host.",
        ),
    ),
)
GROUP = Form(
    "GroupForm",
    "VMs that share a document, and their approval settings.",
    (
        Field("kind", Choice({kind.value: kind for kind in GroupKind}), "Kind of the group."),
        Field(
            "owner", Text(), "Owner of the group; limits on user-initiated work apply per owner."
        ),
        Field(
            "fault_domain_count",
            Integer(0, DOMAIN_MAX + 1),
            "Number of fault domains of a scale set; 0: unspecified.",
        ),
        Field("strict_approval", Boolean(), "Whether every VM of an event must approve it."),
        Field(
            "automatic_approval",
            ListOf(_AUTOMATIC_APPROVAL, 2),
            "Impacts of user-initiated work that need no approval.",
        ),
        Field(
            "terminate_notice",
            Duration(0, TERMINATE_NOTICE_S_MAX),
            "Notice of a deletion, 5 to 15 minutes; 0: deletions are not announced.",
        ),
        Field("reimage_notice", Boolean(), "Whether image upgrades and reimages are announced."),
        Field(
            "approves_when_down",
            Boolean(),
            "Whether Forewarn approves the group's events while all its VMs are off (default: "
            "true).",
        ),
        Field(
            "published",
            Choice({version: version for version in ("", *VERSIONS)}),
            "Api-version of events in Event Grid and Resource Graph (default: newest); empty: no "
            "events there.",
        ),
        Field(
            "keep_apart",
            ListOf(_KEY, LABELS_MAX),
            "Labels of hosts, such as rack: VMs that move are kept on hosts with different values.",
        ),
        Field(
            "keep_together",
            ListOf(_KEY, LABELS_MAX),
            "Labels of hosts: VMs that move are kept on hosts with the same value.",
        ),
    ),
)
INSTANCE = Form(
    "InstanceForm",
    "Further instance metadata by dotted name; see the page on instance metadata.",
    (
        *(
            Field(name, Text(INSTANCE_LENGTH_MAX), f"Shown since {COMPUTE[name][0]}.")
            for name in SETTABLE
        ),
        Field(
            "macAddress",
            Text(17, r"[0-9A-Fa-f]{2}([:-]?[0-9A-Fa-f]{2}){5}", "12 hexadecimal digits"),
            "Hardware address (default: derived from the first IPv4 address).",
        ),
        Field(
            "privateIpAddress",
            IpAddress(),
            "IPv4 address of a VM that Forewarn identifies in another way.",
        ),
        Field("publicKeys", Text(INSTANCE_LENGTH_MAX, lines=True), "SSH keys, one per line."),
        Field(
            "storageProfile.dataDisks",
            Text(INSTANCE_LENGTH_MAX, DATA_DISKS_PATTERN, _DISKS, lines=True),
            "Data disks, one per line.",
        ),
        Field("subnet", Subnet(), "IPv4 subnet (default: the /24 of the first address)."),
    ),
)
VM = Form(
    "VmForm",
    "A virtual machine.",
    (
        Field("host", NAME, "Host that runs the VM.", required=True),
        Field("group", NAME, "Group of the VM (default: a group of its own with the VM's name)."),
        Field("size", Text(), "Size of the VM, such as Standard_D4s_v5."),
        Field(
            "memory_mib",
            Integer(0, MEMORY_MIB_MAX),
            "Memory of the VM, in MiB; 0: unknown, so no maintenance moves the VM.",
        ),
        Field("gpu", Boolean(), "Whether the VM has a GPU (default: derived from the size)."),
        Field("spot", Boolean(), "Whether the platform may evict the VM."),
        Field(
            "addresses",
            ListOf(IpAddress(), ADDRESSES_MAX),
            "Source addresses of the VM's requests.",
        ),
        Field(
            "interface",
            Text(),
            "Network interface on which the VM's addresses are valid; empty: any interface.",
        ),
        Field("instance_id", Text(), "Id of the VM that a metadata proxy sends."),
        Field("vm_id", Text(), "The VM's vmId in instance metadata."),
        Field("os_type", Text(), "Operating system of the VM: Linux or Windows."),
        Field("location", Text(), "Region."),
        Field("resource_group", Text(), "Resource group."),
        Field("subscription", Text(), "Subscription."),
        Field(
            "tags",
            Named(Text(), TAGS_MAX, Text(pattern=r"[^\x00-\x1f]+", wanted="a tag's name")),
            "Tags.",
        ),
        Field("instance", INSTANCE, "Further instance metadata by dotted name."),
    ),
)
TOPOLOGY = Form(
    "TopologyForm",
    "All or part of a fleet: hosts, groups and VMs by name.",
    (
        Field("hosts", Named(HOST, FLEET_MAX), "Hosts by name."),
        Field("groups", Named(GROUP, FLEET_MAX), "Groups by name."),
        Field("vms", Named(VM, FLEET_MAX), "VMs by name."),
    ),
)

_ASKED = (
    Field(
        "not_before", Timestamp(), "Earliest start of the work (default: the end of the notice)."
    ),
    Field(
        "duration",
        Duration(DURATION_UNKNOWN_S, DURATION_S_MAX),
        "Expected interruption in seconds; 0: none, -1: unknown.",
    ),
    Field("description", Text(), "Description shown to VMs instead of the default."),
    Field("destination", NAME, "Host of the VMs after the work."),
    Field("impact", IMPACTS, "Impact shown to VMs, if the cause allows several impacts."),
    Field("source", SOURCES, "Source of the event, as shown to VMs."),
    Field(
        "queue",
        Boolean(),
        "Queue routine work behind the same running work instead of refusing the request.",
    ),
)
WORK = Form("WorkForm", "Options of the work; every member is optional.", _ASKED)
UPDATE = Form(
    "UpdateForm",
    "Options of a host update.",
    (
        *_ASKED,
        Field(
            "network_only",
            Boolean(),
            "Whether the update concerns only the network, without an interruption.",
        ),
    ),
)
FAILURE = Form(
    "FailureForm",
    "Details of a failure.",
    (
        *_ASKED[1:4],
        Field(
            "lost",
            Boolean(),
            "Whether the failure is permanent, so that the VMs restart on other hosts.",
        ),
    ),
)
WORK_REQUEST = Form(
    "WorkRequestForm",
    "Work on at most 100 hosts or VMs, accepted or refused as a whole.",
    (
        Field("cause", CAUSES, "Cause of the work, which determines its kind.", required=True),
        Field("targets", ListOf(NAME, HOSTS_MAX), "Names of hosts or of VMs."),
        Field("selector", Text(), "Selector of hosts, such as zone=2, instead of names."),
        *_ASKED,
    ),
)
REASON = Form(
    "ReasonForm",
    "Reason of the request, for history.",
    (Field("reason", Text(REASON_LENGTH_MAX), "The reason, in words."),),
)
COMPLETION = Form(
    "CompletionForm",
    "Result of a running operation.",
    (
        Field("failed", Boolean(), "Whether the work has failed."),
        Field("reason", Text(REASON_LENGTH_MAX), "The reason, in words."),
    ),
)
#: Maximum failures, priority and hosts at once in a form.
COUNT_MAX = 1_000_000

_MAINTENANCE_CAUSES = Choice(
    {
        cause.value: cause
        for cause, traits in TRAITS.items()
        if traits.routine and traits.target is TargetKind.HOST
    }
)
MAINTENANCE = Form(
    "MaintenanceForm",
    "A maintenance: its hosts, its cause and its options.",
    (
        Field("cause", _MAINTENANCE_CAUSES, "Cause of the work on each host.", required=True),
        Field("hosts", ListOf(NAME, HOSTS_MAX, 1), "Names of hosts."),
        Field("selector", Text(), "Selector of hosts, such as zone=2, instead of names."),
        Field("all", Boolean(), "Whether to select every host of the fleet, instead of names."),
        Field(
            "duration",
            Duration(1, DURATION_S_MAX),
            "Duration of the work on each host.",
            required=True,
        ),
        Field(
            "move_vms",
            Duration(1, DURATION_S_MAX),
            "Time in which VMs leave a host before its work starts.",
        ),
        Field(
            "return_vms",
            Boolean(),
            "Whether VMs that left a host return to it after its work (default: they stay away).",
        ),
        Field("impact", IMPACTS, "Impact shown to VMs, if the cause allows several impacts."),
        Field("reason", Text(REASON_LENGTH_MAX), "Reason, for operators."),
        Field("description", Text(), "Description shown to VMs instead of the default."),
        Field("earliest_start", Timestamp(), "Earliest start."),
        Field("deadline", Timestamp(), "Time at which the last host must be done."),
        Field("priority", Integer(0, COUNT_MAX), "Maintenances with a higher number come first."),
        Field("max_at_once", Integer(1, COUNT_MAX), "Maximum number of hosts disturbed at a time."),
        Field(
            "max_failures",
            Integer(0, COUNT_MAX),
            "Hosts that may fail before the maintenance stops (default: the policy's number).",
        ),
        Field("gate", NAME, "Gate from the settings, checked after each wave."),
        Field("canary_hosts", ListOf(NAME, HOSTS_MAX), "Number of hosts in the first wave."),
        Field(
            "failure_domain",
            Text(),
            "Label of the policy's `failure_domains`: a wave has hosts with one value of it. "
            "With a value, such as `rack=r7`, it selects the hosts with this label.",
        ),
    ),
)
DECLARE = Form(
    "DeclareForm",
    "Severity of the work, and the time in which owners choose when it happens.",
    (
        Field(
            "severity",
            Choice({each.value: each for each in Severity if each is not Severity.EMERGENCY}),
            "Severity of the work (default: routine).",
        ),
        Field(
            "hand_back",
            Duration(),
            "Hand-back window, from the declaration to the hand-back deadline (default: the least "
            "that the policy allows).",
        ),
    ),
)
EMERGENCY = Form(
    "EmergencyForm",
    "The reason of an emergency, its hand-back window, and the rules that it waives.",
    (
        Field("reason", _REASON, "Reason, which owners see, too.", required=True),
        Field(
            "hand_back",
            Duration(),
            "Hand-back window (default and minimum: the notice of the impact).",
        ),
        Field(
            "waive",
            ListOf(Choice({each: each for each in every_waiver()}), len(every_waiver())),
            "Rules that the work need not keep; the review lists them. `fault-domain`: one fault "
            "domain of a group at a time. `budgets`: of the policy and the maintenance. `notice`: "
            "of the impact.",
        ),
    ),
)
#: The owner of VMs on a host; the empty text stands for VMs without an owner.
OWNER_OR_NONE = Text()
OWNER_ON_HOST = "Owner of the VMs; required for a host with VMs of several owners, may be empty."
IN_FAILURE_DOMAIN = "Failure domain of the VMs, by a label of their hosts such as `rack=r7`."
_DEFERRED_OWNER = (
    Field("owner", Text(), "Owner who asked; may be empty.", required=True),
    Field("host", NAME, "Only the request for this host."),
)
_DEFERRED_VMS = (
    Field("host", NAME, "Host of the VMs."),
    Field("group", NAME, "Group of the VMs, on all declared hosts."),
    Field("vm", NAME, "One VM; the request is for its owner's VMs on its host."),
    Field("failure_domain", Text(), IN_FAILURE_DOMAIN),
    Field("owner", OWNER_OR_NONE, OWNER_ON_HOST),
)
WITHDRAW = Form("WithdrawForm", "VMs whose undecided requests end.", _DEFERRED_VMS)
DEFER = Form(
    "DeferForm",
    "A later hand-back deadline for the VMs of a host, of a group, of a failure domain or for one "
    "VM.",
    (
        *_DEFERRED_VMS,
        Field("until", Timestamp(), "The hand-back deadline asked for.", required=True),
        Field("reason", _REASON, "Reason, for operators.", required=True),
    ),
)
_ORDERING_OWNER = Field(
    "owner", OWNER_OR_NONE, "Owner of the VMs, required for callers who see several owners."
)
FIRST_GROUP = Form(
    "FirstGroupForm",
    "The test group of an owner: its hosts are worked on before the owner's other hosts.",
    (
        _ORDERING_OWNER,
        Field("group", NAME, "The group; without one, no order is wanted any more."),
        Field(
            "observation",
            Duration(1),
            "Time between the work on the hosts of the group and on the others (default: 24 h, or "
            "the longest that the policy allows).",
        ),
    ),
)
HOLD_HOSTS = Form(
    "HoldHostsForm",
    "Why an owner's hosts after the test wait for their hand-back deadline.",
    (_ORDERING_OWNER, Field("reason", _REASON, "Reason, for operators.", required=True)),
)
RESUME_HOSTS = Form("ResumeHostsForm", "Whose hosts are no longer held.", (_ORDERING_OWNER,))
GRANT_DEFERRAL = Form(
    "GrantDeferralForm",
    "Whose requests are granted.",
    (*_DEFERRED_OWNER, Field("reason", Text(REASON_LENGTH_MAX), "Reason, for the owner.")),
)
REFUSE_DEFERRAL = Form(
    "RefuseDeferralForm",
    "Whose requests are refused, and why.",
    (
        *_DEFERRED_OWNER,
        Field("reason", _REASON, "Reason, for the owner.", required=True),
    ),
)
PAUSE = Form(
    "PauseForm",
    "Reason of the pause, and whether announced hosts stay announced.",
    (
        Field("reason", Text(REASON_LENGTH_MAX), "Reason of the pause, as text."),
        Field("keep_announced", Boolean(), "Whether announced hosts stay announced."),
    ),
)
_POSTPONING = (
    Field("until", Timestamp(), "New earliest start of the hosts.", required=True),
    Field("reason", Text(REASON_LENGTH_MAX), "Reason, for operators."),
    Field("by", NAME, "The requesting principal (default: the caller)."),
)
POSTPONE = Form(
    "PostponeForm",
    "The hosts to postpone, the new earliest start, and the reason.",
    (Field("hosts", ListOf(NAME, HOSTS_MAX, 1), "Names of hosts.", required=True), *_POSTPONING),
)
POSTPONE_EVENT = Form(
    "PostponeEventForm", "The new earliest start of the event's host, and the reason.", _POSTPONING
)
EMPTY = Form("EmptyForm", "An empty form.")

assert set(TRAITS) == set(CAUSES.values.values()), "TRAITS has an entry for each cause"
