"""A tokenizer of single bytes in the default model's chat format, for tests without a model, and
ledgers on the tests' server.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis
import tokenizers
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction.ledger import Ledger

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One token a byte, and <|im_start|>, <|im_end|> as control tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    directory: Path = tmp_path_factory.mktemp("byte-tokenizer")
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"chat_template": _TEMPLATE, "eos_token": "<|im_end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return Tokenizer.load(directory)


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def ledger(redis_client: redis.Redis, request: pytest.FixtureRequest) -> Ledger:
    return Ledger(redis_client, shards=request.param)


@pytest.fixture
def single(redis_client: redis.Redis) -> Ledger:
    return Ledger(redis_client)
