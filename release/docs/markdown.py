"""Markdown as GitHub reads it: anchors of headings, links, and a form that Python-Markdown reads alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_FENCE = re.compile(r"^ *(```|~~~)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?)(?: +#+)?$")
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)(?: \"[^\"]*\")?\)")
_HTML_LINK = re.compile(r"""\b(?:href|src|srcset)="([^"]+)\"""")
_ITEM = re.compile(r"^( *)([-*]|\d+\.)( +)(?=\S)")
#: What Python-Markdown needs to see that a line belongs to a list item.
_INDENT = 4


def lines_outside_code(text: str) -> Iterator[str]:
    """Yield the lines that are not in a code block."""
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1] == fence:
            fence = ""
        elif not fence:
            yield line


def anchors(text: str) -> set[str]:
    """Return the anchors of all headings, as GitHub and the site make them."""
    seen: Counter[str] = Counter()
    found = set()
    for line in lines_outside_code(text):
        if heading := _HEADING.match(line):
            slug = _slug(heading[2])
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


def _slug(title: str) -> str:
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def links(text: str) -> list[str]:
    """Return the targets of all links and pictures, those in HTML included."""
    prose = "\n".join(lines_outside_code(text))
    return _LINK.findall(_CODE.sub("``", prose)) + _HTML_LINK.findall(prose)


def for_python_markdown(text: str) -> str:
    """Return the text with a blank line before lists and nested items indented by four."""
    out: list[str] = []
    levels: list[int] = []  # for each open item, the column where its text begins
    fenced, previous = False, ""
    for line in text.splitlines():
        column = len(line) - len(line.lstrip(" "))
        item = None if fenced else _ITEM.match(line)
        if item or (line.strip() and not fenced and (column or not previous.strip())):
            while levels and column < levels[-1]:
                levels.pop()
        if item:
            if previous.strip() and not levels and not _ITEM.match(previous):
                out += [] if _is_in_list(out) else [""]
            line = " " * _INDENT * len(levels) + f"{item[2]} {line[item.end() :]}"
            levels.append(item.end())
        elif levels and line.strip() and column >= levels[-1]:
            line = " " * (_INDENT * len(levels) + column - levels[-1]) + line[column:]
        if _FENCE.match(line):
            fenced = not fenced
        if not fenced and line.startswith("|"):  # GitHub needs the backslash, Python-Markdown would show it
            line = _CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
        previous = line
        out.append(line)
    return "\n".join(out) + "\n"


def _is_in_list(lines: list[str]) -> bool:
    """Return whether the last paragraph began as a list item."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if _ITEM.match(line):
            return True
    return False
