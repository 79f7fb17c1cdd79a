"""Headless Chromium for tests, driven over the DevTools protocol.

`Browser` is one process with an event loop in its own thread, `Page` a tab with its own storage. Calls block.
A page records `problems` (console errors, exceptions, failed responses, violations of its security policy)
and the URLs of all `requests`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from tests.waiting import DEADLINE, until, wait_until

R = TypeVar("R")
Tree = dict[str, Any]
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--force-color-profile=srgb",
)
#: name -> (code, Windows key code, text)
_KEYS: dict[str, tuple[str, int, str]] = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    " ": ("Space", 32, " "),
    "PageUp": ("PageUp", 33, ""),
    "PageDown": ("PageDown", 34, ""),
    "End": ("End", 35, ""),
    "Home": ("Home", 36, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
}


def find_chromium() -> str | None:
    """Return the browser named by CHROMIUM, or the first known one on PATH.

    The headless shell is the same engine without a browser around it, which saves a third of the CPU time.
    """
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    names = (
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    )
    return next((found for name in names if (found := shutil.which(name))), None)


class Browser:
    """One Chromium process; `close` removes its files."""

    def __init__(self, program: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="plimsoll-chromium-"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chromium", daemon=True)
        self._thread.start()
        self._log = (self._directory / "log").open("wb")
        self._process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={self._directory / 'profile'}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, "HOME": str(self._directory)},
            start_new_session=True,
        )
        self._session: aiohttp.ClientSession | None = None
        self._waiting: dict[int, asyncio.Future[Tree]] = {}
        self._pages: dict[str, Page] = {}
        self._number = 0
        try:
            self.run(self._connect())
        except BaseException:
            self.close()
            raise

    def run(self, work: Coroutine[Any, Any, R], timeout: float = DEADLINE + 10) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    async def _connect(self) -> None:
        port_file = self._directory / "profile" / "DevToolsActivePort"

        def read() -> list[str]:
            log = (self._directory / "log").read_text()[-2000:]
            assert self._process.poll() is None, f"Chromium does not start: {log}"
            return port_file.read_text().split() if port_file.exists() else []

        port, path = await until(read, lambda found: len(found) == 2)
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            tree = json.loads(message.data)
            if "id" in tree:
                waiting = self._waiting.pop(tree["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(tree)
            elif (page := self._pages.get(tree.get("sessionId", ""))) is not None:
                page.on_event(tree["method"], tree["params"])

    async def send(self, method: str, params: Tree | None = None, session: str = "") -> Tree:
        """Call a method and return its result. Raise RuntimeError with the browser's message on failure."""
        self._number += 1
        number = self._number
        future: asyncio.Future[Tree] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        call: Tree = {"id": number, "method": method, "params": params or {}}
        if session:
            call["sessionId"] = session
        await self._socket.send_json(call)
        response = await asyncio.wait_for(future, DEADLINE)
        if "error" in response:
            raise RuntimeError(f"{method}: {response['error'].get('message')}")
        result: Tree = response["result"]
        return result

    def page(self, *, width: int = 1280, height: int = 800) -> Page:
        """Open a tab with its own storage."""
        return self.run(self._open(width, height))

    async def _open(self, width: int, height: int) -> Page:
        context = (await self.send("Target.createBrowserContext"))["browserContextId"]
        target = await self.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        attached = await self.send("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        page = Page(self, attached["sessionId"], context)
        self._pages[attached["sessionId"]] = page
        for domain in ("Page", "Runtime", "Log"):
            await page.ask(f"{domain}.enable")
        await page.resize_to(width, height)
        return page

    async def shut(self, page: Page) -> None:
        self._pages.pop(page.session, None)
        await self.send("Target.disposeBrowserContext", {"browserContextId": page.context})

    def close(self) -> None:
        """Stop the browser."""
        with suppress(Exception):
            self.run(self._disconnect(), 10)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _disconnect(self) -> None:
        if self._session is None:
            self._process.terminate()
            return
        with suppress(Exception):
            await self.send("Browser.close")
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._socket.close()
        await self._session.close()


class Page:
    """Browser tab."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self.browser, self.session, self.context = browser, session, context
        self.problems: list[str] = []
        #: URLs since `record_requests`.
        self.requests: list[str] = []
        #: Chromium gave up a part of the page because some process added or removed a network interface.
        self._interrupted = False

    # -- the protocol

    async def ask(self, method: str, **params: Any) -> Tree:
        return await self.browser.send(method, params, self.session)

    def _run(self, method: str, **params: Any) -> Tree:
        return self.browser.run(self.ask(method, **params))

    def on_event(self, method: str, params: Tree) -> None:
        """Record an event of the browser."""
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            text = " ".join(str(one.get("value", one.get("description", ""))) for one in params["args"])
            self.problems.append(f"console.{params['type']}: {text}")
        elif method == "Runtime.exceptionThrown":
            detail = params["exceptionDetails"]
            text = detail.get("exception", {}).get("description", detail["text"])
            self.problems.append(f"exception: {text}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            if "ERR_NETWORK_CHANGED" in entry["text"] and "/assets/" in entry.get("url", ""):
                self._interrupted = True
                return
            self.problems.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    # -- actions

    def record_requests(self) -> None:
        """Record the URLs of requests from now on: events that take a quarter of the CPU time of a page."""
        self._run("Network.enable")

    def go(self, url: str) -> None:
        """Navigate to a URL."""
        self.browser.run(self._go(url))

    async def _go(self, url: str) -> None:
        answer = await self.ask("Page.navigate", url=url)
        if answer.get("errorText"):
            raise RuntimeError(f"{url}: {answer['errorText']}")

    def eval(self, script: str) -> Any:
        """Return the value of an expression; promises are awaited."""
        answer = self._run("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            detail = answer["exceptionDetails"]
            raise AssertionError(detail.get("exception", {}).get("description", detail["text"]))
        return answer["result"].get("value")

    def wait(self, script: str, timeout: float = DEADLINE) -> Any:
        """Wait until an expression is truthy and return its value; a timeout error has the page's text."""
        expression = f"(v => v instanceof Node || v)({script})"  # elements cannot be returned by value

        def describe() -> str:
            text = self.eval("document.body.innerText")
            return f"never true: {script}\n{self.problems}\n{text[:2000]}"

        def read() -> Any:
            if self._interrupted:
                self._interrupted = False
                self._run("Page.reload")
            return self.eval(expression)

        return wait_until(read, seconds=timeout, context=describe)

    def wait_text(self, text: str, selector: str = "body") -> None:
        """Wait until a matching element contains a text."""
        inside = f"e => e.textContent.includes({json.dumps(text)})"
        self.wait(f"[...document.querySelectorAll({selector!r})].some({inside})")

    def text(self, selector: str = "main") -> str:
        """Return the visible text of the first matching element."""
        return str(self.eval(f"document.querySelector({selector!r})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        """Click the center of the first matching element with the mouse, once it has stopped moving."""
        self.wait(f"document.querySelector({selector!r})")
        center = self.wait(
            f"(() => {{ const e = document.querySelector({selector!r}); if (!e) return null;"
            "if (e.getBoundingClientRect().top < 60 || e.getBoundingClientRect().bottom > innerHeight)"
            " e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const r = e.getBoundingClientRect(), now = [r.x + r.width / 2, r.y + r.height / 2];"
            "const still = e.clicked && e.clicked.join() === now.join(); e.clicked = now;"
            "return still && e.contains(document.elementFromPoint(...now)) ? now : null; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._run(
                "Input.dispatchMouseEvent", type=kind, x=center[0], y=center[1], button="left", clickCount=1
            )

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self._run("Input.insertText", text=text)

    def key(self, name: str, *, shift: bool = False, ctrl: bool = False) -> None:
        """Press a key: a letter, or a name such as Tab."""
        code, number, text = _KEYS.get(name, ("", ord(name.upper()[0]), name))
        params: Tree = {
            "key": name,
            "code": code,
            "windowsVirtualKeyCode": number,
            "modifiers": (8 if shift else 0) | (2 if ctrl else 0),
        }
        self._run("Input.dispatchKeyEvent", type="keyDown", text="" if ctrl else text, **params)
        self._run("Input.dispatchKeyEvent", type="keyUp", **params)

    # -- display

    async def resize_to(self, width: int, height: int) -> None:
        await self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def resize(self, width: int, height: int) -> None:
        self.browser.run(self.resize_to(width, height))

    def prefer(self, **features: str) -> None:
        """Emulate media features: `prefers_color_scheme="dark"`, `prefers_reduced_motion="reduce"`."""
        media = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._run("Emulation.setEmulatedMedia", features=media)

    def screenshot(self, path: Path, *, full: bool = False) -> None:
        """Save a picture, PNG or WebP, of the visible part or of the full page."""
        form = {"format": "webp", "quality": 82} if path.suffix == ".webp" else {"format": "png"}
        answer = self._run("Page.captureScreenshot", captureBeyondViewport=full, **form)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def tree(self) -> list[Tree]:
        """Return the accessibility tree: role, name and properties of all elements."""
        nodes = self._run("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": node.get("role", {}).get("value", ""),
                "name": node.get("name", {}).get("value", ""),
                **{one["name"]: one["value"].get("value") for one in node.get("properties", [])},
            }
            for node in nodes
            if not node.get("ignored")
        ]

    def close(self) -> None:
        self.browser.run(self.browser.shut(self))
