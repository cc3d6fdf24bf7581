"""Azure's SDKs of four languages, unmodified, on a VM of the emulator. Source: Z-1, Z-3.

The VM is a network namespace in which 169.254.169.254 is the emulator, so that no SDK has to be
told where to ask for a token. `make test-sdks` installs the SDKs; without them these are skipped.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.live import Json
from tests.e2e.cloud import ADDRESS, FOREWARN, Cloud, cloud_of, wait_for_line
from tests.waiting import LIMIT_S

#: Where `make test-sdks` has installed the SDKs.
PLACE = os.environ.get("AZURE_SDKS_DIRECTORY", "")
PROGRAMS = Path(__file__).parent / "sdks"
CLIENTS = {
    "python": (sys.executable, f"{PROGRAMS}/client.py"),
    "javascript": ("node", f"{PROGRAMS}/client.cjs"),
    "go": (f"{PLACE}/client",),
    "java": ("java", "-cp", f"{PLACE}/java/*", f"{PROGRAMS}/Client.java"),
}
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
AT = f'subscription = "{SUBSCRIPTION}", resource_group = "emulator"'
FLEET = f"""
hosts = {{h0 = {{}}, h1 = {{}}}}
groups = {{db = {{}}, spot = {{}}, web = {{kind = "scale-set"}}}}

[vms]
db = {{host = "h0", group = "db", {AT}}}
spot = {{host = "h1", group = "spot", spot = true, {AT}}}
web_0 = {{host = "h0", group = "web", spot = true, {AT}}}
web_1 = {{host = "h1", group = "web", {AT}}}
"""
#: What every client does, in this order; each is announced to the VM.
WORK = [
    *("reboot db", "redeploy db", "eviction spot"),
    *("reboot web_1", "redeploy web_1", "eviction web_0", "deletion web_1", "deletion db"),
]

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not PLACE, reason="needs Azure's SDKs: `make test-sdks` installs them"),
    pytest.mark.parametrize("language", CLIENTS),
]


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """A machine with the address of the metadata service."""
    with cloud_of([]) as made:
        yield made


@contextmanager
def emulator(cloud: Cloud, directory: Path, *words: str) -> Iterator[str]:
    """Run an emulator there; gives the path of its certificate."""
    directory.joinpath("fleet.toml").write_text(FLEET)
    listen = ("--listen", f"{ADDRESS}:80", "--speed", "600", "--json")
    fleet = ("--topology", f"{directory}/fleet.toml")
    log = directory / "log"
    with cloud.start(log, *FOREWARN, "emulate", *listen, *fleet, *words):
        wait_for_line(log, "metadata")
        yield json.loads(log.read_text().splitlines()[0])["azure_certificate"]


def run(cloud: Cloud, language: str, directory: Path, certificate: str, *more: str) -> Json:
    """Return what a client says; it finds no other identity than the VM's."""
    program, *words = CLIENTS[language]
    environment = {
        "HOME": str(directory),
        "NODE_EXTRA_CA_CERTS": certificate,
        "NODE_PATH": f"{PLACE}/node_modules",
        "PATH": "/nowhere",
        "PYTHONPATH": f"{PLACE}/python",
        "REQUESTS_CA_BUNDLE": certificate,
        "SSL_CERT_FILE": certificate,
    }
    if certificate and language == "java":
        store = ("-keystore", f"{directory}/trusted", "-storepass", "public")
        add = ("keytool", "-importcert", "-noprompt", "-file", certificate, *store)
        subprocess.run(add, check=True, capture_output=True)
        trust = "-Djavax.net.ssl.trustStore"
        words = [f"{trust}={directory}/trusted", f"{trust}Password=public", *words]
    inside = (shutil.which("ip"), "netns", "exec", cloud.host, shutil.which(program))
    ended = subprocess.run(
        [*map(str, inside), *words, "https://localhost:8472", SUBSCRIPTION, "emulator", *more],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_sdk_work_on_vms_and_instances_is_announced(
    language: str, cloud: Cloud, tmp_path: Path
) -> None:
    """List, restart, redeploy, evict, scale and delete, by the VM's identity. Source: Z-1."""
    with emulator(cloud, tmp_path, "--azure") as certificate:
        names = run(cloud, language, tmp_path, certificate)
        work = json.loads(cloud.operator("operation", "list", "--all", "--json"))["operations"]
    assert names["before"] == ["db", "spot", "web_0", "web_1"]
    assert [f"{each['cause']} {each['target']}" for each in work] == WORK
    assert names["after"] == ["web_2"]


def test_sdk_finds_within_a_second_that_there_is_no_identity(
    language: str, cloud: Cloud, tmp_path: Path
) -> None:
    """The answer says so, and is none that an SDK asks for again and again. Source: Z-3."""
    with emulator(cloud, tmp_path) as certificate:
        assert run(cloud, language, tmp_path, certificate)["no_identity_s"] < 1


def test_sdk_configures_assigns_and_applies_maintenance(
    language: str, cloud: Cloud, tmp_path: Path
) -> None:
    """A window for a VM's host, and the VM's planned work, applied at once. Source: Z-7."""
    if language != "go":
        pytest.skip("of the SDKs for maintenance only those of Go and Python are published here")
    with emulator(cloud, tmp_path, "--azure", "--speed", "1") as certificate:
        cloud.operator("host", "migrate", "h0", "--not-before", "+1h")
        answer = run(cloud, language, tmp_path, certificate, "maintenance")
        events = json.loads(cloud.operator("event", "list", "--json"))["events"]
    assert answer == {"window": "Day", "assigned": ["nights"], "pending": ["Freeze Pending"]}
    assert {each["group"]: each["state"] for each in events}["db"] == "approved"
