"""Words of kubectl, az, gh and other programs, with the words of Forewarn for the same purpose."""

from __future__ import annotations

from collections.abc import Collection

#: First word of another program -> the command of Forewarn.
_COMMANDS = {
    "get": "forewarn host list",
    "ls": "forewarn host list",
    "ps": "forewarn status",
    "top": "forewarn status",
    "describe": "forewarn show NAME",
    "logs": "forewarn history list",
    "log": "forewarn history list",
    "config": "forewarn context list",
    "account": "forewarn whoami",
    "auth": "forewarn login",
    "cordon": "forewarn maintenance create HOST --move-vms 1h",
    "drain": "forewarn maintenance create HOST --move-vms 1h",
    "uncordon": "forewarn host repair HOST",
    "create": "forewarn maintenance create HOST",
    "delete": "forewarn host remove HOST",
    "rollout": "forewarn maintenance list",
    "scale": "forewarn maintenance create HOST",
    "diff": "forewarn topology apply FILE --dry-run",
    "edit": "forewarn topology apply FILE",
    "api-resources": "forewarn help",
    "cluster-info": "forewarn status",
    "check": "forewarn doctor",
    "completions": "forewarn completion bash",
}
#: First two words of another program -> the command of Forewarn.
_PAIRS = {
    ("auth", "can-i"): "forewarn access can-i",
    ("config", "use-context"): "forewarn context use NAME",
    ("rollout", "status"): "forewarn maintenance show ID",
    ("rollout", "pause"): "forewarn maintenance pause ID",
    ("rollout", "resume"): "forewarn maintenance resume ID",
    ("rollout", "undo"): "forewarn maintenance cancel ID",
    ("rollout", "history"): "forewarn maintenance list --all",
}
#: Nouns of other programs -> noun of Forewarn.
_NOUNS = {
    **dict.fromkeys(("node", "nodes", "no", "machine", "machines", "server", "servers"), "host"),
    **dict.fromkeys(("pod", "pods", "po", "instance", "instances"), "vm"),
    **dict.fromkeys(("namespace", "namespaces", "ns"), "group"),
}
#: First words that a noun may follow, as in `get hosts` -> action.
_BEFORE_A_NOUN = {
    **dict.fromkeys(("get", "ls", "list"), "list"),
    **dict.fromkeys(("describe", "show"), "show"),
    **dict.fromkeys(("delete", "rm", "remove"), "remove"),
    "create": "add",
}
#: Action of another program -> actions of Forewarn; an object has the first ones, or none.
_ACTIONS = {
    "get": ("list", "show"),
    "ls": ("list",),
    "get-contexts": ("list",),
    "current-context": ("list",),
    "describe": ("show",),
    "status": ("show", "list"),
    "view": ("show",),
    "info": ("show",),
    "use-context": ("use",),
    "set": ("apply", "use", "add"),
    "edit": ("apply", "add"),
    "create": ("add", "apply"),
    "new": ("create", "add"),
    "delete": ("remove", "cancel", "revoke", "clear"),
    "rm": ("remove", "cancel", "revoke", "clear"),
    "abort": ("cancel",),
    "stop": ("pause", "cancel"),
    "unpause": ("resume",),
    "continue": ("resume",),
    "restart": ("reboot", "retry"),
    "upgrade": ("update",),
    "patch": ("update",),
    "drain": ("migrate",),
    "evacuate": ("migrate",),
    "cordon": ("migrate", "degrade"),
    "uncordon": ("repair",),
    "diff": ("apply --dry-run",),
    "logs": ("why",),
    "explain": ("why",),
    "run": ("start",),
}
#: Option of another program -> what to type instead.
_OPTIONS = {
    "-A": "every list shows the whole fleet",
    "--all-namespaces": "every list shows the whole fleet",
    "-f": "name the file without -f; `forewarn watch` follows history",
    "--name": "type the name without --name",
    "--names": "type the names without --names",
    "--hosts": "type the names without --hosts",
    "--id": "type the id without --id",
    "--query": "use -o json, and a program such as jq",
    "-y": "use --yes",
    "--force": "use --yes",
    "--follow": "use --watch, or `forewarn watch`",
    "--no-wait": "a command waits only with --wait",
    "--filename": "name the file without --filename",
    "--file": "name the file without --file",
    "--filter": "use --selector, --state or another option of `list`, or -o json and jq",
    "--all-groups": "every list shows the whole fleet",
    "--label": "use --selector KEY=VALUE",
    "--dry-run": "`plan` of a maintenance and `why` show what would happen",
    "--context": "use `forewarn context use NAME`",
    "--verbose": "`forewarn explain CODE` explains an error",
    "-v": "`forewarn --version` shows the version",
}
#: Options of other programs that name a file.
_OF_FILES = frozenset({"-f", "--filename"})
#: Options of other programs that name a namespace, a resource group or an object.
_OF_SCOPES = frozenset({"-n", "--namespace", "-g", "--resource-group"})
#: Nouns whose records are added.
_ADDED = frozenset({"host", "group", "vm"})
_UNIQUE = "names are unique in the whole fleet; type a name without an option"


def noun_of(word: str, nouns: Collection[str]) -> str:
    """Return the noun that a plural or the beginning of a noun means; empty: none."""
    if word in nouns:
        return word
    if word.endswith("s") and word[:-1] in nouns:
        return word[:-1]
    longer = [noun for noun in nouns if len(word) > 1 and noun.startswith(word)]
    return longer[0] if len(longer) == 1 else ""


def familiar_command(words: list[str], nouns: Collection[str]) -> str:
    """Return the command meant by the first words of another program; empty: not known."""
    first, second = words[0], words[1] if len(words) > 1 else ""
    if pair := _PAIRS.get((first, second)):
        return pair
    noun = _NOUNS.get(second) or (noun_of(second, nouns) if second else "")
    if noun and first in _BEFORE_A_NOUN and not (first == "create" and noun not in _ADDED):
        name = "" if _BEFORE_A_NOUN[first] == "list" else " NAME"
        return f"forewarn {noun} {_BEFORE_A_NOUN[first]}{name}"
    if first in _NOUNS and first not in nouns:
        return f"forewarn {_NOUNS[first]} list"
    return _COMMANDS.get(first, "")


def familiar_actions(word: str, actions: Collection[str]) -> list[str]:
    """Return the actions of an object that an action of another program means."""
    return [action for action in _ACTIONS.get(word, ()) if action.split()[0] in actions]


def familiar_option(option: str, options: Collection[str] = ()) -> str:
    """Return what to type instead of an option of another program; empty: not known."""
    if option in _OF_FILES and "--file" in options:
        return "use --file"
    if option in _OF_SCOPES:
        scopes = " or ".join(each for each in ("--owner", "--group") if each in options)
        return f"use {scopes}, or a name without an option" if scopes else _UNIQUE
    return _OPTIONS.get(option, "")
