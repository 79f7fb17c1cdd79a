"""Language of the sources: docstrings, words of the field, references, unique class names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "plimsoll"
MODULES = sorted(SOURCE.rglob("*.py"))
#: Everything that people read; this module has to name the words it forbids.
READ = sorted(
    path
    for folder in (SOURCE, *(ROOT / name for name in ("tests", "bench", "examples")))
    for path in folder.rglob("*.py")
    if path != Path(__file__)
)

#: A first line names the thing and its job; it does not ask a question.
OPENING = re.compile(r"(What|Who|Whom|Whose|Which|Whether|How|When|Where|Why)\b(?!-)")
#: Words of no Kubernetes component; the names of things have better ones.
UNWANTED = re.compile(
    r"\b(tell|tells|telling|told|hear|hears|heard|mend|mends|mended|mending|somebody|nobody|whoever|"
    r"purse|hopeless|sieve|aftermath|happenings?)\b",
    re.IGNORECASE,
)
#: The semantics are in docs/spec, by the titles of their sections; KEPs have numbers.
DEAD_REFERENCE = re.compile(r"\b(sections? \d+|document 00\d)\b", re.IGNORECASE)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments, strings and names, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string
        elif token.type == tokenize.NAME:
            yield token.start[0], re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", token.string)


@pytest.mark.parametrize("path", READ, ids=_name)
def test_docstrings_begin_with_what_a_thing_is(path: Path) -> None:
    found = [
        f"line {line}: {text.splitlines()[0]}" for line, text in _docstrings(ast.parse(path.read_text()))
    ]
    assert [each for each in found if OPENING.match(each.split(": ", 1)[1])] == []


@pytest.mark.parametrize("path", READ, ids=_name)
def test_words_are_those_of_the_field(path: Path) -> None:
    found = [
        f"line {line}: {match[0]}: {text[:80]}"
        for line, text in _words(path.read_text())
        for match in UNWANTED.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize("path", READ, ids=_name)
def test_references_lead_into_this_repository(path: Path) -> None:
    found = [
        f"line {line}: {match[0]}"
        for line, text in _words(path.read_text())
        for match in DEAD_REFERENCE.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize("path", READ, ids=_name)
def test_pages_and_headings_that_comments_name_exist(path: Path) -> None:
    for page, title in re.findall(r'docs/spec/([\w-]+\.md)`?(?:, "([^"\n]+)")?', path.read_text()):
        text = ROOT / "docs" / "spec" / page
        assert text.exists(), f"docs/spec/{page}"
        assert not title or f"\n## {title}\n" in text.read_text(), f'docs/spec/{page}, "{title}"'


def test_public_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(_name(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
