"""Attested documents of emulated VMs, signed by a key that the emulator makes. Source: I-1.

No request may be read in here. The public cloud signs with a key that only it has.
"""

from __future__ import annotations

import base64
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.metadata.http.response import Response, compact, refusal
from forewarn.metadata.instance_fields import DEFAULT_SUBSCRIPTION
from forewarn.operator_api.arm.certificate import DAYS, CertificateUnmade, openssl

if TYPE_CHECKING:
    from forewarn.clock import Clock
    from forewarn.replication.messages import Caller

#: How long a document counts, in seconds, as the public cloud's does.
LIFETIME_S = 6 * 3600
#: What the certificate is for; clients compare the last name.
SUBJECT = "/O=Forewarn emulator/CN=metadata.azure.com"

UNAVAILABLE = refusal(404, "Not found")
_SUBSCRIPTION_SINCE, _LICENSE_SINCE, _SKU_SINCE = "2019-04-30", "2020-09-01", "2019-11-01"


class AttestedDocuments:
    """Signs documents; the key is made for the first one and goes with the emulator."""

    def __init__(self, clock: Clock) -> None:
        """Make nothing yet; the documents carry this clock's time."""
        self._clock = clock
        self._made = b""

    def answer(self, caller: Caller, version: str, nonce: str) -> Response:
        """Return a VM's signed document; 404 where nothing can sign."""
        text = json.dumps(attested(caller, version, nonce, now_ms=self._clock.now_ms()))
        try:
            signature = self._sign(text.encode())
        except CertificateUnmade:
            return UNAVAILABLE
        shown = base64.b64encode(signature).decode("ascii")
        return Response(body=compact({"encoding": "pkcs7", "signature": shown}))

    def _sign(self, text: bytes) -> bytes:
        self._made = self._made or _key_and_certificate()
        with tempfile.TemporaryDirectory(prefix="forewarn-attested-") as folder:
            signer = Path(folder, "signer.pem")  # holds the key, too: only its owner reads it
            signer.touch(0o600)
            signer.write_bytes(self._made)
            words = ("cms", "-sign", "-binary", "-nodetach", "-md", "sha256", "-outform", "DER")
            return openssl(*words, "-signer", str(signer), given=text)


def attested(caller: Caller, version: str, nonce: str, *, now_ms: int) -> dict[str, object]:
    """Return what is signed of a VM: the parts that the version has."""
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
        "vmId": facts.get("vmId", ""),
    }
    if version >= _SUBSCRIPTION_SINCE:
        claims["subscriptionId"] = facts.get("subscriptionId", DEFAULT_SUBSCRIPTION)
    if version >= _SKU_SINCE:
        claims["sku"] = facts.get("sku", "")
    if version >= _LICENSE_SINCE and facts.get("licenseType"):
        claims["licenseType"] = facts["licenseType"]
    return dict(sorted(claims.items()))


def _key_and_certificate() -> bytes:
    """Return a key and its certificate, PEM."""
    what = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256", "-days", str(DAYS))
    named = ("-subj", SUBJECT, "-addext", "keyUsage=critical,digitalSignature")
    with tempfile.TemporaryDirectory(prefix="forewarn-attested-") as folder:
        key, certificate = Path(folder, "key.pem"), Path(folder, "certificate.pem")
        openssl(*what, *named, "-keyout", str(key), "-out", str(certificate))
        return key.read_bytes() + certificate.read_bytes()
