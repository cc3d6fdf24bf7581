"""Errors of the core: every refusal with its sentence, status and advice.

A "not yet" is a value instead: see `Blocker` in `rules/blockers.py`.
"""

from __future__ import annotations

from forewarn_base.errors import CallerError


def noun_of(kind: str) -> str:
    """Return the word for a kind of record in a sentence."""
    return "VM" if kind == "vm" else kind.replace("_", " ")


class _AboutRecord:
    """A refusal about a record, which the facts `kind` and `name` name."""

    def __init__(self, **facts: object) -> None:
        """Add the words for the kind, also for the beginning of a sentence."""
        noun = noun_of(str(facts.get("kind", "")))
        super().__init__(  # type: ignore[call-arg]  # every error takes its facts by keyword
            noun=noun, Noun=f"{noun[:1].upper()}{noun[1:]}", **facts
        )


class FleetContradiction(CallerError):
    """The description of the fleet contradicts itself."""

    code = "fleet-contradiction"
    status = 422
    message = "The fleet cannot be described like this: {problem}."
    advice = "Correct the description and send it again; nothing was changed."


class FleetBusy(_AboutRecord, CallerError):
    """Running or announced work forbids a change of the fleet."""

    code = "fleet-busy"
    status = 409
    message = "{Noun} {name} cannot {act} while {operation} involves it."
    advice = "{remedy}"


class AlreadyExists(_AboutRecord, CallerError):
    """The name of a new object is already in use."""

    code = "already-exists"
    status = 409
    message = "There is a {noun} {name} already."
    advice = "Choose another name, or replace the existing one with `--replace`."


class Unknown(_AboutRecord, CallerError):
    """A host, VM or group does not exist."""

    code = "unknown"
    status = 404
    message = "There is no {noun} {name}."
    advice = "List the names with `forewarn {kind} list`."


class UnknownOperation(Unknown):
    """No operation or event has this name."""

    code = "unknown-operation"
    message = "There is no operation or event {name}."
    advice = "List them with `forewarn operation list --all` or `forewarn event list`."


class InUse(_AboutRecord, CallerError):
    """Other objects still use the object to be removed."""

    code = "in-use"
    status = 409
    message = "{Noun} {name} cannot be removed: {users} still there."
    advice = "Move or remove those first."


class OperationInvalid(CallerError):
    """A request for maintenance contradicts itself."""

    code = "operation-invalid"
    status = 422
    message = "{cause} of {target} cannot be planned: {problem}."
    advice = "Correct the request; nothing was changed."


class NoticeTooShort(CallerError):
    """An operator requested a start before the required notice ends. Source: N-1."""

    code = "notice-too-short"
    status = 422
    message = "{cause} of {target} cannot start at {asked}: {notice} of notice are required."
    advice = "Ask for {earliest} or later, or leave NotBefore out."


class TooManyOperations(CallerError):
    """The service's limit on live operations is reached."""

    code = "too-many-operations"
    status = 409
    message = "{count} operations are live and {asked} more are requested; the limit is {limit}."
    advice = "Nothing was changed. Wait for operations to end, or cancel planned operations."


class TooManyUserOperations(CallerError):
    """The limit on scheduled user-initiated operations is reached. Source: O-1."""

    code = "too-many-user-operations"
    status = 409
    message = (
        "Owner {owner} has {count} user-initiated operations scheduled and requests {asked}"
        " more; the limit is {limit}."
    )
    advice = "Ask for fewer, or approve, wait for or cancel scheduled work; nothing was changed."


class AlreadyAsked(CallerError):
    """The same work on the same target is already under way."""

    code = "already-asked"
    status = 409
    message = "{cause} of {target} is already under way as {operation}."
    advice = (
        "See `forewarn operation why {operation}`. Cancel it first, or queue routine work with"
        " `--queue`."
    )


class WrongState(CallerError):
    """The state of an operation does not allow the command."""

    code = "wrong-state"
    status = 409
    message = "{operation} is {state}: it cannot be {asked}."
    advice = "See `forewarn operation why {operation}`."


class UnknownMaintenance(Unknown):
    """No live maintenance has this name."""

    code = "unknown-maintenance"
    message = "There is no maintenance {name}."
    advice = "List them with `forewarn maintenance list --all`."


class UnknownPlan(Unknown):
    """The maintenance does not have this plan."""

    code = "unknown-plan"
    message = "{maintenance} has no plan {name}."
    advice = "See `forewarn maintenance show {maintenance}` for its plans."


class MaintenanceInvalid(CallerError):
    """The description of a maintenance contradicts itself."""

    code = "maintenance-invalid"
    status = 422
    message = "The maintenance cannot be created like this: {problem}."
    advice = "Correct it and create it again; nothing was changed."


class MaintenanceWrongState(CallerError):
    """The state of a maintenance does not allow the command."""

    code = "maintenance-wrong-state"
    status = 409
    message = "{maintenance} is {state}: it cannot be {asked}."
    advice = "See `forewarn maintenance show {maintenance}`."


class LiftRefused(CallerError):
    """A confirmation cannot be lifted. Source: T-14."""

    code = "lift-refused"
    status = 422
    message = "The confirmation of {act} cannot be lifted: {problem}."
    advice = "Ask another operator to confirm the call. Nothing was changed."


class OwnReview(CallerError):
    """A review can be closed only by a person other than its subject. Source: T-14."""

    code = "own-review"
    status = 403
    message = "{ticket} is about {principal}: {problem}."
    advice = "Another operator closes it, with a text: `forewarn ticket close {ticket} --text …`."


class ReasonNeeded(CallerError):
    """A host whose validation has not passed is accepted only with a reason. Source: T-7."""

    code = "reason-needed"
    status = 422
    message = "{operation} ends without a passed validation of host {host}."
    advice = "Give the reason why you accept the host (`--reason`), or retry the operation."


class UnknownTicket(CallerError):
    """The ticket does not exist."""

    code = "unknown-ticket"
    status = 404
    message = "There is no ticket {name!r}."
    advice = "`forewarn ticket list --all` shows the tickets."


class TicketWrongState(CallerError):
    """The state of a ticket does not allow the command."""

    code = "ticket-wrong-state"
    status = 409
    message = "{ticket} is {state}: it cannot be {asked}."
    advice = "See `forewarn ticket show {ticket}`."


class TicketInvalid(CallerError):
    """A ticket contradicts itself or its target."""

    code = "ticket-invalid"
    status = 422
    message = "A ticket about {target} cannot be opened: {problem}."
    advice = "Correct the ticket and open it again; nothing was changed."


class TooManyTickets(CallerError):
    """An owner has too many tickets, or a ticket has too many texts."""

    code = "too-many-tickets"
    status = 409
    message = "{whose} has {limit} {things} already."
    advice = "Close some first: see `forewarn ticket list`."


class MaintenanceImpossible(CallerError):
    """A draft contains a host that can never be done."""

    code = "maintenance-impossible"
    status = 409
    message = "{maintenance} cannot be started: {problem}."
    advice = (
        "It stays a draft: see `forewarn maintenance show {maintenance}`. Change the policy, or"
        " cancel it and create one with other hosts or times."
    )


class DeclarationRequired(CallerError):
    """A maintenance must be declared before it starts. Source: T-1."""

    code = "declaration-required"
    status = 409
    message = "{maintenance} cannot be started: the policy requires that it is declared."
    advice = "Declare it with `forewarn maintenance declare {maintenance}`; that starts it."


class DeclarationRefused(CallerError):
    """A hand-back window is too short, or too long. Source: T-1."""

    code = "declaration-refused"
    status = 409
    message = "{maintenance} cannot be declared with a hand-back window of {window}: {problem}."
    advice = "Give another window, or change the policy or the maintenance."


class ChoiceRefused(CallerError):
    """An owner's choice of a start would break a rule, or comes too late. Source: T-2."""

    code = "choice-refused"
    status = 409
    message = "The choice for host {host} of {maintenance} is not possible: {problem}."
    advice = "{remedy}"


class NotDeclared(CallerError):
    """A host, group or VM does not belong to a declared maintenance. Source: T-1."""

    code = "not-declared"
    status = 404
    message = "{subject} is not part of {maintenance}."
    advice = "See `forewarn declaration show {maintenance}` for its hosts."


class OwnerUnnamed(CallerError):
    """A choice or request does not name one owner of VMs on a host. Source: T-2."""

    code = "owner-unnamed"
    status = 422
    message = "Host {host} has VMs of these owners: {owners}."
    advice = (
        "Name one of them with --owner (`owner` in the API), or name a VM; nothing was changed."
    )


class DeferralRefused(CallerError):
    """A hand-back deadline cannot be moved, whatever the policy says. Source: T-4."""

    code = "deferral-refused"
    status = 409
    message = "The hand-back deadline of host {host} of {maintenance} cannot be moved: {problem}."
    advice = "{remedy}"


class OrderRefused(CallerError):
    """The order of an owner's hosts cannot be changed. Source: T-8."""

    code = "order-refused"
    status = 409
    message = "The order of hosts of {maintenance} cannot be changed: {problem}."
    advice = "See `forewarn declaration show {maintenance}`; nothing was changed."


class DeclarationEnded(CallerError):
    """A declared maintenance has ended, and owners decide nothing about it any more. T-1."""

    code = "declaration-ended"
    status = 409
    message = "{maintenance} is {state}: there is nothing left to decide."
    advice = "See `forewarn declaration show {maintenance}`."


class DeferralUndecided(CallerError):
    """No request for a later hand-back deadline waits for a decision. Source: T-4."""

    code = "deferral-undecided"
    status = 404
    message = "No deferral of {maintenance} waits for a decision: {whose}."
    advice = "`forewarn deferral list` shows the requests."


class PostponementRefused(CallerError):
    """A later start was refused. Source: F-8."""

    code = "postponement-refused"
    status = 409
    message = "Host {host} of {maintenance} cannot be postponed: {problem}."
    advice = "Ask for an earlier time, or ask an operator to change the policy or the maintenance."


class PlanSuperseded(CallerError):
    """A plan's parent is no longer the plan in force. Source: F-2."""

    code = "plan-superseded"
    status = 409
    message = "Plan {plan} of {maintenance} follows plan {parent}, but plan {in_force} is in force."
    advice = "A new plan based on the one in force follows."
