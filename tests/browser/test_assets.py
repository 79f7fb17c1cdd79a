"""Assets of the page: packaged, complete, and within the content security policy."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

ROOT = files("plimsoll.tools.dashboard") / "assets"


def all_files(directory: Traversable = ROOT, prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in directory.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found |= all_files(entry, f"{name}/")
        else:
            found[name] = entry.read_text()
    return found


FILES = all_files()
OWN = {name: text for name, text in FILES.items() if name.startswith("app/")}


def test_all_files_are_package_resources() -> None:
    assert {
        "index.html",
        "favicon.svg",
        "app/main.js",
        "css/tokens.css",
        "vendor/LICENSES.txt",
    } <= FILES.keys()
    assert all(text for text in FILES.values())


def test_referenced_files_exist_and_all_files_are_referenced() -> None:
    named = set(re.findall(r'(?:href|src)="assets/([^"]+)"', FILES["index.html"]))
    for name, text in FILES.items():
        if name.endswith(".js"):
            for target in re.findall(r'(?:from|import)\s?"(\.[^"]+)"', text):
                parts: list[str] = []
                for part in (PurePosixPath(name).parent / target).parts:
                    if part == "..":
                        parts.pop()
                    elif part != ".":
                        parts.append(part)
                named.add("/".join(parts))
    assert named == FILES.keys() - {"index.html", "vendor/LICENSES.txt"}


def test_no_inline_code_and_no_external_resources() -> None:
    page = FILES["index.html"]
    assert "<style" not in page
    assert "style=" not in page
    assert re.findall(r"<script[^>]*>(?!</script>)", page) == []
    for name, text in FILES.items():
        if name != "vendor/LICENSES.txt":
            outside = set(re.findall(r"https?://[\w./-]+", text)) - {"http://www.w3.org/2000/svg"}
            assert {url for url in outside if not url.startswith("http://www.w3.org/")} == set(), name
        if name.endswith(".css"):
            assert "@import" not in text
            assert "url(" not in text


def test_code_never_inserts_text_as_markup() -> None:
    for name, text in OWN.items():
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "dangerouslySetInnerHTML",
            "document.write",
        ):
            assert word not in code, name
        assert "eval(" not in code, name
        assert "new Function" not in code, name


def test_every_module_begins_with_a_description_and_is_short() -> None:
    for name, text in OWN.items():
        assert re.match(r"// [A-Z]", text), name
        assert text.count("\n") < 300, name


def test_licenses_of_vendored_libraries() -> None:
    text = FILES["vendor/LICENSES.txt"]
    for name in FILES:
        if name.startswith("vendor/") and name.endswith(".js"):
            assert re.search(
                rf"^{re.escape(name.partition('/')[2])} +(preact|htm) \d+\.\d+\.\d+,", text, re.MULTILINE
            )
    assert "The MIT License" in text
    assert "Apache License" in text
