"""Values of device attributes: public ones, names of a site, and those that identify a device.

Public are attributes that describe a product or its state (`productName`, `profile`, `pciBusID`), by their
name; all others may hold names of a site: hosts, networks, projects, racks. A value of a public attribute is
public everywhere, so that equal values stay equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from plimsoll.api.resource import DeviceAttribute, ResourceSlice
from plimsoll.tools.dump.pseudonyms import LONG_NUMBER, Pseudonyms

#: Last parts of the names of public attributes, in lower case.
_PUBLIC_TEXT = """
    addressingmode arch architecture brand cachetype class coretype devicetype driver drivername encapsulation
    family formfactor generation health healthy instancetype interfacetype kind linkspeed linktype machinetype
    manufacturer medium memorytype mode model modelname os pcidevice pcisubsystem pcivendor phase precision
    product productname profile profilename protocol revision series speed state status subsystem type variant
    vendor vendorname
"""
_PUBLIC = frozenset(_PUBLIC_TEXT.split())
_PUBLIC_NAME = re.compile(r"pcie?(?:root|address|id|busid|slot|domain)|.*version|.*numa.*")
#: Values that identify a device or machine: UUIDs, MAC and IP addresses.
_IDENTIFIER = re.compile(
    r".*[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-.*"
    r"|(?:[0-9a-fA-F]{2}[:-]){5,}[0-9a-fA-F]{2}"
    r"|[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?:/[0-9]+)?"
    r"|[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){4,}(?:/[0-9]+)?"
)
#: Integers that are rather numbers of projects or machines than amounts, which are mostly round.
_LARGE = 10**8


class AttributeValues:
    """Replacements of the values of device attributes."""

    def __init__(self, slices: list[ResourceSlice], places: set[str], names: Pseudonyms) -> None:
        """`places` are the names of nodes and namespaces, wherever they occur."""
        self._names = names
        self._places = places
        self._identifying = _identifying_attributes(slices)
        self.public = {
            text
            for _, name, attribute in attributes_of(slices)
            if is_public_attribute(name)
            for text in texts_of(attribute)
            if text not in places and not _IDENTIFIER.fullmatch(text)
        }
        #: Numbers that occur in replaced texts, as that of a project in the path of its network.
        self._numbers: set[str] = set()
        for driver, name, attribute in attributes_of(slices):
            for text in texts_of(attribute):
                if self.replace_text(driver, name, text) != text:
                    self._numbers.update(LONG_NUMBER.findall(text))

    def replace_text(self, driver: str, name: str, text: str) -> str:
        """Return the replacement of a value of an attribute, or the value if it is public."""
        if text in self._places:
            return self._names.name(text)
        if _IDENTIFIER.fullmatch(text):
            return self._names.identifier(text)
        if text in self.public or is_public_attribute(name):
            return text
        return self._names.identifier(text) if (driver, name) in self._identifying else self._names.name(text)

    def replace_number(self, number: int) -> int:
        """Return the replacement of an integer that identifies something; others are kept."""
        size = abs(number)
        if str(size) in self._numbers or (size >= _LARGE and size % 1000 and size % 1024):
            return int(self._names.number(str(size))) * (1 if number > 0 else -1)
        return number

    def replace(self, driver: str, name: str, attribute: DeviceAttribute) -> DeviceAttribute:
        """Return an attribute with other values."""
        text, texts = attribute.string_value, attribute.string_values
        number, numbers = attribute.int_value, attribute.int_values
        swap = partial(self.replace_text, driver, name)
        return replace(
            attribute,
            int_value=None if number is None else self.replace_number(number),
            string_value=None if text is None else swap(text),
            int_values=None if numbers is None else tuple(map(self.replace_number, numbers)),
            string_values=None if texts is None else tuple(map(swap, texts)),
        )


def is_public_attribute(name: str) -> bool:
    last = name.rpartition("/")[2].lower()
    return last in _PUBLIC or _PUBLIC_NAME.fullmatch(last) is not None


def texts_of(attribute: DeviceAttribute) -> tuple[str, ...]:
    own = () if attribute.string_value is None else (attribute.string_value,)
    return (*own, *(attribute.string_values or ()))


def attributes_of(slices: list[ResourceSlice]) -> Iterator[tuple[str, str, DeviceAttribute]]:
    """Yield all attributes of devices, with driver and name."""
    for slice in slices:
        for device in slice.spec.devices or ():
            for name, attribute in device.attributes.items():
                yield slice.spec.driver, name, attribute


def _identifying_attributes(slices: list[ResourceSlice]) -> set[tuple[str, str]]:
    """Return the attributes, by driver and name, that have another value on every device."""
    counts: Counter[tuple[str, str]] = Counter()
    values: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for driver, name, attribute in attributes_of(slices):
        if texts := texts_of(attribute):
            counts[driver, name] += 1
            values.setdefault((driver, name), set()).add(texts)
    return {key for key, count in counts.items() if count > 1 and len(values[key]) == count}
