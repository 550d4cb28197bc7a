"""Pages that stand in the way are told from pages with a record, by rules that a page can fail."""

from __future__ import annotations

import json

import pytest
from pagemill.extraction.page import barrier, read
from pagemill.extraction.reason import Reason, Refused

CAPTCHA = (
    "<title>Just a moment...</title><body><p>Checking your browser before accessing.</p>"
    '<div class="cf-turnstile"></div>'
)
LOGIN = (
    "<title>Sign in - Example</title><h1>Sign in</h1><form>E-mail <input name=e>"
    "<input type='password' name=p><button>Go</button></form>"
)
CONSENT = (
    "<title>Example</title><h1>We value your privacy</h1><p>We and our partners store cookies on "
    "your device.</p><p>Cookie settings</p><button>Accept all cookies</button>"
)
SHELL = '<title>Shop</title><body><div id="root"></div><script src="/app.js"></script>Loading'
PAGES = {
    "captcha": (CAPTCHA, Reason.PAGE_CAPTCHA),
    "captcha in words alone": ("<h1>Are you a robot?</h1>", Reason.PAGE_CAPTCHA),
    "login": (LOGIN, Reason.PAGE_LOGIN),
    "German login": (
        "<h2>Anmelden</h2><input type=password>Passwort vergessen?",
        Reason.PAGE_LOGIN,
    ),
    "not found": ("<title>404</title><p>Oops</p>", Reason.PAGE_NOT_FOUND),
    "German not found": ("<h1>Seite nicht gefunden</h1><p>Zurück", Reason.PAGE_NOT_FOUND),
    "gone product": ("<h1>This product no longer exists</h1>", Reason.PAGE_NOT_FOUND),
    "parked": ("<h1>kettles.example</h1>This domain is for sale.", Reason.PAGE_PARKED),
    "consent": (CONSENT, Reason.PAGE_CONSENT),
    "shell": (SHELL, Reason.PAGE_SHELL),
    "shell that says so": ("<p>Please enable JavaScript to go on", Reason.PAGE_SHELL),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_the_way(name: str) -> None:
    html, reason = PAGES[name]
    page = read(html.encode())
    with pytest.raises(Refused) as refusal:
        barrier.check(page)
    assert refusal.value.reason is reason


@pytest.mark.parametrize("name", PAGES)
def test_the_same_on_a_page_with_a_record(name: str) -> None:
    html, _ = PAGES[name]
    product = json.dumps({"@type": "Product", "name": "Kettle"})
    script = f'<script type="application/ld+json">{product}</script>'
    barrier.check(read((html + script).encode()))
    barrier.check(read((html + "<p>A copper kettle for two. </p>" * 120).encode()))


@pytest.mark.parametrize(
    "html",
    [
        "<h1>Copper kettle</h1><p>19 €</p><p>We use cookies. <a href=/c>Cookie settings</a>",
        "<h1>Copper kettle</h1><form>Log in <input type=password></form><p>19 €",
        "<h1>Room 404</h1><p>An exhibition",
        "<h1>How captchas work</h1><p>A captcha tells people from scripts.",
        "<h1>Selling domains</h1><p>What to think of first.",
        '<div id="root"><h1>Copper kettle</h1>' + "<p>It boils water for two cups. </p>" * 10,
    ],
)
def test_a_page_that_only_mentions_it(html: str) -> None:
    barrier.check(read(html.encode()))
