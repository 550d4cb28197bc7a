"""What a site's pages share is learnt from records' pages and cut, but for what held a value."""

from __future__ import annotations

import redis
from hypothesis import given
from hypothesis import strategies as st
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction.bound_schema import bind
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.page import read
from pagemill.extraction.record import Evidence, ExtractOptions, PageInput, Result
from pagemill.extraction.templates import NOTHING, SiteTemplates, Template
from pagemill.extraction.templates.template import held_lines, line_digest
from redis.backoff import NoBackoff
from redis.retry import Retry

from .scripted import SCHEMA, ScriptedEngine

LINES = st.text(alphabet="ab# :", max_size=50).filter(lambda line: "\n" not in line)


def page_text(number: int) -> str:
    shared = ["Free delivery on all orders over fifty euros", "Our customers trust us since 1990"]
    return "\n".join([shared[0], f"# Lamp {number}", "Colour", f"red {number}", "EUR", shared[1]])


def learn(
    sites: SiteTemplates, numbers: range, *, tenant: str = "", host: str = "a.example"
) -> None:
    for number in numbers:
        text = page_text(number)
        evidence = [
            Evidence(pointer="/c", start=at, end=at + 3, exact=True) for at in [text.index("EUR")]
        ]
        url = f"https://{host}/{number}"
        sites.learn(url, text, evidence, tenant=tenant, schema="s")


def template(sites: SiteTemplates, *, tenant: str = "", host: str = "a.example") -> Template:
    return sites.template(f"https://{host}/x", tenant=tenant, schema="s")


def test_shared_lines_are_cut_but_for_labels_and_values(redis_client: redis.Redis) -> None:
    sites = SiteTemplates(redis_client, kept_s=0)
    learn(sites, range(2))
    assert template(sites) is NOTHING
    learn(sites, range(2, 3))
    assert template(sites).cut(page_text(9)) == "# Lamp 9\nColour\nred 9\nEUR"


def test_tenants_sites_and_schemas_learn_apart(redis_client: redis.Redis) -> None:
    sites = SiteTemplates(redis_client, kept_s=0)
    learn(sites, range(3))
    assert template(sites, tenant="other") is NOTHING
    assert template(sites, host="b.example") is NOTHING
    assert sites.template("https://a.example/", tenant="", schema="t") is NOTHING
    assert sites.template(None, tenant="", schema="s") is NOTHING
    assert sites.template("http://[", tenant="", schema="s") is NOTHING


def test_an_address_counts_once(redis_client: redis.Redis) -> None:
    sites = SiteTemplates(redis_client, kept_s=0)
    for _ in range(5):
        learn(sites, range(2))
    assert template(sites) is NOTHING


def test_what_holds_a_value_later_is_cut_no_more(redis_client: redis.Redis) -> None:
    sites = SiteTemplates(redis_client, kept_s=0)
    learn(sites, range(3))
    text = page_text(1)
    evidence = [Evidence(pointer="/d", start=0, end=13, exact=True)]
    sites.learn("https://a.example/1", text, evidence, tenant="", schema="s")
    assert template(sites).cut(text).startswith("Free delivery")


def test_what_is_kept_of_a_site_is_bounded(redis_client: redis.Redis) -> None:
    sites = SiteTemplates(redis_client, kept_s=0)
    for number in range(70):
        own = "\n".join(f"line {number} {i}" for i in range(1400))
        sites.learn(
            f"https://a.example/{number}", f"shared by all\n{own}", [], tenant="", schema="s"
        )
    [key] = redis_client.keys("*:site:*")
    assert redis_client.hlen(key) <= 4096 + 64 + 1
    assert redis_client.hget(key, "pages") == b"64"
    assert redis_client.ttl(key) > 0
    assert template(sites).lines == {line_digest("shared by all")}


def test_a_server_that_is_gone_cuts_nothing() -> None:
    gone = redis.Redis(unix_socket_path="/nonexistent", retry=Retry(NoBackoff(), 0))
    sites = SiteTemplates(gone)
    learn(sites, range(3))
    assert template(sites) is NOTHING


@given(lines=st.lists(LINES, min_size=1, max_size=20), shared=st.sets(LINES, max_size=8))
def test_a_cut_text_is_lines_of_the_text_in_order(lines: list[str], shared: set[str]) -> None:
    text = "\n".join(lines)
    cut = Template(frozenset(map(line_digest, shared))).cut(text)
    rest = iter(lines)
    assert all(line in rest for line in cut.split("\n"))
    own = [line for line in lines if line not in shared]
    assert [line for line in cut.split("\n") if line not in shared] == own or not own


def test_lines_that_spans_touch() -> None:
    assert held_lines("one\ntwo\nthree", [(5, 6), (4, 9)]) == {"two", "three"}
    assert held_lines("one\ntwo", [(0, 3)]) == {"one"}


def test_the_extractor_learns_and_cuts(
    redis_client: redis.Redis, byte_tokenizer: Tokenizer
) -> None:
    """The fourth prompt lacks what three pages share; evidence counts in the whole text."""
    extractor = Extractor(byte_tokenizer, sites=SiteTemplates(redis_client, kept_s=0))
    schema = bind(SCHEMA)
    banner = "All prices are what you pay, with taxes and delivery to your door."
    options = ExtractOptions(site_templates=True)
    prompts = []
    for number in range(4):
        body = f"<p>{banner}</p><h1>Lamp {number}</h1><p>Made of oak {number}</p>".encode()
        page = PageInput(id=str(number), body=body, url=f"https://a.example/{number}")
        prepared = extractor.prepare(page, schema, options)
        assert not isinstance(prepared, Result)
        prompts.append(prepared.requests[0].page.decode())
        answer = f'{{"name":"Lamp {number}","price":null,"note":null}}'
        engine = ScriptedEngine(byte_tokenizer, {"": answer})
        [result] = extractor.run(engine, [(page, schema)], options)
        assert result.status == "done", result.error
        text = read(body).text
        [evidence] = result.evidence
        assert text[evidence.start : evidence.end] == f"Lamp {number}"
    assert [banner in prompt for prompt in prompts] == [True, True, True, False]
    plain = extractor.prepare(page, schema, ExtractOptions())
    assert not isinstance(plain, Result)
    assert banner in plain.requests[0].page.decode()
