"""Nova's API: one request at a time, with the names and paths of its reference.

The only module that imports openstacksdk, which finds the cloud, authenticates and stores the
token; it converts the library's exceptions.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from forewarn.errors import CallerError, PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forewarn.drivers.nova.config import NovaConfig

_T = TypeVar("_T")

#: Microversion of every request: Train (2019) and later. Up to 2.94 an evacuated server that ran is
#: started at its destination, and all paths and members in use are the same.
MICROVERSION = "2.79"
#: Time limit of a request, in seconds.
REQUEST_TIMEOUT_S = 20
#: Records per page of a list.
PAGE = 500
#: Maximum part of an answer that is stored as a reason, in characters.
REASON_MAX = 300


class OpenstackMissing(CallerError):
    """The client library of OpenStack is not installed."""

    code = "openstack-missing"
    status = 422
    message = "The nova driver needs openstacksdk, which is not installed."
    advice = "Install it, from a clone of Forewarn: pip install './forewarn[nova]'."


class CloudUnconfigured(CallerError):
    """The configured cloud does not exist, or its credentials are refused."""

    code = "cloud-unconfigured"
    status = 422
    message = "The OpenStack cloud {cloud} cannot be used: {reason}."
    advice = "Try: openstack --os-cloud {cloud} compute service list. Its user must be an admin."


class NovaUnreachable(PeerError):
    """Nova or Keystone does not answer, or cannot at the moment; a retry may help."""

    code = "nova-unreachable"
    message = "Nova does not answer: {reason}."
    advice = "Look at nova-api and Keystone; the work goes on when they answer."


class NovaRefused(PeerError):
    """Nova refuses a request."""

    code = "nova-refused"
    message = "Nova refuses {verb} {path}: {reason} ({status})."
    advice = "Look at the server in Nova; then retry, complete or fail the operation."


class NovaBusy(NovaRefused):
    """Nova is busy with a server; the same request may succeed later."""

    code = "nova-busy"


class NovaMissing(NovaRefused):
    """Nova does not know the object of a request."""

    code = "nova-missing"


class Nova:
    """One cloud's compute API; thread-safe. It connects at the first request."""

    def __init__(self, config: NovaConfig) -> None:
        """Start unconnected."""
        self._config = config
        self._lock = threading.Lock()
        self._found: Any = None
        self._adapter: Any = None

    @property
    def user(self) -> str:
        """The id of the user of Nova's API; empty if the cloud has no users."""
        return str(self._asking(lambda: self._cloud().get_session().get_user_id()) or "")

    @property
    def secret(self) -> bytes:
        """A secret that only this user's processes know; it signs the marks.

        Raises:
            CloudUnconfigured: the login has no secret.
        """
        auth = self._cloud().get_auth_args()
        secret = auth.get("application_credential_secret") or auth.get("password")
        if not secret:
            reason = "Forewarn needs a password or an application credential, to sign its marks"
            raise CloudUnconfigured(cloud=self._config.cloud or "-", reason=reason)
        return str(secret).encode()

    def get(self, path: str, **query: object) -> dict[str, Any]:
        """Read.

        Raises:
            NovaUnreachable: Nova does not answer.
            NovaRefused: Nova refuses; `NovaMissing` if the object does not exist.
        """
        return self._send("GET", path, params=query)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create, or act on a server.

        Raises:
            NovaUnreachable: Nova does not answer, and the result is unknown.
            NovaRefused: Nova refuses; after `NovaBusy` a retry may succeed.
        """
        return self._send("POST", path, json=body)

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Change; raises as `post` does."""
        return self._send("PUT", path, json=body)

    def delete(self, path: str) -> None:
        """Delete, or end; raises as `post` does."""
        self._send("DELETE", path)

    def pages(self, path: str, member: str, **query: object) -> Iterator[dict[str, Any]]:
        """Yield the records of a paged list; raises as `get` does."""
        marker: dict[str, object] = {}
        while True:
            items = self.get(path, limit=PAGE, **query, **marker)[member]
            yield from items
            if not items:
                return
            marker = {"marker": items[-1]["id"]}

    def _send(self, verb: str, path: str, **words: Any) -> dict[str, Any]:  # noqa: ANN401 - the library's
        answer = self._asking(
            lambda: self._compute().request(
                path, verb, microversion=MICROVERSION, timeout=REQUEST_TIMEOUT_S,
                raise_exc=False, connect_retries=0, **words,
            )
        )  # fmt: skip
        status = answer.status_code
        if status < 400:
            return dict(answer.json()) if answer.content else {}
        reason = _reason(answer)
        if status >= 500 or status in {401, 408, 429}:
            raise NovaUnreachable(reason=f"{status}, {reason}")
        kind = {404: NovaMissing, 409: NovaBusy}.get(status, NovaRefused)
        raise kind(verb=verb, path=path, reason=reason, status=status)

    def _asking(self, ask: Callable[[], _T]) -> _T:
        """Call Keystone or Nova; converts the library's exceptions."""
        self._cloud()
        from keystoneauth1 import exceptions as trouble  # noqa: PLC0415 - an extra

        try:
            return ask()
        except (trouble.Unauthorized, trouble.MissingAuthPlugin, trouble.CatalogException) as error:
            facts = {"cloud": self._config.cloud or "-", "reason": _clause(error)}
            raise CloudUnconfigured(**facts) from error
        except trouble.ClientException as error:
            raise NovaUnreachable(reason=_clause(error)) from error

    def _cloud(self) -> Any:  # noqa: ANN401 - the library's
        with self._lock:
            if self._found is None:
                self._found = _find(self._config)
            return self._found

    def _compute(self) -> Any:  # noqa: ANN401 - the library's
        cloud = self._cloud()
        with self._lock:
            if self._adapter is None:
                self._adapter = _compute_of(cloud)
            return self._adapter


def _find(config: NovaConfig) -> Any:  # noqa: ANN401 - the library's
    try:
        from openstack.config import OpenStackConfig  # noqa: PLC0415 - an extra that few have
        from openstack.exceptions import ConfigException  # noqa: PLC0415
    except ImportError as error:
        raise OpenstackMissing from error
    chosen = {"cloud": config.cloud, "region_name": config.region}
    named: dict[str, Any] = {name: value for name, value in chosen.items() if value}
    files = [config.clouds_file] if config.clouds_file else None
    try:
        return OpenStackConfig(config_files=files, app_name="forewarn").get_one(**named)
    except ConfigException as error:
        raise CloudUnconfigured(cloud=config.cloud or "-", reason=_clause(error)) from error


def _compute_of(cloud: Any) -> Any:  # noqa: ANN401 - the library's
    """Return a sender of requests to a cloud's Nova that hides the library's objects."""
    from keystoneauth1.adapter import Adapter  # noqa: PLC0415 - an extra

    return Adapter(
        cloud.get_session(),
        service_type="compute",
        interface=cloud.get_interface("compute"),
        region_name=cloud.get_region_name("compute"),
        endpoint_override=cloud.get_endpoint("compute"),
    )


def _reason(answer: Any) -> str:  # noqa: ANN401 - the library's
    """Return the text of an error, which Nova wraps in a member named for its kind."""
    try:
        (fault,) = answer.json().values()
        return str(fault["message"])[:REASON_MAX].rstrip(".")
    except (ValueError, KeyError, TypeError, AttributeError):
        return str(answer.reason)


def _clause(error: Exception) -> str:
    return " ".join(str(error).split())[:REASON_MAX].rstrip(".")
