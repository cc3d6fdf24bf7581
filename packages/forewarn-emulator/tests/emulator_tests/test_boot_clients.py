"""What configures a VM at boot reads the emulator's instance metadata without a complaint.

The clients are cloud-init, the Azure Linux agent and ohai as distributions ship them, unmodified,
in a network namespace where 169.254.169.254 is the emulator. `tools/programs` fetches the first
two; ohai is used where it is installed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.programs import program
from tests.e2e.cloud import ADDRESS, FOREWARN, Cloud, cloud_of, wait_for_line
from tests.waiting import LIMIT_S

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
    pytest.mark.skipif(
        hasattr(os, "geteuid") and os.geteuid() != 0, reason="a namespace needs root"
    ),
]

CLIENTS = Path(__file__).parent / "clients"
#: What cloud-init says that is not of the metadata: a version, and a cable that has no driver.
BESIDE = ("Attempting", "Unable to specify driver for interface")
#: Where Debian's packages put their modules.
MODULES = "usr/lib/python3/dist-packages"
KEYS = ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 ann", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ ben")
FLEET = f"""
[hosts.h1]
[groups.web]
[vms.web-0]
host = "h1"
group = "web"
size = "Standard_D2s_v5"
location = "westeurope"
resource_group = "shop"
subscription = "5f2b7c6d-1111-2222-3333-444455556666"
vm_id = "02aab8a4-74ef-476e-8182-f6d2ba4166a6"
addresses = ["10.78.1.2", "10.0.0.7", "fd00::7", "fd00::8"]
[vms.web-0.instance]
"osProfile.adminUsername" = "ann"
publicKeys = "{KEYS[0]}\\n{KEYS[1]}"
macAddress = "00-0D-3A-F8-06-EC"
subnet = "10.0.0.0/26"
publisher = "Canonical"
offer = "UbuntuServer"
sku = "18.04-LTS"
version = "18.04.202301010"
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """A host and one VM."""
    with cloud_of(["web-0"]) as made:
        yield made


@pytest.fixture(scope="module", params=["default", "described"])
def fleet(
    request: pytest.FixtureRequest, cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An emulator with the default fleet, then with one that says everything; gives which."""
    folder = tmp_path_factory.mktemp(str(request.param))
    command = [*FOREWARN, "emulate", "--listen", f"{ADDRESS}:80", "--rate-limit"]
    if request.param == "described":
        folder.joinpath("fleet.toml").write_text(FLEET)
        command += ["--topology", str(folder / "fleet.toml")]
    with cloud.start(folder / "log", *command):
        wait_for_line(folder / "log", "operator API")
        yield str(request.param)
    assert "Traceback" not in folder.joinpath("log").read_text()


def modules(package: str, name: str) -> tuple[str, str]:
    """Return a Python and the path on which it finds a package's modules, or skip."""
    for place in filter(None, os.environ.get("TEST_PROGRAMS", "").split(os.pathsep)):
        tree = Path(place, package)
        if tree.joinpath(MODULES, name).is_dir():
            return sys.executable, f"{tree / MODULES}{os.pathsep}{tree / 'needs'}"
    if Path("/", MODULES, name).is_dir():
        return "/usr/bin/python3", ""
    pytest.skip(f"{package} is not installed; put it into TEST_PROGRAMS with tools/programs")


def reads(cloud: Cloud, *command: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a client in the VM, and return what it said."""
    found = subprocess.run(
        ["ip", "netns", "exec", cloud.vms["web-0"].namespace, *command],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert found.returncode == 0, found.stderr
    return found


def test_cloud_init_reads_everything(fleet: str, cloud: Cloud, tmp_path: Path) -> None:
    """It needs no older version, warns of nothing, and finds user, keys and network.

    Source: I-1.
    """
    python, path = modules("cloud-init", "cloudinit")
    said = reads(cloud, python, str(CLIENTS / "cloud_init.py"), str(tmp_path), path=path)
    made = json.loads(said.stdout.splitlines()[-1])
    assert not [text for text in made["heard"] if not text.startswith(BESIDE)]
    assert made["macs_known"] is True
    eth0 = made["network"]["ethernets"]["eth0"]
    if fleet == "default":
        assert (made["username"], made["hostname"], made["keys"]) == ("azureuser", "vm-1", [])
        assert eth0["match"] == {"macaddress": "00:0d:3a:00:00:04"}
        assert made["disable_password"] is False
        return
    assert (made["username"], made["hostname"], made["keys"]) == ("ann", "web-0", list(KEYS))
    assert eth0["match"] == {"macaddress": "00:0d:3a:f8:06:ec"}
    assert eth0["addresses"] == ["10.0.0.7/26", "fd00::8/64"]
    assert (made["disable_password"], made["region"]) == (True, "westeurope")


def test_waagent_finds_the_service_healthy(fleet: str, cloud: Cloud) -> None:
    """Its checks of the service pass, and it knows the image's origin. Source: I-1."""
    python, path = modules("waagent", "azurelinuxagent")
    said = reads(cloud, python, str(CLIENTS / "waagent.py"), path=path)
    made = json.loads(said.stdout.splitlines()[-1])
    assert (made["healthy"], made["problem"]) == (True, "")
    endorsed, platform = 2, 3
    assert made["origin"] == (platform if fleet == "default" else endorsed)
    assert all(made[name] for name in ("name", "subscription", "size", "image"))


def test_termination_handler_polls_on(fleet: str, cloud: Cloud) -> None:
    """It asks for a version that may be unknown, where cloud-init and ohai read theirs, too.

    Source: E-3.
    """
    said = reads(cloud, sys.executable, str(CLIENTS / "termination_handler.py"))
    assert said.stdout.split() == ["404"] * 3, fleet


def test_ohai_knows_its_vm(fleet: str, cloud: Cloud, tmp_path: Path) -> None:
    """It finds a version that it knows, and takes all addresses over. Source: I-1, E-3."""
    ohai = program("ohai")
    hints = tmp_path / "hints"
    hints.mkdir()
    hints.joinpath("azure.json").write_text("{}")
    config = tmp_path / "client.rb"
    config.write_text(f'ohai.hints_path << "{hints}"\n')
    said = reads(cloud, ohai, "--config", str(config), "--log_level", "warn", "azure")
    made = json.loads(said.stdout)
    metadata = made["metadata"]
    assert "WARN" not in said.stderr
    assert "ERROR" not in said.stderr
    assert metadata["compute"]["osType"] == "Linux"
    local = (metadata["network"]["local_ipv4"], metadata["network"]["local_ipv6"])
    if fleet == "default":
        assert local == (["10.0.0.4"], [])
    else:
        assert local == (["10.78.1.2", "10.0.0.7"], ["fd00::7", "fd00::8"])
