"""The maintenance policy and its values, for everybody who judges no rule: checkers, API, store.

`rules` composes the policy of the members that the rules declare.
"""

from forewarn_core.rules import MaintenancePolicy
from forewarn_core.rules.budget import Budget
from forewarn_core.rules.local_time import Span, Unit, Window
from forewarn_core.rules.members import PolicyInvalid
from forewarn_core.rules.other_members import ConfirmedAct
from forewarn_core.rules.subjects import Scope, Subject, subject_text

__all__ = [
    "Budget",
    "ConfirmedAct",
    "MaintenancePolicy",
    "PolicyInvalid",
    "Scope",
    "Span",
    "Subject",
    "Unit",
    "Window",
    "subject_text",
]
