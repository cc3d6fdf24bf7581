"""A client of Nova's API.

Only this module imports openstacksdk, which reads the cloud's configuration, authenticates and
stores the token. The module converts the library's exceptions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forewarn_base.errors import CallerError, PeerError
from forewarn_drivers import PlatformUnanswered
from forewarn_openstack.config import NovaConfig

#: Microversion of every request: Train (2019) and later. Up to 2.94, Nova starts evacuated servers
#: that ran, and all used paths and members are the same.
MICROVERSION = "2.79"
#: Time limit of a request, in seconds.
REQUEST_TIMEOUT_S = 20
#: Records per page of a list.
PAGE = 500
#: Maximum length of a reason from an answer, in characters.
REASON_MAX = 300


class OpenstackMissing(CallerError):
    """The client library of OpenStack is not installed."""

    code = "openstack-missing"
    status = 422
    message = "The nova driver needs openstacksdk, which is not installed."
    advice = "Install it, from a clone of Forewarn: pip install './forewarn[nova]'."


class CloudUnconfigured(CallerError):
    """The configured cloud does not exist, or refused the credentials."""

    code = "cloud-unconfigured"
    status = 422
    message = "The OpenStack cloud {cloud} cannot be used: {reason}."
    advice = (
        "Try `openstack --os-cloud {cloud} compute service list`, which requires an admin user."
    )


class NovaUnreachable(PlatformUnanswered):
    """Nova or Keystone is temporarily unable to answer."""

    code = "nova-unreachable"
    message = "Nova does not answer: {reason}."
    advice = "Check nova-api and Keystone; the driver retries automatically."


class NovaRefused(PeerError):
    """Nova refuses a request."""

    code = "nova-refused"
    message = "Nova refuses {verb} {path}: {reason} ({status})."
    advice = "Check the server in Nova; then retry, complete or fail the operation."


class NovaBusy(NovaRefused):
    """Nova is busy with a server; a later request may succeed."""

    code = "nova-busy"


class NovaMissing(NovaRefused):
    """The object of a request does not exist in Nova."""

    code = "nova-missing"


class Nova:
    """A client of one cloud's compute API; thread-safe; connects at the first request."""

    def __init__(self, config: NovaConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._found: Any = None
        self._adapter: Any = None

    @property
    def user(self) -> str:
        """Id of the client's user; empty if the cloud has no users."""
        with self._own_errors():
            return str(self._cloud().get_session().get_user_id() or "")

    @property
    def secret(self) -> bytes:
        """Secret of the client's user, with which the driver signs marks.

        Raises:
            CloudUnconfigured: the login has no secret.
        """
        auth = self._cloud().get_auth_args()
        secret = auth.get("application_credential_secret") or auth.get("password")
        if not secret:
            reason = "Forewarn needs a password or an application credential to sign marks"
            raise CloudUnconfigured(cloud=self._config.cloud or "-", reason=reason)
        return str(secret).encode()

    def get(self, path: str, **query: object) -> dict[str, Any]:
        """Send a GET and return the answer.

        Raises:
            NovaUnreachable: Nova does not answer.
            NovaRefused: Nova refused the request; `NovaMissing`: the object does not exist.
        """
        return self._send("GET", path, params=query)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a POST, which creates an object or acts on a server, and return the answer.

        Raises:
            NovaUnreachable: Nova does not answer, and the result is unknown.
            NovaRefused: Nova refused the request; after `NovaBusy`, a retry may succeed.
        """
        return self._send("POST", path, json=body)

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a PUT and return the answer; raise the errors of `post`."""
        return self._send("PUT", path, json=body)

    def delete(self, path: str) -> None:
        """Send a DELETE; raise the errors of `post`."""
        self._send("DELETE", path)

    def pages(self, path: str, member: str, **query: object) -> Iterator[dict[str, Any]]:
        """Yield the records of a paged list; raise the errors of `get`."""
        marker: dict[str, object] = {}
        while True:
            items = self.get(path, limit=PAGE, **query, **marker)[member]
            yield from items
            if not items:
                return
            marker = {"marker": items[-1]["id"]}

    def _send(self, verb: str, path: str, **words: Any) -> dict[str, Any]:  # noqa: ANN401 - the library's
        with self._own_errors():
            response = self._compute().request(
                path, verb, microversion=MICROVERSION, timeout=REQUEST_TIMEOUT_S,
                raise_exc=False, connect_retries=0, **words,
            )  # fmt: skip
        status = response.status_code
        if status < 400:
            return dict(response.json()) if response.content else {}
        reason = _reason(response)
        if status >= 500 or status in {401, 408, 429}:
            raise NovaUnreachable(reason=f"{status}, {reason}")
        kind = {404: NovaMissing, 409: NovaBusy}.get(status, NovaRefused)
        raise kind(verb=verb, path=path, reason=reason, status=status)

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Replace the library's exceptions by Forewarn's errors."""
        self._cloud()  # reports a missing library, or a wrong configuration
        from keystoneauth1 import exceptions as library  # noqa: PLC0415 - an extra

        try:
            yield
        except (library.Unauthorized, library.MissingAuthPlugin, library.CatalogException) as error:
            reason = _clause(error)
            raise CloudUnconfigured(cloud=self._config.cloud or "-", reason=reason) from error
        except library.ClientException as error:
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
    """Return openstacksdk's adapter for requests to a cloud's Nova."""
    from keystoneauth1.adapter import Adapter  # noqa: PLC0415 - an extra

    return Adapter(
        cloud.get_session(),
        service_type="compute",
        interface=cloud.get_interface("compute"),
        region_name=cloud.get_region_name("compute"),
        endpoint_override=cloud.get_endpoint("compute"),
    )


def _reason(response: Any) -> str:  # noqa: ANN401 - the library's
    """Return the text of Nova's error, which is inside a member named after the kind of error."""
    try:
        (fault,) = response.json().values()
        return str(fault["message"])[:REASON_MAX].rstrip(".")
    except (ValueError, KeyError, TypeError, AttributeError):
        return str(response.reason)


def _clause(error: Exception) -> str:
    return " ".join(str(error).split())[:REASON_MAX].rstrip(".")
