"""Compiled grammars by hash, kept for reuse within a budget of memory."""

from __future__ import annotations

import collections
import hashlib

from pagemill._core import BpeEncoder, ByteDfa, Grammar, TokenTrie

from .errors import EngineError, EngineReason


class GrammarStore:
    """Least recently used first out; a grammar that a request holds stays.

    With an encoder, forced text is decoded in the tokenizer's own tokens. Not thread-safe: the
    step loop's.
    """

    def __init__(self, trie: TokenTrie, max_bytes: int, encoder: BpeEncoder | None = None) -> None:
        self._trie = trie
        self._encoder = encoder
        self._max_bytes = max_bytes
        self._grammars: collections.OrderedDict[str, tuple[Grammar, int]] = (
            collections.OrderedDict()
        )
        self._holders: collections.Counter[str] = collections.Counter()

    def __len__(self) -> int:
        return len(self._grammars)

    def acquire(self, grammar_hash: str) -> Grammar | None:
        """Return a grammar and count its new holder; None when it isn't here."""
        found = self._grammars.get(grammar_hash)
        if found is None:
            return None
        self._grammars.move_to_end(grammar_hash)
        self._holders[grammar_hash] += 1
        return found[0]

    def release(self, grammar_hash: str) -> None:
        """A holder lets go."""
        self._holders[grammar_hash] -= 1
        if self._holders[grammar_hash] <= 0:
            del self._holders[grammar_hash]

    def put(self, grammar_hash: str, table: bytes) -> None:
        """Read a table and keep it.

        EngineError: GRAMMAR_INVALID when the table is unsound, OVERLOADED when the grammars in
        use leave no room for it.
        """
        if grammar_hash in self._grammars:
            return
        if hashlib.sha256(table).hexdigest() != grammar_hash:
            # Else one client could put a grammar under the name of another's.
            raise EngineError(
                EngineReason.GRAMMAR_INVALID, "a grammar's hash is the SHA-256 of its table"
            )
        try:
            grammar = Grammar(ByteDfa.from_bytes(table), self._trie, self._encoder)
        except ValueError as error:
            raise EngineError(
                EngineReason.GRAMMAR_INVALID, f"the grammar's table is unsound: {error}"
            ) from None
        if not self._make_room(len(table)):
            raise EngineError(
                EngineReason.OVERLOADED, "the grammars in use leave no room for another one"
            )
        self._grammars[grammar_hash] = (grammar, len(table))

    def _bytes(self, grammar: Grammar, table_bytes: int) -> int:
        return table_bytes + grammar.num_masks * self._trie.num_words * 4

    def _make_room(self, wanted: int) -> bool:
        used = wanted + sum(self._bytes(*held) for held in self._grammars.values())
        for name in [name for name in self._grammars if name not in self._holders]:
            if used <= self._max_bytes:
                break
            used -= self._bytes(*self._grammars.pop(name))
        return used <= self._max_bytes
