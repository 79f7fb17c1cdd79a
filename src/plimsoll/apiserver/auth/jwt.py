"""JSON Web Tokens, signed and verified with the server's key (ES256, or RS256 with a given RSA key).

Only tokens signed by this key with its own algorithm are accepted; for anything else `verify` returns None
and never raises.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from plimsoll.api.codec import decode_tree, encode
from plimsoll.apiserver.auth.secret_files import read_private, write_private
from plimsoll.errors import ConfigError, DecodeError

_HALF = 32  # bytes of each half of a P-256 signature
_TO_STANDARD = str.maketrans("-_", "+/")


class SigningKey:
    """Private key that signs tokens."""

    def __init__(self, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        self.algorithm = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
        der = self._public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.id = encode_part(hashlib.sha256(der).digest())
        self._header = encode_part(encode({"alg": self.algorithm, "kid": self.id}))

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
        message = f"{self._header}.{encode_part(encode(claims))}"
        return f"{message}.{encode_part(self._signature(message.encode()))}"

    def verify(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a token that this key signed, or None."""
        parts = token.split(".")
        if len(parts) != 3:
            return None
        header, claims, signature = (decode_part(part) for part in parts)
        if header is None or claims is None or signature is None:
            return None
        fields = _object(header)
        if fields is None or fields.get("alg") != self.algorithm or fields.get("kid", self.id) != self.id:
            return None
        message = token[: token.rindex(".")].encode("ascii")
        return _object(claims) if self._is_valid_signature(message, signature) else None

    def jwks(self) -> dict[str, Any]:
        """Return the public key as a JSON Web Key Set."""
        entry = {"use": "sig", "kid": self.id, "alg": self.algorithm}
        public = self._public
        if isinstance(public, ec.EllipticCurvePublicKey):
            point = public.public_numbers()
            x, y = (encode_part(number.to_bytes(_HALF, "big")) for number in (point.x, point.y))
            return {"keys": [{**entry, "kty": "EC", "crv": "P-256", "x": x, "y": y}]}
        numbers = public.public_numbers()
        n, e = (
            encode_part(number.to_bytes((number.bit_length() + 7) // 8, "big"))
            for number in (numbers.n, numbers.e)
        )
        return {"keys": [{**entry, "kty": "RSA", "n": n, "e": e}]}

    def _signature(self, message: bytes) -> bytes:
        if isinstance(self._key, rsa.RSAPrivateKey):
            return self._key.sign(message, padding.PKCS1v15(), hashes.SHA256())
        r, s = decode_dss_signature(self._key.sign(message, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big")

    def _is_valid_signature(self, message: bytes, signature: bytes) -> bool:
        try:
            if isinstance(self._public, rsa.RSAPublicKey):
                self._public.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
                return True
            if len(signature) != 2 * _HALF:
                return False
            r, s = (int.from_bytes(half, "big") for half in (signature[:_HALF], signature[_HALF:]))
            self._public.verify(encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True


def encode_part(raw: bytes) -> str:
    """Encode bytes as base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_part(text: str) -> bytes | None:
    """Decode base64url without padding; None if invalid."""
    if not text.isascii() or "=" in text or "+" in text or "/" in text:
        return None
    return decode_standard(text.translate(_TO_STANDARD) + "=" * (-len(text) % 4))


def decode_standard(text: str) -> bytes | None:
    """Decode standard base64; None if invalid."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return None


def _object(raw: bytes) -> Mapping[str, Any] | None:
    try:
        tree = decode_tree(raw)
    except DecodeError:
        return None
    return tree if isinstance(tree, dict) else None
