"""Attested documents of emulated VMs, signed with a key that the emulator creates. Source: I-1.

The key differs from the key of the public cloud.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from forewarn_base.clock import Clock
from forewarn_base.openssl import DAYS, CertificateUnmade, openssl
from forewarn_base.values import value
from forewarn_emulator.console import loopback_url
from forewarn_metadata.endpoint.http.response import Response, compact, refusal
from forewarn_metadata.endpoint.instance import derived_vm_id
from forewarn_metadata.endpoint.instance_fields import DEFAULT_SUBSCRIPTION
from forewarn_metadata.replication.messages import Caller
from forewarn_server.service.parts import BoundAddresses

#: Validity of a document, in seconds, as in the public cloud.
LIFETIME_S = 6 * 3600
#: Names in the certificate; clients compare the common name of `SUBJECT`.
SUBJECT = "/O=Forewarn emulator/CN=metadata.azure.com"
ISSUER = "/O=Forewarn emulator/CN=Forewarn emulator CA"
#: Path of the issuer's certificate in the operator API; needs no token.
ISSUER_PATH = "/v1/attested-issuer.cer"

UNAVAILABLE = refusal(404, "Not found")
_SUBSCRIPTION_SINCE, _LICENSE_SINCE, _SKU_SINCE = "2019-04-30", "2020-09-01", "2019-11-01"


@value
class SigningKey:
    """The key and certificates that sign documents."""

    #: A key and its certificate, PEM.
    signer: bytes
    #: The issuer's certificate, DER.
    issuer: bytes


class AttestedDocuments:
    """Signs documents with a temporary key, created at the first request."""

    def __init__(self, clock: Clock, bound: Callable[[], BoundAddresses | None]) -> None:
        self._clock = clock
        self._bound = bound
        self._made: SigningKey | None = None

    def answer(self, caller: Caller, version: str, nonce: str) -> Response:
        """Return a VM's signed document; 404 if the emulator cannot sign."""
        text = json.dumps(attested(caller, version, nonce, now_ms=self._clock.now_ms()))
        try:
            signature = self._sign(text.encode())
        except CertificateUnmade:
            return UNAVAILABLE
        shown = base64.b64encode(signature).decode("ascii")
        return Response(body=compact({"encoding": "pkcs7", "signature": shown}))

    def issuer(self) -> bytes:
        """Return the CA certificate, DER.

        Raises:
            CertificateUnmade: `openssl` is missing or failed.
        """
        return self._key().issuer

    def _key(self) -> SigningKey:
        if self._made is None:
            bound = self._bound()
            operator = loopback_url(bound.operator) if bound else ""
            self._made = _make_key(operator if operator.startswith("http") else "")
        return self._made

    def _sign(self, text: bytes) -> bytes:
        key = self._key()
        with tempfile.TemporaryDirectory(prefix="forewarn-attested-") as folder:
            signer = Path(
                folder, "signer.pem"
            )  # the directory contains the key and is readable only by its owner
            signer.touch(0o600)
            signer.write_bytes(key.signer)
            words = ("cms", "-sign", "-binary", "-nodetach", "-md", "sha256", "-outform", "DER")
            return openssl(*words, "-signer", str(signer), stdin=text)


def attested(caller: Caller, version: str, nonce: str, *, now_ms: int) -> dict[str, object]:
    """Return the unsigned members of a VM's document, in the format of an api-version."""
    facts = caller.instance
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    until = datetime.fromtimestamp(now_ms // 1000 + LIFETIME_S, UTC)
    claims: dict[str, object] = {
        "nonce": nonce or now.strftime("%Y%m%d-%H%M%S"),
        "plan": {name: facts.get(f"plan.{name}", "") for name in ("name", "product", "publisher")},
        "timeStamp": {
            "createdOn": now.strftime("%m/%d/%y %H:%M:%S -0000"),
            "expiresOn": until.strftime("%m/%d/%y %H:%M:%S -0000"),
        },
        "vmId": facts.get("vmId") or derived_vm_id(caller.vm),
    }
    if version >= _SUBSCRIPTION_SINCE:
        claims["subscriptionId"] = facts.get("subscriptionId", DEFAULT_SUBSCRIPTION)
    if version >= _SKU_SINCE:
        claims["sku"] = facts.get("sku", "")
    if version >= _LICENSE_SINCE and facts.get("licenseType"):
        claims["licenseType"] = facts["licenseType"]
    return dict(sorted(claims.items()))


def _make_key(operator: str) -> SigningKey:
    """Create a key; its certificate contains the issuer's URL, unless `operator` is empty."""
    arguments = ("-newkey", "rsa:2048", "-nodes", "-sha256")
    days = ("-days", str(DAYS))
    with tempfile.TemporaryDirectory(prefix="forewarn-attested-") as folder:
        names = ("issuer.key", "issuer.pem", "key.pem", "request.pem", "extensions", "signed.pem")
        issuer_key, issuer, key, request, extensions, signed = (
            f"{folder}/{name}" for name in names
        )
        usage = ("-addext", "keyUsage=critical,keyCertSign,digitalSignature")
        whose = ("-subj", ISSUER, *usage, "-keyout", issuer_key, "-out", issuer)
        openssl("req", "-x509", *arguments, *days, *whose)
        openssl("req", "-new", *arguments, "-subj", SUBJECT, "-keyout", key, "-out", request)
        config = "keyUsage=critical,digitalSignature\n"
        if operator:
            config += f"authorityInfoAccess=caIssuers;URI:{operator}{ISSUER_PATH}\n"
        Path(extensions).write_text(config, encoding="ascii")
        by = ("-CA", issuer, "-CAkey", issuer_key, "-CAcreateserial", "-extfile", extensions)
        openssl("x509", "-req", "-sha256", *days, *by, "-in", request, "-out", signed)
        signer = Path(key).read_bytes() + Path(signed).read_bytes()
        return SigningKey(signer, openssl("x509", "-in", issuer, "-outform", "DER"))
