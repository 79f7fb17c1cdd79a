"""What-if: everything a plan can have can be asked, and the whole answer is told."""

from __future__ import annotations

import json

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.served import shown

POD = """apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: shop}
spec:
  containers: [{name: main, image: app, resources: {requests: {cpu: "CPU"}}}]
---
"""


RUN = "button.primary"
RESULT = ".whatif-result"


def field(page: Page, label: str, text: str) -> None:
    """Type into the field with this label, in place of what is there."""
    named = (
        f"[...document.querySelectorAll('.whatif-form .field')].find(e => e.innerText.startsWith({label!r}))"
    )
    page.eval(f"{named}.querySelector('input, textarea').select()")
    page.type(text)


def rows(page: Page, table: str) -> list[str]:
    """The rows of a table of the answer, in words."""
    page.wait(f"document.querySelector('[aria-label=\"{table}\"] tbody')")
    found = page.eval(
        f"[...document.querySelectorAll('[aria-label=\"{table}\"] tbody tr')]"
        ".map(r => r.innerText.replace(/\\s+/g, ' '))"
    )
    assert isinstance(found, list)
    return found


def test_a_what_if(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "whatif")
    page.click("textarea")
    page.type(
        POD.replace("NAME", "trial").replace("CPU", "6") + POD.replace("NAME", "huge").replace("CPU", "40")
    )
    page.click(".whatif-side textarea")
    page.type("Pod/shop/web-1")
    page.click(".checks label:nth-of-type(1) input")
    page.click("button.primary")
    page.wait("document.querySelector('.whatif-result tbody')")
    rows = page.eval("[...document.querySelectorAll('.whatif-result tbody tr')].map(r => r.innerText)")
    trial = next(row for row in rows if row.startswith("shop/trial"))
    assert "not there" in trial
    assert "numa-1" in trial
    huge = next(row for row in rows if row.startswith("shop/huge"))
    assert "Insufficient cpu" in huge
    # The two-book way puts a pod where the ledger has no room, and the page says which node it sinks.
    assert "After, as kube-1.36-default" in page.text(".whatif-result")
    assert "cpu 14 past its line" in page.text(".whatif-result")
    assert "numa-1" in huge
    assert page.eval("document.querySelectorAll('.whatif-result .is-different').length") == 1
    assert "Fragmentation" in page.text(".whatif-result")
    # What was typed and answered is still there after a look at another page.
    shown(page, dump, "audit")
    shown(page, dump, "whatif")
    page.wait(
        "document.querySelector('.whatif-result')"
        " && document.querySelector('textarea').value.includes('huge')"
    )


def test_a_what_if_that_cannot_be_asked(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "whatif")
    page.click("textarea")
    page.type("kind: [")
    page.key("Enter", ctrl=True)
    page.wait("document.querySelector('#whatif-error').innerText.length > 10")
    assert page.eval("document.querySelector('textarea').getAttribute('aria-describedby')") == "whatif-error"
    page.problems.clear()  # the 400 that was asked for
    page.eval("document.querySelector('textarea').select()")
    page.type(POD.replace("NAME", "trial").replace("CPU", "1"))
    page.click("button.primary")
    page.wait(
        "document.querySelector('.whatif-result') && !document.querySelector('#whatif-error').innerText"
    )


def test_a_fix_is_tried_with_one_click(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "explain/pod/shop/whole-gpu")
    page.click(".fixes a")
    page.wait_text("shop/whole-gpu would go to gpu-1.", f"{RESULT} .answer")
    assert "Asked: without Pod/shop/train." in page.text(".answer")
    assert page.eval("document.querySelector('.whatif-side textarea').value") == "Pod/shop/train"
    first = rows(page, "Pods before and after")[0]
    assert first.startswith("shop/whole-gpu pending 0/5 nodes")
    # What it costs, and what it is given.
    assert first.endswith("gpu-1 cpu 1, memory 1Gi gpu.example.com/gpu-1/gpu-0-whole")
    # What is typed stays typed; the link asks its own question again.
    field(page, "Remove", "Pod/shop/chat")
    page.wait("document.querySelector('.whatif-side textarea').value === 'Pod/shop/chat'")
    page.click(".crumbs a")
    page.wait_text("shop/whole-gpu", "h1")
    page.click(".fixes a")
    page.wait("document.querySelector('.whatif-side textarea')?.value === 'Pod/shop/train'")
    page.wait_text("Asked: without Pod/shop/train.", ".answer")


def test_a_node_is_drained(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "nodes/gpu-1")
    page.click(".aside")
    page.wait_text("7 pods would wait, 3 as things are.", f"{RESULT} .answer")
    assert page.eval("document.querySelector('.rare').open")  # it says something
    gone = rows(page, "Pods that would have to go")
    assert len(gone) == 4
    assert gone[0].startswith("shop/backup gpu-1 drained (gpu-1) counted as waiting; it has no controller")
    assert rows(page, "Nodes that change") == [
        "gpu-1 cpu 22.5 \u2192 32 memory 61Gi \u2192 128Gi pods 106 \u2192 110"
    ]
    pieces = rows(page, "Fragmentation")
    assert "most devices for one claim of class gpu 1 on 1 node 0" in pieces
    assert (
        "stranded: free devices on nodes without capacity for a pod 1 of dra.cpu on 1 node as before"
        in pieces
    )


def test_everything_else_can_be_asked(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "whatif")
    page.eval(
        "const real = fetch; window.fetch = (path, o) => { window.sent = o && o.body; return real(path, o); }"
    )
    page.click(".rare summary")
    page.wait("document.querySelector('.rare').open")
    field(page, "Add or change", POD.replace("NAME", "trial").replace("CPU", "2"))
    field(page, "Replicas", "3")
    field(page, "Cordon", "numa-1, past-1")
    field(page, "Add nodes", "2")
    field(page, "like node", "gpu-1")
    field(page, "Taint nodes", "gpu-1 a=b:NoSchedule")
    field(page, "Taint devices", "driver=nic.example.com:bad=yes:NoExecute")
    page.eval(
        "const s = document.querySelector('.rare select'); s.value = 'Max';"
        "s.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.click(".rare fieldset label:nth-of-type(1) input")
    page.click(".rare fieldset label:nth-of-type(2) input")
    page.click(RUN)
    page.wait(f"document.querySelector('{RESULT} .proof')")
    assert json.loads(page.eval("sent")) == {
        "add": POD.replace("NAME", "trial").replace("CPU", "2"),
        "replicas": 3,
        "cordon": ["numa-1", "past-1"],
        "addNodes": 2,
        "like": "gpu-1",
        "taints": ["gpu-1 a=b:NoSchedule"],
        "taintDevices": ["driver=nic.example.com:bad=yes:NoExecute"],
        "policy": "Max",
        "exhaustive": True,
        "preempt": False,
    }
    asked = page.text(".answer")
    for words in (
        "accounting policy Max",
        "2 more nodes like gpu-1",
        "numa-1, past-1 cordoned",
        "3 pods added",
    ):
        assert words in asked
    assert "impossible" in page.text(".proof")  # giant fits nowhere
    assert "At most" in page.text(".proof")
    assert any(row.startswith("gpu-1-copy-1 new cpu - \u2192 ") for row in rows(page, "Nodes that change"))
    gone = rows(page, "Pods that would have to go")
    assert any("device taint" in row for row in gone)
    # What is only thought up has no page to go to.
    links = page.eval(f"[...document.querySelectorAll('{RESULT} a')].map(a => a.textContent)")
    assert "shop/giant" in links
    assert not any("trial" in link or "copy" in link for link in links)
    page.eval("[...document.querySelectorAll('.buttons button')].find(b => b.innerText === 'Clear').click()")
    page.wait(f"!document.querySelector('{RESULT}') && !document.querySelector('textarea').value")
    assert page.eval("document.querySelector('.count-field input').value") == ""


def test_a_placement_that_the_scheduler_misses_is_shown(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "")
    proof = {
        "verdict": "placed all",
        "pods": 2,
        "scheduler": 1,
        "most": 2,
        "settled": True,
        "steps": 9,
        "why": "",
    }
    proof["placement"] = [{"pod": "a/b", "node": "n1", "devices": ["d/p/x"]}]
    answer = {"allPlaced": False, "after": {"placed": 1, "pending": 1}, "exhaustive": proof}
    page.eval(
        "const real = fetch; window.fetch = async (path, o) => path === 'api/whatif'"
        f"? new Response({json.dumps(json.dumps(answer))}) : real(path, o)"
    )
    page.go(f"{dump.url}#/whatif")
    page.click(RUN)
    page.wait_text("A placement of all 2 waiting pods exists; the scheduler places 1 one by one.", ".proof")
    page.click(f"{RESULT} details summary")
    assert rows(page, "The placement that was found") == ["a/b n1 d/p/x"]


def test_names_of_nodes_are_offered(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "whatif")
    page.click(".rare summary")
    page.wait("document.querySelector('.rare').open")
    assert not [url for url in page.requests if url.endswith("/api/nodes")]  # not before they are wanted
    offered = "[...document.querySelectorAll('#nodes-drain option')].map(o => o.value).join(';')"
    page.eval("document.querySelector('[list=nodes-drain]').focus()")
    page.wait(f"{offered} === 'gpu-1;idle-1;lost-1;numa-1;past-1'")
    page.type("gpu-1, id")
    page.wait(f"{offered} === 'gpu-1, idle-1'")


def test_questions_without_anything_to_say(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "whatif")
    page.click(RUN)
    page.wait_text("Nothing was changed", ".answer")
    told = page.eval(
        "import('/assets/app/whatif/question.js').then(q => [q.toJson(q.empty()), q.isEmpty(q.empty()),"
        "q.fromQuery(new URLSearchParams('pod=a/b')),"
        "q.toJson(q.fromQuery(new URLSearchParams('remove=Pod/a/b, Pod/a/c&cordon=n1')))])"
    )
    assert told == [
        {},
        True,
        None,
        {"remove": ["Pod/a/b", "Pod/a/c"], "cordon": ["n1"]},
    ]
