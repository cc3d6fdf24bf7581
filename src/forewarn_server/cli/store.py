"""`forewarn store`: back up, verify and restore the store of a service, and upgrade its schema.

The commands open the store named in the settings. A backup can run beside the service. A restore
requires a stopped service.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from forewarn_base.errors import CommandLineInvalid, ForewarnError
from forewarn_base.exit_codes import OK
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import note, noun, print_facts, print_json, print_structured
from forewarn_server.cli.parameters import (
    PRINTED,
    Config,
    OutputOptions,
    Store,
    settings_files,
)
from forewarn_server.cli.progress import progress_bar

if TYPE_CHECKING:
    from forewarn_store.backup import BackupFacts

store = noun_app("store")


@store.command(name="backup")
def _backup(
    file: Annotated[Path, Parameter(name="FILE", help="the backup")],
    /,
    *,
    store: Store = None,
    config: Config = (),
    printed: OutputOptions = PRINTED,
) -> int:
    """Copy the store into a file while the service runs."""
    from forewarn_base.clock import SystemClock  # noqa: PLC0415 - `--help` needs none of it
    from forewarn_store.backup import back_up, note_backup  # noqa: PLC0415 - the same

    logging.getLogger("forewarn.store").setLevel(logging.ERROR)  # this logger reports a new store
    address, began_ms = store_address(store, config), SystemClock().now_ms()
    with progress_bar("copying the store") as report:
        facts = back_up(
            address, file, copied=lambda rows: report(f"{rows:,} records copied", None, None)
        )
    try:
        note_backup(address, began_ms)
    except ForewarnError as error:
        note(f"the backup is valid, but its time could not be recorded in the store: {error}")
    return _show(printed, file, facts)


@store.command(name="verify")
def _verify(
    file: Annotated[Path, Parameter(name="FILE", help="the backup")],
    /,
    *,
    printed: OutputOptions = PRINTED,
) -> int:
    """Check a backup without restoring it."""
    from forewarn_store.backup import verify  # noqa: PLC0415 - the same

    with progress_bar("checking the backup"):
        facts = verify(file)
    return _show(printed, file, facts)


@store.command(name="restore")
def _restore(
    file: Annotated[Path | None, Parameter(name="FILE", help="the backup")] = None,
    /,
    *,
    in_place: Annotated[
        bool, Parameter(help="finish a restore that the database's own tools have made")
    ] = False,
    store: Store = None,
    config: Config = (),
    printed: OutputOptions = PRINTED,
) -> int:
    """Restore a backup into an empty store."""
    if (file is None) is not in_place:
        problem = "Name either FILE or --in-place."
        raise CommandLineInvalid(problem=problem, program="forewarn store restore")
    from forewarn_base.clock import SystemClock  # noqa: PLC0415 - the same
    from forewarn_store.backup import restore  # noqa: PLC0415 - the same

    address = store_address(store, config)
    with progress_bar("restoring the store"):
        facts = restore(file, address, now_ms=SystemClock().now_ms())
    if printed.structured:
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


@store.command(name="upgrade")
def _upgrade(
    *,
    store: Store = None,
    config: Config = (),
    printed: OutputOptions = PRINTED,
) -> int:
    """Upgrade the schema to this version."""
    from forewarn_store.addresses import location_of  # noqa: PLC0415 - the same
    from forewarn_store.migrations import migrate, missing_steps  # noqa: PLC0415 - the same

    engine = location_of(store_address(store, config)).open(must_exist=True)
    try:
        missing = missing_steps(engine)
        migrate(engine, must_exist=True, upgrade=True)
    finally:
        engine.close()
    if printed.structured:
        return print_structured(printed, {"steps": missing})
    note(f"schema steps run: {', '.join(missing)}" if missing else "the schema is up to date")
    return OK


@store.command(name="compact")
def _compact(
    *,
    store: Store = None,
    config: Config = (),
    printed: OutputOptions = PRINTED,
) -> int:
    """Shrink a SQLite file of an earlier version."""
    from forewarn_store.addresses import location_of  # noqa: PLC0415 - the same
    from forewarn_store.sqlite import SqliteEngine  # noqa: PLC0415 - the same

    path = location_of(store_address(store, config)).path
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
    if printed.structured:
        return print_structured(printed, {"bytes_before": before, "bytes_after": after})
    note(f"{path}: {before} bytes before, {after} bytes now; start the service")
    return OK


def _show(printed: OutputOptions, file: Path, facts: BackupFacts) -> int:
    if printed.structured:
        return print_structured(
            printed, {name: getattr(facts, name) for name in type(facts).__match_args__}
        )
    return print_facts(
        (
            ("backup", f"{file}, {facts.bytes} bytes, valid"),
            (
                "fleet",
                f"{facts.hosts} {noun(facts.hosts, 'host')}, {facts.vms} {noun(facts.vms, 'VM')}",
            ),
            ("operations", f"{facts.operations} live"),
            ("maintenances", f"{facts.maintenances} live"),
            ("history", f"to entry {facts.history_seq}"),
        )
    )


def store_address(store: str | None, config: Sequence[Path]) -> str:
    """Return the address of the store from `--store`, or else from the settings."""
    from forewarn_server.settings_loader import load_settings  # noqa: PLC0415 - the same

    return store or load_settings(settings_files(config)).store.url
