"""A model's tokenizer: text to ids and back, chat prompts, and a hash that names it.

Reads a folder's tokenizer.json with the `tokenizers` package; chat template and end tokens come
from the files beside it. No torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import tokenizers
from numpy.typing import NDArray
from pagemill import _core

from .byte_pairs import BytePairs
from .chat_template import ChatTemplate
from .detokenizer import Detokenizer
from .errors import EngineError, EngineReason

_MAX_FILE_BYTES: Final = 256 * 1024 * 1024


class Tokenizer:
    """One vocabulary with its chat template. Safe to share among threads."""

    def __init__(
        self,
        spec: dict[str, Any],
        settings: dict[str, Any],
        eos_ids: tuple[int, ...],
        *,
        native: bool = True,
    ):
        """`spec` is tokenizer.json, `settings` tokenizer_config.json; `load` reads both.

        `native`: whether the C++ encoder is used where it can stand in for the `tokenizers`
        package; ids are the same.
        """
        self.eos_ids: Final = eos_ids
        template = _template_source(settings)
        self.hash: Final = _hash(spec, template, eos_ids)
        # Text is never a control token, not even one that the file calls ordinary (<think>,
        # <tool_call>): all are special here, and special ones are encoded as plain text. Only
        # the chat template's own markers are looked up in `_control`.
        added = _added_tokens(spec)
        self._text = _tokenizer(
            {**spec, "added_tokens": [{**token, "special": True} for token in added]}
        )
        self._text.encode_special_tokens = True
        self._control = {token["content"]: int(token["id"]) for token in added}
        longest_first = sorted(self._control, key=len, reverse=True)
        self._control_pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self._token_bytes = _token_bytes(spec, self._text)
        self.vocab_size: Final = len(self._token_bytes)
        # None where the C++ encoder can't stand in for the tokenizer.
        self.byte_pairs: Final = BytePairs.of(spec, _byte_alphabet())
        self._native = native
        self._template = (
            ChatTemplate(template, _special_tokens(settings)) if template is not None else None
        )
        self._encode_marker = lru_cache(maxsize=256)(self._marker_ids)

    @classmethod
    def load(cls, model_dir: Path) -> Tokenizer:
        """Read a model's folder; EngineError(MODEL_INVALID) where a file is missing or wrong."""
        spec = _read(model_dir / "tokenizer.json")
        settings = _read(model_dir / "tokenizer_config.json", optional=True)
        template = model_dir / "chat_template.jinja"
        if template.is_file():
            settings["chat_template"] = template.read_text(encoding="utf-8")
        try:
            return cls(spec, settings, _eos_ids(model_dir, spec, settings))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _invalid(f"{model_dir}: the tokenizer's files are malformed: {error}") from None

    @property
    def lines_apart(self) -> bool:
        """Whether a text's ids are those of its parts, joined, when it is cut between two lines.

        Between two full lines, that is, after the line feed: neither line is empty or has a space
        at that end.
        """
        return self.byte_pairs is not None

    @cached_property
    def _encoder(self) -> _core.BpeEncoder | None:
        use = self.byte_pairs if self._native else None
        return use.encoder() if use is not None else None

    def encode(self, text: str) -> NDArray[np.int32]:
        """Return the ids of `text`; what looks like a special token in it is plain text."""
        # A lone surrogate, which JSON can carry, has no UTF-8 form.
        clean = text.encode("utf-8", "replace")
        if self._encoder is not None:
            return self._encoder.encode(clean)
        found = self._text.encode(clean.decode("utf-8"), add_special_tokens=False)
        return np.array(found.ids, np.int32)

    def encode_with_starts(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return `encode(text)`, and of each token how many characters begin before it."""
        clean = text.encode("utf-8", "replace")
        if self._encoder is not None:
            return self._encoder.encode_with_starts(clean)
        found = self._text.encode(clean.decode("utf-8"), add_special_tokens=False)
        # A token that begins within a character: the package names that character's start.
        starts = np.array([start for start, _ in found.offsets], np.int32)
        return np.array(found.ids, np.int32), np.maximum.accumulate(starts)

    def chat(
        self, messages: Sequence[Mapping[str, str | NDArray[np.int32]]]
    ) -> list[NDArray[np.int32]]:
        """Return a conversation's ids: an array per message and last the generation prompt.

        Contents are plain text, or the ids of it, and each content and each stretch of markers is
        encoded apart: equal leading messages give equal leading ids. EngineError where the model
        has no chat template or the template refuses the messages.
        """
        if self._template is None:
            raise _invalid("the model has no chat template: use one tuned for instructions")
        return [
            np.concatenate(
                [
                    self._encode_marker(part)
                    if isinstance(part, str)
                    else self._content(messages[part]["content"])
                    for part in share
                ]
                or [np.empty(0, np.int32)]
            )
            for share in self._template.shares(messages)
        ]

    def _content(self, content: str | NDArray[np.int32]) -> NDArray[np.int32]:
        return self.encode(content) if isinstance(content, str) else content

    def _marker_ids(self, text: str) -> NDArray[np.int32]:
        pieces = self._control_pattern.split(text) if self._control else [text]
        return np.concatenate(
            [
                np.array([self._control[piece]], np.int32)
                if piece in self._control
                else self.encode(piece)
                for piece in pieces
            ]
        )

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`; special and unknown ids have none, broken UTF-8 is U+FFFD."""
        stream = self.stream()
        return stream.push(ids) + stream.flush()

    def token_bytes(self) -> list[bytes]:
        """Return the bytes of every id; b"" for special tokens and gaps."""
        return list(self._token_bytes)

    def stream(self) -> Detokenizer:
        """Return a detokenizer for one growing output."""
        return Detokenizer(self._token_bytes)


def _invalid(message: str) -> EngineError:
    return EngineError(EngineReason.MODEL_INVALID, message)


def _read(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.is_file():
        return {}
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise _invalid(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _invalid(f"{path} can't be read: {error}") from None
    if not isinstance(data, dict):
        raise _invalid(f"{path} holds no JSON object")
    return data


def _tokenizer(spec: dict[str, Any]) -> tokenizers.Tokenizer:
    # Padding and truncation, which a file may set, have no place in a server.
    text = json.dumps({**spec, "padding": None, "truncation": None})
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the package raises bare Exception
        raise _invalid(f"tokenizer.json can't be read: {error}") from None


def _added_tokens(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec.get("added_tokens") or [])


def _template_source(settings: dict[str, Any]) -> str | None:
    source = settings.get("chat_template")
    if isinstance(source, list):  # several named ones
        named = {entry["name"]: entry["template"] for entry in source}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _token_text(token: Any) -> str | None:
    """A token in tokenizer_config.json is its text, or an object that holds it."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    texts = {name: _token_text(settings.get(name)) for name in names}
    return {name: text for name, text in texts.items() if text is not None}


def _eos_ids(model_dir: Path, spec: dict[str, Any], settings: dict[str, Any]) -> tuple[int, ...]:
    """All ids that end a generation, by any of the model's files."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = _read(model_dir / name, optional=True).get("eos_token_id")
        found += value if isinstance(value, list) else [] if value is None else [value]
    eos = _token_text(settings.get("eos_token"))
    found += [token["id"] for token in _added_tokens(spec) if token["content"] == eos]
    ids = tuple(dict.fromkeys(int(token) for token in found))
    if not ids:
        raise _invalid(f"{model_dir} names no end-of-sequence token (generation_config.json)")
    return ids


def _hash(spec: dict[str, Any], template: str | None, eos_ids: tuple[int, ...]) -> str:
    """SHA-256 over all that decides ids: vocabulary, merges, rules, template, end tokens."""
    parts = {
        name: spec.get(name) for name in ("model", "normalizer", "pre_tokenizer", "added_tokens")
    }
    parts |= {"chat_template": template, "eos_ids": eos_ids}
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _token_bytes(spec: dict[str, Any], tokenizer: tokenizers.Tokenizer) -> list[bytes]:
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    added = {token["id"]: token for token in _added_tokens(spec)}
    if '"ByteLevel"' in json.dumps([spec.get("decoder"), spec.get("pre_tokenizer")]):
        alphabet = _byte_alphabet()

        def plain(token: str) -> bytes:
            try:
                return token.translate(alphabet).encode("latin-1")
            except UnicodeEncodeError:  # a token outside the alphabet stands for itself
                return token.encode("utf-8")
    else:

        def plain(token: str) -> bytes:
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                return bytes([int(token[3:5], 16)])
            return token.replace("\u2581", " ").encode("utf-8")

    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, index in vocabulary.items():
        entry = added.get(index)
        if entry is None:
            table[index] = plain(token)
        elif not entry.get("special"):
            table[index] = token.encode("utf-8")
    return table


def _byte_alphabet() -> dict[int, int]:
    """The code points that stand for bytes in a byte-level vocabulary.

    Printable bytes of Latin-1 stand for themselves, the others for U+0100 and up in their order
    (Radford et al. 2019, the released encoder of GPT-2).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {byte: byte for byte in printable}
    return alphabet | {0x100 + offset: byte for offset, byte in enumerate(others)}
