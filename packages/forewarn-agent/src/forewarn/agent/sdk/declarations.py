"""Declared maintenances for programs: declarations to the owner of a token, and its choices.

    declarations = forewarn.Declarations("https://ops.example.org:8470", token_file="/etc/token")
    sundays = {"weekdays": ["sun"], "from": "02:00", "to": "05:00", "time_zone": "Europe/Berlin"}
    for each in declarations.declared():
        declarations.choose(each["id"], "web-0", {"within": sundays, "otherwise": "last"})

A token of the operator API is needed; answers are those of the API (`docs/reference/api.md`).
Source: T-1, T-2.
"""

from __future__ import annotations

import json
from http.client import HTTPException
from pathlib import Path
from urllib.parse import quote

from forewarn.agent.json_fields import FieldInvalid, several
from forewarn_base.errors import CallerError, PeerError
from forewarn_base.http_client import ANSWER_BYTES_MAX, ClientRequest, ClientResponse, exchange
from forewarn_base.urls import is_protected, shown_url

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TIMEOUT_S = 30.0


class DeclarationsUnavailable(PeerError):
    """The operator API does not answer, or not as an operator API does."""

    code = "declarations-unavailable"
    message = "{url}: {reason}."
    advice = "Check the address and the service; nothing was chosen."


class ChoiceNotAccepted(CallerError):
    """The operator API refuses a call, with the reason for people."""

    code = "choice-not-accepted"
    message = "{reason}"
    advice = "{remedy}"


class VmNotOwned(CallerError):
    """The owner of a token has no VM of this name, or there is none."""

    code = "vm-not-owned"
    message = "The owner of the token has no VM {vm}."
    advice = "Use a token of the VM's owner, and the VM's name as the service has it."


#: Code of the API's refusal of a name that does not exist, or that the caller may not see.
_UNKNOWN = "unknown"


class Declarations:
    """A client of the operator API for declared maintenances; each call is one request."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: str | Path = "",
        ca_file: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Store where to ask; a token file is read at each call, so that it may be replaced.

        Raises:
            ValueError: the address would send the token in plain text over a network.
        """
        if not is_protected(url):
            raise ValueError(f"{shown_url(url)} must be https, or on this machine")
        self._url = url.rstrip("/")
        self._token, self._token_file = token, token_file
        self._ca_file, self._timeout_s = ca_file, timeout_s

    def declared(self, vm: str = "") -> list[dict[str, Any]]:
        """Return the live declared maintenances that concern VMs of the token's owner.

        With `vm`, only those of its host, each with the resources of this host alone. Without it,
        the answer grows with the hosts, and is refused beyond `ANSWER_BYTES_MAX`.

        Raises:
            DeclarationsUnavailable: no answer, or one that is too long.
            VmNotOwned: the token's owner has no such VM.
            ChoiceNotAccepted: the token permits no such call.
        """
        path = f"/v1/declarations?vm={quote(vm, safe='')}" if vm else "/v1/declarations"
        try:
            return self._several(self._ask("GET", path), "declarations")
        except ChoiceNotAccepted as refused:
            if vm and refused.facts["refused"] == _UNKNOWN:
                raise VmNotOwned(vm=vm) from refused
            raise

    def openings(self, declaration: str, vm: str) -> list[dict[str, Any]]:
        """Return the openings of a VM's host, by time.

        Raises:
            DeclarationsUnavailable, ChoiceNotAccepted: as `declared`.
        """
        path = f"/v1/declarations/{quote(declaration, safe='')}/openings?vm={quote(vm, safe='')}"
        return self._several(self._ask("GET", path), "openings")

    def choose(
        self,
        declaration: str,
        vm: str,
        choice: Mapping[str, object],
        *,
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """Choose for a VM, and the others of its owner on its host; return the results.

        A choice is a `ChoiceForm` of the API: exactly one of `at` (RFC 3339, with its zone), `now`,
        `release` and `within` (a window, with `otherwise`); `approve` approves the event, and
        `unchosen` leaves a choice alone that the plan keeps.

        Raises:
            DeclarationsUnavailable, ChoiceNotAccepted: as `declared`; or it is not possible.
        """
        form = {"choices": [{"vm": vm, **choice}], "dry_run": dry_run}
        path = f"/v1/declarations/{quote(declaration, safe='')}/choices"
        return self._several(self._ask("POST", path, form), "results")

    def _several(self, answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
        try:
            return [dict(each) for each in several(answer, name)]
        except FieldInvalid as error:
            reason = "the answer is not one of the operator API"
            raise DeclarationsUnavailable(url=shown_url(self._url), reason=reason) from error

    def _ask(self, method: str, path: str, form: object = None) -> dict[str, Any]:
        token = self._read_token() if self._token_file else self._token
        headers = {"accept": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        body = b""
        if form is not None:
            headers["content-type"], body = "application/json", json.dumps(form).encode()
        request = ClientRequest(method, self._url + path, headers, body)
        try:
            answer = exchange(request, timeout_s=self._timeout_s, ca_file=self._ca_file)
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise DeclarationsUnavailable(url=shown_url(self._url), reason=reason) from error
        return self._read(answer)

    def _read_token(self) -> str:
        token, problem = "", "the file is empty"
        try:
            token = Path(self._token_file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or "it is not text"
        if not token:  # without a token, the service may take the caller for another
            reason = f"the token in {self._token_file} cannot be read: {problem}"
            raise DeclarationsUnavailable(url=shown_url(self._url), reason=reason)
        return token

    def _read(self, answer: ClientResponse) -> dict[str, Any]:
        if len(answer.body) > ANSWER_BYTES_MAX:
            reason = f"its answer is longer than {ANSWER_BYTES_MAX >> 20} MiB and was cut off"
            raise DeclarationsUnavailable(url=shown_url(self._url), reason=reason)
        try:
            form = json.loads(answer.body)
        except (ValueError, RecursionError):
            form = None
        error = form.get("error") if isinstance(form, dict) else None
        refused = answer.status >= 400
        if not isinstance(form, dict) or answer.status >= 500 or refused != isinstance(error, dict):
            reason = f"it answers {answer.status}"
            raise DeclarationsUnavailable(url=shown_url(self._url), reason=reason)
        if isinstance(error, dict):
            message = str(error.get("message") or f"It answers {answer.status}.")
            remedy = str(error.get("advice") or "")
            raise ChoiceNotAccepted(reason=message, remedy=remedy, refused=error.get("code"))
        return form
