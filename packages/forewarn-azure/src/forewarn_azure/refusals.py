"""Errors of Azure Resource Manager, and Azure's form and codes of all errors. Source: Z-4."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from forewarn_base.errors import CallerError, ForewarnError
from forewarn_server.api.responses import encoded

#: Azure's codes by HTTP status, for errors without a specific code.
CODES: Mapping[int, str] = {
    400: "InvalidParameter",
    401: "InvalidAuthenticationToken",
    403: "AuthorizationFailed",
    404: "ResourceNotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    412: "PreconditionFailed",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "InvalidParameter",
    429: "TooManyRequests",
    500: "InternalServerError",
    502: "BadGateway",
    503: "ServiceUnavailable",
}
#: Our HTTP status -> the status that Azure uses instead.
_STATUS = {422: 400}
#: Our error class -> the code that Azure uses for it.
_BY_KIND = {
    "arm-api-version-missing": "MissingApiVersionParameter",
    "arm-not-supported": "OperationNotAllowed",
    "arm-path-unknown": "InvalidResourceType",
    "arm-resource-group-unknown": "ResourceGroupNotFound",
    "arm-subscription-unknown": "SubscriptionNotFound",
    "arm-window-invalid": "InvalidMaintenanceWindow",
    "body-unreadable": "InvalidRequestContent",
    "token-missing": "AuthenticationFailed",
}


class ArmResourceUnknown(CallerError):
    """The resource does not exist in this resource group and subscription."""

    code = "arm-resource-unknown"
    status = 404
    message = "The Resource '{kind}/{name}' under resource group '{resource_group}' was not found."
    advice = "List existing resources with `az vm list` or `az vmss list`."


class ArmResourceGroupUnknown(CallerError):
    """The resource group does not exist."""

    code = "arm-resource-group-unknown"
    status = 404
    message = "Resource group '{name}' could not be found."
    advice = "List resource groups with `az group list`."


class ArmSubscriptionUnknown(CallerError):
    """The subscription has no VMs."""

    code = "arm-subscription-unknown"
    status = 404
    message = "The subscription '{name}' could not be found."
    advice = "List the subscriptions with `az account list --refresh`."


class ArmPathUnknown(CallerError):
    """Forewarn does not serve this path of Azure Resource Manager."""

    code = "arm-path-unknown"
    status = 404
    message = "Forewarn does not serve {method} {path} of Azure Resource Manager."
    advice = "See 'Azure Resource Manager' in the documentation for supported requests."


class ArmApiVersionMissing(CallerError):
    """The call has no api-version."""

    code = "arm-api-version-missing"
    message = "The api-version query parameter (?api-version=) is required for all requests."
    advice = "Add any api-version of the resource type."


class ArmPreconditionFailed(CallerError):
    """A change's condition is false or unsupported."""

    code = "arm-precondition-failed"
    status = 412
    message = "The condition of the header {header} is not met: {reason}."
    advice = "Read the resource, then send the request without the header. Nothing was changed."


class ArmNotSupported(CallerError):
    """This resource or this service does not support the action."""

    code = "arm-not-supported"
    status = 409
    message = "{action} is not possible for {name}: {reason}."
    advice = "See 'Azure Resource Manager' in the documentation for supported requests."


class ArmEventsUnknown(CallerError):
    """The events have ended, or belong to another resource. Source: Z-5."""

    code = "arm-events-unknown"
    status = 404
    message = "{count} of these scheduled events do not exist; nothing was approved: {some}."
    advice = "Read the live events from Resource Graph or in the VM, and use their ids."

    def __init__(self, ids: list[str]) -> None:
        super().__init__(count=len(ids), some=", ".join(ids[:3]))
        self.details = [
            {
                "code": "ResourceNotFound",
                "message": "No live event of the resource has this id.",
                "target": each,
            }
            for each in ids
        ]


def azure_code(error: ForewarnError) -> str:
    """Return Azure's code for an error. Source: Z-4."""
    return _BY_KIND.get(error.code) or CODES.get(error.status, "BadRequest")


def azure_refusal(error: ForewarnError) -> Response:
    """Return the response for an error in the form of Azure Resource Manager. Source: Z-4."""
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Bearer error="invalid_token"'
    if error.status in {429, 503}:
        headers["Retry-After"] = "1"
    refusal: dict[str, object] = {"code": azure_code(error), "message": str(error)}
    if isinstance(error, ArmEventsUnknown):
        refusal["details"] = error.details
    body = {"error": refusal}
    status = _STATUS.get(error.status, error.status)
    return Response(encoded(body), status, headers, media_type="application/json")
