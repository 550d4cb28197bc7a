"""The one object of a page's metadata that the page is about, and values at its paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..page.metadata import scalar_text, types_of

_MAX_VALUES = 200
_MAX_DEPTH = 12

# Types that are asked for by a more general name.
_KINDS: dict[str, frozenset[str]] = {
    "Product": frozenset(
        "ProductGroup IndividualProduct ProductModel SomeProducts Vehicle".split()
    ),
    "Article": frozenset(
        "NewsArticle BlogPosting Report ReportageNewsArticle OpinionNewsArticle TechArticle "
        "AnalysisNewsArticle ReviewNewsArticle BackgroundNewsArticle LiveBlogPosting "
        "ScholarlyArticle SocialMediaPosting AdvertiserContentArticle".split()
    ),
    "Restaurant": frozenset(
        "FoodEstablishment CafeOrCoffeeShop BarOrPub FastFoodRestaurant".split()
    ),
    "Organization": frozenset(
        "Corporation LocalBusiness NGO EducationalOrganization NewsMediaOrganization Store "
        "ProfessionalService MedicalOrganization".split()
    ),
    "Event": frozenset(
        "MusicEvent TheaterEvent SportsEvent EducationEvent BusinessEvent Festival ScreeningEvent "
        "ExhibitionEvent SocialEvent ComedyEvent DanceEvent FoodEvent LiteraryEvent".split()
    ),
}


class Stated(NamedTuple):
    """A scalar of a thing, as text, and the path of its evidence."""

    text: str
    path: str


def subject(
    things: Mapping[str, dict[str, Any]], kind: str, headings: frozenset[str]
) -> tuple[str, dict[str, Any]] | None:
    """The (path, thing) of a type that the page is about; None where that isn't plain.

    Of several, the one whose name is a heading or the title of the page; a page with several of
    these, or with none, is a list.
    """
    wanted = {name.lower() for name in _KINDS.get(kind, frozenset()) | {kind}}
    found = [
        (path, thing)
        for path, thing in things.items()
        if wanted & {name.lower() for name in types_of(thing)}
    ]
    named = [
        (path, thing)
        for path, thing in found
        if level(scalar_text(thing.get("name") or thing.get("headline") or "")) in headings
    ]
    for several in (found, named):
        if several and len({level(_name(thing)) for _, thing in several}) == 1:
            return max(several, key=lambda each: _size(each[1]))
    return None


def values_at(
    thing: dict[str, Any],
    parts: tuple[str, ...],
    path: str,
    things: Mapping[str, dict[str, Any]],
) -> Iterator[Stated]:
    """The scalars at a path of a thing, in order; `path` is the thing's own.

    Lists are opened, references to other things followed, and a text where a named thing is
    expected is its name.
    """
    waiting: list[tuple[Any, tuple[str, ...], str]] = [(thing, parts, path)]
    for _ in range(_MAX_VALUES):
        if not waiting:
            return
        value, rest, at = waiting.pop()
        if at.count("/") > _MAX_DEPTH:
            continue
        if isinstance(value, list):
            waiting.extend((item, rest, f"{at}/{i}") for i, item in reversed([*enumerate(value)]))
        elif isinstance(value, dict):
            value, at = _referred(value, at, things)
            if "@value" in value:
                waiting.append((value["@value"], rest, f"{at}/@value"))
            elif rest:
                if "itemListElement" in value and rest[0] not in value:
                    waiting.append((value["itemListElement"], rest, f"{at}/itemListElement"))
                elif rest[0] in value:
                    waiting.append((value[rest[0]], rest[1:], f"{at}/{rest[0]}"))
            else:
                for inner in ("itemListElement", "text", "name", "@id"):
                    if inner in value:
                        waiting.append((value[inner], (), f"{at}/{inner}"))
                        break
        elif (
            value is not None and not isinstance(value, bool) and rest in ((), ("name",), ("text",))
        ):
            yield Stated(scalar_text(value), at)


def level(text: str) -> str:
    """A name without differences of case, white space and punctuation."""
    return "".join(char for char in text.casefold() if char.isalnum())


def _name(thing: dict[str, Any]) -> str:
    return scalar_text(thing.get("name") or thing.get("headline") or "")


def _size(thing: dict[str, Any]) -> int:
    return sum(len(value) if isinstance(value, dict | list) else 1 for value in thing.values())


def _referred(
    value: dict[str, Any], at: str, things: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Any], str]:
    """What an object that is nothing but an @id stands for."""
    if set(value) <= {"@id", "@type"} and (name := value.get("@id")):
        for path, thing in things.items():
            if thing.get("@id") == name and len(thing) > len(value):
                return thing, path
    return value, at
