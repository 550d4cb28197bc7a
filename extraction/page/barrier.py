"""Pages that stand in the way of the page that was asked for: no record is to be made of them.

A rule fires only on a page with little text and without metadata of a thing, so that a page with a
record passes whatever else it shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..reason import Reason, Refused
from .metadata import types_of
from .reader import Page

# More text than this is a page of its own.
_MOST_TEXT = 2500
_SHELL_TEXT = 200
_THINGS = frozenset(
    "product recipe article newsarticle blogposting jobposting event book movie restaurant "
    "localbusiness person vehicle review howto faqpage".split()
)
_CAPTCHA_MARKUP = re.compile(
    r"g-recaptcha|h-captcha|hcaptcha\.com|cf-challenge|cf_chl_|challenge-platform|px-captcha|"
    r"captcha-delivery|cf-turnstile|/captcha/|awswaf",
    re.IGNORECASE,
)
_CAPTCHA = re.compile(
    r"(?:verify|confirm|prove|make sure|check(?:ing)?) (?:that )?you(?:'|’)?(?: a)?re "
    r"(?:a |not a )?(?:human|robot|bot)|are you (?:a )?(?:human|robot)|"
    r"i(?:'|’)?m not a robot|unusual traffic|"
    r"checking your browser|enter the characters you see|press (?:&|and) hold|security check|"
    r"automated (?:access|requests)|sind sie ein (?:mensch|roboter)|vérifier que vous|"
    r"êtes(?:-vous)? un humain|no soy un robot|just a moment",
    re.IGNORECASE,
)
_LOGIN = re.compile(
    r"^(?:please )?(?:sign[ -]?in|log[ -]?in|log on|anmelden|einloggen|anmeldung|se connecter|"
    r"connexion|identifiez-vous|iniciar sesión|accedi|inloggen|entrar|"
    r"subscribe to (?:read|continue)|"
    r"members only)\b",
    re.IGNORECASE,
)
_PASSWORD = re.compile(r"<input[^<>]{0,300}type\s*=\s*[\"']?password", re.IGNORECASE)
_NOT_FOUND = re.compile(
    r"^(?:error |fehler |oops[!,.]* )?404\b|\b(?:page|seite|página|pagina|product|file|url)"
    r"(?: \w+){0,3} (?:not found|nicht gefunden|introuvable|no encontrada|non trovata|"
    r"niet gevonden|não encontrada)|^not found|page introuvable|"
    r"(?:doesn(?:'|’)?t|does not|no longer) exists?\b|"
    r"(?:can(?:'|’|no)?t|cannot|couldn(?:'|’)?t) find (?:the|that|this) page|existiert nicht",
    re.IGNORECASE,
)
_PARKED = re.compile(
    r"(?:this |the )?domain(?: name)?[^\n]{0,60} (?:is|may be|might be|could be) "
    r"(?:for sale|parked|available for purchase)|buy this domain|"
    r"domain (?:has )?expired|parked (?:free|domain)|"
    r"diese domain (?:steht zum verkauf|ist geparkt)|"
    r"ce (?:nom de )?domaine est (?:à vendre|en vente)",
    re.IGNORECASE,
)
_CONSENT = re.compile(
    r"cookie|consent|privacy|datenschutz|einwilligung|confidentialité|privacidad|partner",
    re.IGNORECASE,
)
_CONSENT_HEAD = re.compile(
    r"before you continue|we (?:value|care about|respect) your privacy|"
    r"your privacy (?:choices|matters)|"
    r"cookie (?:settings|consent|policy|notice)|accept (?:all )?cookies|bevor sie fortfahren|"
    r"wir (?:schätzen|respektieren) ihre privatsphäre|nous respectons votre vie privée|"
    r"valoramos (?:su|tu) privacidad|(?:weiter )?mit werbung|cookies zustimmen",
    re.IGNORECASE,
)
_CONSENT_SHARE = 0.5
_SHELL = re.compile(
    r"<div[^<>]{0,120}\bid\s*=\s*[\"']?"
    r"(?:root|app|__next|__nuxt|___gatsby|react-root|app-root|main-app)\b|<app-root|"
    r"you need to enable javascript|please enable javascript|requires javascript",
    re.IGNORECASE,
)


def check(page: Page) -> None:
    """Raise Refused where the page is a captcha, a login, a "not found" and the like."""
    if page.kind != "html" or len(page.text) > _MOST_TEXT:
        return
    if any(
        _THINGS & {name.lower() for name in types_of(thing)}
        for thing in page.metadata.things.values()
    ):
        return
    for is_it, reason, message in _RULES:
        if is_it(page):
            raise Refused(reason, message)


def _heads(page: Page) -> list[str]:
    """The title and the first headings: what a page calls itself."""
    headings = re.findall(r"^#+ (.+)$", page.text, re.MULTILINE)[:2]
    return [page.title, *headings]


def _is_captcha(page: Page) -> bool:
    if not _CAPTCHA.search(f"{page.title}\n{page.text}"):
        return False
    return bool(_CAPTCHA_MARKUP.search(page.source)) or len(page.text) < _MOST_TEXT // 4


def _is_login(page: Page) -> bool:
    return any(_LOGIN.search(head) for head in _heads(page)) and bool(_PASSWORD.search(page.source))


def _is_not_found(page: Page) -> bool:
    return any(_NOT_FOUND.search(head) for head in _heads(page))


def _is_parked(page: Page) -> bool:
    return bool(_PARKED.search(f"{page.title}\n{page.text}"))


def _is_consent(page: Page) -> bool:
    lines = page.text.split("\n")
    if not any(_CONSENT_HEAD.search(head) for head in [*_heads(page), lines[0]]):
        return False
    about = sum(len(line) for line in lines if _CONSENT.search(line))
    return about >= _CONSENT_SHARE * len(page.text)


def _is_shell(page: Page) -> bool:
    if any(entry.path.startswith("state/") for entry in page.metadata.entries):
        return False  # the scripts' data is there
    return len(page.text) < _SHELL_TEXT and bool(_SHELL.search(page.source))


_RULES: tuple[tuple[Callable[[Page], bool], Reason, str], ...] = (
    (_is_captcha, Reason.PAGE_CAPTCHA, "the page asks whether a human is there"),
    (_is_login, Reason.PAGE_LOGIN, "the page asks to log in"),
    (_is_not_found, Reason.PAGE_NOT_FOUND, "the page says that there is no such page"),
    (_is_parked, Reason.PAGE_PARKED, "the page offers its domain"),
    (_is_consent, Reason.PAGE_CONSENT, "the page asks for consent to cookies"),
    (_is_shell, Reason.PAGE_SHELL, "the page is filled by its scripts, which were not run"),
)
