"""Writes the reference page of scenarios: the form of a file, and Forewarn's scenarios.

Each scenario file contains its description.
"""

from __future__ import annotations

from forewarn_emulator.scenario_files import find_scenario, shipped
from tools.docs.reference import page

# Each line of a document is a sentence of any length.
# ruff: noqa: E501
FORM = """\
A scenario is a TOML file of events in the emulator, with their times.
`forewarn emulator scenario run NAME` runs a scenario of Forewarn, `forewarn emulator scenario run ./my.toml` one of yours.
All times are the emulator's, scaled by `--speed` and `forewarn emulator clock`.

## The form of a file

```toml
title = "One line for the list"
about = "What happens, for people."

[hosts.spare]              # machines that the scenario adds, and removes at its end
fault_domain = 1

[[steps]]                  # steps happen one after the other
do = "host-reboot"         # a cause
on = "$host"               # $vm, $host, $group: of the VM on which the scenario runs; or a name
as = "reboot"              # a label, for later steps
duration = "5m"

[[steps]]
after = "2m"               # this long after the step before; `at` counts from the beginning
cancel = "reboot"

[[steps]]
wait = "ended"
for = "reboot"
```

`[hosts.NAME]`, `[groups.NAME]` and `[vms.NAME]` have the members of the [operator API](api.md).
`[policy]` has the members of a [policy file](policy.md) and applies while the scenario runs; `from` and `to` of a window may also be `+50m`, counted from the scenario's start, in UTC.

| step | what it does | its other keys |
| --- | --- | --- |
| `do` | requests work of this [cause](causes.md) | `on` (needed), `as`, `impact`, `source`, `description`, `duration` of the interruption (or `"unknown"`), `started_for` (least time that its events are Started), `further` (shorter interruptions while Started: `[{ after = "4m", duration = "2s" }]`), `notice`, `to`, `times`, `every`, `jitter` |
| `maintain` | creates a [maintenance](../tutorial/maintain-a-fleet.md) of these hosts and starts it | `as`, `cause` (`host-reboot`), `duration` of each host (5m), `reason`, `canary`, `max_at_once`, `max_failures` |
| `wait` | waits until labelled work is `scheduled`, `started` or `ended`, on the first host of a maintenance; or a maintenance is `stopped` by its gate, or `ended` | `for` (needed), `within` (1h) |
| `approve` | approves the events of labelled work | `by` (needed), `only` |
| `cancel` | withdraws labelled work | `reason` |
| `complete` | ends labelled work | `failed`, `reason` |
| `resume` | continues a stopped maintenance | |
| `repair` | marks a failed host as repaired | |
| `recommend` | shows this VM a `SpotRebalanceRecommendation`, which disturbs nothing; needs `--preview` | `lasts` (10m) |
| `say` | prints a line in the emulator's output | |

Every step may have `after` or `at`; a step without anything else is a pause.
Write durations as `90s`, `15m`, `1h30m` or `7d`."""


def scenarios_page() -> str:
    """Return the page with the form of a scenario file and all scenarios of Forewarn."""
    lines = [FORM, "", "## The scenarios that come with Forewarn"]
    for name in shipped():
        scenario = find_scenario(name)
        lines += ["", f"### {name}", "", f"**{scenario.title}.**", scenario.about]
    return page("Scenarios", *lines)
