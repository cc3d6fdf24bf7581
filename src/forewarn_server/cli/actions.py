"""Actions of the command line whose code is in another package of Forewarn.

An action is an entry point of the group `forewarn.actions`, so that the command line imports no
such package.
"""

from __future__ import annotations

from typing import Any

from forewarn_base.extensions import ExtensionGroup

ACTIONS = ExtensionGroup(
    "action",
    {},
    {
        **dict.fromkeys(("mark-nodes", "answer-resources", "play-aks"), "forewarn-kubernetes"),
        "driver-check": "forewarn-conformance",
    },
)


def load_action(name: str) -> Any:  # noqa: ANN401 - each action has its own type
    """Return the registered object of an action.

    Raises:
        ExtensionMissing, ExtensionUnusable: its package is not installed, or cannot be loaded.
    """
    extension = ACTIONS.find(name)
    assert extension is not None, name
    return extension.use_unlimited(lambda action: action)
