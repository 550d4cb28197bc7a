"""The arrows of docs/architecture.md: who may import whom, and what stays out of which file."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pagemill.engine.errors import EngineReason
from pagemill.extraction.reason import Reason
from pagemill.schemas.errors import SchemaReason

ROOT = Path(__file__).resolve().parents[1]
# Each package and those of ours that it may import beside itself.
MAY_IMPORT = {
    "engine": {"_core"},
    "schemas": {"_core"},
    "extraction": {"_core", "engine", "schemas"},
    "workers": {"_core", "engine", "schemas", "extraction"},
}
HEAVY = {"torch", "transformers", "safetensors"}
# What of the engine runs where torch isn't installed: in the API, in workers, in clients.
LIGHT_ENGINE = ("engine", "client", "errors", "protocol", "store", "tokenizer")


PACKAGES = sorted(MAY_IMPORT)

FORBIDDEN_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "recv_pyobj", "send_pyobj"}


def sources(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found, f"{package} is empty"
    return found


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Every import's absolute name and line, in functions too, for a module inside `package`.

    `from X import a` gives X and X.a: `a` may be a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*parents, *([node.module] if node.module else [])))
            yield base, node.lineno
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def imports_of(package: str) -> Iterator[tuple[str, str]]:
    """The imports of a whole package: each name, and a sentence that says where it stands."""
    for path in sources(package):
        place = path.relative_to(ROOT)
        for name, line in imports(parse(path), ("pagemill", *place.parent.parts)):
            yield name, f"{place}:{line} imports {name}"


def test_imports_are_read_in_every_form():
    text = """
import a.b, c as d
from e import f
from . import g
from .h import i
def late():
    from ..j import k
    from ... import l
"""
    assert [name for name, _ in imports(ast.parse(text), ("pagemill", "x", "y"))] == [
        *("a.b", "c", "e", "e.f", "pagemill.x.y", "pagemill.x.y.g", "pagemill.x.y.h"),
        *("pagemill.x.y.h.i", "pagemill.x.j", "pagemill.x.j.k", "pagemill", "pagemill.l"),
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_point_one_way(package):
    for name, where in imports_of(package):
        ours, *rest = name.split(".")
        assert ours not in {"tests", *PACKAGES}, where
        if ours == "pagemill" and rest:
            assert rest[0] in {package} | MAY_IMPORT[package], where


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - {"engine"}))
def test_only_the_engine_knows_the_model_libraries(package):
    for name, where in imports_of(package):
        assert name.split(".")[0] not in HEAVY, where


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_runs_data(package):
    """No pickles in any guise, and no code made from text."""
    for name, where in imports_of(package):
        assert name.split(".")[0] not in FORBIDDEN_MODULES, where
    for path in sources(package):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call):
                # A method may be called eval: redis-py's runs a script inside the server.
                called = getattr(node.func, "id", None)
                attribute = getattr(node.func, "attr", "")
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                assert called not in FORBIDDEN_CALLS, f"{place} calls {called}"
                assert not attribute.endswith("_pyobj"), f"{place} calls {attribute}"


# Imports the modules that it reads from stdin with the heavy libraries blocked, each as the
# first of a fresh table of ours; prints those that fail.
BLOCKED = """
import importlib, json, sys, traceback

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

asked = json.load(sys.stdin)
HEAVY = set(asked["heavy"])
sys.meta_path.insert(0, Block())
failed = {}
for module in asked["modules"]:
    try:
        importlib.import_module(module)
    except Exception:
        failed[module] = traceback.format_exc()
failed.update({name: "is loaded" for name in HEAVY & set(sys.modules)})
print(json.dumps(failed))
"""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("pagemill", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def test_everything_but_the_engines_core_imports_without_torch():
    light = [
        path
        for package in ("schemas", "extraction", "workers")
        for path in sources(package)
        if path.name != "__main__.py"  # Importing it would run it.
    ]
    engine = [
        "pagemill.engine" if name == "engine" else f"pagemill.engine.{name}"
        for name in LIGHT_ENGINE
    ]
    asked = {"heavy": sorted(HEAVY), "modules": engine + [module_name(path) for path in light]}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failed = json.loads(done.stdout.splitlines()[-1])
    assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())


@pytest.mark.parametrize("part", [EngineReason, SchemaReason], ids=lambda part: part.__name__)
def test_reasons_are_parts_of_the_one_list(part):
    assert {reason.name: reason.value for reason in part}.items() <= {
        reason.name: reason.value for reason in Reason
    }.items()


def test_reasons_are_spelled_like_their_names():
    assert [reason.value for reason in Reason] == [reason.name.lower() for reason in Reason]


CORE = sorted(
    path
    for pattern in ("*.h", "*.cc", "*.cpp", "*.hpp")
    for path in (ROOT / "csrc").rglob(pattern)
    if "bindings" not in path.relative_to(ROOT).parts
)
FOREIGN = re.compile(r'^\s*#\s*include\s*[<"](pybind11|Python\.h|torch|ATen|c10)', re.MULTILINE)


def test_the_core_knows_neither_python_nor_torch():
    assert CORE
    for path in CORE:
        found = FOREIGN.search(path.read_text())
        assert not found, f"{path.relative_to(ROOT)} includes {found and found[1]}"
