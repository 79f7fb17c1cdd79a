"""Configuration from kubeconfig files, or from the service account of a pod.

Files are found, merged and selected as kubectl does: KUBECONFIG or ~/.kube/config, contexts, clusters and
users; else in-cluster. Guarantees: the first file that defines an entry wins, relative paths are relative to
their file, and every error is a ConfigError with the file, the entry and the fix.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.client.config import ClientConfig, Material, check_server
from plimsoll.client.kubeconfig_entries import KubeconfigEntry, read_user
from plimsoll.client.proxies import check_proxy, find_proxy
from plimsoll.common.yaml import load_documents
from plimsoll.errors import ConfigError, InputError

_LISTS = {"clusters": "cluster", "users": "user", "contexts": "context"}
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(slots=True)
class Kubeconfig:
    """Merged kubeconfig files."""

    files: tuple[Path, ...] = ()
    current: str = ""
    contexts: dict[str, KubeconfigEntry] = field(default_factory=dict)
    clusters: dict[str, KubeconfigEntry] = field(default_factory=dict)
    users: dict[str, KubeconfigEntry] = field(default_factory=dict)

    def choose(
        self,
        *,
        context: str = "",
        cluster: str = "",
        user: str = "",
        namespace: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> ClientConfig:
        """Return the configuration of a context (default: the current one); other names override its own."""
        name = context or self.current
        where = ", ".join(map(str, self.files)) or "kubeconfig"
        chosen: KubeconfigEntry | None = None
        if name:
            chosen = self.contexts.get(name)
            if chosen is None:
                raise ConfigError(f"{where}: there is no context {name!r}; {_list_names(self.contexts)}")
        elif not cluster:
            raise ConfigError(
                f"{where}: no current-context is set; specify a context; {_list_names(self.contexts)}"
            )
        cluster = cluster or (chosen.text("cluster") if chosen else "")
        user = user or (chosen.text("user") if chosen else "")
        found = self._entry(self.clusters, "cluster", cluster, chosen, where)
        person = self._entry(self.users, "user", user, chosen, where)
        namespace = namespace or (chosen.text("namespace") if chosen else "") or "default"
        return _assemble(found, person, namespace, os.environ if environ is None else environ)

    def _entry(
        self,
        entries: dict[str, KubeconfigEntry],
        what: str,
        name: str,
        context: KubeconfigEntry | None,
        where: str,
    ) -> KubeconfigEntry:
        if not name:
            if context is None:
                raise ConfigError(f"{where}: specify a {what}; {_list_names(entries)}")
            raise ConfigError(f"{context.where}: {what} is missing; {_list_names(entries)}")
        if name not in entries:
            place = context.where if context is not None else where
            raise ConfigError(f"{place}: there is no {what} {name!r}; {_list_names(entries)}")
        return entries[name]


def find_config(
    kubeconfig: str | Path | None = None,
    *,
    context: str = "",
    cluster: str = "",
    user: str = "",
    namespace: str = "",
    environ: Mapping[str, str] | None = None,
) -> ClientConfig:
    """Find the configuration as kubectl does: this file, else KUBECONFIG, ~/.kube/config, in-cluster."""
    environ = os.environ if environ is None else environ
    merged = find_kubeconfig(kubeconfig, environ)
    if not merged.files:
        if "KUBERNETES_SERVICE_HOST" in environ:
            return in_cluster(environ=environ)
        tried = ", ".join(map(str, default_files(environ)))
        raise ConfigError(
            f"no cluster configured: {tried}: no such file; specify a kubeconfig, or set KUBECONFIG"
        )
    return merged.choose(context=context, cluster=cluster, user=user, namespace=namespace, environ=environ)


def find_kubeconfig(kubeconfig: str | Path | None, environ: Mapping[str, str]) -> Kubeconfig:
    """Return this file, or those that kubectl would read merged; without `files` if there are none."""
    if kubeconfig is not None:
        return load_kubeconfig([Path(kubeconfig)])
    return load_kubeconfig(default_files(environ), missing_ok=True)


def default_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the files that kubectl reads unless it is given one; they may be missing."""
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return listed
    homes = [environ.get("HOME")]
    if sys.platform == "win32":  # in kubectl's order
        homes += [environ.get("HOMEDRIVE", "") + environ.get("HOMEPATH", ""), environ.get("USERPROFILE")]
    files = [Path(home) / ".kube" / "config" for home in homes if home]
    files = files or [Path("~/.kube/config").expanduser()]
    return [next((file for file in files if file.exists()), files[0])]


def load_kubeconfig(files: Iterable[Path], *, missing_ok: bool = False) -> Kubeconfig:
    """Merge kubeconfig files; the first to define a context, cluster or user wins."""
    merged = Kubeconfig()
    for file in dict.fromkeys(Path(file).expanduser() for file in files):
        try:
            text = file.read_bytes()
        except FileNotFoundError:
            if missing_ok:
                continue
            raise ConfigError(f"{file}: no such file") from None
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from None
        tree = _parse(text, file)
        merged.files += (file,)
        current = tree.get("current-context")
        if current is not None and not isinstance(current, str):
            raise ConfigError(f"{file}: current-context must be a string")
        merged.current = merged.current or current or ""
        for plural, singular in _LISTS.items():
            entries: dict[str, KubeconfigEntry] = getattr(merged, plural)
            for name, entry in _entries(tree, plural, singular, file).items():
                entries.setdefault(name, entry)
    return merged


def in_cluster(
    *, directory: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] | None = None
) -> ClientConfig:
    """Return the in-cluster configuration: service account and API server address of the pod."""
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "not inside a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; "
            "give a kubeconfig file"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token, authority, namespace = directory / "token", directory / "ca.crt", directory / "namespace"
    if not token.is_file():
        raise ConfigError(
            f"{token}: no such file; the pod needs a service account token (automountServiceAccountToken)"
        )
    try:
        own = namespace.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        own = ""
    origin = "service account"
    return ClientConfig(
        server=server,
        namespace=own or "default",
        authority=Material(file=authority, origin=origin) if authority.is_file() else None,
        token=Material(file=token, origin=origin),
        proxy=find_proxy(server, environ),
        origin=origin,
    )


def _parse(text: bytes, file: Path) -> dict[str, Any]:
    try:
        documents = list(load_documents(text))
    except InputError as error:
        raise ConfigError(f"{file}: {error}") from None
    if not documents:
        return {}
    if len(documents) > 1:
        raise ConfigError(f"{file}: a kubeconfig is one document, this file has {len(documents)}")
    tree = documents[0][1]
    if not isinstance(tree, dict):
        raise ConfigError(f"{file}: not a kubeconfig: it must be a mapping with clusters, users and contexts")
    kind, version = tree.get("kind"), tree.get("apiVersion")
    if kind not in (None, "", "Config") or version not in (None, "", "v1"):
        raise ConfigError(f"{file}: not a kubeconfig: apiVersion {version!r}, kind {kind!r}")
    return tree


def _entries(tree: dict[str, Any], plural: str, singular: str, file: Path) -> dict[str, KubeconfigEntry]:
    items = tree.get(plural)
    if items is None:
        return {}
    if not isinstance(items, list):
        raise ConfigError(f"{file}: {plural} must be a list of name and {singular}")
    entries: dict[str, KubeconfigEntry] = {}
    for place, item in enumerate(items):
        where = f"{file}: {plural}[{place}]"
        if not isinstance(item, dict):
            raise ConfigError(f"{where}: must have a name and a {singular}")
        name = item.get("name")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}: name is missing")
        body = item.get(singular)
        if body is not None and not isinstance(body, dict):
            raise ConfigError(f"{where}: {singular} must be a mapping")
        if name in entries:
            raise ConfigError(f"{file}: duplicate {singular} {name!r}")
        entries[name] = KubeconfigEntry(body or {}, f"{file}: {singular} {name!r}", file.absolute().parent)
    return entries


def _assemble(
    cluster: KubeconfigEntry, user: KubeconfigEntry, namespace: str, environ: Mapping[str, str]
) -> ClientConfig:
    server = cluster.text("server")
    if not server:
        raise ConfigError(f"{cluster.where}: server is missing; set the URL of the API server")
    insecure = cluster.flag("insecure-skip-tls-verify")
    authority = cluster.material("certificate-authority")
    if insecure and authority is not None:
        raise ConfigError(
            f"{cluster.where}: insecure-skip-tls-verify and certificate-authority exclude each other; "
            "remove insecure-skip-tls-verify"
        )
    if "://" not in server:
        server = f"{'https' if insecure or authority else 'http'}://{server}"
    server = check_server(server, cluster.where)
    proxy = cluster.text("proxy-url")
    config = ClientConfig(
        server=server,
        namespace=namespace,
        authority=authority,
        insecure=insecure,
        tls_server_name=cluster.text("tls-server-name"),
        proxy=check_proxy(proxy, f"{cluster.where}: proxy-url") if proxy else find_proxy(server, environ),
        compression=False if cluster.flag("disable-compression") else None,
        origin=f"{cluster.where}, {user.where.rpartition(': ')[2]}",
    )
    return read_user(user, cluster, config)


def _list_names(entries: Mapping[str, KubeconfigEntry]) -> str:
    names = sorted(entries)
    return f"available: {', '.join(names[:10]) or 'none'}{' and more' if len(names) > 10 else ''}"
