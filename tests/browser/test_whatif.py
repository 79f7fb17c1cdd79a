"""What-if page: all fields of a request and all sections of the result."""

from __future__ import annotations

import json

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.dashboards import open_page

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
    """Replace the text of the field with this label."""
    named = (
        f"[...document.querySelectorAll('.whatif-form .field')].find(e => e.innerText.startsWith({label!r}))"
    )
    page.eval(f"{named}.querySelector('input, textarea').select()")
    page.type(text)


def rows(page: Page, table: str) -> list[str]:
    """Return the rows of a table of the result as text."""
    page.wait(f"document.querySelector('[aria-label=\"{table}\"] tbody')")
    found = page.eval(
        f"[...document.querySelectorAll('[aria-label=\"{table}\"] tbody tr')]"
        ".map(r => r.innerText.replace(/\\s+/g, ' '))"
    )
    assert isinstance(found, list)
    return found


def test_a_what_if(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "whatif")
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
    assert "does not exist" in trial
    assert "numa-1" in trial
    huge = next(row for row in rows if row.startswith("shop/huge"))
    assert "Insufficient cpu" in huge
    # Two ledgers overcommit the node; the page names it.
    assert "After, as kube-1.36-default" in page.text(".whatif-result")
    assert "cpu 14 past its line" in page.text(".whatif-result")
    assert "numa-1" in huge
    assert page.eval("document.querySelectorAll('.whatif-result .is-different').length") == 1
    assert "Fragmentation" in page.text(".whatif-result")
    # The form and the result survive navigation.
    open_page(page, dump, "audit")
    open_page(page, dump, "whatif")
    page.wait(
        "document.querySelector('.whatif-result')"
        " && document.querySelector('textarea').value.includes('huge')"
    )


def test_an_invalid_request(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "whatif")
    page.click("textarea")
    page.type("kind: [")
    page.key("Enter", ctrl=True)
    page.wait("document.querySelector('#whatif-error').innerText.length > 10")
    assert page.eval("document.querySelector('textarea').getAttribute('aria-describedby')") == "whatif-error"
    page.problems.clear()  # the expected 400
    page.eval("document.querySelector('textarea').select()")
    page.type(POD.replace("NAME", "trial").replace("CPU", "1"))
    page.click("button.primary")
    page.wait(
        "document.querySelector('.whatif-result') && !document.querySelector('#whatif-error').innerText"
    )


def test_fixes_link_to_a_what_if(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "explain/pod/shop/whole-gpu")
    page.click(".fixes a")
    page.wait_text("shop/whole-gpu would be scheduled to gpu-1.", f"{RESULT} .verdict-notice")
    assert "Changes: without Pod/shop/train." in page.text(".verdict-notice")
    assert page.eval("document.querySelector('.whatif-side textarea').value") == "Pod/shop/train"
    first = rows(page, "Pods before and after")[0]
    assert first.startswith("shop/whole-gpu pending 0/5 nodes")
    # Charges and devices.
    assert first.endswith("gpu-1 cpu 1, memory 1Gi gpu-0-whole")
    # Edits are kept; the link runs its own request again.
    field(page, "Remove", "Pod/shop/chat")
    page.wait("document.querySelector('.whatif-side textarea').value === 'Pod/shop/chat'")
    page.click(".crumbs a")
    page.wait_text("shop/whole-gpu", "h1")
    page.click(".fixes a")
    page.wait("document.querySelector('.whatif-side textarea')?.value === 'Pod/shop/train'")
    page.wait_text("Changes: without Pod/shop/train.", ".verdict-notice")


def test_drain_a_node(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "nodes/gpu-1")
    page.click(".aside")
    page.wait_text("0 of 4 evicted pods scheduled, 4 pending.", f"{RESULT} .verdict-notice")
    assert "Side effects: 3 pods pending before and after (" in page.text(".verdict-notice")
    assert page.eval("document.querySelector('.advanced').open")  # a field is set
    evicted = rows(page, "Pods that would be evicted")
    assert len(evicted) == 4
    assert evicted[0].startswith("shop/backup gpu-1 drained counted as pending; without a controller")
    assert rows(page, "Changed nodes") == [
        "gpu-1 cpu 22.5 \u2192 32 memory 61Gi \u2192 128Gi pods 106 \u2192 110"
    ]
    measures = rows(page, "Fragmentation")
    assert "largest claim of exclusive devices: gpu 1 on 1 node 0" in measures
    assert (
        "stranded: free devices on nodes without capacity for another pod 1 of dra.cpu on 1 node unchanged"
        in measures
    )


def test_all_other_fields(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "whatif")
    page.eval(
        "const real = fetch; window.fetch = (path, o) => { window.sent = o && o.body; return real(path, o); }"
    )
    page.click(".advanced summary")
    page.wait("document.querySelector('.advanced').open")
    field(page, "Add or change", POD.replace("NAME", "trial").replace("CPU", "2"))
    field(page, "Replicas", "3")
    field(page, "Cordon", "numa-1, past-1")
    field(page, "Add nodes", "2")
    field(page, "like node", "gpu-1")
    field(page, "Taint nodes", "gpu-1 a=b:NoSchedule")
    field(page, "Taint devices", "driver=nic.example.com:bad=yes:NoExecute")
    page.eval(
        "const s = document.querySelector('.advanced select'); s.value = 'Max';"
        "s.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.click(".advanced fieldset label:nth-of-type(1) input")
    page.click(".advanced fieldset label:nth-of-type(2) input")
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
    asked = page.text(".verdict-notice")
    for words in (
        "accounting policy Max",
        "2 more nodes like gpu-1",
        "numa-1, past-1 cordoned",
        "3 pods added",
    ):
        assert words in asked
    assert "impossible" in page.text(".proof")  # giant fits nowhere
    assert "At most" in page.text(".proof")
    assert any(row.startswith("gpu-1-copy-1 new cpu - \u2192 ") for row in rows(page, "Changed nodes"))
    evicted = rows(page, "Pods that would be evicted")
    assert any("device taint" in row for row in evicted)
    # Hypothetical objects have no links.
    links = page.eval(f"[...document.querySelectorAll('{RESULT} a')].map(a => a.textContent)")
    assert "shop/giant" in links
    assert not any("trial" in link or "copy" in link for link in links)
    page.eval("[...document.querySelectorAll('.buttons button')].find(b => b.innerText === 'Clear').click()")
    page.wait(f"!document.querySelector('{RESULT}') && !document.querySelector('textarea').value")
    assert page.eval("document.querySelector('.count-field input').value") == ""


def test_placement_found_by_exhaustive_search(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
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
    page.wait_text("A placement of all 2 pending pods exists; the scheduler places 1 one by one.", ".proof")
    page.click(f"{RESULT} details summary")
    assert rows(page, "Placement found") == ["a/b n1 d/p/x"]


def test_pods_that_schedulers_place_differently_are_listed_below_groups(page: Page, dump: Dashboard) -> None:
    pods = [f"a/web-{number:02}" for number in range(40)]
    placed = {"node": "n1", "charges": {"cpu": "2"}, "devices": []}
    waiting = {"node": None, "why": "0/1 nodes are available: 1 Insufficient cpu."}
    answer = {
        "allPlaced": True,
        "verdict": {"text": "all 40 pods are scheduled", "allScheduled": True},
        "sideEffects": {"preempted": pods[:3]},
        "pods": [{"pod": pod, "before": waiting, "after": placed} for pod in pods],
        "groups": [
            {"label": "a/web-* (40)", "pods": pods, "before": "40 pending", "after": "n1 x40", "asked": True}
        ],
        "as": {
            "kube-1.36": {
                "differs": pods[:20],
                "pods": [{"pod": pod, "ours": "n1", **waiting} for pod in pods[:20]],
            }
        },
    }
    open_page(page, dump, "")
    page.eval(
        "const real = fetch; window.fetch = async (path, o) => path === 'api/whatif'"
        f"? new Response({json.dumps(json.dumps(answer))}) : real(path, o)"
    )
    page.go(f"{dump.url}#/whatif")
    page.click(RUN)
    page.wait_text("3 pods preempted (a/web-* (3))", f"{RESULT} .verdict-notice")
    assert rows(page, "Pods before and after") == ["a/web-* (40) 40 pending n1 x40"]
    different = rows(page, "Pods that schedulers place differently")
    assert len(different) == 15
    assert different[0].startswith("a/web-00 pending 0/1 nodes are available: 1 Insufficient cpu. n1 cpu 2")
    # The pods of a group have pages.
    page.click(f"{RESULT} tbody details summary")
    page.wait(f"document.querySelectorAll('{RESULT} tbody details li').length === 15")
    page.click(f"{RESULT} tbody details .pager button:last-child")
    page.wait_text("16-30 of 40", f"{RESULT} tbody details .pager")
    assert page.text(f"{RESULT} tbody details li") == "a/web-15 n1"


def test_pods_are_composed_and_the_question_is_a_link(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "whatif")
    page.eval("document.querySelector('.picker input').focus()")
    # Each list is a request of its own.
    for option in ("gpu", "shop/Pod/train"):
        page.wait(f"document.querySelector('.picker option[value=\"{option}\"]') !== null")
    page.eval(
        "const [c, w] = document.querySelectorAll('.picker select');"
        "c.value = 'gpu'; c.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.wait("document.querySelectorAll('.picker input').length === 4")
    page.eval("document.querySelector('.picker button').click()")
    page.wait("document.querySelector('.whatif-fields textarea').value.includes('ResourceClaimTemplate')")
    page.eval("w.value = 'shop/Pod/train'; w.dispatchEvent(new Event('change', {bubbles: true}))")
    page.wait("document.querySelector('.whatif-fields textarea').value.includes('train-more')")
    page.click(RUN)
    page.wait_text("2 added pods", f"{RESULT} .verdict-notice")
    link = page.eval("location.href")
    answer = page.text(".verdict-notice")
    # The answer is above the question, and the link asks it again.
    assert page.eval(
        "document.querySelector('.verdict-notice').getBoundingClientRect().top"
        " < document.querySelector('.whatif-form').getBoundingClientRect().top"
    )
    page.go("about:blank")
    page.go(link)
    page.wait_text("2 added pods", f"{RESULT} .verdict-notice")
    assert page.text(".verdict-notice") == answer


def test_nodes_are_chosen_from_a_list(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "whatif")
    page.eval("document.querySelector('.node-picker select').focus()")
    page.wait("document.querySelectorAll('.node-field option').length === 6")
    assert page.eval("document.querySelector('.node-picker button').disabled")
    for node, action in (("gpu-1", "drain"), ("idle-1", "drain"), ("past-1", "remove"), ("numa-1", "like")):
        for name, value in (("node", node), ("action", action)):
            page.eval(
                f"{{const s = document.querySelectorAll('.node-picker select')[{int(name == 'action')}];"
                f" s.value = '{value}'; s.dispatchEvent(new Event('change', {{bubbles: true}}))}}"
            )
            page.wait(
                f"[...document.querySelectorAll('.node-picker select')].some(s => s.value === '{value}')"
            )
        page.eval("document.querySelector('.node-picker button').click()")
    page.wait("document.querySelector('[list=nodes-like]')?.value === 'numa-1'")
    assert page.eval("document.querySelector('[list=nodes-drain]').value") == "gpu-1, idle-1"
    assert page.eval("document.querySelector('.whatif-side textarea').value") == "Node/past-1"
    page.click(RUN)
    page.wait_text("gpu-1", f"{RESULT}")


def test_node_names_are_completed(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "whatif")
    page.click(".advanced summary")
    page.wait("document.querySelector('.advanced').open")
    assert not [
        url for url in page.requests if url.endswith("/api/nodes")
    ]  # not before the field has the focus
    offered = "[...document.querySelectorAll('#nodes-drain option')].map(o => o.value).join(';')"
    page.eval("document.querySelector('[list=nodes-drain]').focus()")
    page.wait(f"{offered} === 'gpu-1;idle-1;lost-1;numa-1;past-1'")
    page.type("gpu-1, id")
    page.wait(f"{offered} === 'gpu-1, idle-1'")


def test_empty_requests(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "whatif")
    page.click(RUN)
    page.wait_text("No changes:", ".verdict-notice")
    results = page.eval(
        "import('/assets/app/whatif/request.js').then(q => [q.toJson(q.emptyForm()),"
        "q.isEmpty(q.emptyForm()),"
        "q.fromQuery(new URLSearchParams('pod=a/b')),"
        "q.toJson(q.fromQuery(new URLSearchParams('remove=Pod/a/b, Pod/a/c&cordon=n1')))])"
    )
    assert results == [
        {},
        True,
        None,
        {"remove": ["Pod/a/b", "Pod/a/c"], "cordon": ["n1"]},
    ]
