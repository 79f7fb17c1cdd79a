"""The functions of the DRA environment: names, overload ids and signatures.

Defines the overload table. Ids are those of cel-go and of the Kubernetes CEL libraries, because the cost
models are defined per overload; their order within a function is the order of declaration, because overload
resolution binds type variables as it goes. Implements docs/spec/api.md, "CEL environment": standard library
(with cross-type numeric comparison), strings v2, lists (Kubernetes and extension v3), regex, sets, URLs, IP,
CIDR, quantity, semver, format, optionals, two-variable comprehensions and the authorizer functions, which
Kubernetes declares in every environment although no selector can hold an authorizer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from plimsoll.cel.static import types
from plimsoll.cel.static.types import CelType, TypeKind


@dataclass(frozen=True, slots=True)
class OverloadDecl:
    """One signature of a function; the receiver of a member overload is the first argument."""

    id: str
    args: tuple[CelType, ...]
    result: CelType
    member: bool
    params: frozenset[str]


# Every line is: function, overload id, signature. `receiver.(args)` marks a member overload; one capital
# letter is a type parameter.
_TABLE = """
_?_:_ conditional (bool, A, A) -> A
_&&_ logical_and (bool, bool) -> bool
_||_ logical_or (bool, bool) -> bool
!_ logical_not (bool) -> bool
@not_strictly_false not_strictly_false (bool) -> bool
_==_ equals (A, A) -> bool
_!=_ not_equals (A, A) -> bool

_+_ add_bytes (bytes, bytes) -> bytes
_+_ add_double (double, double) -> double
_+_ add_duration_duration (duration, duration) -> duration
_+_ add_duration_timestamp (duration, timestamp) -> timestamp
_+_ add_timestamp_duration (timestamp, duration) -> timestamp
_+_ add_int64 (int, int) -> int
_+_ add_list (list(A), list(A)) -> list(A)
_+_ add_string (string, string) -> string
_+_ add_uint64 (uint, uint) -> uint
_/_ divide_double (double, double) -> double
_/_ divide_int64 (int, int) -> int
_/_ divide_uint64 (uint, uint) -> uint
_%_ modulo_int64 (int, int) -> int
_%_ modulo_uint64 (uint, uint) -> uint
_*_ multiply_double (double, double) -> double
_*_ multiply_int64 (int, int) -> int
_*_ multiply_uint64 (uint, uint) -> uint
-_ negate_double (double) -> double
-_ negate_int64 (int) -> int
_-_ subtract_double (double, double) -> double
_-_ subtract_duration_duration (duration, duration) -> duration
_-_ subtract_int64 (int, int) -> int
_-_ subtract_timestamp_duration (timestamp, duration) -> timestamp
_-_ subtract_timestamp_timestamp (timestamp, timestamp) -> duration
_-_ subtract_uint64 (uint, uint) -> uint

{comparisons}

_[_] index_list (list(A), int) -> A
_[_] index_map (map(A, B), A) -> B
@in in_list (A, list(A)) -> bool
@in in_map (A, map(A, B)) -> bool
size size_bytes (bytes) -> int
size bytes_size bytes.() -> int
size size_list (list(A)) -> int
size list_size list(A).() -> int
size size_map (map(A, B)) -> int
size map_size map(A, B).() -> int
size size_string (string) -> int
size string_size string.() -> int

type type (A) -> type(A)
bool bool_to_bool (bool) -> bool
bool string_to_bool (string) -> bool
bytes bytes_to_bytes (bytes) -> bytes
bytes string_to_bytes (string) -> bytes
double double_to_double (double) -> double
double int64_to_double (int) -> double
double string_to_double (string) -> double
double uint64_to_double (uint) -> double
duration duration_to_duration (duration) -> duration
duration int64_to_duration (int) -> duration
duration string_to_duration (string) -> duration
dyn to_dyn (A) -> dyn
int int64_to_int64 (int) -> int
int double_to_int64 (double) -> int
int duration_to_int64 (duration) -> int
int string_to_int64 (string) -> int
int timestamp_to_int64 (timestamp) -> int
int uint64_to_int64 (uint) -> int
string string_to_string (string) -> string
string bool_to_string (bool) -> string
string bytes_to_string (bytes) -> string
string double_to_string (double) -> string
string duration_to_string (duration) -> string
string int64_to_string (int) -> string
string timestamp_to_string (timestamp) -> string
string uint64_to_string (uint) -> string
timestamp timestamp_to_timestamp (timestamp) -> timestamp
timestamp int64_to_timestamp (int) -> timestamp
timestamp string_to_timestamp (string) -> timestamp
uint uint64_to_uint64 (uint) -> uint
uint double_to_uint64 (double) -> uint
uint int64_to_uint64 (int) -> uint
uint string_to_uint64 (string) -> uint

contains contains_string string.(string) -> bool
endsWith ends_with_string string.(string) -> bool
startsWith starts_with_string string.(string) -> bool
matches matches (string, string) -> bool
matches matches_string string.(string) -> bool

getFullYear timestamp_to_year timestamp.() -> int
getFullYear timestamp_to_year_with_tz timestamp.(string) -> int
getMonth timestamp_to_month timestamp.() -> int
getMonth timestamp_to_month_with_tz timestamp.(string) -> int
getDayOfYear timestamp_to_day_of_year timestamp.() -> int
getDayOfYear timestamp_to_day_of_year_with_tz timestamp.(string) -> int
getDayOfMonth timestamp_to_day_of_month timestamp.() -> int
getDayOfMonth timestamp_to_day_of_month_with_tz timestamp.(string) -> int
getDate timestamp_to_day_of_month_1_based timestamp.() -> int
getDate timestamp_to_day_of_month_1_based_with_tz timestamp.(string) -> int
getDayOfWeek timestamp_to_day_of_week timestamp.() -> int
getDayOfWeek timestamp_to_day_of_week_with_tz timestamp.(string) -> int
getHours timestamp_to_hours timestamp.() -> int
getHours timestamp_to_hours_with_tz timestamp.(string) -> int
getHours duration_to_hours duration.() -> int
getMinutes timestamp_to_minutes timestamp.() -> int
getMinutes timestamp_to_minutes_with_tz timestamp.(string) -> int
getMinutes duration_to_minutes duration.() -> int
getSeconds timestamp_to_seconds timestamp.() -> int
getSeconds timestamp_to_seconds_tz timestamp.(string) -> int
getSeconds duration_to_seconds duration.() -> int
getMilliseconds timestamp_to_milliseconds timestamp.() -> int
getMilliseconds timestamp_to_milliseconds_with_tz timestamp.(string) -> int
getMilliseconds duration_to_milliseconds duration.() -> int

url string_to_url (string) -> URL
getScheme url_get_scheme URL.() -> string
getHost url_get_host URL.() -> string
getHostname url_get_hostname URL.() -> string
getPort url_get_port URL.() -> string
getEscapedPath url_get_escaped_path URL.() -> string
getQuery url_get_query URL.() -> map(string, list(string))
isURL is_url_string (string) -> bool

find string_find_string string.(string) -> string
findAll string_find_all_string string.(string) -> list(string)
findAll string_find_all_string_int string.(string, int) -> list(string)

{aggregates}
indexOf list_a_index_of_int list(A).(A) -> int
lastIndexOf list_a_last_index_of_int list(A).(A) -> int

path authorizer_path Authorizer.(string) -> PathCheck
group authorizer_group Authorizer.(string) -> GroupCheck
serviceAccount authorizer_serviceaccount Authorizer.(string, string) -> Authorizer
resource groupcheck_resource GroupCheck.(string) -> ResourceCheck
subresource resourcecheck_subresource ResourceCheck.(string) -> ResourceCheck
namespace resourcecheck_namespace ResourceCheck.(string) -> ResourceCheck
name resourcecheck_name ResourceCheck.(string) -> ResourceCheck
check pathcheck_check PathCheck.(string) -> Decision
check resourcecheck_check ResourceCheck.(string) -> Decision
errored decision_errored Decision.() -> bool
error decision_error Decision.() -> string
allowed decision_allowed Decision.() -> bool
reason decision_reason Decision.() -> string
fieldSelector authorizer_fieldselector ResourceCheck.(string) -> ResourceCheck
labelSelector authorizer_labelselector ResourceCheck.(string) -> ResourceCheck

optional.of optional_of (V) -> optional(V)
optional.ofNonZeroValue optional_ofNonZeroValue (V) -> optional(V)
optional.none optional_none () -> optional(V)
value optional_value optional(V).() -> V
hasValue optional_hasValue optional(V).() -> bool
or optional_or_optional optional(V).(optional(V)) -> optional(V)
orValue optional_orValue_value optional(V).(V) -> V
_?._ select_optional_field (dyn, string) -> optional(V)
_[?_] list_optindex_optional_int (list(V), int) -> optional(V)
_[?_] optional_list_optindex_optional_int (optional(list(V)), int) -> optional(V)
_[?_] map_optindex_optional_value (map(K, V), K) -> optional(V)
_[?_] optional_map_optindex_optional_value (optional(map(K, V)), K) -> optional(V)
_[_] optional_list_index_int (optional(list(V)), int) -> optional(V)
_[_] optional_map_index_value (optional(map(K, V)), K) -> optional(V)
last list_last list(V).() -> optional(V)
first list_first list(V).() -> optional(V)
optional.unwrap optional_unwrap (list(optional(V))) -> list(V)
unwrapOpt optional_unwrapOpt list(optional(V)).() -> list(V)

quantity string_to_quantity (string) -> Quantity
isQuantity is_quantity_string (string) -> bool
sign quantity_sign (Quantity) -> int
isGreaterThan quantity_is_greater_than Quantity.(Quantity) -> bool
isLessThan quantity_is_less_than Quantity.(Quantity) -> bool
compareTo quantity_compare_to Quantity.(Quantity) -> int
asApproximateFloat quantity_get_float Quantity.() -> double
asInteger quantity_get_int Quantity.() -> int
isInteger quantity_is_integer Quantity.() -> bool
add quantity_add Quantity.(Quantity) -> Quantity
add quantity_add_int Quantity.(int) -> Quantity
sub quantity_sub Quantity.(Quantity) -> Quantity
sub quantity_sub_int Quantity.(int) -> Quantity

charAt string_char_at_int string.(int) -> string
indexOf string_index_of_string string.(string) -> int
indexOf string_index_of_string_int string.(string, int) -> int
lastIndexOf string_last_index_of_string string.(string) -> int
lastIndexOf string_last_index_of_string_int string.(string, int) -> int
lowerAscii string_lower_ascii string.() -> string
replace string_replace_string_string string.(string, string) -> string
replace string_replace_string_string_int string.(string, string, int) -> string
split string_split_string string.(string) -> list(string)
split string_split_string_int string.(string, int) -> list(string)
substring string_substring_int string.(int) -> string
substring string_substring_int_int string.(int, int) -> string
trim string_trim string.() -> string
upperAscii string_upper_ascii string.() -> string
format string_format string.(list(dyn)) -> string
strings.quote strings_quote (string) -> string
join list_join list(string).() -> string
join list_join_string list(string).(string) -> string

sets.contains list_sets_contains_list (list(T), list(T)) -> bool
sets.equivalent list_sets_equivalent_list (list(T), list(T)) -> bool
sets.intersects list_sets_intersects_list (list(T), list(T)) -> bool

ip string_to_ip (string) -> IP
family ip_family IP.() -> int
ip.isCanonical ip_is_canonical (string) -> bool
isUnspecified ip_is_unspecified IP.() -> bool
isLoopback ip_is_loopback IP.() -> bool
isLinkLocalMulticast ip_is_link_local_multicast IP.() -> bool
isLinkLocalUnicast ip_is_link_local_unicast IP.() -> bool
isGlobalUnicast ip_is_global_unicast IP.() -> bool
isIP is_ip (string) -> bool
string ip_to_string (IP) -> string

cidr string_to_cidr (string) -> CIDR
containsIP cidr_contains_ip_string CIDR.(string) -> bool
containsIP cidr_contains_ip_ip CIDR.(IP) -> bool
containsCIDR cidr_contains_cidr_string CIDR.(string) -> bool
containsCIDR cidr_contains_cidr CIDR.(CIDR) -> bool
ip cidr_ip CIDR.() -> IP
prefixLength cidr_prefix_length CIDR.() -> int
masked cidr_masked CIDR.() -> CIDR
isCIDR is_cidr (string) -> bool
string cidr_to_string (CIDR) -> string

validate format-validate Format.(string) -> optional(list(string))
format.named format-named (string) -> optional(Format)
{formats}

cel.@mapInsert @mapInsert_map_key_value (map(K, V), K, V) -> map(K, V)
cel.@mapInsert @mapInsert_map_map (map(K, V), map(K, V)) -> map(K, V)

semver string_to_semver (string) -> Semver
semver string_bool_to_semver (string, bool) -> Semver
isSemver is_semver_string (string) -> bool
isSemver is_semver_string_bool (string, bool) -> bool
isGreaterThan semver_is_greater_than Semver.(Semver) -> bool
isLessThan semver_is_less_than Semver.(Semver) -> bool
compareTo semver_compare_to Semver.(Semver) -> int
major semver_major Semver.() -> int
minor semver_minor Semver.() -> int
patch semver_patch Semver.() -> int

slice list_slice list(T).(int, int) -> list(T)
flatten list_flatten list(list(T)).() -> list(T)
flatten list_flatten_int list(dyn).(int) -> list(dyn)
{sorts}
lists.range lists_range (int) -> list(int)
reverse list_reverse list(T).() -> list(T)
distinct list_distinct list(T).() -> list(T)
"""

# Declared only where list-valued attributes are.
_INCLUDES = "includes dra_includes_dyn_dyn dyn.(dyn) -> bool"

FORMATS = (
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
)

_NAMED_TYPES = {
    "any": types.ANY,
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "duration": types.DURATION,
    "dyn": types.DYN,
    "int": types.INT,
    "string": types.STRING,
    "timestamp": types.TIMESTAMP,
    "uint": types.UINT,
    "Authorizer": types.AUTHORIZER,
    "CIDR": types.CIDR,
    "Decision": types.DECISION,
    "Format": types.FORMAT,
    "GroupCheck": types.GROUP_CHECK,
    "IP": types.IP,
    "PathCheck": types.PATH_CHECK,
    "Quantity": types.QUANTITY,
    "ResourceCheck": types.RESOURCE_CHECK,
    "Semver": types.SEMVER,
    "URL": types.URL,
}
_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")


@cache
def functions(includes: bool) -> dict[str, tuple[OverloadDecl, ...]]:
    """Return every declared function; `includes` only on request."""
    text = _TABLE.format(
        comparisons=_comparisons(),
        aggregates=_aggregates(),
        formats="\n".join(f"format.{name} format.{name} () -> Format" for name in FORMATS),
        sorts=_sorts(),
    )
    if includes:
        text += _INCLUDES
    result: dict[str, tuple[OverloadDecl, ...]] = {}
    for line in filter(None, text.splitlines()):
        name, number, signature = line.split(" ", 2)
        result[name] = (*result.get(name, ()), _overload(number, signature))
    return result


def _comparisons() -> str:
    """Declare `<` and similar operators: same type, and any two of the three number types."""
    numbers = {"int": "int64", "uint": "uint64", "double": "double"}
    lines = []
    for operator, word in (("<", "less"), ("<=", "less_equals"), (">", "greater"), (">=", "greater_equals")):
        lines.append(f"_{operator}_ {word}_bool (bool, bool) -> bool")
        for left, mine in numbers.items():
            lines.append(f"_{operator}_ {word}_{mine} ({left}, {left}) -> bool")
            for right in ("double", "int", "uint"):
                if right != left:
                    lines.append(f"_{operator}_ {word}_{mine}_{numbers[right]} ({left}, {right}) -> bool")
        for same in ("string", "bytes", "timestamp", "duration"):
            lines.append(f"_{operator}_ {word}_{same} ({same}, {same}) -> bool")
    return "\n".join(lines)


def _aggregates() -> str:
    lines = [f"isSorted list_{one}_is_sorted_bool list({one}).() -> bool" for one in _COMPARABLE]
    lines += [
        f"sum list_{one}_sum_{one} list({one}).() -> {one}" for one in ("int", "uint", "double", "duration")
    ]
    lines += [
        f"{end} list_{one}_{end}_{one} list({one}).() -> {one}"
        for end in ("max", "min")
        for one in _COMPARABLE
    ]
    return "\n".join(lines)


def _sorts() -> str:
    lines = []
    for one in _COMPARABLE:
        name = _NAMED_TYPES[one].name
        lines.append(f"sort list_{name}_sort list({one}).() -> list({one})")
    for one in _COMPARABLE:
        name = _NAMED_TYPES[one].name
        lines.append(
            f"@sortByAssociatedKeys list_{name}_sortByAssociatedKeys list(T).(list({one})) -> list(T)"
        )
    return "\n".join(lines)


_TYPE_TOKEN = re.compile(r"[A-Za-z]+|->|[().,]")


def _overload(number: str, signature: str) -> OverloadDecl:
    tokens = _TYPE_TOKEN.findall(signature)
    args: list[CelType] = []
    member = tokens[0] != "("
    if member:
        args.append(_type(tokens))
        assert tokens.pop(0) == "."
    args += _types(tokens)
    assert tokens.pop(0) == "->"
    result = _type(tokens)
    assert not tokens, signature
    names: set[str] = set()
    for one in (*args, result):
        _collect(one, names)
    return OverloadDecl(number, tuple(args), result, member, frozenset(names))


def _types(tokens: list[str]) -> list[CelType]:
    assert tokens.pop(0) == "("
    result: list[CelType] = []
    while tokens[0] != ")":
        if tokens[0] == ",":
            tokens.pop(0)
        result.append(_type(tokens))
    tokens.pop(0)
    return result


def _type(tokens: list[str]) -> CelType:
    name = tokens.pop(0)
    match name:
        case "list":
            return types.list_of(*_types(tokens))
        case "map":
            return types.map_of(*_types(tokens))
        case "optional":
            return types.optional_of(*_types(tokens))
        case "type":
            return types.type_of(*_types(tokens))
    return types.param(name) if len(name) == 1 else _NAMED_TYPES[name]


def _collect(one: CelType, names: set[str]) -> None:
    if one.kind is TypeKind.PARAM:
        names.add(one.name)
    for inner in one.params:
        _collect(inner, names)
