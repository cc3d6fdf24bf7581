"""Attested documents: what an emulated VM shows others about itself, signed."""

import base64
import json
import shutil
import subprocess
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from emulator_tests.asking import get
from emulator_tests.conftest import Stage
from forewarn_emulator.attested_documents import attested
from forewarn_metadata.replication.messages import Caller

ATTESTED = "/metadata/attested/document"
MARCH_1 = 1_772_323_200_000  # Sun, 01 Mar 2026 00:00:00 GMT


def tool(*words: str, given: bytes = b"") -> bytes:
    """Return what openssl prints."""
    done = subprocess.run(["openssl", *words], input=given, capture_output=True, check=True)
    return done.stdout


@pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")
def test_document_is_signed_and_says_the_nonce(stage: Stage, tmp_path: Path) -> None:
    """It is checked with openssl, as the public cloud's documentation does. Source: I-1.

    The certificate says where its issuer's is, and anybody may read that there.
    """
    base = "http://" + urlsplit(stage.emulator.url).netloc
    where = f"{base}{ATTESTED}?api-version=2025-04-07&nonce=1234567890"
    shown = get(where)
    assert shown["encoding"] == "pkcs7"
    signed = tmp_path / "signed"
    signed.write_bytes(base64.b64decode(str(shown["signature"])))
    signer = tool("pkcs7", "-inform", "DER", "-in", str(signed), "-print_certs")
    said = tool("x509", "-noout", "-ext", "authorityInfoAccess", given=signer).decode()
    with urllib.request.urlopen(said.split("CA Issuers - URI:")[1].strip()) as answer:
        (tmp_path / "root").write_bytes(tool("x509", "-inform", "DER", given=answer.read()))
    check = ("cms", "-verify", "-inform", "DER", "-in", str(signed), "-purpose", "any")
    document = json.loads(tool(*check, "-CAfile", str(tmp_path / "root")))
    assert document["nonce"] == "1234567890"
    with urllib.request.urlopen(
        urllib.request.Request(
            f"{base}/metadata/instance/compute/vmId?api-version=2025-04-07&format=text",
            headers={"Metadata": "true"},
        )
    ) as answer:
        assert document["vmId"] == answer.read().decode()
    for query in ("api-version=2017-12-01", "api-version=2025-04-07&nonce=12345678901"):
        with pytest.raises(OSError, match="400"):
            get(f"{base}{ATTESTED}?{query}")


def test_document_has_what_its_version_has() -> None:
    """Without a nonce the time stands for it; it counts for six hours. Source: I-1."""
    facts = {"vmId": "id", "subscriptionId": "s", "sku": "12", "plan.name": "p"}
    caller = Caller("vm-a", "g", "g", instance={**facts, "licenseType": "Windows_Server"})
    first = attested(caller, "2018-10-01", "", now_ms=MARCH_1)
    assert first == {
        "nonce": "20260301-000000",
        "plan": {"name": "p", "product": "", "publisher": ""},
        "timeStamp": {
            "createdOn": "03/01/26 00:00:00 -0000",
            "expiresOn": "03/01/26 06:00:00 -0000",
        },
        "vmId": "id",
    }
    newest = attested(caller, "2025-04-07", "", now_ms=MARCH_1)
    assert set(newest) - set(first) == {"licenseType", "sku", "subscriptionId"}
