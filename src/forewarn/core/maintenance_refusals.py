"""Why a command about a maintenance is refused; only error classes."""

from __future__ import annotations

from forewarn.core.refusals import Unknown
from forewarn.errors import CallerError


class UnknownMaintenance(Unknown):
    """A name that no live maintenance has."""

    code = "unknown-maintenance"
    message = "There is no maintenance {name}."
    advice = "List them with `forewarn maintenance list`."


class UnknownPlan(Unknown):
    """A plan that a maintenance does not have."""

    code = "unknown-plan"
    message = "{maintenance} has no plan {name}."
    advice = "See `forewarn maintenance show {maintenance}` for its plans."


class MaintenanceInvalid(CallerError):
    """A maintenance that contradicts itself."""

    code = "maintenance-invalid"
    status = 422
    message = "The maintenance cannot be created like this: {problem}."
    advice = "Correct it and create it again; nothing was changed."


class MaintenanceWrongState(CallerError):
    """A maintenance whose state does not allow the command."""

    code = "maintenance-wrong-state"
    status = 409
    message = "{maintenance} is {state}: it cannot be {asked}."
    advice = "See `forewarn maintenance show {maintenance}`."


class MaintenanceImpossible(CallerError):
    """A draft with a host that can never be done."""

    code = "maintenance-impossible"
    status = 409
    message = "{maintenance} cannot be started: {problem}."
    advice = (
        "It stays a draft: see `forewarn maintenance show {maintenance}`. Change the policy, or"
        " cancel it and create one with other hosts or times."
    )


class PostponementRefused(CallerError):
    """A later start that is not granted. Source: F-8."""

    code = "postponement-refused"
    status = 409
    message = "Host {host} of {maintenance} cannot be postponed: {problem}."
    advice = "Ask for an earlier time, or ask an operator to change the policy or the maintenance."


class PlanSuperseded(CallerError):
    """A plan whose parent is not the plan in force any more. Source: F-2."""

    code = "plan-superseded"
    status = 409
    message = "Plan {plan} of {maintenance} follows plan {parent}, but plan {in_force} is in force."
    advice = "A new plan is made of the one in force."
