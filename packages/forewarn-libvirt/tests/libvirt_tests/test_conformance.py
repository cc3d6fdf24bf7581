"""The libvirt driver passes the conformance suite for drivers, on a real hypervisor."""

import json
import re
import shlex
from pathlib import Path

import pytest

from forewarn_server.cli.main import main
from libvirt_tests.guest_image import poller_image
from libvirt_tests.laboratory import Guest, Laboratory, Node

pytestmark = [pytest.mark.slow, pytest.mark.netns]

#: libvirtd runs it whenever a guest starts, with the guest's definition, the driver's mark
#: included: how often a task was begun to effect is what the hypervisor says.
HOOK = r"""#!/bin/sh
[ "$2" = started ] || exit 0
tr "'" '"' | sed -n \
    's,.*<forewarn-task:task [^>]*operation="\([^"@]*\)@[^"]*" attempt="\([0-9]*\)".*,\1/\2,p' \
    >>{counted}
"""


class Bare(Guest):
    """A guest without anything to boot: it costs nothing to have it run."""

    def xml(self, consoles: Path) -> str:
        """Return its definition, without its kernel."""
        return re.sub(r"<(kernel|initrd|cmdline)>.*</\1>", "", Guest.xml(self, consoles))


def set_up_counting(node: Node, counted: Path) -> None:
    """Have a host note the task of each start of a guest."""
    hooks = node.directory / "etc" / "hooks"
    hooks.mkdir(exist_ok=True)
    hook = hooks / "qemu"
    hook.write_text(HOOK.format(counted=shlex.quote(str(counted))))
    hook.chmod(0o755)
    counted.touch()


@pytest.mark.nightly
def test_libvirt_driver_passes_every_check(
    lab: Laboratory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reboots of a guest happen once, whoever asks how often. Source: R-5, R-6."""
    node, counted = lab.hosts["h1"], tmp_path / "starts"
    set_up_counting(node, counted)
    lab.kill_libvirtd("h1")  # which looks for hooks when it starts
    lab.start_libvirtd("h1")
    lab.define("h1", Bare("a1", 11, poller_image(tmp_path)))
    effects = tmp_path / "effects"
    effects.write_text(f'#!/bin/sh\ngrep -cx "$1" {counted} || true\n')
    effects.chmod(0o755)
    (tmp_path / "libvirt.toml").write_text(
        f'directory = "{tmp_path}/driver"\nshutdown_timeout_s = 0\n'
        f'[hosts.h1]\nuri = "{node.local_uri}"\n'
    )
    settings = tmp_path / "forewarn.toml"
    settings.write_text(f'[drivers.libvirt]\nconfig = "{tmp_path}/libvirt.toml"\n')
    words = ("driver", "check", "libvirt", "--host", "h1", "--vm", "a1", "--json")
    main([*words, "--effects", str(effects), "--config", str(settings)])
    checks = json.loads(capsys.readouterr().out)["checks"]
    failed = [each for each in checks if each["verdict"] == "failed"]
    assert failed == [], counted.read_text()
    assert re.search(r"op-\d+/1", counted.read_text())
