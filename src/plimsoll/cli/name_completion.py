"""Shell completion of the names of objects: nodes, pods, claims, namespaces, contexts, audit checks.

The names come from the cluster or the files that the command line being completed refers to. A cluster has
two seconds to answer and files have a size limit; any problem means that there are no completions, since a
shell has no place for messages.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from plimsoll.client import ClientConfig, Endpoint

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_SECONDS = 2.0
#: Total size of files that are parsed while a shell waits.
MAX_BYTES = 8 << 20
_MOST = 200


def complete_names(plural: str) -> Completer:
    """Return a completer for the names of objects without a namespace."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _items(_formatted(find_names(ctx, plural), "{name}"), incomplete)

    return complete


def complete_row(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete what a view of `top` shows one of; devices and pools can be selected by their node."""
    plurals = {"pods": "pods", "claims": "resourceclaims", "classes": "deviceclasses"}
    view = ctx.params.get("view") or "nodes"
    plural = "namespaces" if view == "namespaces" else plurals.get(view, "nodes")
    short = bool(ctx.params.get("namespace")) or plural in ("nodes", "namespaces", "deviceclasses")
    form = "{name}" if short else "{namespace}/{name}"
    return _items(_formatted(find_names(ctx, plural), form), incomplete)


def complete_subject(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete what `explain` explains: a pod, or claim/NAME."""
    if incomplete.startswith("claim/"):
        return _items(_formatted(find_names(ctx, "resourceclaims"), "claim/{name}"), incomplete)
    form = "{name}" if ctx.params.get("namespace") else "{namespace}/{name}"
    pods = _formatted(find_names(ctx, "pods"), form)
    return _items([*pods, "claim/"], incomplete)


def complete_object(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete KIND/NAMESPACE/NAME of a pod, claim or node."""
    forms = {"Pod": "pods", "ResourceClaim": "resourceclaims", "Node": "nodes"}
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        return _items((f"{each}/" for each in forms), incomplete)
    if kind not in forms:
        return []
    form = "Node/{name}" if kind == "Node" else f"{kind}/{{namespace}}/{{name}}"
    return _items(_formatted(find_names(ctx, forms[kind]), form), incomplete)


def complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the contexts of the kubeconfig."""
    from plimsoll.client.kubeconfig import find_kubeconfig

    with suppress(Exception):
        return _items(find_kubeconfig(ctx.params.get("kubeconfig"), os.environ).contexts, incomplete)
    return []


def complete_checks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete audit checks, by ID or name."""
    from plimsoll.tools.audit import CHECKS

    found = [CompletionItem(check.id, help=check.name) for check in CHECKS]
    found += [CompletionItem(check.name, help=check.id) for check in CHECKS]
    return [item for item in found if item.value.startswith(incomplete)]


def find_names(ctx: click.Context, plural: str) -> list[tuple[str, str]]:
    """Return namespace and name of the objects of a kind, sorted; empty if they cannot be read."""
    from plimsoll.cli.where import Where

    given = ctx.params
    where = Where(
        tuple(given.get("files") or ()),
        given.get("kubeconfig"),
        given.get("context") or "",
        given.get("namespace") or "",
        _SECONDS,
    )
    with suppress(Exception):
        source = where.source()
        if source.files:
            return sorted(set(_names_of_files(source.files, plural, where.namespace)))
        if source.config is not None:
            return sorted(set(asyncio.run(_names_of_cluster(source.config, plural, where.namespace))))
    return []


def _names_of_files(files: tuple[str, ...], plural: str, namespace: str) -> Iterable[tuple[str, str]]:
    from plimsoll.tools.cluster_state.manifests import read_objects

    kind = _endpoint(plural).kind
    paths = [Path(name) for name in files]
    if "-" in files or sum(path.stat().st_size for path in paths if path.is_file()) > MAX_BYTES:
        return
    for found in read_objects(files):
        if found.kind == kind and namespace in ("", found.namespace):
            yield found.namespace, found.name


async def _names_of_cluster(config: ClientConfig, plural: str, namespace: str) -> list[tuple[str, str]]:
    from plimsoll.client import Client

    endpoint = _endpoint(plural)
    found: list[tuple[str, str]] = []
    with suppress(TimeoutError):  # what has been read until then is better than nothing
        async with asyncio.timeout(_SECONDS), Client.connect(config) as client:
            pages = client.pages(endpoint, (namespace or None) if endpoint.namespaced else None)
            async with aclosing(pages):
                async for page in pages:
                    found += [_name_of(json.loads(item)) for item in page.items]
    return found


def _endpoint(plural: str) -> Endpoint:
    from plimsoll.client import endpoints as at

    known = (at.NODES, at.PODS, at.NAMESPACES, at.RESOURCE_CLAIMS, at.DEVICE_CLASSES)
    return next(each for each in known if each.plural == plural)


def _name_of(tree: Any) -> tuple[str, str]:
    metadata = tree["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _formatted(names: Iterable[tuple[str, str]], form: str) -> Iterable[str]:
    return (form.format(namespace=namespace, name=name) for namespace, name in names)


def _items(values: Iterable[str], incomplete: str) -> list[CompletionItem]:
    matching = (value for value in values if value.startswith(incomplete))
    return [CompletionItem(value) for value, _ in zip(dict.fromkeys(matching), range(_MOST), strict=False)]
