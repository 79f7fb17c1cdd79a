"""`Pseudonyms`: replacements of names that keep their structure.

A name is replaced word by word: `payments-web-7f9c-0` becomes `kqhzmxwa-web-ohbtrnsd-0`. So a pool named
after its node, a pod named after its ReplicaSet and a label with the name of a workload still match. The
replacement of a word is derived from a key (HMAC-SHA-256): with the same key it is the same in every dump,
and without the key it cannot be computed or undone.

Kept are words that are common to all clusters, a short number at the end (`web-0`, `worker12`), and names
under the domains of Kubernetes and of hardware vendors.
"""

from __future__ import annotations

import hmac
import re
from functools import cached_property

from plimsoll.ledger import placeholders

_WORD = re.compile(r"[A-Za-z0-9]+")
_NUMBERED = re.compile(r"([A-Za-z]+)([0-9]{1,4})")
_ORDINAL = re.compile(r"[0-9]{1,4}")
#: Numbers that identify: of projects, accounts, machines.
LONG_NUMBER = re.compile(r"[0-9]{6,}")
_HEX = re.compile(r"[0-9A-Fa-f]+")
#: Letters of a replacement; more only if two words would get the same one.
_LETTERS = 8
_MAX_LETTERS = 20
#: Words that name no one.
_COMMON = """
    a all api app apps b base batch blue c canary claim claims class cluster com component controller
    core cpu cpus critical d daemon data db default dev device devices dra driver e east eth example
    false fast frontend gke global gpu gpus green high i instance io job k8s kube kubelet kubernetes l3
    large linux local low main master medium memory metrics mig monitoring name network networks nic
    node nodes normal north numa ns nvme of on operator org part pci pod pods pool premium prod
    production projects proxy public r rdma region regions release replica role s sata scheduler server
    service sidecar slow small socket south spot ssd staging standard state static subnet subnetworks
    storage system template test the tier time topology true type version vf vpc web west worker workers
    x y z zone zones
"""
COMMON_WORDS = frozenset(_COMMON.split())
#: Domains below which names are public: of Kubernetes, vendors and cloud providers.
PUBLIC_DOMAINS = (
    *(
        "kubernetes.io",
        "k8s.io",
        "x-k8s.io",
        "plimsoll.dev",
        "example.com",
        "kubevirt.io",
        "dra.cpu",
        "dra.net",
    ),
    *("nvidia.com", "amd.com", "intel.com", "google.com", "amazonaws.com", "azure.com", "broadcom.com"),
    *("mellanox.com", "xilinx.com", "qualcomm.com", "habana.ai", "tenstorrent.com", "furiosa.ai"),
)
#: Names that Kubernetes itself gives, and Plimsoll.
KUBERNETES_NAMES = frozenset(
    {
        *("default", "kube-system", "kube-public", "kube-node-lease", "default-scheduler", "kubernetes"),
        *("system-node-critical", "system-cluster-critical", "metadata.name"),
        *(placeholders.NAMESPACE, placeholders.PRIORITY_CLASS),
    }
)


class Pseudonyms:
    """Replacements of names, derived from a key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._names: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._taken: dict[str, str] = {}

    @cached_property
    def _hash(self) -> hmac.HMAC:
        return hmac.new(self._key, digestmod="sha256")

    def name(self, text: str) -> str:
        """Return the replacement of a name or another text of words."""
        found = self._names.get(text)
        if found is None:
            found = self._names[text] = text if text in KUBERNETES_NAMES else self._replace_words(text)
        return found

    def identifier(self, text: str) -> str:
        """Return the replacement of a serial number or another identifier, of which only common words are
        kept.
        """
        return _WORD.sub(lambda found: self._identifying_word(found[0]), text)

    def number(self, text: str) -> str:
        """Return the replacement of a long number, with as many digits."""
        found = self._words.get(text)
        if found is None:
            digest = int.from_bytes(self._digest(f"number {text}"), "big")
            low, high = 10 ** (len(text) - 1), 10 ** len(text)
            found = str(low + digest % (high - low))
            while found in self._taken:
                found = str(low + (int(found) + 1) % (high - low))
            self._taken[found] = text
            self._words[text] = found
        return found

    def _identifying_word(self, word: str) -> str:
        return word if word.lower() in COMMON_WORDS and not _HEX.fullmatch(word) else self._letters(word)

    def domain(self, text: str) -> str:
        """Return the replacement of a driver name or another domain; public ones are kept."""
        return text if is_public(text) else self.name(text)

    def qualified_name(self, text: str) -> str:
        """Return the replacement of `DOMAIN/NAME`: only the domain of attributes, capacities and resources
        is replaced.
        """
        domain, slash, name = text.rpartition("/")
        return f"{self.domain(domain)}/{name}" if slash else text

    def label_key(self, text: str) -> str:
        """Return the replacement of a label, taint or condition key."""
        domain, slash, name = text.rpartition("/")
        if slash:
            return text if is_public(domain) else f"{self.name(domain)}/{self.name(name)}"
        return self.name(text)

    def uid(self, text: str) -> str:
        """Return the replacement of a UID, in the form of one."""
        if not text:
            return ""
        digits = self._digest(f"uid {text}").hex()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"

    def _replace_words(self, text: str) -> str:
        return _WORD.sub(lambda found: self._word(found[0], is_last=found.end() == len(text)), text)

    def _word(self, word: str, *, is_last: bool) -> str:
        if word.lower() in COMMON_WORDS or (is_last and _ORDINAL.fullmatch(word)):
            return word
        numbered = _NUMBERED.fullmatch(word)
        if numbered is not None and is_last:
            letters, number = numbered[1], numbered[2]
            return (letters if letters.lower() in COMMON_WORDS else self._letters(letters)) + number
        return self._letters(word)

    def _letters(self, word: str) -> str:
        if LONG_NUMBER.fullmatch(word):
            return self.number(word)
        found = self._words.get(word)
        if found is not None:
            return found
        digest = self._digest(f"word {word}")
        letters = "".join(chr(ord("a") + byte % 26) for byte in digest[:_MAX_LETTERS])
        for length in range(_LETTERS, _MAX_LETTERS + 1):
            if letters[:length] not in self._taken:
                break
        self._taken[letters[:length]] = word
        self._words[word] = letters[:length]
        return letters[:length]

    def _digest(self, text: str) -> bytes:
        made = self._hash.copy()
        made.update(text.encode())
        return made.digest()


def is_public(domain: str) -> bool:
    """Return whether a domain is one of Kubernetes, a vendor or a cloud provider, or below it."""
    return any(domain == known or domain.endswith(f".{known}") for known in PUBLIC_DOMAINS)
