"""Words by which a shop's page says whether a product can be bought."""

from __future__ import annotations

import re

from . import normalise


def _phrases(words: str, cjk: str) -> re.Pattern[str]:
    """One of the phrases, which stand one a line; white space within them may be any."""
    phrases = [line.strip().replace(" ", r"\s+") for line in words.strip().split("\n")]
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b|{cjk}", re.IGNORECASE)


_SOLD_OUT = _phrases(
    """
    sold[ -]out
    (?:out[ -]of|not in)[ -]stock
    currently unavailable
    no longer available
    not available online
    temporarily unavailable
    ausverkauft
    nicht (?:mehr )?(?:verfügbar|lieferbar|auf lager)
    derzeit nicht
    agotado
    sin existencias
    épuisé
    rupture de stock
    (?:actuellement )?indisponible
    esaurito
    (?:attualmente )?non disponibile
    uitverkocht
    niet op voorraad
    esgotado
    indisponível
    udsolgt
    slutsåld
    utsolgt
    loppuunmyyty
    wyprzedan[ey]
    niedostępny
    vyprodáno
    нет в наличии
    stokta yok
    tükendi
    """,
    "在庫切れ|売り切れ|缺货|缺貨|품절|غير متوفر|نفد",
)
_BUY = _phrases(
    """
    add to (?:your |my )?(?:shopping )?(?:cart|bag|basket|trolley)
    buy (?:it )?now
    in den (?:waren)?korb
    in den einkaufswagen
    jetzt kaufen
    ajouter au panier
    añadir (?:al carrito|a la cesta|a la bolsa)
    agregar al carrito
    comprar(?: ahora| agora)?
    aggiungi al carrello
    in (?:mijn )?winkelwagen(?:tje)?
    in winkelmand
    adicionar ao carrinho
    læg i kurv
    lägg i (?:varukorg|kundvagn)
    legg i handlekurv
    lisää ostoskoriin
    (?:dodaj )?do koszyka
    do košíku
    v košarico
    в корзину
    купить
    sepete ekle
    dodaj u košaricu
    kosárba
    """,
    "カートに入れる|加入购物车|加入購物車|장바구니|أضف إلى (?:السلة|حقيبة)",
)
_IN_STOCK = _phrases(
    r"""
    in stock
    only \d{1,3} left
    available (?:now|immediately|for (?:immediate )?delivery)
    auf lager
    (?:sofort|kurzfristig) (?:lieferbar|verfügbar)
    en stock
    disponible (?:immédiatement|inmediatamente|de suite)
    (?:immédiatement|immediatamente|subito) disponib(?:le|ile)
    disponibilità immediata
    disponibilità: solo \d{1,3}
    op voorraad
    direct leverbaar
    em (?:stock|estoque)
    på lager
    i lager
    varastossa
    na sklad(?:zie|e)
    skladem
    na (?:zalogi|zalihi|stanju)
    в наличии
    есть на складе
    stokta var
    raktáron
    """,
    "在庫あり|现货|有现货|現貨|재고 있음",
)
_MAX_NOTICE = 72
_SIGN = r"(?:[$€£¥₹₽₩]|R\$|US\$|EUR|USD|GBP|CHF|zł|Kč|kr\.?|Kn)"
_AMOUNT_TEXT = rf"(?:{_SIGN}\s?\d[\d.,'\u00a0\u202f]*|\d[\d.,'\u00a0\u202f]*\s?{_SIGN})"
AMOUNT = re.compile(_AMOUNT_TEXT)  # of money: 12.50 €, $ 9


def availability(text: str) -> tuple[str, int, int] | None:
    """(InStock or OutOfStock, start, end) of the words that say so below the main heading.

    What comes first counts: shops write "in stock", or "sold out" where the button to buy would be,
    and the buttons of recommended products further down.
    """
    heading = text.find("\n# ") + 1
    out, buy = _first(_SOLD_OUT, text, heading), _first(_BUY, text, heading)
    stock = _first(_IN_STOCK, text, heading)
    if stock and (not buy or stock.start() < buy.start()):
        buy = stock
    if out and (not buy or out.start() < buy.start()):
        return "OutOfStock", out.start(), out.end()
    return ("InStock", buy.start(), buy.end()) if buy else None


def _first(phrase: re.Pattern[str], text: str, start: int) -> re.Match[str] | None:
    """The first of the phrases that is on a line of few words: a notice or a button, no prose."""
    for found in phrase.finditer(text, start):
        begin, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
        if (end if end >= 0 else len(text)) - begin <= _MAX_NOTICE:
            return found
    return None


def labelled(text: str, labels: tuple[str, ...]) -> tuple[str, int, int] | None:
    """(value, start, end) of the one code that stands under one of the labels; None for several.

    A code is a word with a digit, on the label's line or alone on the next one. Labels are tried
    in order; the first that is found decides.
    """
    lowered = text.lower()
    for label in labels:
        if label.lower() not in lowered:
            continue
        found = [
            match
            for match in re.finditer(
                rf"(?:^|[\n(|>•·]|\s[-–—]\s|\s){re.escape(label)}\s?(?:[:#|.=–—-]+|\n)\s*(?:\|\s*)?"
                rf"(?P<code>[\w][\w./-]{{0,38}}[\w])(?=[\s,;)|]|$)",
                text,
                re.IGNORECASE,
            )
            if any(char.isdigit() for char in match["code"])
        ]
        if found:
            several = {match["code"] for match in found}
            first = found[0]
            return (first["code"], *first.span("code")) if len(several) == 1 else None
    return None


def labelled_amount(text: str, labels: tuple[str, ...]) -> tuple[float, int, int] | None:
    """(number, start, end) of the one amount of money that stands under one of the labels."""
    names = "|".join(re.escape(label) for label in labels)
    found: dict[float, tuple[int, int]] = {}
    for match in re.finditer(
        rf"(?:^|\n|\s)(?:{names})\s?[:|]*\s*(?:\|\s*)?(?P<amount>{_AMOUNT_TEXT})",
        text,
        re.IGNORECASE,
    ):
        value = normalise.number(match["amount"])
        if value:
            found.setdefault(value, match.span("amount"))
    if len(found) != 1:
        return None
    value, span = found.popitem()
    return (value, *span)
