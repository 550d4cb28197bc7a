"""JSON Schemas: loading, advice, versions, validation, and compiling to a byte automaton.

Knows no engine, no pages and no model; `library` holds ready-made schemas.
"""

from . import library
from .choices import compile_choices
from .compiler import CompiledSchema, compile, share_cache
from .diff import Change, diff, verdict
from .errors import SchemaReason, SchemaRefused
from .infer import infer
from .lint import LintWarning, lint
from .load import canonical_json, content_hash, load
from .lowering import lower
from .registry import LibraryCatalog, SchemaCatalog, SchemaRegistry
from .validate import Validator
from .version import SchemaVersion

__all__ = [
    "Change",
    "CompiledSchema",
    "LibraryCatalog",
    "LintWarning",
    "SchemaCatalog",
    "SchemaReason",
    "SchemaRefused",
    "SchemaRegistry",
    "SchemaVersion",
    "Validator",
    "canonical_json",
    "compile",
    "compile_choices",
    "content_hash",
    "diff",
    "infer",
    "library",
    "lint",
    "load",
    "lower",
    "share_cache",
    "verdict",
]
