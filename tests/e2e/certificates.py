"""Certificates for the tests, made by openssl."""

import subprocess
from pathlib import Path

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make_certificates(directory: Path, valid_days: int = 30, /, **names: str) -> None:
    """Write `ca.pem`, and for each name `NAME.pem` and `NAME.key`.

    Args:
        directory: where.
        valid_days: how long they are valid.
        names: name -> its subjectAltName, such as `DNS:localhost,IP:127.0.0.1`.
    """

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    days = ("-days", str(valid_days))
    openssl("req", "-x509", *_NEW, "-keyout", "ca.key", "-out", "ca.pem", *days, "-subj", "/CN=ca")
    for name, also in names.items():
        subject, request = f"/CN={name}", f"{name}.csr"
        openssl("req", *_NEW, "-keyout", f"{name}.key", "-out", request, "-subj", subject)
        extensions = directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={also}")
        openssl(
            *("x509", "-req", "-in", request, "-CA", "ca.pem", "-CAkey", "ca.key", *days),
            *("-CAcreateserial", "-out", f"{name}.pem", "-extfile", extensions.name),
        )
