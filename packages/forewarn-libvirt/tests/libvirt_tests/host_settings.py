"""The files of a libvirt host: settings of libvirtd and QEMU, and its certificate.

No process may be started from here.
"""

import shutil
from pathlib import Path

from tests.e2e.certificates import make_certificates


def write_settings(directory: Path, *, pki: Path, address: str, host_uuid: str) -> None:
    """Write what libvirtd and QEMU are told."""
    (directory / "libvirtd.conf").write_text(
        f'host_uuid = "{host_uuid}"\n'
        'listen_tls = 1\nlisten_tcp = 1\nauth_tcp = "none"\n'
        f'ca_file = "{pki}/cacert.pem"\ncert_file = "{pki}/servercert.pem"\n'
        f'key_file = "{pki}/serverkey.pem"\n'
        'listen_addr = "0.0.0.0"\nauth_unix_rw = "none"\n'
    )
    (directory / "qemu.conf").write_text(
        'user = "root"\ngroup = "root"\nsecurity_driver = "none"\ncgroup_controllers = []\n'
        'stdio_handler = "file"\nremember_owner = 0\nnamespaces = []\n'
        f'migration_host = "{address}"\n'
        f'migrate_tls_x509_cert_dir = "{pki}"\nmigrate_tls_x509_verify = 1\n'
    )


def give_certificate(authority: Path, name: str, pki: Path, *, addresses: dict[str, str]) -> None:
    """Give a host one certificate, as a server and as a client of the others.

    The authority is made with the first, and certifies all of these names.
    """
    if not authority.exists():
        authority.mkdir()
        make_certificates(authority, **{each: f"IP:{to}" for each, to in addresses.items()})
    pki.mkdir(exist_ok=True)
    for dash in ("", "-"):  # libvirt's names, and QEMU's
        shutil.copy(authority / "ca.pem", pki / f"ca{dash}cert.pem")
        for role in ("server", "client"):
            shutil.copy(authority / f"{name}.pem", pki / f"{role}{dash}cert.pem")
            shutil.copy(authority / f"{name}.key", pki / f"{role}{dash}key.pem")
