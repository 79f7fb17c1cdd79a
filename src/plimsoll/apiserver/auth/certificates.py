"""Certificates of the embedded cluster: its own CA, or given ones.

`CertificateAuthority` is the CA in the data directory, which issues serving and client certificates. Private
keys are P-256 and readable by their owner only. A serving certificate is reissued when it nears its end or
the names change. Given certificates are checked when the server starts, so that a mistake is an error message
and not a failing handshake.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plimsoll.api.names import dns_subdomain
from plimsoll.apiserver.auth.secret_files import read_file, read_private, write_private
from plimsoll.apiserver.auth.users import ALL_AUTHENTICATED, User
from plimsoll.errors import ConfigError

CA_DAYS, SERVER_DAYS, CLIENT_DAYS = 3650, 397, 365
#: A serving certificate is reissued when less than this is left.
_RENEW_BEFORE = datetime.timedelta(days=30)
#: Certificates are backdated: clocks of clients may be behind, and ours may step back.
_BACKDATE = datetime.timedelta(hours=1)
#: Names by which pods and local tools reach the server.
DEFAULT_NAMES = (
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_MAX_NAME_LENGTH = 64  # X.509's limit on a common name

_UTC = datetime.UTC
_log = logging.getLogger("plimsoll.server")


def utc_now() -> datetime.datetime:
    """Return the time of the system clock."""
    return datetime.datetime.now(_UTC)


class CertificatePair(NamedTuple):
    """Certificate and its private key, in PEM form."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """Certificate authority: its certificate, key and directory."""

    def __init__(
        self,
        pair: CertificatePair,
        directory: Path,
        source: str = "the CA",
        now: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._now = now
        self._certificate = _parse_certificates(pair.certificate, source)[0]
        self._key = _issuer_key(pair.key, source)
        self._directory = directory
        self.certificate = pair.certificate
        if not _is_key_of(self._certificate, self._key):
            raise ConfigError(f"{source}: certificate and key do not match")

    @classmethod
    def load_or_create(
        cls, directory: Path, now: Callable[[], datetime.datetime] = utc_now
    ) -> CertificateAuthority:
        """Load the CA of a directory, or create it; reissue it with the same key if it is not valid yet
        because the clock has stepped back.
        """
        certificate, key = directory / "ca.crt", directory / "ca.key"
        if certificate.exists() and key.exists():
            pair = CertificatePair(read_file(certificate, "the CA"), read_private(key, "the key of the CA"))
            authority = cls(pair, directory, str(certificate), now)
            left = authority._certificate.not_valid_after_utc - now()
            if left < _RENEW_BEFORE:
                ends = authority._certificate.not_valid_after_utc.date()
                raise ConfigError(
                    f"{certificate} ends on {ends}: delete it and {key}, and issue new kubeconfigs"
                )
            if authority._certificate.not_valid_before_utc <= now():
                return authority
            return authority._reissue_backdated(certificate, key)
        made = ec.generate_private_key(ec.SECP256R1())
        ends = now() + datetime.timedelta(days=CA_DAYS)
        pair = CertificatePair(_make_ca(made, now() - _BACKDATE, ends), _key_pem(made))
        write_private(key, pair.key)
        _write_public(certificate, pair.certificate)
        return cls(pair, directory, now=now)

    def _reissue_backdated(self, certificate: Path, key: Path) -> CertificateAuthority:
        """Replace a CA certificate that is not valid yet. Key, name and end stay the same, so certificates
        issued before and after are valid for holders of either.
        """
        _log.warning(
            "the system clock is %s, but %s is valid only from %s on: has the clock stepped back? The "
            "certificate is reissued with the same key and an earlier start; kubeconfigs issued before "
            "work again once the clock is right",
            self._now().isoformat(timespec="seconds"),
            certificate,
            self._certificate.not_valid_before_utc.isoformat(),
        )
        pem = _make_ca(self._key, self._now() - _BACKDATE, self._certificate.not_valid_after_utc)
        _write_public(certificate, pem)
        return CertificateAuthority(
            CertificatePair(pem, read_private(key, "the key of the CA")), self._directory, now=self._now
        )

    def ensure_server_pair(self, names: Iterable[str] = ()) -> tuple[Path, Path]:
        """Return the files of the serving certificate for the default names and these, and of its key."""
        certificate, key = self._directory / "server.crt", self._directory / "server.key"
        wanted = tuple(dict.fromkeys((*DEFAULT_NAMES, *names)))
        if not self._is_reusable(certificate, key, wanted):
            pair = self.issue_server(wanted)
            write_private(key, pair.key)
            write_private(certificate, pair.certificate)
        return certificate, key

    def issue_server(self, names: Sequence[str], days: int = SERVER_DAYS) -> CertificatePair:
        """Issue a serving certificate."""
        alternatives = x509.SubjectAlternativeName([_subject_alternative_name(name) for name in names])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "plimsoll-server")])
        return self._issue(subject, days, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def issue_client(self, user: User, days: int = CLIENT_DAYS) -> CertificatePair:
        """Issue a client certificate: the user's name is its common name, the groups are its
        organizations.
        """
        groups = [group for group in user.groups if group != ALL_AUTHENTICATED]
        if not 0 < len(user.name) <= _MAX_NAME_LENGTH or not all(groups):
            wanted = f"names in certificates have 1 to {_MAX_NAME_LENGTH} characters"
            raise ConfigError(f"{user.name!r}: {wanted}; use a token instead")
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, user.name),
            ]
        )
        return self._issue(subject, days, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        subject: x509.Name,
        days: int,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> CertificatePair:
        key = ec.generate_private_key(ec.SECP256R1())
        now, limit = self._now(), self._certificate.not_valid_after_utc
        # A clock that is behind will be corrected: certificates must be valid then, too.
        created = limit - datetime.timedelta(days=CA_DAYS)
        ends = min(max(now, created) + datetime.timedelta(days=days), limit)
        starts = min(now - _BACKDATE, self._certificate.not_valid_before_utc)
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), starts, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(_authority_id(self._certificate), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        return CertificatePair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))

    def _is_reusable(self, certificate: Path, key: Path, wanted: tuple[str, ...]) -> bool:
        """Return whether the serving certificate is of this CA, has all names and enough time left."""
        if not certificate.exists() or not key.exists():
            return False
        try:
            known = _parse_certificates(read_file(certificate, "the certificate"), str(certificate))[0]
            private = _issuer_key(read_private(key, "the key"), str(key))
            known.verify_directly_issued_by(self._certificate)
            found = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ConfigError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        names = {_subject_alternative_name(name) for name in wanted}
        return (
            _is_key_of(known, private)
            and set(found) == names
            and known.not_valid_before_utc <= self._now()
            and known.not_valid_after_utc - self._now() > _RENEW_BEFORE
        )


def create_ssl_context(
    certificate: Path,
    key: Path,
    *,
    client_authorities: Sequence[bytes] = (),
    now: Callable[[], datetime.datetime] = utc_now,
) -> ssl.SSLContext:
    """Create the TLS context of the server: 1.2 and up, client certificates optional.

    `client_authorities` are the trusted CAs of client certificates, in PEM form.

    DIFF: a certificate of another CA fails the handshake; Kubernetes responds with 401; see
    test_certificates_of_others_are_refused.
    """
    check_server_certificate(certificate, key, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
        if client_authorities:
            context.load_verify_locations(cadata=b"\n".join(client_authorities).decode("ascii", "strict"))
            context.verify_mode = ssl.CERT_OPTIONAL
    except (ssl.SSLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{certificate} and the client CAs cannot be used for TLS: {error}") from None
    return context


def check_server_certificate(
    certificate: Path, key: Path, now: Callable[[], datetime.datetime] = utc_now
) -> None:
    """Check a given serving certificate; ConfigError describes the problem.

    A certificate that is not valid yet causes a warning only: the clock may be wrong, and time passes.
    """
    chain = _parse_certificates(read_file(certificate, "the certificate"), str(certificate))
    private = _private_key(read_file(key, "the private key"), str(key))
    leaf, today = chain[0], now()
    if not _is_key_of(leaf, private):
        raise ConfigError(f"{key} is not the key of {certificate}")
    if leaf.not_valid_after_utc <= today:
        raise ConfigError(f"{certificate} expired on {leaf.not_valid_after_utc.date()}: renew it")
    if leaf.not_valid_before_utc > today:
        _log.warning(
            "%s is valid only from %s on, and the system clock is %s: clients refuse it until then; check "
            "the clock",
            certificate,
            leaf.not_valid_before_utc.isoformat(),
            today.isoformat(timespec="seconds"),
        )
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return
    if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(usages):
        raise ConfigError(
            f"{certificate} is not a serving certificate (extended key usage serverAuth is missing)"
        )


def read_client_ca(path: Path) -> bytes:
    """Read the CA certificates of a file, in PEM form; ConfigError if there are none."""
    content = read_file(path, "the client CA")
    for certificate in _parse_certificates(content, str(path)):
        try:
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (x509.ExtensionNotFound, ValueError):
            constraints = None
        if constraints is None or not constraints.ca:
            raise ConfigError(f"{path}: {certificate.subject.rfc4514_string()!r} is not a CA certificate")
    return content


def _parse_certificates(pem: bytes, source: str) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{source} contains no PEM certificate") from None
    if not found:
        raise ConfigError(f"{source} contains no PEM certificate")
    return found


def _private_key(pem: bytes, source: str) -> object:
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{source} contains no unencrypted PEM private key") from None


def _issuer_key(pem: bytes, source: str) -> ec.EllipticCurvePrivateKey:
    key = _private_key(pem, source)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{source}: the key is not a P-256 key")
    return key


def _is_key_of(certificate: x509.Certificate, key: object) -> bool:
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    public = getattr(key, "public_key", None)
    if public is None:
        return False
    mine: bytes = public().public_bytes(encoding, form)
    return mine == certificate.public_key().public_bytes(encoding, form)


def _make_ca(key: ec.EllipticCurvePrivateKey, starts: datetime.datetime, ends: datetime.datetime) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "plimsoll-ca")])
    builder = (
        _builder(name, name, key.public_key(), starts, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pem(builder.sign(key, hashes.SHA256()))


def _write_public(path: Path, content: bytes) -> None:
    write_private(path, content)
    path.chmod(0o644)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    starts: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _subject_alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    host = name.lower()
    if dns_subdomain(host.removeprefix("*.")):
        raise ConfigError(f"{name!r} is not a valid host name")
    return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
