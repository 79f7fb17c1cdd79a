"""kubeconfig files: search path, merging, overrides, and errors."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client import ClientConfig, ExecPlugin, Impersonation, Material
from plimsoll.client.kubeconfig import find_config, in_cluster, load_kubeconfig
from plimsoll.client.kubeconfig_entries import printable
from plimsoll.errors import ConfigError

PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "get-token",
    "interactiveMode": "Never",
}


def kubeconfig(
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    *,
    current: Any = "here",
    **extra: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": "c", "cluster": {"server": "https://one:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        **extra,
    }


def write(path: Path, tree: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
    return path


def load(tmp_path: Path, tree: Any, **options: Any) -> ClientConfig:
    return find_config(write(tmp_path / "config", tree), environ=options.pop("environ", {}), **options)


def test_a_complete_kubeconfig(tmp_path: Path) -> None:
    for name in ("ca.pem", "client.pem", "client.key"):
        write(tmp_path / "pki" / name, name)
    tree = kubeconfig(
        {
            "server": "https://one:6443/prefix/?x=1",
            "certificate-authority": "pki/ca.pem",
            "tls-server-name": "kubernetes",
            "proxy-url": "http://proxy:3128",
            "disable-compression": True,
        },
        {
            "client-certificate": "pki/client.pem",
            "client-key": str(tmp_path / "pki" / "client.key"),
            "as": "jane",
            "as-groups": ["a", "b"],
            "as-uid": "7",
            "as-user-extra": {"k": ["v"]},
        },
        contexts=[{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
    )
    config = load(tmp_path, tree)
    place = str(tmp_path / "config")
    assert config == ClientConfig(
        server="https://one:6443/prefix",
        namespace="mine",
        authority=Material(
            file=tmp_path / "pki" / "ca.pem", origin=f"{place}: cluster 'c': certificate-authority"
        ),
        tls_server_name="kubernetes",
        certificate=Material(
            file=tmp_path / "pki" / "client.pem", origin=f"{place}: user 'u': client-certificate"
        ),
        key=Material(file=tmp_path / "pki" / "client.key", origin=f"{place}: user 'u': client-key"),
        impersonation=Impersonation("jane", ("a", "b"), "7", {"k": ("v",)}),
        proxy="http://proxy:3128",
        compression=False,
        origin=f"{place}: cluster 'c', user 'u'",
    )


def test_inline_data(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        kubeconfig(
            {"certificate-authority-data": PEM[:10] + "\n" + PEM[10:]},
            {"client-certificate-data": PEM, "client-key-data": PEM, "token": "t"},
        ),
    )
    for material in (config.authority, config.certificate, config.key):
        assert material is not None
        assert material.data == b"-----BEGIN CERTIFICATE-----"
    assert config.token is not None
    assert config.token.data == b"t"


def test_tokens_and_passwords(tmp_path: Path) -> None:
    assert load(tmp_path, kubeconfig(user={"username": "me", "password": "pw"})).basic == ("me", "pw")
    write(tmp_path / "token", "fresh")
    config = load(tmp_path, kubeconfig(user={"tokenFile": "token"}))
    assert config.token is not None
    assert (config.token.data, config.token.file) == (None, tmp_path / "token")
    config = load(tmp_path, kubeconfig(user={"tokenFile": "gone", "token": "fallback"}))
    assert config.token is not None
    assert (config.token.data, config.token.file) == (b"fallback", tmp_path / "gone")


def test_secrets_are_hidden_in_repr(tmp_path: Path) -> None:
    user = {"token": "s3cret", "client-certificate-data": PEM, "client-key-data": PEM}
    text = repr(load(tmp_path, kubeconfig(user=user)))
    assert "s3cret" not in text
    assert "BEGIN" not in text
    assert "pw" not in repr(load(tmp_path, kubeconfig(user={"username": "me", "password": "pw"})))


def test_credentials_stay_off_plain_connections(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane"}
    config = load(tmp_path, kubeconfig({"server": "http://one"}, user))
    assert config.token is None
    assert config.impersonation == Impersonation("jane")


def test_a_server_without_a_scheme(tmp_path: Path) -> None:
    assert load(tmp_path, kubeconfig({"server": "one:8080"})).server == "http://one:8080"
    secure = {"server": "one:6443", "insecure-skip-tls-verify": True}
    assert load(tmp_path, kubeconfig(secure)).server == "https://one:6443"


def test_exec_plugins(tmp_path: Path) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    plugin = {
        **EXEC,
        "args": ["--one", "two"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
        "installHint": "install\x1b[1m it",
        "provideClusterInfo": True,
    }
    config = load(tmp_path, kubeconfig({"extensions": [extension]}, {"exec": plugin}))
    assert config.exec_plugin == ExecPlugin(
        command="get-token",
        api_version="client.authentication.k8s.io/v1",
        args=("--one", "two"),
        env=(("A", "1"), ("B", "")),
        install_hint="installU+001B[1m it",
        provide_cluster_info=True,
        interactive_mode="Never",
        cluster_extension={"audience": "x"},
        origin=f"{tmp_path / 'config'}: user 'u': exec",
    )
    beta = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "bin/get-token"}
    config = load(tmp_path, kubeconfig(user={"exec": beta}))
    assert config.exec_plugin is not None
    assert config.exec_plugin.command == str(tmp_path / "bin" / "get-token")
    assert config.exec_plugin.interactive_mode == "IfAvailable"
    assert load(tmp_path, kubeconfig(user={"exec": EXEC, "token": "t"})).exec_plugin is None


# -- finding and merging


def test_the_first_file_wins_for_each_entry(tmp_path: Path) -> None:
    one = kubeconfig(user={"token": "one"})
    del one["current-context"]
    write(tmp_path / "a" / "one", one)
    two = kubeconfig({"server": "https://two"}, {"token": "two", "as": "jane"}, current="there")
    two["contexts"].append({"name": "there", "context": {"cluster": "c", "user": "v"}})
    two["users"].append({"name": "v", "user": {"tokenFile": "token"}})
    write(tmp_path / "b" / "two", two)
    write(tmp_path / "b" / "token", "t")
    listed = f"{tmp_path / 'missing'}:{tmp_path / 'a/one'}::{tmp_path / 'b/two'}:{tmp_path / 'a/one'}"
    config = find_config(environ={"KUBECONFIG": listed})
    assert config.server == "https://one:6443"
    assert config.token is not None
    assert config.token.file == tmp_path / "b" / "token"
    config = find_config(context="here", environ={"KUBECONFIG": listed})
    assert config.token is not None
    assert config.token.data == b"one"
    assert config.impersonation is None


def test_search_path_of_kubeconfigs(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"no cluster configured: .*/\.kube/config: no such file"):
        find_config(environ=home)
    write(tmp_path / ".kube" / "config", kubeconfig())
    assert find_config(environ=home).server == "https://one:6443"
    named = write(tmp_path / "named", kubeconfig({"server": "https://two"}))
    assert find_config(environ={**home, "KUBECONFIG": str(named)}).server == "https://two"
    assert find_config(tmp_path / ".kube" / "config", environ={"KUBECONFIG": str(named)}).server == (
        "https://one:6443"
    )
    with pytest.raises(ConfigError, match="gone: no such file"):
        find_config(tmp_path / "gone", environ=home)
    with pytest.raises(ConfigError, match="no cluster configured"):
        find_config(environ={**home, "KUBECONFIG": str(tmp_path / "gone")})


def test_overrides_of_the_context(tmp_path: Path) -> None:
    tree = kubeconfig()
    tree["clusters"].append({"name": "d", "cluster": {"server": "https://other"}})
    tree["users"].append({"name": "v", "user": {"token": "v"}})
    config = load(tmp_path, tree, cluster="d", user="v", namespace="n")
    assert (config.server, config.namespace) == ("https://other", "n")
    assert config.token is not None
    del tree["current-context"]
    assert load(tmp_path, tree, cluster="d", user="v") == replace(config, namespace="default")


def test_proxies_from_the_environment(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://proxy:1"}
    assert load(tmp_path, kubeconfig(), environ=environ).proxy == "http://proxy:1"
    own = kubeconfig({"proxy-url": "https://own:2"})
    assert load(tmp_path, own, environ={**environ, "NO_PROXY": "*"}).proxy == "https://own:2"


# -- inside a pod


def test_inside_a_pod(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigError, match="service account token"):
        in_cluster(directory=tmp_path, environ=environ)
    for name, text in (("token", "t"), ("ca.crt", "pem"), ("namespace", "mine\n")):
        write(tmp_path / name, text)
    config = in_cluster(directory=tmp_path, environ=environ)
    assert (config.server, config.namespace) == ("https://10.0.0.1:443", "mine")
    assert config.token == Material(file=tmp_path / "token", origin="service account")
    assert config.authority == Material(file=tmp_path / "ca.crt", origin="service account")
    (tmp_path / "namespace").unlink()
    six = in_cluster(directory=tmp_path, environ={**environ, "KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert (six.server, six.namespace) == ("https://[fd00::1]:443", "default")
    with pytest.raises(ConfigError, match="not inside a cluster"):
        in_cluster(directory=tmp_path, environ={})


# -- errors


def without(tree: dict[str, Any], *path: Any) -> dict[str, Any]:
    place: Any = tree
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return tree


MISTAKES: list[tuple[str, Any, str]] = [
    ("broken", "a: [", r"config: line 1.*not YAML"),
    ("two documents", "a: 1\n---\nb: 2", "one document, this file has 2"),
    ("a list", "- 1", "must be a mapping with clusters, users and contexts"),
    (
        "another kind",
        {"kind": "Pod", "apiVersion": "v1"},
        "not a kubeconfig: apiVersion 'v1', kind 'Pod'",
    ),
    ("empty", "", "no current-context is set; specify a context; available: none"),
    (
        "no context",
        kubeconfig(current=""),
        "no current-context is set; specify a context; available: here",
    ),
    ("current-context", kubeconfig(current=3), "current-context must be a string"),
    ("unknown context", kubeconfig(current="x"), "there is no context 'x'; available: here"),
    ("clusters", kubeconfig(clusters={"c": {}}), "clusters must be a list of name and cluster"),
    ("an entry", kubeconfig(users=[1]), r"users\[0\]: must have a name and a user"),
    ("a name", kubeconfig(users=[{"user": {}}]), r"users\[0\]: name is missing"),
    ("a body", kubeconfig(users=[{"name": "u", "user": []}]), r"users\[0\]: user must be a mapping"),
    ("twice", kubeconfig(users=[{"name": "u"}, {"name": "u"}]), "duplicate user 'u'"),
    (
        "cluster of context",
        without(kubeconfig(), "contexts", 0, "context", "cluster"),
        "context 'here': cluster is missing",
    ),
    (
        "user of context",
        without(kubeconfig(), "contexts", 0, "context", "user"),
        "context 'here': user is missing",
    ),
    ("unknown user", kubeconfig(users=[]), "context 'here': there is no user 'u'; available: none"),
    ("unknown cluster", kubeconfig(clusters=[]), "context 'here': there is no cluster 'c'"),
    (
        "no server",
        without(kubeconfig(), "clusters", 0, "cluster", "server"),
        "cluster 'c': server is missing",
    ),
    (
        "server",
        kubeconfig({"server": "ftp://x"}),
        "cluster 'c': server 'ftp://x' is not a URL: write https://HOST:PORT",
    ),
    ("server port", kubeconfig({"server": "https://x:99999"}), "is not a URL"),
    ("server brackets", kubeconfig({"server": "https://[::1"}), "is not a URL"),
    ("server type", kubeconfig({"server": 1}), "cluster 'c': server must be a string"),
    (
        "insecure and ca",
        kubeconfig({"insecure-skip-tls-verify": True, "certificate-authority-data": PEM}),
        "exclude each other",
    ),
    ("insecure type", kubeconfig({"insecure-skip-tls-verify": "yes"}), "must be true or false"),
    (
        "ca missing",
        kubeconfig({"certificate-authority": "nope"}),
        "cluster 'c': certificate-authority: .*nope: no such file",
    ),
    (
        "ca twice",
        kubeconfig({"certificate-authority": "x", "certificate-authority-data": PEM}),
        "certificate-authority and certificate-authority-data exclude",
    ),
    ("ca data", kubeconfig({"certificate-authority-data": "?"}), "certificate-authority-data is not base64"),
    (
        "socks",
        kubeconfig({"proxy-url": "socks5://x:1"}),
        "cluster 'c': proxy-url: SOCKS proxies are not supported",
    ),
    (
        "no key",
        kubeconfig(user={"client-certificate-data": PEM}),
        "user 'u': client-certificate needs a client-key",
    ),
    (
        "token and password",
        kubeconfig(user={"token": "t", "username": "u"}),
        "user 'u': token and username exclude",
    ),
    ("token type", kubeconfig(user={"token": 1}), "user 'u': token must be a string"),
    ("token file", kubeconfig(user={"tokenFile": "nope"}), "user 'u': tokenFile: .*nope: no such file"),
    (
        "auth-provider",
        kubeconfig(user={"auth-provider": {"name": "gcp"}}),
        "auth-provider 'gcp' is no longer supported; use an exec plugin",
    ),
    ("auth-provider type", kubeconfig(user={"auth-provider": 1}), "auth-provider is no longer supported"),
    ("groups without as", kubeconfig(user={"as-groups": ["a"]}), "require a user"),
    ("groups", kubeconfig(user={"as": "a", "as-groups": "b"}), "as-groups must be a list of strings"),
    ("extra", kubeconfig(user={"as": "a", "as-user-extra": {"k": "v"}}), "as-user-extra must map"),
    ("exec", kubeconfig(user={"exec": "x"}), "exec must be a mapping"),
    ("exec command", kubeconfig(user={"exec": {**EXEC, "command": ""}}), "exec: command is missing"),
    (
        "exec version",
        kubeconfig(user={"exec": {**EXEC, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}),
        "v1alpha1' is not supported; use client",
    ),
    (
        "exec mode",
        kubeconfig(user={"exec": {**EXEC, "interactiveMode": "Maybe"}}),
        "must be one of Never, IfAvailable, Always",
    ),
    (
        "exec mode of v1",
        kubeconfig(user={"exec": {**EXEC, "interactiveMode": None}}),
        "interactiveMode must be one of",
    ),
    ("exec args", kubeconfig(user={"exec": {**EXEC, "args": [1]}}), "args must be a list of strings"),
    ("exec env", kubeconfig(user={"exec": {**EXEC, "env": {"A": "1"}}}), "env must be a list"),
    (
        "exec env name",
        kubeconfig(user={"exec": {**EXEC, "env": [{"value": "1"}]}}),
        r"env\[0\]: name is missing",
    ),
]


@pytest.mark.parametrize(("tree", "message"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_errors_name_the_field_and_the_fix(tmp_path: Path, tree: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, tree)
    assert str(caught.value).startswith(str(tmp_path / "config"))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.just("https://x"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["server", "certificate-authority-data", "proxy-url", "tls-server-name", "extensions"]
USER_KEYS = ["token", "exec", "as", "as-groups", "as-user-extra", "auth-provider", "username", "tokenFile"]


@given(
    st.dictionaries(st.sampled_from(KEYS), values, max_size=3),
    st.dictionaries(st.sampled_from(USER_KEYS), values, max_size=3),
    st.dictionaries(
        st.sampled_from(["clusters", "users", "contexts", "current-context"]), values, max_size=1
    ),
)
def test_any_kubeconfig_is_read_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, cluster: Any, user: Any, extra: Any
) -> None:
    file = tmp_path_factory.getbasetemp() / "any-kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig(cluster, user, **extra), allow_unicode=True))
    try:
        load_kubeconfig([file]).choose(environ={})
    except ConfigError:
        return


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        find_config(tmp_path, environ={})
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="not YAML"):
        find_config(tmp_path / "bytes", environ={})


def test_error_texts_are_safe_for_a_terminal() -> None:
    assert printable("a\tb\nc\x1b[0m\u202e é") == "a\tb\ncU+001B[0mU+202E é"
