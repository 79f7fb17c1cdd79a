"""Language of the sources: docstrings, words of the field, references, unique class names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import re2

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "plimsoll"
MODULES = sorted(SOURCE.rglob("*.py"))
#: Everything that people read; this module has to name the words it forbids.
READ = sorted(
    path
    for directory in (SOURCE, *(ROOT / name for name in ("tests", "bench", "examples")))
    for path in directory.rglob("*.py")
    if path != Path(__file__)
)

#: A first line names the thing and its job; it does not ask a question.
OPENING = re.compile(r"(What|Who|Whom|Whose|Which|Whether|How|When|Where|Why)\b(?!-)")
#: Finds modules that may have one; parsing takes much longer.
MAY_OPEN = re.compile(r'"""\s*' + OPENING.pattern)
#: Words of no Kubernetes component; the names of things have better ones.
UNWANTED = re.compile(
    r"\b(tell|tells|telling|told|hear|hears|heard|mend|mends|mended|mending|somebody|nobody|whoever|"
    r"purse|hopeless|sieve|aftermath|happenings?)\b",
    re.IGNORECASE,
)
#: Words that sentences of tests may have, but not the sources.
UNWANTED_IN_SOURCE = re.compile(r"\b(say|says|said|saying|beside|moments?)\b", re.IGNORECASE)
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
            yield token.start[0], _split_words(token.string)


def _split_words(text: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text.replace("_", " "))


@cache
def _separate_words(path: Path) -> str:
    return _split_words(path.read_text())


@cache
def _linear(pattern: re.Pattern[str]) -> Any:
    """Return the same pattern for re2, which tries all alternatives at once."""
    return re2.compile(f"(?i){pattern.pattern}")


def _find(pattern: re.Pattern[str], path: Path) -> Iterator[str]:
    """Yield where a pattern occurs in the comments, strings and names of a module."""
    if not _linear(pattern).search(_separate_words(path)):
        return  # tokens take much longer
    for line, words in _words(path.read_text()):
        for match in pattern.finditer(words):
            yield f"{_name(path)}:{line}: {match[0]}: {words[:80]}"


def test_docstrings_do_not_begin_with_a_question_word() -> None:
    assert [
        f"{_name(path)}:{line}: {text.splitlines()[0]}"
        for path in READ
        if MAY_OPEN.search(path.read_text())
        for line, text in _docstrings(ast.parse(path.read_text()))
        if OPENING.match(text)
    ] == []


def test_private_words_are_not_used() -> None:
    assert [found for path in READ for found in _find(UNWANTED, path)] == []


def test_sources_describe_instead_of_speaking() -> None:
    assert [found for path in MODULES for found in _find(UNWANTED_IN_SOURCE, path)] == []


def test_references_lead_into_this_repository() -> None:
    assert [found for path in READ for found in _find(DEAD_REFERENCE, path)] == []


def test_pages_and_headings_that_comments_name_exist() -> None:
    missing = []
    for path in READ:
        for page, title in re.findall(r'docs/spec/([\w-]+\.md)`?(?:, "([^"\n]+)")?', path.read_text()):
            text = ROOT / "docs" / "spec" / page
            if not text.exists() or (title and f"\n## {title}\n" not in text.read_text()):
                missing.append(f'{_name(path)}: docs/spec/{page}, "{title}"')
    assert missing == []


def test_public_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            homes[name].append(_name(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
