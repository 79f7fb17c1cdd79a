"""`plimsoll dump`: write everything the tools read to one file."""

# ruff: noqa: PLC0415

from __future__ import annotations

import secrets
import sys
from dataclasses import replace
from pathlib import Path

import click

from plimsoll.cli.options import FILE, cluster_options
from plimsoll.cli.where import Progress, Where, warn_missing


@click.command(name="dump")
@click.option(
    "--out",
    type=FILE,
    metavar="FILE",
    help="File to write; .gz compresses it. [default: standard output]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml"]),
    help="Output format. [default: as --out is named, else json]",
)
@click.option("--anonymize", is_flag=True, help="Replace names, and leave out what no tool reads.")
@click.option(
    "--key-file",
    type=FILE,
    metavar="FILE",
    help="Key of the replaced names, created if missing: dumps with the same key can be compared.",
)
@cluster_options
def run_dump(
    out: Path | None, output: str | None, anonymize: bool, key_file: Path | None, where: Where
) -> None:
    """Write everything the tools read, of a cluster or of files, to one file.

    All commands with -f read it. Objects are complete, in stable order, without managedFields. With
    --anonymize, names of objects, labels and namespaces are replaced word by word, consistently; commands,
    environments, images, addresses and messages are left out; the tools give the same answers.

    \b
    plimsoll dump --out cluster.json.gz
    plimsoll dump --context prod -o yaml > cluster.yaml
    plimsoll dump --anonymize --out share.json
    plimsoll dump -f cluster.json.gz --anonymize --key-file key --out share.json
    plimsoll audit -f cluster.json.gz
    """
    from plimsoll.errors import ConfigError
    from plimsoll.tools.dump import collect_objects, format_of, write_file, write_objects

    if key_file is not None and not anonymize:
        raise ConfigError("--key-file: set --anonymize as well")
    form = output or ("json" if out is None else format_of(out))
    if anonymize:
        trees = _anonymized(where, _read_key(key_file))
    else:
        with Progress() as progress:
            trees, gaps = collect_objects(where.source(), progress.tick)
        warn_missing(gaps)
    if out is None:
        write_objects(trees, sys.stdout.buffer, form)
        return
    summary = write_file(trees, out, form)
    click.echo(f"wrote {out}: {summary}", err=True)


def _anonymized(where: Where, key: bytes) -> list[dict[str, object]]:
    from plimsoll.tools.cluster_state import ClusterObjects
    from plimsoll.tools.dump import Pseudonyms, anonymize, trees_of

    objects = replace(where, gates="", assume_mapping=False).cluster_state().objects
    if where.namespace:
        objects = ClusterObjects(each for each in objects if each.metadata.namespace in ("", where.namespace))
    return list(trees_of(anonymize(objects, Pseudonyms(key))))


def _read_key(path: Path | None) -> bytes:
    """Return the key of a file, which is created if it does not exist; a random key without a file."""
    from plimsoll.common.atomic_file import replace_file
    from plimsoll.errors import ConfigError

    made = secrets.token_hex(32).encode()
    if path is None:
        return made
    try:
        if not path.exists():
            replace_file(path, made + b"\n")
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    if len(key) < 16:
        raise ConfigError(f"{path}: the key is too short: at least 16 characters are required")
    return key
