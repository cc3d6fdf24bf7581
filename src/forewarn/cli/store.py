"""`forewarn store`: back up the store of a service, check a backup, and restore one.

These open the store that the settings name; no service is asked. A backup may be made while the
service runs, a restore only while none does.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.cli.output import note, noun, print_facts, print_json
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.parsing import CommandGroup
    from forewarn.store.backup import BackupFacts


def add_commands(commands: CommandGroup) -> None:
    """Add `store`."""
    group = commands.group("store")
    backup = group.command("backup", "copy the store into a file while the service runs", run=_back)
    verify = group.command("verify", "check a backup without restoring it", run=_verify)
    restore = group.command("restore", "put a backup back into an empty place", run=_restore)
    for parser in (backup, verify):
        parser.add_argument("file", metavar="FILE", type=Path, help="the backup")
    which = restore.add_mutually_exclusive_group(required=True)
    which.add_argument("file", metavar="FILE", type=Path, nargs="?", help="the backup")
    which.add_argument(
        "--in-place",
        action="store_true",
        help="the database's own tools have put the store back: have it go on from there",
    )
    for parser in (backup, restore):
        parser.add_argument("--store", metavar="ADDRESS", help="(default: as the settings say)")
        parser.add_argument(
            "--config", metavar="FILE", type=Path, action="append", default=[], help="settings"
        )


def _back(arguments: argparse.Namespace) -> int:
    from forewarn.store.backup import back_up  # noqa: PLC0415 - `--help` needs none of it

    logging.getLogger("forewarn.store").setLevel(logging.ERROR)  # it says that it makes a store
    return _show(arguments, back_up(_address(arguments), arguments.file))


def _verify(arguments: argparse.Namespace) -> int:
    from forewarn.store.backup import verify  # noqa: PLC0415 - the same

    return _show(arguments, verify(arguments.file))


def _restore(arguments: argparse.Namespace) -> int:
    from forewarn.clock import SystemClock  # noqa: PLC0415 - the same
    from forewarn.store.backup import restore  # noqa: PLC0415 - the same

    address = _address(arguments)
    facts = restore(arguments.file, address, now_ms=SystemClock().now_ms())
    if arguments.json:
        return print_json(
            {"withdrawn": facts.withdrawn, "unknown": facts.unknown, "paused": facts.paused}
        )
    note("the store is restored; the service may be started")
    for numbers, text in (
        (facts.withdrawn, "withdrawn, and not asked for again: see whether it was done since"),
        (
            facts.unknown,
            "its driver is asked; if that cannot answer: forewarn operation complete, or retry",
        ),
        (facts.paused, "paused, until `forewarn maintenance resume`"),
    ):
        if numbers:
            note(f"{', '.join(numbers)}: {text}")
    return OK


def _show(arguments: argparse.Namespace, facts: BackupFacts) -> int:
    if arguments.json:
        return print_json({name: getattr(facts, name) for name in type(facts).__match_args__})
    print_facts(
        (
            ("backup", f"{arguments.file}, {facts.bytes} bytes, sound"),
            (
                "fleet",
                f"{facts.hosts} {noun(facts.hosts, 'host')}, {facts.vms} {noun(facts.vms, 'VM')}",
            ),
            ("operations", f"{facts.operations} live"),
            ("maintenances", f"{facts.maintenances} live"),
            ("history", f"to entry {facts.history_seq}"),
        )
    )
    return OK


def _address(arguments: argparse.Namespace) -> str:
    from forewarn.cli.serve import DEFAULT_CONFIG  # noqa: PLC0415 - the same
    from forewarn.settings_loader import load_settings  # noqa: PLC0415 - the same

    files = arguments.config or ([DEFAULT_CONFIG] if DEFAULT_CONFIG.is_file() else [])
    return arguments.store or load_settings(files).store.url
