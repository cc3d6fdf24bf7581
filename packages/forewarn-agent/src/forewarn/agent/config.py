"""Configuration: reads and checks the TOML file, drop-ins and hook directories.

A short-lived process (see `load`) runs this module, because the parser and checks would cost the
running agent 2 MiB of memory.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.agent.core.rules import ACTIONS, COORDINATIONS, FAILURES, TIMEOUT_S
from forewarn.agent.json_fields import words
from forewarn.agent.permissions import (
    is_root,
    own_code,
    refuse_writable,
    settings_paths,
    step_paths,
)
from forewarn.agent.preparation_catalog import PREPARATIONS, problem_of
from forewarn.agent.sdk.http import target_of
from forewarn.agent.settings import DEFAULTS
from forewarn_base.errors import CallerError
from forewarn_base.host_port import host_and_port
from forewarn_base.kubernetes.aks_conditions import EVENT_TYPES, MESSAGE
from forewarn_base.kubernetes.node_notices import FACTS
from forewarn_base.protocol.versions import VERSIONS
from forewarn_base.urls import is_protected
from forewarn_base.validation.complexity import FileTooComplex
from forewarn_base.validation.toml_reader import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

PHASES = ("prepare", "approve", "recover", "cancel")
PROGRAM_SUFFIXES = (".exe", ".bat", ".cmd")  # extensions of files that Windows can start directly
#: Variables of the agent that hooks inherit, and all `LC_…`; others may be the agent's secrets.
INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
    *("PYTHONPATH", "PYTHONHOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),  # of a user's service manager
    *("NODE_NAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"),  # of preparations
    *("CONSUL_HTTP_ADDR", "NOMAD_ADDR", "RAY_ADDRESS", "SLURM_CONF", "FOREWARN_ENDPOINT"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP"),  # of Windows
    *("USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES"),
)

FILE_BYTES_MAX = 1024 * 1024
STEPS_MAX = 200  # limit for steps and checks, and for rules
#: Words and times of a rule's window, as the service reads them.
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00")
CHOOSE_S, CHOOSE_S_MIN = 3600, 60  # seconds between two looks at declared maintenances
TABLES = {
    "agent": "",
    "status": "status_",
    "jobs": "jobs_",
    "notify": None,
    "coordination": None,
    "kubernetes": None,
    "choose": None,
    "step": None,
    "rule": None,
}
#: Table for background jobs -> its settings, each with a type or the permitted words.
SUBTABLES: dict[str, dict[str, object]] = {
    "notify": {
        "webhook": list,
        "webhook_secret_file": str,
        "cloudevents": list,
        "cloudevents_secret_file": str,
        "apprise": list,
        "ca_file": str,
        "level": ("info", "warning", "error"),
    },
    "coordination": {
        "via": ("status", "file", "consul", "etcd", "kubernetes"),
        "peers": dict,
        "port": int,
        "directory": str,
        "address": str,
        "prefix": str,
        "namespace": str,
        "server": str,
        "token_file": str,
        "ca_file": str,
    },
    "kubernetes": {
        "conditions": bool,
        "condition_types": dict,
        "events_listen": str,
        "event_types": dict,
        "node": str,
        "namespace": str,
        "server": str,
        "token_file": str,
        "ca_file": str,
    },
    "choose": {
        "url": str,
        "token_file": str,
        "ca_file": str,
        "interval_s": int,
        "weekdays": list,
        "from": str,
        "to": str,
        "time_zone": str,
        "otherwise": ("nothing", "last", "first", "release"),
        "approve": bool,
    },
}
STEP_KEYS = {"prepare", "recover", "cancel", "use", "timeout_s", "on_failure", "repeatable"}
MATCH_KEYS = {
    "type": "types",
    "source": "sources",
    "duration_s": "duration_s",
    "notice_s": "notice_s",
    "description": "description",
    "about": "about",
}
RULE_KEYS = {"name", "action", "then", "steps", "coordination", "stand_in_s", *MATCH_KEYS}


class ConfigInvalid(CallerError):
    """The configuration is invalid; the agent has not started."""

    code = "agent-config-invalid"
    message = "{where}: {reason}."
    advice = "Correct the file and run `forewarn agent check`."


class ConfigMissing(ConfigInvalid):
    """The configuration file does not exist; the agent has not started."""

    code = "agent-config-missing"
    message = "{where} does not exist."
    advice = "Write one with `forewarn agent init`, or name another file with --config."


def read_config(path: str, *, must_exist: bool = True) -> dict[str, object]:
    """Read and check a configuration file and its drop-ins; return a form for `AgentSettings`.

    Drop-ins are the files `PATH.d/*.toml`, in the order of their names. A drop-in overrides
    settings of earlier files, and its rules precede the rules of earlier files.

    Raises:
        ConfigInvalid: the configuration is invalid; the error names the first problem.
    """
    merged: dict[str, object] = {}
    files = (Path(path), *sorted(Path(f"{path}.d").glob("*.toml")))
    for file in files:
        if file.exists() or must_exist:
            _merge(merged, _read_file(file))
    form = _flat(merged, path)
    checks, steps = _directory_steps(str(form["hooks_dir"]))
    configured = [_step(name, table, path) for name, table in _table(merged, "step").items()]
    steps += configured
    checks += [_check(step) for step in configured if _is_asked_again(step)]
    names = [str(step["name"]) for step in steps]
    rules = [
        _rule(rule, names, where=f"{path}: rule {number}")
        for number, rule in enumerate(_rules_of(merged, path), 1)
    ]
    if len(steps) + len(checks) + len(rules) > STEPS_MAX:
        raise ConfigInvalid(where=path, reason=f"more than {STEPS_MAX} steps and rules")
    if len(set(names)) < len(names):
        raise ConfigInvalid(where=path, reason="a step and a hook file have the same name")
    if form["check_permissions"]:
        _refuse_writable(form, [*files, Path(f"{path}.d")], steps=[*steps, *checks])
    further = words(form, "pass_environment")
    inherited = {
        name: text
        for name, text in os.environ.items()
        if name in INHERITED or name.startswith("LC_") or name in further
    }
    return {**form, "steps": steps, "checks": checks, "rules": rules, "environment": inherited}


def _refuse_writable(
    form: Mapping[str, object], files: list[Path], *, steps: list[dict[str, object]]
) -> None:
    """Refuse a configuration that executes or trusts a path which other users can write."""
    refuse_writable((*files, *_hook_paths(str(form["hooks_dir"])), *step_paths(steps, PHASES)))
    for table in (form, *(form[name] for name in SUBTABLES)):
        assert isinstance(table, dict)
        refuse_writable(settings_paths(table))
    if is_root():
        refuse_writable(own_code())


def _read_file(file: Path) -> dict[str, object]:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ConfigInvalid(where=file, reason=f"is larger than {FILE_BYTES_MAX} bytes")
        return read_toml(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ConfigMissing(where=file) from error
    except OSError as error:
        raise ConfigInvalid(where=file, reason=f"cannot be read: {error.strerror}") from error
    except FileTooComplex as error:
        raise ConfigInvalid(where=file, reason=error.facts["problem"]) from error
    except ValueError as error:  # the parser and the decoder raise subclasses of ValueError
        raise ConfigInvalid(where=file, reason=f"is not TOML: {error}") from error


def _merge(merged: dict[str, object], fresh: dict[str, object]) -> None:
    for name, table in fresh.items():
        before = merged.get(name)
        if name == "rule" and isinstance(table, list) and isinstance(before, list):
            merged[name] = [*table, *before]
        elif isinstance(table, dict) and isinstance(before, dict):
            merged[name] = {**before, **table}
        else:
            merged[name] = table


def _table(merged: Mapping[str, object], name: str) -> dict[str, object]:
    table = merged.get(name, {})
    if not isinstance(table, dict):
        raise ConfigInvalid(where=f"[{name}]", reason="must be a table")
    return table


def _flat(merged: dict[str, object], path: str) -> dict[str, object]:
    unknown = sorted(set(merged) - set(TABLES))
    if unknown:
        raise ConfigInvalid(where=path, reason=f"[{unknown[0]}] is unknown")
    form = dict(DEFAULTS)
    for name, known in SUBTABLES.items():
        form[name] = _check_table(_table(merged, name), known, where=f"{path}: [{name}]")
    for table, prefix in (("agent", ""), ("status", "status_"), ("jobs", "jobs_")):
        for key, setting in _table(merged, table).items():
            name = prefix + key
            foreign = table == "agent" and name.startswith(("status_", "jobs_"))
            if name not in DEFAULTS or foreign:
                raise ConfigInvalid(where=f"{path}: [{table}]", reason=f"{key} is unknown")
            form[name] = _check_type(setting, DEFAULTS[name], where=f"{path}: [{table}] {key}")
    _check_settings(form, path)
    form["kubernetes"] = _kubernetes(_table(form, "kubernetes"), where=f"{path}: [kubernetes]")
    _check_choose(_table(form, "choose"), where=f"{path}: [choose]")
    return form


def _check_choose(table: dict[str, object], *, where: str) -> None:
    """Check the address, the token and the window of the rule, if a rule chooses."""
    if not table:
        return
    if not is_protected(str(table.get("url", ""))):
        raise ConfigInvalid(where=f"{where} url", reason="must be https, or on this machine")
    for name in ("token_file", "from", "to"):
        if not table.get(name):
            raise ConfigInvalid(where=where, reason=f"{name} is missing")
    for name in ("from", "to"):
        if not TIME_OF_DAY.fullmatch(str(table[name])):
            reason = "must be a time of day such as 22:30, from 00:00 to 24:00"
            raise ConfigInvalid(where=f"{where} {name}", reason=reason)
    days = words(table, "weekdays") if "weekdays" in table else ["mon"]
    if not days or not set(days) <= set(WEEKDAYS) or len(days) > len(WEEKDAYS):
        reason = f"must be a list of {', '.join(WEEKDAYS)}"
        raise ConfigInvalid(where=f"{where} weekdays", reason=reason)
    interval_s = table.setdefault("interval_s", CHOOSE_S)
    if not isinstance(interval_s, int) or not CHOOSE_S_MIN <= interval_s <= 86_400:
        reason = f"must be {CHOOSE_S_MIN} to 86400"
        raise ConfigInvalid(where=f"{where} interval_s", reason=reason)


def _kubernetes(table: dict[str, object], *, where: str) -> dict[str, object]:
    """Check the types and the address; return the table, or an empty one if it is not used."""
    for name, known in (("condition_types", FACTS), ("event_types", (MESSAGE, *EVENT_TYPES))):
        types = _table(table, name)
        for kind in types:
            _one_of(types, kind, known, default=known[0], where=f"{where} {name}")
    listen = str(table.get("events_listen") or "")
    if listen and not _is_local(listen):
        reason = "must be ADDRESS:PORT of this machine, such as 127.0.0.1:8472"
        raise ConfigInvalid(where=f"{where} events_listen", reason=reason)
    return table if table.get("conditions") or listen else {}


def _is_local(address: str) -> bool:
    try:
        host_and_port(address)
    except ValueError:
        return False
    return is_protected(f"http://{address}")


def _check_table(
    table: dict[str, object], known: Mapping[str, object], *, where: str
) -> dict[str, object]:
    """Check the keys and types of a table; return the table."""
    for key, setting in table.items():
        if key not in known:
            raise ConfigInvalid(where=where, reason=f"{key} is unknown")
        kind = known[key]
        if isinstance(kind, tuple):
            _one_of(table, key, kind, default=kind[0], where=where)
        elif kind is list:  # a list of words, or a single word
            _check_type(
                [setting] if isinstance(setting, str) else setting, [], where=f"{where} {key}"
            )
        elif isinstance(kind, type) and type(setting) is not kind:
            raise ConfigInvalid(where=f"{where} {key}", reason=f"cannot be {setting!r}")
    return table


def _check_type(setting: object, default: object, *, where: str) -> object:
    if isinstance(default, float):
        number = setting if isinstance(setting, (int, float)) else -1
        if 0 <= number < 86400 and not isinstance(setting, bool):
            return float(number)
    elif isinstance(default, list):
        if isinstance(setting, list) and all(isinstance(one, str) for one in setting):
            return setting
    elif type(setting) is type(default):
        return setting
    raise ConfigInvalid(where=where, reason=f"cannot be {setting!r}")


def _check_settings(form: dict[str, object], path: str) -> None:
    if form["endpoint"]:
        target_of(str(form["endpoint"]))
    if form["api_version"] and form["api_version"] not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise ConfigInvalid(where=f"{path}: [agent] api_version", reason=f"must be one of {known}")
    if float(str(form["interval_s"])) < 0.05:
        raise ConfigInvalid(where=f"{path}: [agent] interval_s", reason="is less than 0.05")
    if form["log"] not in ("text", "json"):
        raise ConfigInvalid(where=f"{path}: [agent] log", reason='must be "text" or "json"')
    if bool(form["status_cert"]) != bool(form["status_key"]):
        raise ConfigInvalid(where=f"{path}: [status]", reason="set both cert and key, or neither")
    for table, local in (("status", False), ("jobs", True)):
        address = str(form[f"{table}_listen"])
        if not address or (local and "/" in address):
            continue
        try:
            host_and_port(address)
        except ValueError as error:
            reason = "must be a path or ADDRESS:PORT" if local else "must be ADDRESS:PORT"
            raise ConfigInvalid(where=f"{path}: [{table}] listen", reason=reason) from error
        if local and not form["jobs_token_file"]:
            reason = "is open to other machines; set token_file"
            raise ConfigInvalid(where=f"{path}: [jobs] listen", reason=reason)


def is_program(file: Path) -> bool:
    """Return whether a file is executable, by its name on Windows and by its mode elsewhere."""
    if sys.platform == "win32":
        return file.suffix.lower() in PROGRAM_SUFFIXES
    return os.access(file, os.X_OK)


def hook_files(directory: str | Path, phase: str) -> list[Path]:
    """Return the files of a phase's hook directory by name, without hidden files."""
    return [
        file
        for file in sorted(Path(directory, f"{phase}.d").glob("*"))
        if file.is_file() and not (file.name.startswith(".") or file.name.endswith("~"))
    ]


def _hook_paths(directory: str) -> list[Path]:
    """Return the hook directories and their files."""
    folders = [Path(directory, f"{phase}.d") for phase in PHASES]
    files = [file for phase in PHASES for file in hook_files(directory, phase)]
    return [Path(directory), *folders, *files]


def _directory_steps(directory: str) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the approve hooks and the steps from the hook directories."""
    by_name: dict[str, dict[str, object]] = {}
    for phase in PHASES:
        for file in hook_files(directory, phase):
            if is_program(file):
                by_name.setdefault(file.name, {})[phase] = [str(file)]
    steps, checks = [], []
    for name, spec in sorted(by_name.items()):
        ask = spec.pop("approve", None)
        if ask:
            checks.append(_form_of(name, {"approve": ask}))
        if spec:
            steps.append(_form_of(name, spec))
    return checks, steps


def _form_of(name: str, spec: dict[str, object]) -> dict[str, object]:
    ready = PREPARATIONS.get(str(spec.get("use")))
    return {
        "name": name,
        "timeout_s": TIMEOUT_S if ready is None else ready.timeout_s,
        "on_failure": "hold",
        "repeatable": ready is not None,
        "spec": spec,
    }


def _step(name: str, table: object, path: str) -> dict[str, object]:
    where = f"{path}: [step.{name}]"
    if not isinstance(table, dict):
        raise ConfigInvalid(where=where, reason="must be a table")
    for phase in ("prepare", "recover", "cancel"):
        command = table.get(phase)
        if command is not None and not _is_command(command):
            raise ConfigInvalid(where=f"{where} {phase}", reason="must be a list of words")
    spec: dict[str, object] = {
        key: table[key] for key in STEP_KEYS - {"use"} if key in PHASES and key in table
    }
    if "use" in table:
        spec["use"] = table["use"]
        settings = {key: table[key] for key in table if key not in STEP_KEYS}
        spec["settings"] = settings
        _check_preparation(str(table["use"]), settings, where=where)
    elif set(table) - STEP_KEYS:
        unknown = min(set(table) - STEP_KEYS)
        raise ConfigInvalid(where=where, reason=f"{unknown} is unknown")
    if not spec:
        raise ConfigInvalid(where=where, reason="has no command")
    form = _form_of(name, spec)
    for key, default in (("timeout_s", TIMEOUT_S), ("repeatable", False)):
        if key in table:
            form[key] = _check_type(table[key], default, where=f"{where} {key}")
    form["on_failure"] = _one_of(table, "on_failure", FAILURES, default="hold", where=where)
    if spec.get("use") == "job" and form["on_failure"] != "hold":
        raise ConfigInvalid(
            where=f"{where} on_failure", reason='must be "hold": without consent nobody approves'
        )
    return form


def _is_asked_again(step: dict[str, object]) -> bool:
    """Return whether a ready-made preparation is asked again right before the approval."""
    spec = step["spec"]
    assert isinstance(spec, dict)
    return "use" in spec and PREPARATIONS[str(spec["use"])].checks


def _check(step: dict[str, object]) -> dict[str, object]:
    """Return the approve hook of a ready-made preparation; it is short, unlike the step."""
    return {**step, "timeout_s": TIMEOUT_S, "on_failure": "hold"}


def _check_preparation(use: str, settings: dict[str, object], *, where: str) -> None:
    known = PREPARATIONS.get(use)
    if known is None:
        names = ", ".join(sorted(PREPARATIONS))
        raise ConfigInvalid(where=f"{where} use", reason=f"is {use}; it must be one of {names}")
    for key, permitted in known.words:
        _one_of(settings, key, permitted, default=permitted[0], where=where)
    missing = sorted(set(known.needed) - set(settings))
    unknown = sorted(set(settings) - set(known.needed) - set(known.optional))
    if missing:
        raise ConfigInvalid(where=where, reason=f"{missing[0]} is missing")
    if unknown:
        raise ConfigInvalid(where=where, reason=f"{unknown[0]} is not known to {use}")
    for key in sorted(settings):
        problem = problem_of(use, key, settings[key])
        if problem:
            raise ConfigInvalid(where=f"{where} {key}", reason=problem)


def _is_command(command: object) -> bool:
    return (
        isinstance(command, list)
        and bool(command)
        and all(isinstance(word, str) and word and "\0" not in word for word in command)
    )


def _rules_of(merged: Mapping[str, object], path: str) -> list[dict[str, object]]:
    rules = merged.get("rule", [])
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise ConfigInvalid(where=path, reason="rules are written as [[rule]]")
    return rules


def _rule(rule: dict[str, object], names: list[str], *, where: str) -> dict[str, object]:
    unknown = sorted(set(rule) - RULE_KEYS)
    if unknown:
        raise ConfigInvalid(where=where, reason=f"{unknown[0]} is unknown")
    match: dict[str, object] = {}
    for key, field in MATCH_KEYS.items():
        if key in rule:
            match[field] = _check_condition(key, rule[key], where=f"{where} {key}")
    action = _one_of(rule, "action", ACTIONS, default="prepare", where=where)
    steps = _groups(rule.get("steps", list(names)), names, where=f"{where} steps")
    stand_in = rule.get("stand_in_s", 120.0)
    return {
        "name": str(rule.get("name") or where.rpartition(": ")[2]),
        "match": match,
        "action": action,
        "then": _one_of(rule, "then", ("approve", "hold"), default="approve", where=where),
        "steps": steps if action == "prepare" else [],
        "coordination": _one_of(rule, "coordination", COORDINATIONS, default="first", where=where),
        "stand_in_s": _check_type(stand_in, 1.0, where=f"{where} stand_in_s"),
    }


def _check_condition(key: str, setting: object, *, where: str) -> object:
    if key in ("type", "source"):
        words = [setting] if isinstance(setting, str) else setting
        return _check_type(words, [], where=where)
    if key in ("duration_s", "notice_s"):
        bounds = setting if isinstance(setting, list) else []
        if len(bounds) != 2 or not all(type(bound) in (int, float) for bound in bounds):
            raise ConfigInvalid(where=where, reason="must be [LEAST, GREATEST]")
        return setting
    if key == "about" and setting not in ("this", "others", "any"):
        raise ConfigInvalid(where=where, reason="must be this, others or any")
    return _check_type(setting, "", where=where)


def _groups(setting: object, names: list[str], *, where: str) -> list[list[str]]:
    if not isinstance(setting, list):
        raise ConfigInvalid(where=where, reason="must be a list of steps or of lists of steps")
    groups = [one if isinstance(one, list) else [one] for one in setting]
    flat = [name for group in groups for name in group]
    for name in flat:
        if not isinstance(name, str) or name not in names:
            raise ConfigInvalid(where=where, reason=f"there is no step {name!r}")
    if len(set(flat)) < len(flat):
        raise ConfigInvalid(where=where, reason="a step is named twice")
    return groups


def _one_of(
    table: Mapping[str, object], key: str, words: tuple[str, ...], *, default: str, where: str
) -> str:
    word = table.get(key, default)
    if word not in words:
        raise ConfigInvalid(where=f"{where} {key}", reason=f"must be one of {', '.join(words)}")
    return str(word)
