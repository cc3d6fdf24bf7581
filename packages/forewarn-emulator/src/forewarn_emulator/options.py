"""Options of an emulator, and the resulting settings of its service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from forewarn_base.ids import Ids
from forewarn_base.settings import (
    AzureSettings,
    DriverSettings,
    LifecycleSettings,
    ListenSettings,
    MetadataSettings,
    NamedTable,
    OperatorSettings,
    Settings,
    StoreSettings,
)
from forewarn_base.values import replace, value

METADATA_ADDRESS = "127.0.0.1:8169"
OPERATOR_ADDRESS = "127.0.0.1:8470"
#: The emulator's default settings for serving VMs.
METADATA = MetadataSettings(rate_per_s=0.0, vm_by_query=True, outcomes=True, domains_allowed=False)
#: Largest move of the clock, in seconds: a month.
ADVANCE_S_MAX = 31 * 86_400
#: Unlimited timeout, in seconds: a jump of the clock by a week must not disable groups or time out
#: calls of the simulated driver. Source: B-4, R-1.
NEVER_S = 100 * 366 * 24 * 3600
#: Longest real time between the decision on an event and its display, in ms. This time, multiplied
#: by the speed, is added to every notice.
SHOWING_MS = 20
MARGIN_MS = 500


@value
class Options:
    """Options of an emulator."""

    #: Addresses of the metadata service, in the format of `MetadataServer.start`.
    listen: tuple[str, ...] = (METADATA_ADDRESS,)
    #: Address of the operator API; empty: none.
    operator: str = OPERATOR_ADDRESS
    #: Address of Azure Resource Manager; empty: none.
    azure: str = ""
    #: Names of the VMs; empty: the VMs of the store or topology, otherwise one default VM.
    vms: tuple[str, ...] = ()
    #: Source addresses of VMs, by name. Source: S-6.
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Name and text of a topology file; empty: the fleet consists of `vms`.
    topology: str = ""
    topology_name: str = ""
    #: Emulated seconds per real second.
    speed: float = 1.0
    #: Seed for reproducible ids and random choices; None: not reproducible.
    seed: int | None = None
    #: File of the store; empty: in memory.
    store: str = ""
    #: Whether the first request of a group enables the group, as in the public cloud. Source: B-1.
    enable_on_first_request: bool = False
    #: Settings of the metadata service; only `enable_on_first_request` permits a delayed first
    #: answer.
    metadata: MetadataSettings = METADATA
    #: Response to an evicted or deleted VM: `404`, `hang` or `refuse`.
    gone_vm: str = "hang"
    #: Least time for which events are Started, in seconds; 0: as long as the interruption. See D-9.
    started_for_s: int = 0
    #: Maximum user-initiated operations scheduled at a time; 0: no limit. Source: O-1.
    max_user_operations: int = 0


def settings_of(options: Options) -> Settings:
    """Return the settings of the emulator's service, without the fleet."""
    on_first = options.enable_on_first_request
    delay_s = options.metadata.enable_delay_s if on_first else 0.0
    return Settings(
        listen=ListenSettings(metadata=options.listen, operator=options.operator),
        metadata=replace(
            options.metadata,
            enable_delay_s=delay_s,
            enable_timeout_s=max(options.metadata.enable_timeout_s, delay_s + 5.0),
        ),
        operator=OperatorSettings(open_on_loopback=True),
        azure=AzureSettings(
            listen=options.azure, token_key=Ids().token("arm") if options.azure else ""
        ),
        store=StoreSettings(url=options.store or "sqlite::memory:"),
        lifecycle=LifecycleSettings(
            notice_margin_ms=margin_ms(options.speed),
            max_user_operations=options.max_user_operations,
            disable_after_s=LifecycleSettings().disable_after_s if on_first else NEVER_S,
        ),
        drivers=DriverSettings(
            default="simulated",
            call_timeout_s=NEVER_S,
            tables=(NamedTable("simulated", {"started_for_s": options.started_for_s}),),
        ),
    )


def margin_ms(speed: float) -> int:
    """Return the time added to each notice to compensate for publishing delays, in ms."""
    return max(MARGIN_MS, round(SHOWING_MS * speed))
