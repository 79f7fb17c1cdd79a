"""Fuzzing of compilation and both back ends: documented errors only, bounded time, no crash."""

from __future__ import annotations

import random
import time

import pytest

from plimsoll.cel import CelDevice, Environment, compile_selector, flatten
from plimsoll.errors import CelCompileError, CelRuntimeError
from tests.unit.cel.evaluation import DEVICE, DRIVER

SEEDS = [
    'device.attributes["gpu.example.com"].model == "a100" && device.driver.startsWith("gpu")',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    'device.attributes["gpu.example.com"].?version.optMap(v, v.major()).orValue(0) in [1, 535]',
    'cel.bind(a, device.attributes["gpu.example.com"], a.index > 2 ? a.model.startsWith("a") : !a.ecc)',
    "lists.range(5).map(x, x * 2).filter(x, x > 2).sortBy(x, -x).sum() == 18",
    '"%s-%d-%.2f".format(["a", 1, 2.5]).replace("a", "bb").split("-").join("+").matches("^b+")',
    'device.attributes.all(d, device.attributes[d].exists(k, k.matches("[a-z]+")))',
    '{"a": [1, 2], "b": []}.transformMap(k, v, v.size()).exists(k, v, v == 2 && k.contains("a"))',
    'ip("10.0.0.1").family() == 4 && cidr("10.0.0.0/8").containsIP("10.0.0.1")',
    'url("https://h/a?b=c").getPort() == "" && semver("1.2", true).isLessThan(semver("2.0.0"))',
    'timestamp("2024-01-01T00:00:00Z") + duration("1h") > timestamp(0)',
    'format.dns1123Label().validate("a").hasValue() || sets.contains([1, 2], [2])',
    '[[1], [2]].flatten() == [1, 2] && type(device.attributes["x"]) == map && dyn(1) == 1u',
    'optional.of({"a": 1}).?a.value() == 1 && {}[?"a"].or(optional.of(1)).value() == 1',
]
TOKENS = [
    *[
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ".",
        "?",
        ":",
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "!=",
        "<",
        ">",
        "&&",
        "||",
        "!",
        "in",
        "0",
        "1",
        "9223372036854775807",
        "1u",
        "2.5",
        "1e308",
    ],
    *[
        "'a'",
        '""',
        "b'x'",
        "null",
        "true",
        "device",
        "x",
        "y",
        ".size()",
        ".orValue(",
        ".?a",
        "[?0]",
        "quantity('1Gi')",
        "dyn(",
        "lists.range(",
    ],
    *[
        ".format([",
        ".flatten(",
        ".sort()",
        ".distinct()",
        ".sum()",
        "string(",
        "int(",
        "duration(",
        "timestamp(",
        ".value()",
    ],
    *(
        ".map(x, ",
        ".all(x, ",
        ".exists(x, ",
        ".filter(x, ",
        ".replace('a', ",
        ".optMap(x, ",
        "semver('1.0.0')",
    ),
]
GARBAGE = "aé☃\u0000\ud800\U0001f600\\'\"`()[]{}<>!@#$%^&*=+-_.,:;?/|~ \n\t0123456789"

ENVIRONMENTS = (
    Environment(),
    Environment(list_attributes=True),
    Environment("new", consumable_capacity=False),
)


def mutate(source: random.Random, text: str) -> str:
    for _ in range(source.randint(0, 4)):
        at = source.randrange(len(text) + 1)
        choice = source.randrange(6)
        if choice == 0:
            text = text[:at] + text[at + source.randint(1, 6) :]
        elif choice == 1:
            text = text[:at] + source.choice(TOKENS) + text[at:]
        elif choice == 2:
            text = text[:at] + source.choice(GARBAGE) + text[at:]
        elif choice == 3:
            other = source.choice(SEEDS)
            start = source.randrange(len(other))
            text = text[:at] + other[start : start + source.randint(1, 30)] + text[at:]
        elif choice == 4:
            start = source.randrange(len(text) + 1)
            text = text[:at] + text[start : start + source.randint(1, 40)] + text[at:]
        else:
            text = f"{text} {source.choice(('&&', '||', '==', '!='))} {source.choice(SEEDS)}"
        text = text[:4000]
    return text


def run_case(expression: str, device: CelDevice, environment: Environment) -> bool:
    """Return whether the expression compiles; only the two documented errors are allowed."""
    try:
        selector = compile_selector(expression, environment)
    except CelCompileError:
        return False
    exact = selector.evaluate_exact(device)
    try:
        fast: bool | None = selector.matches(device)
    except CelRuntimeError:
        fast = None
    assert fast == exact.result, expression
    return True


def fuzz(seed: int, seconds: float, cases: int) -> None:
    source = random.Random(seed)
    device = flatten(DEVICE, DRIVER)
    end = time.monotonic() + seconds
    compiled = done = 0
    while done < cases and time.monotonic() < end:
        expression = (
            mutate(source, source.choice(SEEDS))
            if source.random() < 0.8
            else " ".join(source.choice(TOKENS) for _ in range(source.randint(1, 25)))
        )
        start = time.process_time()
        compiled += run_case(expression, device, source.choice(ENVIRONMENTS))
        assert time.process_time() - start < 20, expression
        done += 1
    assert done > 0
    assert compiled > done // 20  # the seeds compile, and so must some of their mutations


def test_garbage_gives_clear_errors() -> None:
    fuzz(seed=20240229, seconds=3, cases=400)


@pytest.mark.slow
def test_garbage_gives_clear_errors_for_a_minute() -> None:
    fuzz(seed=int(time.time()), seconds=60, cases=10**9)
