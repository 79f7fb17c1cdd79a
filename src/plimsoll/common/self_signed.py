"""Self-signed serving certificates, as kubelets and kube-scheduler create them.

A certificate is kept in a directory, and replaced when it nears its end or the names change. A kube-apiserver
accepts that of a kubelet unless it is given `--kubelet-certificate-authority`.

`python -m plimsoll.common.self_signed DIR NAME...` creates DIR/tls.crt and DIR/tls.key.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plimsoll.common.atomic_file import replace_file
from plimsoll.errors import ConfigError

_DAYS = 365
_RENEW_BEFORE = datetime.timedelta(days=30)


def ensure_self_signed(directory: Path, base: str, names: Sequence[str]) -> tuple[Path, Path]:
    """Return the files of a self-signed certificate for these names, and of its key; ConfigError."""
    certificate, key = directory / f"{base}.crt", directory / f"{base}.key"
    wanted = x509.SubjectAlternativeName([_general_name(name) for name in dict.fromkeys(names)])
    if not _is_reusable(certificate, key, wanted):
        private = ec.generate_private_key(ec.SECP256R1())
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            pem = serialization.Encoding.PEM
            form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            replace_file(key, private.private_bytes(pem, form, plain))
            key.chmod(0o600)
            replace_file(certificate, _self_sign(private, names[0], wanted).public_bytes(pem))
        except OSError as error:
            raise ConfigError(f"{directory}: cannot write the certificate: {error.strerror}") from None
    return certificate, key


def _self_sign(
    key: ec.EllipticCurvePrivateKey, first: str, names: x509.SubjectAlternativeName
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{first[:40]}@{int(now.timestamp())}")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )


def _is_reusable(certificate: Path, key: Path, wanted: x509.SubjectAlternativeName) -> bool:
    with contextlib.suppress(OSError, ValueError, TypeError, x509.ExtensionNotFound):
        known = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
        if os.stat(key).st_mode & 0o077 or private.public_key() != known.public_key():
            return False
        names = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        left = known.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        return set(names) == set(wanted) and left > _RENEW_BEFORE
    return False


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


if __name__ == "__main__":
    try:
        ensure_self_signed(Path(sys.argv[1]), "tls", sys.argv[2:])
    except ConfigError as error:
        sys.exit(str(error))
