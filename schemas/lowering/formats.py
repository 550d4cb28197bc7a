"""The languages of string formats, as patterns.

Each is a part of what the format allows that covers what pages hold: everything that a pattern
matches is valid under the format's RFC, rare spellings may be missing.
"""

from __future__ import annotations

_MONTH_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
# Years with a 29th of February: divisible by 4, and by 400 when by 100.
_LEAP_YEAR = (
    r"(?:(?:[0-9]{2})(?:0[48]|[2468][048]|[13579][26])"
    r"|(?:0[48]|[2468][048]|[13579][26])00)"
)
_DATE = rf"(?:{_YEAR}-{_MONTH_DAY}|{_LEAP_YEAR}-02-29)"
_OFFSET = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
# Two hyphens in the third place are reserved: for Punycode, which no regular language checks.
_ALNUM = "[A-Za-z0-9]"
_LDH = "[A-Za-z0-9-]"
_LABEL = (
    rf"{_ALNUM}(?:{_LDH}{{0,2}}{_ALNUM}|{_LDH}(?:{_ALNUM}{_LDH}|-{_ALNUM}){_LDH}{{0,58}}{_ALNUM})?"
)
_DOMAIN_LABEL = r"[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_H16 = r"[0-9A-Fa-f]{1,4}"
# RFC 3986: characters of a path, a query, a fragment; percent only before two hexadecimal digits.
_PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_QCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})"
_REG_NAME = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
_USERINFO = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})"
_AUTHORITY = rf"(?:{_USERINFO}*@)?{_REG_NAME}*(?::[0-9]*)?"
_SUFFIX = rf"(?:\?{_QCHAR}*)?(?:#{_QCHAR}*)?"
_ABSOLUTE_PATH = rf"/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
_URI = (
    rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{_AUTHORITY}(?:/{_PCHAR}*)*|{_ABSOLUTE_PATH}"
    rf"|{_PCHAR}+(?:/{_PCHAR}*)*){_SUFFIX}"
)
_NO_COLON = _PCHAR.replace(":@", "@")
_RELATIVE = (
    rf"(?://{_AUTHORITY}(?:/{_PCHAR}*)*|{_ABSOLUTE_PATH}|{_NO_COLON}+(?:/{_PCHAR}*)*)?{_SUFFIX}"
)
_DURATION_TIME = r"T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION_DATE = r"(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_IPV6 = "|".join(
    [
        rf"(?:{_H16}:){{7}}{_H16}",
        *(
            rf"(?:{_H16}(?::{_H16}){{0,{before}}})?::(?:{_H16}(?::{_H16}){{0,{5 - before}}})?"
            for before in range(6)
        ),
        rf"(?:{_H16}(?::{_H16}){{0,6}})?::",
    ]
)

FORMATS: dict[str, str] = {
    "date": _DATE,
    "date-time": rf"{_DATE}T{_CLOCK}{_OFFSET}",
    "time": rf"{_CLOCK}{_OFFSET}",
    "duration": rf"P(?:{_DURATION_DATE}(?:{_DURATION_TIME})?|{_DURATION_TIME}|[0-9]+W)",
    "email": rf"{_ATOM}(?:\.{_ATOM})*@{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})+",
    "hostname": rf"{_LABEL}(?:\.{_LABEL})*",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": f"(?:{_IPV6})",
    "json-pointer": r"(?:/(?:[^~/]|~[01])*)*",
    "relative-json-pointer": r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)",
    "uri": _URI,
    "uri-reference": rf"(?:{_URI}|{_RELATIVE})",
    "uuid": r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
}
# What every URI or address is in the smaller alphabet is one in the larger, too.
FORMATS["iri"] = FORMATS["uri"]
FORMATS["iri-reference"] = FORMATS["uri-reference"]
FORMATS["idn-email"] = FORMATS["email"]
FORMATS["idn-hostname"] = FORMATS["hostname"]

# Formats of the standard that are no regular languages here. Any other name is an annotation.
UNSUPPORTED = frozenset({"regex", "uri-template"})
# The languages that are all of their formats.
EXACT = frozenset({"date", "ipv4", "uuid"})
