"""`forewarn store`: back up, verify and restore the store of a service, and upgrade its schema.

The commands open the store named in the settings. A backup can run beside the service. A restore
requires a stopped service.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.cli.output import note, noun, print_facts, print_json
from forewarn.cli.parsing import CommandGroup, add_store_options, settings_files
from forewarn.errors import ForewarnError
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    from forewarn.store.backup import BackupFacts


def add_commands(commands: CommandGroup) -> None:
    """Add `store`."""
    group = commands.group("store", default="")
    backup = group.command(
        "backup", "copy the store into a file while the service runs", run=_back, remote=False
    )
    verify = group.command(
        "verify", "check a backup without restoring it", run=_verify, remote=False
    )
    restore = group.command(
        "restore", "restore a backup into an empty store", run=_restore, remote=False
    )
    for parser in (backup, verify):
        parser.add_argument("file", metavar="FILE", type=Path, help="the backup")
    which = restore.add_mutually_exclusive_group(required=True)
    which.add_argument("file", metavar="FILE", type=Path, nargs="?", help="the backup")
    which.add_argument(
        "--in-place",
        action="store_true",
        help="finish a restore that the database's own tools have made",
    )
    upgrade = group.command(
        "upgrade", "upgrade the schema to this version", run=_upgrade, remote=False
    )
    compact = group.command(
        "compact", "shrink a SQLite file of an earlier version", run=_compact, remote=False
    )
    for parser in (backup, restore, upgrade, compact):
        add_store_options(parser)


def _back(arguments: argparse.Namespace) -> int:
    from forewarn.clock import SystemClock  # noqa: PLC0415 - `--help` needs none of it
    from forewarn.store.backup import back_up, note_backup  # noqa: PLC0415 - the same

    logging.getLogger("forewarn.store").setLevel(logging.ERROR)  # this logger reports a new store
    address, began_ms = store_address(arguments), SystemClock().now_ms()
    facts = back_up(address, arguments.file)
    try:
        note_backup(address, began_ms)
    except ForewarnError as error:
        note(f"the backup is valid, but its time could not be recorded in the store: {error}")
    return _show(arguments, facts)


def _verify(arguments: argparse.Namespace) -> int:
    from forewarn.store.backup import verify  # noqa: PLC0415 - the same

    return _show(arguments, verify(arguments.file))


def _restore(arguments: argparse.Namespace) -> int:
    from forewarn.clock import SystemClock  # noqa: PLC0415 - the same
    from forewarn.store.backup import restore  # noqa: PLC0415 - the same

    address = store_address(arguments)
    facts = restore(arguments.file, address, now_ms=SystemClock().now_ms())
    if arguments.json:
        shown = {
            name: getattr(facts, name) for name in ("withdrawn", "unknown", "paused", "principals")
        }
        return print_json(
            shown
            | {
                "suspended": [
                    {"id": each.id, "principal": each.principal} for each in facts.suspended
                ],
                "dropped": [
                    {"id": each.id, "principal": each.principal, "text": each.text}
                    for each in facts.dropped
                ],
            }
        )
    note("store restored; start the service")
    for names, text in (
        (facts.withdrawn, "cancelled; check whether the work was done since the backup"),
        (
            facts.unknown,
            "unknown result: the driver reports, or use `forewarn operation complete` or `retry`",
        ),
        (facts.paused, "paused, until `forewarn maintenance resume`"),
        (
            [f"token {each.id} of {each.principal}" for each in facts.suspended],
            "suspended, until an administrator runs `forewarn access token resume ID`",
        ),
        (
            [f"{each.id} of {each.principal} ({each.text})" for each in facts.dropped],
            "no longer waits for a second person; make the call again if it is still wanted",
        ),
    ):
        if names:
            note(f"{', '.join(names)}: {text}")
    if facts.suspended:
        note("root is an administrator at the service's Unix socket, also without a token")
    if facts.principals:
        count = f"{facts.principals} {noun(facts.principals, 'principal')}"
        note(f"roles of {count} are those of the backup; check `forewarn access list`")
    return OK


def _upgrade(arguments: argparse.Namespace) -> int:
    from forewarn.store.addresses import engine_of  # noqa: PLC0415 - the same
    from forewarn.store.migrations import migrate, missing_steps  # noqa: PLC0415 - the same

    engine = engine_of(store_address(arguments))(must_exist=True)
    try:
        missing = missing_steps(engine)
        migrate(engine, must_exist=True, upgrade=True)
    finally:
        engine.close()
    if arguments.json:
        return print_json({"steps": missing})
    note(f"schema steps run: {', '.join(missing)}" if missing else "the schema is up to date")
    return OK


def _compact(arguments: argparse.Namespace) -> int:
    from forewarn.store.addresses import path_of  # noqa: PLC0415 - the same
    from forewarn.store.sqlite import SqliteEngine  # noqa: PLC0415 - the same

    path = path_of(store_address(arguments))
    if path is None:
        note("PostgreSQL reuses and returns space on its own")
        return OK
    engine = SqliteEngine(path, must_exist=True)
    before = path.stat().st_size
    try:
        engine.compact()
    finally:
        engine.close()
    after = path.stat().st_size
    if arguments.json:
        return print_json({"bytes_before": before, "bytes_after": after})
    note(f"{path}: {before} bytes before, {after} bytes now; start the service")
    return OK


def _show(arguments: argparse.Namespace, facts: BackupFacts) -> int:
    if arguments.json:
        return print_json({name: getattr(facts, name) for name in type(facts).__match_args__})
    return print_facts(
        (
            ("backup", f"{arguments.file}, {facts.bytes} bytes, valid"),
            (
                "fleet",
                f"{facts.hosts} {noun(facts.hosts, 'host')}, {facts.vms} {noun(facts.vms, 'VM')}",
            ),
            ("operations", f"{facts.operations} live"),
            ("maintenances", f"{facts.maintenances} live"),
            ("history", f"to entry {facts.history_seq}"),
        )
    )


def store_address(arguments: argparse.Namespace) -> str:
    """Return the address of the store from `--store`, or else from the settings."""
    from forewarn.settings_loader import load_settings  # noqa: PLC0415 - the same

    return arguments.store or load_settings(settings_files(arguments)).store.url
