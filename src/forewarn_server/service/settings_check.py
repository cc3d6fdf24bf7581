"""Checks settings before anything opens: ranges, addresses and promises.

`settings_loader.py` checks the form of the file; this module opens nothing.
"""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING

from forewarn_base.host_port import host_and_port, host_of_header
from forewarn_base.protocol.versions import VERSIONS
from forewarn_base.settings import SettingInvalid
from forewarn_base.urls import is_protected, shown_url
from forewarn_core.fleet.impact import Impact
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_metadata.endpoint.http.addresses import parse
from forewarn_metadata.endpoint.identity import UNIX
from forewarn_server.adfs_tokens import KEY_BYTES_MIN

if TYPE_CHECKING:
    from forewarn_base.settings import FeedSettings, LifecycleSettings, MetadataSettings, Settings


#: Statuses of the public service's answers to an unknown api-version. Source: E-3.
VERSION_STATUSES = (400, 404)


def check_settings(settings: Settings) -> None:
    """Refuse invalid settings.

    Raises:
        SettingInvalid: a number is out of range, an address is malformed, a header has two lines,
            or the policy breaks a promise.
        AddressInvalid: VMs cannot be served at an address.
    """
    from forewarn_server.settings_loader import RANGES, read_setting  # noqa: PLC0415 - an emulator reads none

    for section, name in RANGES:
        value = getattr(getattr(settings, section), name)
        read_setting(section, name, value, place="the settings")
    _check_metadata(settings.metadata)
    _check_store(settings)
    for address in settings.listen.metadata:
        parse(address)
    policy_of(settings.lifecycle)
    _check_feed(settings.feed)
    operator = settings.operator
    if bool(operator.certificate) != bool(operator.key):
        refuse("operator.key", "must be set together with operator.certificate")
    if operator.client_ca and not operator.certificate:
        refuse("operator.client_ca", "requires a certificate of the operator API")
    for name, key in (
        ("azure.token_key", settings.azure.token_key),
        ("audit.key", settings.audit.key),
    ):
        if key and len(key.encode()) < KEY_BYTES_MIN:
            refuse(name, f"is shorter than {KEY_BYTES_MIN} bytes")
    oidc = settings.oidc
    if oidc.issuer and not is_protected(oidc.issuer):
        refuse("oidc.issuer", "is not an https:// address")
    if bool(oidc.issuer) != bool(oidc.client_id):
        refuse("oidc.client_id", "must be set together with oidc.issuer")
    endpoint = settings.otlp.endpoint
    if endpoint and not shown_url(endpoint).startswith(("http://", "https://")):
        refuse("otlp.endpoint", "is not an http:// or https:// address")


def warnings_of(settings: Settings) -> tuple[str, ...]:
    """Return a warning for each valid setting that is unusual outside a laboratory.

    Raises:
        SettingInvalid: the operator API's address is malformed.
    """
    metadata, address = settings.metadata, settings.listen.operator
    warnings = []
    if metadata.vm_by_query or metadata.default_vm:
        warnings.append(
            "[metadata] vm_by_query lets callers read and approve for other VMs;"
            " use it on an emulator only."
        )
    if address and not (is_local(address) or settings.operator.certificate):
        warnings.append(
            f"Operators' tokens cross the network unencrypted to {address} ([listen] operator): "
            "set [operator] certificate, or listen on 127.0.0.1 behind a proxy with TLS."
        )
    return tuple(warnings)


def _check_metadata(metadata: MetadataSettings) -> None:
    for name in ("scheduledevents_unknown_version_status", "instance_unknown_version_status"):
        if getattr(metadata, name) not in VERSION_STATUSES:
            refuse(f"metadata.{name}", f"is {getattr(metadata, name)}; it may be 400 or 404")
    if metadata.min_api_version not in VERSIONS:
        problem = f"is {metadata.min_api_version!r}; it may be one of {', '.join(VERSIONS)}"
        refuse("metadata.min_api_version", problem)
    for host in metadata.allowed_hosts:
        if host != host_of_header(host):
            problem = f"has {host!r}; write names in lower case, without a port"
            refuse("metadata.allowed_hosts", problem)
    if not metadata.server_header.isascii() or not metadata.server_header.isprintable():
        refuse("metadata.server_header", "must be one line of ASCII text")
    for address in metadata.proxy_addresses:
        if address != UNIX and not _is_address(address):
            refuse("metadata.proxy_addresses", f"has {address!r}, which is not an IP address")
    if metadata.proxy_addresses and not metadata.proxy_secret:
        refuse("metadata.proxy_addresses", "requires proxy_secret (FOREWARN_METADATA_PROXY_SECRET)")


def _check_feed(feed: FeedSettings) -> None:
    if not feed.listen:
        return
    if not (is_local(feed.listen) or feed.certificate):
        refuse("feed.certificate", "is required unless the feed is on a loopback address")
    if bool(feed.certificate) != bool(feed.key):
        refuse("feed.key", "must be set together with feed.certificate")
    from forewarn_metadata.replication.access import NodeAccess  # noqa: PLC0415 - most have no such nodes

    try:
        NodeAccess(feed.hosts)
    except ValueError as error:
        refuse("feed.hosts", str(error))


def is_local(address: str) -> bool:
    """Whether only this machine can reach an address: a Unix socket, or loopback.

    Raises:
        SettingInvalid: the text is not an address.
    """
    if address.startswith("unix:"):
        return True
    try:
        host, _ = host_and_port(address)
    except ValueError as error:
        problem = f"has {error}"
        raise SettingInvalid(
            name="feed.listen or node.follow", place="the settings", problem=problem
        ) from error
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _check_store(settings: Settings) -> None:
    history = settings.history
    directory = history.export_directory
    if directory and not os.access(directory, os.W_OK | os.X_OK):
        refuse("history.export_directory", f"is {directory}, which cannot be written")
    url = settings.store.url
    if url.startswith("postgres") and "//" in url and "://" not in url:
        refuse("store.url", "has no colon; an address of PostgreSQL begins with postgresql://")


def policy_of(settings: LifecycleSettings) -> NoticePolicy:
    """Return the core's policy.

    Raises:
        SettingInvalid: the policy would break a promise, such as a notice below the contract's
        minimum.
    """
    notice_s = {impact: getattr(settings, f"notice_{impact.value.lower()}_s") for impact in Impact}
    try:
        return NoticePolicy(
            notice_s=notice_s,
            notice_margin_ms=settings.notice_margin_ms,
            prediction_s=settings.prediction_s,
            max_user_operations=settings.max_user_operations,
            max_operations=settings.max_operations,
            disable_after_s=settings.disable_after_s,
            overdue_after_s=settings.overdue_after_s,
        )
    except ValueError as error:
        raise SettingInvalid(name="[lifecycle]", place="the settings", problem=error) from error


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def refuse(name: str, problem: str) -> None:
    """Raise an error about a setting."""
    raise SettingInvalid(name=name, place="the settings", problem=problem)
