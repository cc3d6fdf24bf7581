"""The maintenance policy and its values, for everybody who judges no rule: checkers, API, store.

`rules` composes the policy of the members that the rules declare.
"""

from forewarn.rules import MaintenancePolicy
from forewarn.rules.budget import Budget
from forewarn.rules.local_time import Span, Unit, Window
from forewarn.rules.members import PolicyInvalid
from forewarn.rules.other_members import ConfirmedAct
from forewarn.rules.subjects import Scope, Subject, subject_text

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
