"""The nova driver passes the conformance suite for drivers, on Nova's real API."""

import json
import sys
from pathlib import Path

import pytest

from forewarn_server.cli.main import main
from openstack_tests.cloud import Cloud
from openstack_tests.tasks import UNWARNED

pytestmark = [pytest.mark.slow, UNWARNED]

#: Asks the hypervisors how often a task has rebooted a server.
EFFECTS = """#!{python}
import sys, urllib.request
body = b'{{"task": "%s"}}' % sys.argv[1].encode()
print(urllib.request.urlopen("http://127.0.0.1:{port}/test/reboots", body).read().decode())
"""


def test_nova_driver_passes_every_check(
    cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reboots of a server happen once, whoever asks how often. Source: R-6."""
    server = cloud.server("conform", "h1")
    effects = tmp_path / "effects"
    effects.write_text(EFFECTS.format(python=sys.executable, port=cloud.port))
    effects.chmod(0o755)
    settings = tmp_path / "forewarn.toml"
    settings.write_text(f'[drivers.nova]\ncloud = "test"\nclouds_file = "{cloud.clouds_file}"\n')
    words = ("driver", "check", "nova", "--host", "h1", "--vm", server, "--json")
    main([*words, "--effects", str(effects), "--config", str(settings)])
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [each for each in checks if each["verdict"] == "failed"] == []
    assert sum(each["verdict"] == "passed" for each in checks) > 10, checks
