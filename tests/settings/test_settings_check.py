"""Settings nobody can mean are refused before anything opens."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK, USAGE
from forewarn_base.settings import Settings
from forewarn_server.service.settings_check import check_settings, warnings_of
from forewarn_server.settings_loader import RANGES, load_settings
from tests.waiting import LIMIT_S


def test_defaults_are_sound() -> None:
    """Nobody must set anything, and every range names a setting."""
    check_settings(Settings())
    for section, name in RANGES:
        assert hasattr(getattr(Settings(), section), name)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[metadata]\nrate_per_s = -1.0", "must be a number from 0 to 1000000, not -1.0"),
        ("[metadata]\nrate_burst = 0", "must be an integer from 1 to "),
        ("[metadata]\nwait_timeout_s = nan", "must be a number from 0 to 86400, not nan"),
        ("[metadata]\nidle_timeout_s = 1", "is unknown"),
        ("[metadata]\nmax_connections = 0", "must be an integer from 1 to "),
        (
            "[metadata]\nscheduledevents_unknown_version_status = 200",
            "is 200; it may be 400 or 404",
        ),
        ("[metadata]\ninstance_unknown_version_status = 500", "is 500; it may be 400 or 404"),
        ('[metadata]\nmin_api_version = "2018-01-01"', "it may be one of 2017-03-01, 2017-08-01"),
        ('[metadata]\nallowed_hosts = ["Host:80"]', "in lower case, without a port"),
        ('[metadata]\nserver_header = "a\\r\\nSet-Cookie: b"', "one line of ASCII text"),
        ('[metadata]\nproxy_addresses = ["proxy"]', "'proxy', which is not an IP address"),
        ('[listen]\nmetadata = ["localhost"]', "'localhost' is not a valid listening address"),
        ("[listen]\nworkers = 65", "must be an integer from 0 to 64, not 65"),
        ("[listen]\nworkers = -1", "must be an integer from 0 to 64, not -1"),
        ('[metadata]\nproxy_addresses = ["10.0.0.5"]', "requires proxy_secret"),
        ('[azure]\ntoken_key = "short"', "is shorter than 32 bytes"),
        ('[store]\nurl = "postgres//x"', "begins with postgresql://"),
        ("[lifecycle]\nnotice_freeze_s = 60", "Freeze 1 min of notice; the least is 15 min"),
    ],
    ids=lambda text: text.rpartition("\n")[2].partition(" ")[0],
)
def test_setting_nobody_can_mean_is_refused(tmp_path: Path, written: str, said: str) -> None:
    """Out of its range, no address, or two lines in a header: refused, with the reason."""
    path = tmp_path / "forewarn.toml"
    path.write_text(written)
    with pytest.raises(CallerError) as refused:
        check_settings(load_settings([path], {}))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", ""),
        ('azure.listen = "x"', "Azure Resource Manager cannot listen on x: the address is not"),
        ('otlp.endpoint = "collector:4318"', "endpoint in the settings is not an http://"),
        ('store.url = "mysql://x"', "is not the address of a store"),
    ],
    ids=["sound", "azure", "otlp", "store"],
)
def test_check_is_a_command(tmp_path: Path, written: str, said: str) -> None:
    """`serve --check` ends with 0, or with 2 and one sentence."""
    path = tmp_path / "forewarn.toml"
    store = "" if "store" in written else '\nstore.url = "sqlite::memory:"'
    path.write_text(f'listen = {{operator = "", metadata = ["127.0.0.1:0"]}}\n{written}{store}')
    command = [sys.executable, "-m", "forewarn_server.cli.main", "serve", "--config", str(path)]
    command += ["--check", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == (USAGE if said else OK)
    assert (said or "settings valid") in done.stderr
    assert bool(done.stdout and json.loads(done.stdout)["sound"]) is not bool(said)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("written", "warning"),
    [
        ("", ""),
        ('[listen]\noperator = ""\n[metadata]\nvm_by_query = true', "for other VMs"),
        ('[listen]\noperator = "0.0.0.0:1"', "unencrypted to 0.0.0.0"),
    ],
)
def test_setting_that_is_seldom_meant_is_named(tmp_path: Path, written: str, warning: str) -> None:
    """What lets everybody in, or nobody, is said by `serve --check` and at the start."""
    path = tmp_path / "forewarn.toml"
    path.write_text(written)
    found = warnings_of(load_settings([path], {}))
    assert warning in " ".join(found)
    assert len(found) == bool(warning)
