"""Named string formats: `format.dns1123Label().validate(x)` returns none or the list of errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import ceil

from plimsoll.api.names import dns_label, dns_subdomain, label_key, label_value
from plimsoll.cel.comparison import Meter
from plimsoll.cel.functions.time import days_in
from plimsoll.cel.functions.urls import request_error
from plimsoll.cel.overloads.costs import REGEX_FACTOR, STRING_FACTOR, Args, CallCost, CallEstimate, Nodes
from plimsoll.cel.overloads.overload import Function, function
from plimsoll.cel.values import NONE, NamedFormat, Optional, Value, size_of

_DNS_1035 = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_UUID = re.compile("[0-9A-Fa-f]{8}-?([0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}")
_BASE64 = re.compile("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")
_CLOCK = re.compile("([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")

#: Sizes of upstream's patterns, which determine the cost of a validation.
_UUID_SIZE, _CLOCK_SIZE, _BASE64_SIZE, _URI_SIZE = 70, 71, 84, 1103
#: Pattern size that the estimate of every validation uses.
_MAX_NAME_SIZE = 128


def _limited(pattern: re.Pattern[str], limit: int, rule: str) -> Callable[[str], list[str]]:
    def check(text: str) -> list[str]:
        problems = [f"must be no more than {limit} characters"] if len(text.encode()) > limit else []
        if not pattern.fullmatch(text):
            problems.append(rule)
        return problems

    return check


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Validate a name prefix, which may end in a dash."""

    def masked(text: str) -> list[str]:
        return check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)

    return masked


_label_1035 = _limited(_DNS_1035, 63, "must be lower case letters, digits or '-', and begin with a letter")


def _uri(text: str) -> list[str]:
    problem = request_error(text)
    return [] if problem is None else [problem]


def _single(test: Callable[[str], bool], problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if test(text) else [problem]


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = (int(group) for group in match.groups())
    return 1 <= month <= 12 and 1 <= day <= days_in(year, month)


def _is_datetime(text: str) -> bool:
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not _is_date(parts[0]):
        return False
    match = _CLOCK.fullmatch(parts[1])
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


FORMATS: dict[str, NamedFormat] = {
    "dns1123Label": NamedFormat("DNS1123Label", dns_label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", dns_subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", label_key, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(dns_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix(dns_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(_label_1035), 30),
    "labelValue": NamedFormat("LabelValue", label_value, 40),
    "uri": NamedFormat("URI", _uri, _URI_SIZE),
    "uuid": NamedFormat("uuid", _single(lambda t: _UUID.fullmatch(t) is not None, "not a UUID"), _UUID_SIZE),
    "byte": NamedFormat(
        "byte", _single(lambda t: _BASE64.fullmatch(t) is not None, "invalid base64"), _BASE64_SIZE
    ),
    "date": NamedFormat("date", _single(_is_date, "invalid date"), _CLOCK_SIZE),
    "datetime": NamedFormat("datetime", _single(_is_datetime, "invalid datetime"), _CLOCK_SIZE),
}


def validate(named: NamedFormat, text: str) -> Optional:
    problems = named.validate(text)
    return Optional(problems) if problems else NONE


def named_format(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _cost(run: Meter, args: Args, result: Value) -> int:
    named = args[0]
    if type(named) is not NamedFormat:
        return 1
    return ceil((1.0 + size_of(args[1])) * STRING_FACTOR) * ceil(named.regex_size * REGEX_FACTOR)


def _estimate(args: Nodes) -> CallEstimate:
    text = args[1].some_size.scaled(STRING_FACTOR)
    return CallEstimate(text.scaled(_MAX_NAME_SIZE * REGEX_FACTOR))


def _constant(name: str) -> Function:
    found = FORMATS[name]
    return function(f"format.{name}", f"format.{name} () -> Format", call=lambda: found)


FUNCTIONS: tuple[Function, ...] = (
    function(
        "validate",
        "format-validate Format.(string) -> optional(list(string))",
        call=validate,
        cost=CallCost(measure=_cost, estimator=_estimate),
    ),
    function("format.named", "format-named (string) -> optional(Format)", call=named_format),
    *(_constant(name) for name in FORMATS),
)
