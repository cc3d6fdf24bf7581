"""The forms operators send: hosts, groups, VMs, whole fleets, and requests for work.

Tables only; how a kind of value is read is in `fields.py`, what a form does in the handlers.
"""

from __future__ import annotations

from typing import Final

from forewarn.core.impact import (
    DURATION_S_MAX,
    DURATION_UNKNOWN_S,
    TERMINATE_NOTICE_S_MAX,
    TRAITS,
    Cause,
    Impact,
    Source,
)
from forewarn.core.maintenance import HOSTS_MAX
from forewarn.core.naming import (
    ADDRESSES_MAX,
    DOMAIN_MAX,
    INSTANCE_LENGTH_MAX,
    KEY_PATTERN,
    LABELS_MAX,
    TAGS_MAX,
    VALUE_PATTERN,
)
from forewarn.core.topology import GroupKind
from forewarn.metadata.instance_fields import COMPUTE, DATA_DISKS_PATTERN, SETTABLE
from forewarn.validation.fields import (
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
from forewarn.validation.forms import Field, Form, ListOf, Named

#: Hosts, groups or VMs one topology may name; one control plane is meant for less.
FLEET_MAX = 100_000
#: Longest reason an operator gives, in characters.
REASON_LENGTH_MAX = 256

IMPACTS: Final = Choice({impact.value: impact for impact in Impact})
SOURCES: Final = Choice({source.value: source for source in Source})
CAUSES: Final = Choice({cause.value: cause for cause in Cause})
_AUTOMATIC: Final = Choice({i.value: i for i in (Impact.REBOOT, Impact.REDEPLOY)})

_LABEL: Final = Text(64, VALUE_PATTERN, "a label's value, without comma, equals sign or space")
_KEY_WANTED = "1 to 63 letters, digits, `.`, `_`, `/`, `-`, and begin with a letter or digit"
_DISKS = "data disks, one a line, such as lun=0 name=data diskSizeGB=128"
SELECTOR: Final = Field(
    "selector", Text(), "Only hosts that have all of these: zone=2,rack=r7; zone, and labels."
)

HOST = Form(
    "HostForm",
    "A physical machine.",
    (
        Field("fault_domain", Integer(0, DOMAIN_MAX), "Hosts of one number may fail together."),
        Field(
            "update_domain", Integer(0, DOMAIN_MAX), "Hosts of one number are serviced together."
        ),
        Field("zone", Text(), "Zone it stands in; fault domains of two zones are never the same."),
        Field("driver", Text(), "Who carries work on it out; empty: the service's default."),
        Field(
            "labels",
            Named(_LABEL, LABELS_MAX, Text(64, KEY_PATTERN, _KEY_WANTED)),
            "Pairs by which selectors, windows and budgets name it; `rack` is its rack.",
        ),
    ),
)
GROUP = Form(
    "GroupForm",
    "VMs that share a document, and how they want to be asked.",
    (
        Field("kind", Choice({kind.value: kind for kind in GroupKind}), "What makes it a group."),
        Field("owner", Text(), "Whose it is; limits on user-initiated work count by owner."),
        Field(
            "fault_domain_count",
            Integer(0, DOMAIN_MAX + 1),
            "Fault domains a scale set is spread over; 0: not said.",
        ),
        Field("strict_approval", Boolean(), "Whether every VM of an event must approve it."),
        Field(
            "automatic_approval",
            ListOf(_AUTOMATIC, 2),
            "Impacts of user-initiated work that need no approval.",
        ),
        Field(
            "terminate_notice",
            Duration(0, TERMINATE_NOTICE_S_MAX),
            "Notice of a deletion, 5 to 15 minutes; 0: deletions are not announced.",
        ),
        Field("reimage_notice", Boolean(), "Whether image upgrades and reimages are announced."),
    ),
)
INSTANCE = Form(
    "InstanceForm",
    "Further instance metadata, by its dotted names; see the page on instance metadata.",
    (
        *(
            Field(name, Text(INSTANCE_LENGTH_MAX), f"Shown since {COMPUTE[name][0]}.")
            for name in SETTABLE
        ),
        Field(
            "macAddress",
            Text(17, r"[0-9A-Fa-f]{2}([:-]?[0-9A-Fa-f]{2}){5}", "12 hexadecimal digits"),
            "Hardware address; without it made from the first IPv4 address.",
        ),
        Field("privateIpAddress", IpAddress(), "IPv4 address of a VM known by none."),
        Field("publicKeys", Text(INSTANCE_LENGTH_MAX, lines=True), "SSH keys, one a line."),
        Field(
            "storageProfile.dataDisks",
            Text(INSTANCE_LENGTH_MAX, DATA_DISKS_PATTERN, _DISKS, lines=True),
            "Data disks, one a line.",
        ),
        Field("subnet", Subnet(), "IPv4 subnet; without it the /24 of the first address."),
    ),
)
VM = Form(
    "VmForm",
    "A virtual machine.",
    (
        Field("host", NAME, "Host it runs on.", required=True),
        Field("group", NAME, "Its group; without it a group of its own, by its own name."),
        Field("size", Text(), "Size, such as Standard_D4s_v5."),
        Field("gpu", Boolean(), "Whether it is a GPU machine, where the size does not say so."),
        Field("spot", Boolean(), "Whether it may be evicted."),
        Field("addresses", ListOf(IpAddress(), ADDRESSES_MAX), "Addresses it asks from."),
        Field("interface", Text(), "Interface those addresses count on; empty: any."),
        Field("instance_id", Text(), "What a metadata proxy calls it."),
        Field("vm_id", Text(), "The id in its instance metadata."),
        Field("os_type", Text(), "Linux or Windows."),
        Field("location", Text(), "Region."),
        Field("resource_group", Text(), "Resource group."),
        Field("subscription", Text(), "Subscription."),
        Field(
            "tags",
            Named(Text(), TAGS_MAX, Text(pattern=r"[^\x00-\x1f]+", wanted="a tag's name")),
            "Tags.",
        ),
        Field("instance", INSTANCE, "Further instance metadata, by its dotted names."),
    ),
)
TOPOLOGY = Form(
    "TopologyForm",
    "A fleet, or a part of one: hosts, groups and VMs by their names.",
    (
        Field("hosts", Named(HOST, FLEET_MAX), "Hosts by name."),
        Field("groups", Named(GROUP, FLEET_MAX), "Groups by name."),
        Field("vms", Named(VM, FLEET_MAX), "VMs by name."),
    ),
)

_ASKED = (
    Field("not_before", Timestamp(), "Earliest start; without it as early as the notice allows."),
    Field(
        "duration",
        Duration(DURATION_UNKNOWN_S, DURATION_S_MAX),
        "Expected interruption; 0 none, -1 unknown.",
    ),
    Field("description", Text(), "The text VMs are shown in place of the usual one."),
    Field("destination", NAME, "Host the VMs are on afterwards."),
    Field("impact", IMPACTS, "The impact shown to VMs, where the cause allows a choice."),
    Field("source", SOURCES, "The source shown to VMs."),
    Field("queue", Boolean(), "Queue routine work behind the same work under way; else refused."),
)
WORK = Form("WorkForm", "How work is to be done; every member may be left out.", _ASKED)
UPDATE = Form(
    "UpdateForm",
    "How a host update is to be done.",
    (*_ASKED, Field("network_only", Boolean(), "An update of the network alone: no interruption.")),
)
FAILURE = Form(
    "FailureForm",
    "What is known of a failure.",
    (
        *_ASKED[1:4],
        Field("lost", Boolean(), "The host does not come back: its VMs are brought up elsewhere."),
    ),
)
WORK_REQUEST = Form(
    "WorkRequestForm",
    "Work on at most 100 hosts or VMs, all of it or none.",
    (
        Field("cause", CAUSES, "Why; decides what is done.", required=True),
        Field("targets", ListOf(NAME, HOSTS_MAX), "Names of hosts or of VMs."),
        Field("selector", Text(), "In place of names: hosts that have all of these: zone=2."),
        *_ASKED,
    ),
)
REASON = Form(
    "ReasonForm",
    "Why, for history.",
    (Field("reason", Text(REASON_LENGTH_MAX), "The reason, in words."),),
)
COMPLETION = Form(
    "CompletionForm",
    "How running work has ended.",
    (
        Field("failed", Boolean(), "Whether it has failed."),
        Field("reason", Text(REASON_LENGTH_MAX), "The reason, in words."),
    ),
)
EMPTY = Form("EmptyForm", "Nothing to say.")

assert set(TRAITS) == set(CAUSES.values.values()), "every cause can be asked for"
