"""Warnings about a valid configuration, such as missing programs or secrets over plain HTTP.

Only `forewarn agent check` uses this module. The checks run no hooks.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from forewarn.agent.config import PHASES, ConfigInvalid, hook_files, is_program
from forewarn.agent.json_fields import words
from forewarn.agent.preparation_catalog import PREPARATIONS
from forewarn_base.time_zones import zone_of
from forewarn_base.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


LOOPBACK = ("127.0.0.1", "::1", "localhost")


def oddities(form: Mapping[str, object]) -> list[str]:
    """Return a warning for each setting that will probably fail.

    Raises:
        ConfigInvalid: the service would refuse the rule that chooses.
    """
    _check_zone(form["choose"])
    return [
        *_of_steps(form),
        *_of_hooks(str(form["hooks_dir"])),
        *_of_files("[notify]", form["notify"]),
        *_of_files("[coordination]", form["coordination"]),
        *_of_files("[choose]", form["choose"]),
        *_of_apprise(form["notify"]),
        *_of_plain_http(form),
    ]


def _check_zone(choose: object) -> None:
    """Refuse an unknown time zone, if this machine has any: others may have no data of zones.

    A running agent leaves this to the service, whose data may differ from this machine's.
    """
    assert isinstance(choose, dict)
    zone = choose.get("time_zone", "UTC")
    if zone_of(zone) is None and zone_of("UTC") is not None:
        raise ConfigInvalid(where="[choose] time_zone", reason=f"{zone!r} is not a time zone")


def _of_steps(form: Mapping[str, object]) -> Iterator[str]:
    steps = form["steps"]
    assert isinstance(steps, list)
    for step in steps:
        spec = step["spec"]
        for phase in PHASES:
            if spec.get(phase):
                odd = _program_oddity(spec[phase][0])
                if odd:
                    yield f"Step {step['name']}, {phase}: {odd}."
        settings = spec.get("settings", {})
        preparation = PREPARATIONS.get(spec.get("use"))
        if preparation is not None and preparation.program:
            odd = _program_oddity(str(settings.get("command", preparation.program)))
            if odd:
                yield f"Step {step['name']}: {odd}."
        yield from _of_files(f"Step {step['name']}", settings)


def _program_oddity(program: str) -> str:
    """Return why a hook's program cannot run; empty without a known reason."""
    if os.path.isabs(program):  # noqa: PTH117 - it is text until it is looked at
        if not os.path.isfile(program):  # noqa: PTH113 - the same
            return f"{program} does not exist"
        return "" if os.access(program, os.X_OK) else f"{program} is not executable"
    if os.path.dirname(program):  # noqa: PTH120 - below where the agent is started, wherever it is
        return ""
    return "" if shutil.which(program) else f"there is no program {program} in PATH"


def _of_hooks(directory: str) -> Iterator[str]:
    for phase in PHASES:
        for file in hook_files(directory, phase):
            if not is_program(file):
                yield f"{file} is not executable and is ignored."


def _of_files(where: str, settings: object) -> Iterator[str]:
    assert isinstance(settings, dict)
    for name, path in settings.items():
        if name.endswith("_file") and path and not os.access(str(path), os.R_OK):
            yield f"{where}, {name}: {path} cannot be read."


def _of_plain_http(form: Mapping[str, object]) -> Iterator[str]:
    """Yield a warning for each setting that sends signed requests or tokens over plain HTTP."""
    steps = form["steps"]
    assert isinstance(steps, list)
    notify = form["notify"]
    assert isinstance(notify, dict)
    for key in ("webhook", "cloudevents"):
        if notify.get(f"{key}_secret_file"):
            yield from _plain(f"[notify] {key}", words(notify, key))
    for step in steps:
        settings = step["spec"].get("settings", {})
        if settings.get("secret_file") or settings.get("token_file") or settings.get("headers"):
            yield from _plain(f"Step {step['name']}, url", [str(settings.get("url", ""))])


def _plain(where: str, urls: list[str]) -> Iterator[str]:
    for url in urls:
        if url.startswith("http://") and urlsplit(url).hostname not in LOOPBACK:
            yield f"{where}: {shown_url(url)} is plain HTTP; use https to protect the secret."


def _of_apprise(notify: object) -> Iterator[str]:
    assert isinstance(notify, dict)
    if notify.get("apprise") and shutil.which("apprise") is None:
        yield "[notify] apprise: Apprise is not installed (there is no program apprise in PATH)."
