"""Names of pages: what is one URL has one name, however it is written."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill.extraction.ledger import keys, normalise_url, page_id

URLS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["http://", "https://", "HTTP://", "ftp://", " https://", ""]),
        st.sampled_from(
            ["a.example", "A.example", "a.example.", "a..b", "[::1]", "u@a", "é.example"]
        ),
        st.sampled_from(["", ":80", ":443", ":8080", ":x"]),
        st.text(alphabet="/ab%2F.;:@é ?#&=\t", max_size=12),
    ),
)


@settings(max_examples=1000, deadline=None)
@given(url=URLS)
def test_urls_that_are_taken_as_they_stand_are_normal(url: str) -> None:
    """The quick look at a URL agrees with the parser."""
    quick = normalise_url(url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_NORMAL", keys.re.compile("(?!)"))
        assert normalise_url(url) == quick
    if keys._NORMAL.fullmatch(url):
        assert urlsplit(url).geturl() == url


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("https://example.com:443/a?b=1#c", "https://example.com/a?b=1"),
        ("http://example.com:8080/%7Ea", "http://example.com:8080/%7Ea"),
        ("http://user@[2001:DB8::1]:80/", "http://[2001:db8::1]/"),
        ("  https://example.com./x ", "https://example.com/x"),
        ("urn:isbn:1", "urn:isbn:1"),
        ("http://[bad", "http://[bad"),
        (None, ""),
    ],
)
def test_normal_form_of_urls(url: str | None, normal: str) -> None:
    assert normalise_url(url) == normal


def test_ids_of_one_url_share_their_beginning() -> None:
    ids = {
        page_id(url="http://a.example/", content=c * 64, schema="s@1", options=b"{}", model="")
        for c in "abc"
    }
    assert len(ids) == 3
    assert len({identity[:16] for identity in ids}) == 1


def test_a_page_sent_again_with_another_encoding_is_read_again() -> None:
    def identity(**said: str) -> str:
        return page_id(url=None, content="c" * 64, schema="s@1", options=b"", model="", **said)

    ids = [identity(), identity(encoding="gb18030"), identity(content_type="text/plain")]
    assert len(set(ids)) == 3
