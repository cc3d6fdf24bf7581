"""`forewarn driver check`: check the guarantees of a driver by real work on a host."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from forewarn_base.errors import PeerError, reason_of
from forewarn_conformance.command import finish, show
from forewarn_conformance.driver_checks import run_driver_checks
from forewarn_conformance.driver_trial import Subject
from forewarn_drivers.registry import KIND, make_driver
from forewarn_server.cli.driver import DriverCheck, driver_table
from forewarn_store import open_store

#: Timeout of the program that counts effects, in seconds.
EFFECTS_TIMEOUT_S = 30


class EffectsUncounted(PeerError):
    """The program that counts effects did not print a number."""

    code = "driver-effects-uncounted"
    message = "{program} gave no count of {task}: {reason}."
    advice = "The program receives the task's id, such as op-12/1, and must print a whole number."


def check_driver(check: DriverCheck, *, as_json: bool) -> int:
    """Run all checks of a driver, and return the exit status."""
    table, call_s = driver_table(check.driver, check.config)
    count = partial(_count, check.effects) if check.effects else None
    subject_name = check.driver
    results = []
    # Programs of the check may still write into this directory.
    with tempfile.TemporaryDirectory("", "forewarn-check-", ignore_cleanup_errors=True) as scratch:
        store = str(Path(scratch) / "store.db")
        open_store(store).close()
        if not check.as_is:
            subject_name, table = separate_driver(check.driver, table)
        subject = Subject(
            lambda: make_driver(subject_name, table, store),
            check.host,
            check.vm,
            effects=count,
            call_s=call_s,
            task_s=check.task_timeout_s,
        )
        for result in run_driver_checks(subject):
            results.append(result)
            if not as_json:
                show(result)
    return finish(results, {"driver": check.driver}, as_json=as_json)


def separate_driver(name: str, table: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return a driver name and settings for a check, separate from those of a service.

    A driver stores the highest writer generation of its callers under its name, and refuses calls
    with a lower generation. The generation of a check exceeds that of any service.
    """
    return f"{name}-check", {KIND: name, **table}


def _count(program: str, task: str) -> int:
    try:
        ran = subprocess.run(  # noqa: S603 - the operator's own program
            [program, task], stdout=subprocess.PIPE, timeout=EFFECTS_TIMEOUT_S, check=True
        )
        return int(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EffectsUncounted(program=program, task=task, reason=reason_of(error)) from error
