"""Documentation site: links, anchors, navigation, and the pages generated from the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from release.docs.command_reference import command_reference
from release.docs.markdown import anchors, for_python_markdown, links
from release.docs.python_reference import python_reference
from release.docs.site import GENERATED, ROOT, pages, write_site_sources

import plimsoll
from plimsoll.cli.main import plimsoll as root_command


class Loader(yaml.SafeLoader):
    """Loader that leaves the tags of mkdocs alone."""


Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def navigation() -> list[str]:
    def walk(tree: Any) -> Iterator[str]:
        if isinstance(tree, str):
            yield tree
        else:
            for each in tree.values() if isinstance(tree, dict) else tree:
                yield from walk(each)

    return list(walk(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]))


@cache
def generated(name: str) -> str:
    return GENERATED[name]()


def read(name: str) -> str:
    return generated(name) if name in GENERATED else (ROOT / name).read_text()


def broken_links(name: str, text: str) -> list[str]:
    """Links of a page whose file or anchor does not exist; addresses of other sites are not followed."""
    wrong = []
    for link in links(text):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = ((ROOT / name).parent / target).resolve() if target else ROOT / name
        inside = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        exists = inside in GENERATED or path.is_file()
        if not exists or (anchor and anchor not in anchors(text if inside == name else read(inside))):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("name", pages())
def test_links_and_anchors_lead_somewhere(name: str) -> None:
    assert broken_links(name, read(name)) == []


def test_a_broken_link_or_anchor_is_noticed() -> None:
    page = "# One two\n[a](docs/top.md) [b](docs/nope.md) [c](#one-two) [d](#one) [e](docs/top.md#nope)\n"
    page += (
        '`[f](nope)`\n```\n[g](nope)\n```\n<img src="docs/nope.svg"> [h](docs) [i](https://example.com/x#y)\n'
    )
    assert broken_links("README.md", page) == [
        "docs/nope.md",
        "#one",
        "docs/top.md#nope",
        "docs",
        "docs/nope.svg",
    ]


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(navigation()) == sorted(pages())


def test_the_command_reference_has_every_command_and_option() -> None:
    text = command_reference()

    def check(command: click.Command, path: str) -> None:
        section = text.partition(f"\n### {path}\n")[2].partition("\n### ")[0]
        assert section, path
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                assert param.opts[0] in section, f"{path} {param.opts[0]}"
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                inner = command.get_command(click.Context(command), name)
                assert inner is not None
                check(inner, f"{path} {name}")

    for name in root_command.list_commands(click.Context(root_command)):
        found = root_command.get_command(click.Context(root_command), name)
        assert found is not None
        check(found, f"plimsoll {name}")


def test_the_python_reference_has_every_public_name() -> None:
    text = python_reference()
    assert sorted(re.findall(r"(?m)^### (\w+)$", text)) == sorted(plimsoll.__all__)
    for name in plimsoll.__all__:
        assert f"\n### {name}\n" in text
    assert " at 0x" not in text


def test_the_sources_of_the_site_are_laid_out_as_the_repository(tmp_path: Path) -> None:
    write_site_sources(tmp_path / "site")
    for name in pages():
        assert (tmp_path / "site" / name).is_file()
    assert (tmp_path / "site" / "examples" / "what-if" / "cluster.yaml").is_file()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Text\n- one\n- two\n", "Text\n\n- one\n- two\n"),
        ("- one\n  more\n  - inner\n- two\n", "- one\n    more\n    - inner\n- two\n"),
        ("1. one\n   - inner\n     more\n", "1. one\n    - inner\n        more\n"),
        ("```\nText\n- one\n```\n", "```\nText\n- one\n```\n"),
        ("- one\n\nText\n    code\n", "- one\n\nText\n    code\n"),
        ("1. one\n   ```\n   - x\n   ```\n2. two\n", "1. one\n    ```\n    - x\n    ```\n2. two\n"),
        ("| `a\\|b` | c\\|d |\n", "| `a|b` | c\\|d |\n"),
        ("- one\ngoes on\n- two\n", "- one\ngoes on\n- two\n"),
    ],
)
def test_lists_are_written_as_the_site_reads_them(text: str, expected: str) -> None:
    assert for_python_markdown(text) == expected


def test_anchors_are_those_of_github() -> None:
    text = "# `plimsoll top`: a, b\n## A & b\n## A & b\n### See [x](y.md)!\n```\n# no\n```\n"
    assert anchors(text) == {"plimsoll-top-a-b", "a--b", "a--b-1", "see-x"}
