"""Refusals of a file name its line."""

from pathlib import Path

import pytest

from forewarn_cli.file_lines import line_of
from tests.cli.conftest import Run

TOML = """# a fleet
[hosts."h1.example"]
zone = "a"

[hosts.h1]
zone = "h1"
labels = {rack = "r1"}

[vms.web-0]
host = "h1"
adresses = ["10.0.0.4"]
"""
YAML = """hosts:
  h1:
    zone: a
  h1.example: {zoen: b}
vms:
  web-0:
    host: h1
"""
JSON = """{"hosts": {"h1": {"zone": "a"},
  "h2": {"fault_domain": "x"}},
 "vms": {
  "web-0": {"host": 7}}}
"""


@pytest.mark.parametrize(
    ("text", "place", "line"),
    [
        (TOML, "the topology.vms.web-0 has the unknown member 'adresses'; known: host", 11),
        (TOML, "the topology.hosts.h1.zone must be a name", 6),
        (TOML, "the topology.hosts.h1.example.zone must be a name", 3),
        (TOML, "the topology.hosts.h1.labels.rack must be a text", 7),
        (TOML, "the topology has the unknown member 'vm'; known: hosts", 0),
        (YAML, "the topology.hosts.h1.example has the unknown member 'zoen'", 4),
        (YAML, "the topology.vms.web-0.host must be a name", 7),
        (JSON, "the topology.hosts.h2.fault_domain must be an integer", 2),
        (JSON, "the topology.vms.web-0.host must be a name", 4),
        (JSON, "There is no host h9.", 0),
        ("", "the topology.hosts.h1.zone must be a name", 0),
    ],
)
def test_line_is_found_by_the_place_in_the_sentence(text: str, place: str, line: int) -> None:
    """In each format, also for names with dots; 0 where nothing fits."""
    assert line_of(text, place) == line


def test_refused_topology_names_file_line_and_member(run: Run, tmp_path: Path) -> None:
    """The reader can jump to the mistake, and sees what was probably meant."""
    file = tmp_path / "fleet.toml"
    file.write_text(TOML)
    refused = run("topology", "apply", str(file))
    assert f"{file}:11: the topology.vms.web-0 has the unknown member" in refused.err
    assert "Did you mean addresses?" in refused.err


def test_refused_policy_names_file_and_line(run: Run, tmp_path: Path) -> None:
    """So does the policy."""
    file = tmp_path / "policy.toml"
    file.write_text("# limits\nmax_hots_at_once = 3\n")
    assert f"{file}:2: the policy has the unknown member" in run("policy", "check", str(file)).err
