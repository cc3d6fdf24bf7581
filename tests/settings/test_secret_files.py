"""Files with secrets that every user of the machine can read are found by what the settings say."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from forewarn_base.settings import SECRET_FILES, SECRETS, Settings
from forewarn_drivers.webhook.driver import WebhookOptions
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_openstack.config import NovaConfig
from forewarn_server.control.gate_checks import (
    CommandOptions,
    Gate,
    PollsOptions,
    PrometheusOptions,
    UrlOptions,
)
from forewarn_server.outbox.destinations import SINKS
from forewarn_server.service.secret_files import PUBLIC_FILES, exposed_files
from forewarn_server.settings_loader import load_settings

K32 = "k" * 32


def exposed(folder: Path, written: str, *, mode: int = 0o644) -> list[str]:
    """Return the names of the exposed files beside settings of a mode."""
    file = folder / "forewarn.toml"
    file.write_text(written.replace("DIR", str(folder)))
    file.chmod(mode)
    return [each.name for each in exposed_files([file], load_settings([file], {}))]


@pytest.mark.parametrize(
    "written",
    [
        f'[audit]\nkey = "{K32}"',
        f'[azure]\ntoken_key = "{K32}"',
        '[metadata]\nproxy_secret = "s"',
        '[oidc]\nclient_secret = "s"',
        '[node]\ntoken = "fw_a_b"',
        '[store]\nurl = "postgresql://forewarn:word@db/forewarn"',
        '[store]\nurl = "postgresql://db/forewarn?user=forewarn&password=word"',
        '[gates.load]\nprometheus = "https://kim:word@prometheus.example"\nquery = "up"',
        '[outbox.tickets]\nkind = "webhook"\nurl = "https://kim:word@tickets.example"',
        '[outbox.mail]\nkind = "apprise"\nurls = ["mailto://mail.example/token"]',
        '[drivers.theirs]\nkind = "theirs"\napi_token = "word"',
    ],
)
def test_settings_file_with_a_secret_is_found(tmp_path: Path, written: str) -> None:
    """Passwords in URLs and secrets of other packages' drivers count, too. Source: U-4."""
    assert exposed(tmp_path, written) == ["forewarn.toml"]
    assert exposed(tmp_path, written, mode=0o640) == []


@pytest.mark.parametrize(
    "written",
    [
        "",
        '[store]\nurl = "postgresql://forewarn@db/forewarn"',
        '[operator]\nkey = "DIR/none.pem"\ncertificate = "DIR/none.pem"',
        '[outbox.tickets]\nkind = "webhook"\nurl = "https://tickets.example/events"',
    ],
)
def test_settings_file_without_a_secret_may_be_read(tmp_path: Path, written: str) -> None:
    """People share their settings; a check that cries wolf is switched off."""
    assert exposed(tmp_path, written) == []


@pytest.mark.parametrize(
    "written",
    [
        *(f'[{section}]\nkey = "DIR/file"' for section in ("operator", "feed", "node", "azure")),
        '[store]\nurl = "sqlite://DIR/file"',
        '[drivers.site]\nkind = "webhook"\nurl = "https://x.example"\nsecret_file = "DIR/file"',
        '[drivers.cloud]\nkind = "nova"\nclouds_file = "DIR/file"',
        '[drivers.cluster]\nkind = "kubernetes"\ntoken_file = "DIR/file"',
        '[outbox.mail]\nkind = "apprise"\nurls_file = "DIR/file"',
        '[outbox.queue]\nkind = "kafka"\nbrokers = ["b:1"]\npassword_file = "DIR/file"',
        '[outbox.grid]\nkind = "event-grid"\nurl = "https://x.example"\nkey_file = "DIR/file"',
    ],
)
def test_file_with_a_secret_that_a_setting_names_is_found(tmp_path: Path, written: str) -> None:
    """Each file has a mode of its own. Source: U-4."""
    (tmp_path / "file").touch(0o644)
    assert exposed(tmp_path, written) == ["file"]
    (tmp_path / "file").chmod(0o640)
    assert exposed(tmp_path, written) == []


def test_fragment_with_a_secret_is_found_and_not_its_neighbours(tmp_path: Path) -> None:
    """A fragment keeps the secrets, so that others may read the rest."""
    folder = tmp_path / "forewarn.toml.d"
    folder.mkdir()
    (folder / "a.toml").write_text('[log]\nlevel = "debug"')
    (folder / "b.toml").write_text(f'[audit]\nkey = "{K32}"')
    assert exposed(tmp_path, '[log]\nformat = "json"') == ["b.toml"]


def test_every_setting_that_sounds_like_a_secret_is_in_the_table() -> None:
    """A new one joins by its name. Source: U-4."""
    secret = re.compile(r"(?:.*_)?(?:secret|token|password|key|credentials)").fullmatch
    for section in fields(Settings):
        known = {*SECRETS.get(section.name, ()), *SECRET_FILES.get(section.name, ())}
        names = {each.name for each in fields(getattr(Settings(), section.name))}
        assert known <= names
        assert {name for name in names if secret(name)} == known, section.name
    gates = (Gate, CommandOptions, UrlOptions, PrometheusOptions, PollsOptions)
    tables = (
        *gates,
        KubernetesConfig,
        NovaConfig,
        WebhookOptions,
        *(
            each.load().options
            for each in map(SINKS.find, (*SINKS.built_in, *SINKS.packages))
            if each
        ),
    )
    options = {each.name for table in tables for each in fields(table)}
    assert not {name for name in options if secret(name)}, "their secrets are in files"
    assert options > PUBLIC_FILES
