"""Signing key of service account tokens: JSON Web Tokens (ES256, or RS256 with a given RSA key).

Only tokens signed by this key with its own algorithm are accepted; for anything else `verify` returns None
and never raises.
"""

# ruff: noqa: PLC0415 - PyJWT is imported when the first token is signed or verified

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from plimsoll.api.codec import decode_tree, encode
from plimsoll.apiserver.auth.secret_files import read_private, write_private
from plimsoll.errors import ConfigError, DecodeError

if TYPE_CHECKING:
    from jwt import PyJWS

#: PyJWT ignores characters that are not base64url.
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


@cache
def _jws() -> PyJWS:
    from jwt import PyJWS

    return PyJWS()


class SigningKey:
    """Private key that signs tokens."""

    def __init__(self, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        self.algorithm = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
        der = self._public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = hashlib.sha256(der).digest()
        self.id = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    @classmethod
    def create(cls) -> SigningKey:
        """Create a new key."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def load_or_create(cls, path: Path) -> SigningKey:
        """Load the key of a file, or create the file."""
        if path.exists():
            return cls.from_pem(read_private(path, "the service account key"), str(path))
        made = cls.create()
        write_private(path, made.to_pem())
        return made

    @classmethod
    def from_pem(cls, pem: bytes, source: str) -> SigningKey:
        """Read a key in PEM form; `source` names the file in errors."""
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigError(f"{source} contains no unencrypted PEM private key") from None
        if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
            return cls(key)
        if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= 2048:
            return cls(key)
        raise ConfigError(f"{source}: unsupported key: use P-256, or RSA with at least 2048 bits")

    def to_pem(self) -> bytes:
        """Return the private key in PEM form."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a signed token with these claims."""
        return _jws().encode(encode(claims), self._key, self.algorithm, {"kid": self.id, "typ": None})

    def verify(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a token that this key signed, or None."""
        if not _TOKEN.fullmatch(token):
            return None
        from jwt import PyJWTError

        try:
            found = _jws().decode_complete(token, self._public, [self.algorithm])
            claims = decode_tree(found["payload"])
        except (PyJWTError, DecodeError, RecursionError):
            return None
        is_ours = found["header"].get("kid", self.id) == self.id and isinstance(claims, dict)
        return claims if is_ours else None

    def jwks(self) -> dict[str, Any]:
        """Return the public key as a JSON Web Key Set."""
        from jwt.algorithms import ECAlgorithm, RSAAlgorithm

        if isinstance(self._public, ec.EllipticCurvePublicKey):
            entry = ECAlgorithm.to_jwk(self._public, as_dict=True)
        else:
            entry = RSAAlgorithm.to_jwk(self._public, as_dict=True)
        entry.pop("key_ops", None)
        return {"keys": [{"use": "sig", "kid": self.id, "alg": self.algorithm, **entry}]}
