"""Typed commands, right and wrong, with their answers: `python -m cli_tests.transcripts FILE`.

Write one file before a change of the command line and one after it, and compare them.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from forewarn_server.cli.main import main
from tests.api.live import FLEET, Live

#: Commands that succeed, in this order: later ones use the records of earlier ones.
RIGHT = """
--help
--version
status
status --json
show web-0
host
host list
host list --json
host --help
host add h10 --zone b --fault-domain 2 --label rack=r7
host add h3 --zone b
host list --zone b
host list --selector rack=r7
host show h10
host show h10 --json
group list
group list --silent
group show web
group add cache --owner shop --strict-approval
vm list --host h1
vm add cache-0 --host h10 --group cache
vm show cache-0
topology show
topology show --format json
policy show
policy windows
event list
event list --json
host update h2 --not-before +1h
operation list
operation list --json
operation show op-1
operation why op-1
operation why h2
event show op-1
host degrade h10 --duration 5m
operation cancel op-1
operation list --all
operation list --state cancelled --limit 1
maintenance plan h3 h10
maintenance plan --all --json
maintenance create h3 h10 --reason firmware
maintenance list
maintenance list --json
maintenance show m-3
maintenance start m-3
maintenance pause m-3 --reason lunch
maintenance resume m-3
maintenance report m-3
maintenance diff m-3
maintenance cancel m-3
maintenance
access token
history
history list --host h3 --limit 2
history list --json --limit 1
watch --after 0 --count 2
history export --after 30
access list
whoami
confirmation list
audit list
explain already-asked
explain driver
document web-0
--json host list
outbox list
host list -o yaml
host list -o name --sort=-vms
host -o csv
operation list --all -o json
help maintenance pause
version
context list
wait op-1
group list --owner shop
""".strip().splitlines()

#: Commands that fail: mistyped words, invalid values, objects that do not exist.
WRONG = """
hots list
why h1
host rebot h1
host list h1
host list -z
host list --zon a
host list --limit 0
host list --limit many
host list --state well
host list --selector
host list --selector zone
host show
host show h99
host show h1 h2
host add
host add h1
host add h4 --fault-domain one
host add h4 --label rack
host reboot
host reboot h99
host reboot h1 --selector zone=a
host reboot h1 --not-before yesterday
host reboot h1 --duration 5x
host reboot h1 --timeout 5s
host reboot h1 --wait --timeout=-3
host reboot --file /nowhere
host fail h99 --yes
vm reboot web-0 --source user
vm reboot web-9
vm add web-2
vm add web-2 --host h9
vm add web-2 --host h1 --tag name
vm frob
group show wbe
group add g --kind sacle-set
operation why
operation why op-99
operation show op-99
operation cancel op-99
operation list --state runing
operation list --since yesterday
event show web-9
maintenance start
maintenance show m-99
maintenance show 12
maintenance postpone m-99 h1
host list --sort nothing
host list -o xml
context use nowhere
wait op-99
maintenance postpone m-99 h1 --until 5
maintenance plan
maintenance plan h1 --cause reboot
maintenance plan h1 --duration soon
maintenance plan h99
maintenance plan h1 --max-at-once 0
maintenance create h1 --canary
maintenance list --state runing
policy apply /nowhere.toml
policy apply policy
topology apply fleet.ini
topology apply /nowhere.toml
history --action=host.fails
history --after x
access grant ann boss
access token frob
explain host-unknwon
explain
completion csh
document web-9
status --server localhost:1
status --server http://127.0.0.1:1
status --server ftp://x
status --token-file /nowhere
show nothing-like-it
emulator clock advance -5m
store
--sever x
--server
""".strip().splitlines()


def transcripts(url: str, commands: list[str]) -> Iterator[tuple[str, int, str, str]]:
    """Run the commands against a service; yield command, status, output and error output."""
    os.environ["FOREWARN_SERVER"] = url
    for line in commands:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in "oe")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(line.split())
        texts = []
        for stream in (out, err):
            stream.flush()
            stream.seek(0)
            texts.append(stream.read())
        yield line, status, texts[0], texts[1]


def main_of_this() -> None:
    """Write every transcript into the file of the first argument."""
    with Live() as service, Path(sys.argv[1]).open("w", encoding="utf-8") as file:
        service.fleet(**FLEET)
        service.enable("web-0", "db-0")
        file.writelines(
            f"$ forewarn {line}\n{out}{err}[{status}]\n\n"
            for line, status, out, err in transcripts(service.url, RIGHT + WRONG)
        )


if __name__ == "__main__":
    main_of_this()
