"""A GGUF file: its metadata, and its tensors dequantised.

The header is read here, since a vocabulary of 49,152 strings takes the `gguf` package seconds;
its dequantisation of the block formats is used as it is. Every length in the header is checked
against the file before it is believed. No torch.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from ..errors import EngineError, EngineReason

_MAGIC: Final = b"GGUF"
_MAX_ITEMS: Final = 4_000_000  # a vocabulary has some hundred thousand entries
_MAX_DIMS: Final = 4
_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING: Final = 8
_ARRAY: Final = 9


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies in the file; `shape` has the slowest dimension first, as numpy has."""

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    nbytes: int


class _Cursor:
    """Reads the header's values one after the other; refuses to read past the end."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self._buffer = buffer
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._buffer):
            raise ValueError("it ends in the middle of its header")
        piece = self._buffer[self.position : end]
        self.position = end
        return piece

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def count(self) -> int:
        value = int(self.number("<Q"))
        if value > _MAX_ITEMS:
            raise ValueError(f"its header counts {value} items")
        return value

    def string(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner = self.number("<I")
            length = self.count()
            if inner in _SCALARS:
                layout = _SCALARS[inner]
                raw = self.take(length * struct.calcsize(layout))
                return np.frombuffer(raw, np.dtype(layout)).tolist()
            if inner != _STRING:
                raise ValueError("it nests arrays")
            return [self.string() for _ in range(length)]
        if kind not in _SCALARS:
            raise ValueError(f"its header has a value of unknown type {kind}")
        return self.number(_SCALARS[kind])


class GgufFile:
    """An open GGUF file (versions 2 and 3, little-endian), mapped into memory.

    EngineError(MODEL_INVALID) where it isn't one, or is cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.metadata, self.tensors = self._read_header()
        except (OSError, ValueError, struct.error) as error:
            raise EngineError(
                EngineReason.MODEL_INVALID, f"{path} isn't a whole GGUF file: {error}"
            ) from None

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file; arrays made by `tensor` own their memory and stay valid."""
        self._map.close()

    def _read_header(self) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
        cursor = _Cursor(self._map)
        if cursor.take(4) != _MAGIC:
            raise ValueError("its first bytes aren't GGUF")
        version = cursor.number("<I")
        if version not in (2, 3):
            raise ValueError(f"version {version} isn't known")
        num_tensors, num_values = cursor.count(), cursor.count()
        metadata: dict[str, Any] = {}
        for _ in range(num_values):
            key = cursor.string()
            metadata[key] = cursor.value(cursor.number("<I"))
        infos = [self._tensor_info(cursor) for _ in range(num_tensors)]
        alignment = int(metadata.get("general.alignment", 32))
        if alignment < 1:
            raise ValueError("its alignment is below one")
        start = -(-cursor.position // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, info in infos:
            offset = start + info.offset
            if offset + info.nbytes > len(self._map):
                raise ValueError(f"tensor {name} reaches past its end")
            tensors[name] = TensorInfo(info.shape, info.kind, offset, info.nbytes)
        return metadata, tensors

    def _tensor_info(self, cursor: _Cursor) -> tuple[str, TensorInfo]:
        name = cursor.string()
        num_dims = cursor.number("<I")
        if not 1 <= num_dims <= _MAX_DIMS:
            raise ValueError(f"tensor {name} has {num_dims} dimensions")
        shape = tuple(int(cursor.number("<Q")) for _ in range(num_dims))[::-1]
        kind = GGMLQuantizationType(cursor.number("<I"))
        offset = int(cursor.number("<Q"))
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if shape[-1] % block:
            raise ValueError(f"tensor {name} has rows that aren't whole blocks")
        elements = 1
        for size in shape:
            elements *= size
        return name, TensorInfo(shape, kind, offset, elements // block * block_bytes)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor dequantised, in its own memory; KeyError where there is none."""
        info = self.tensors[name]
        raw = np.frombuffer(self._map, np.uint8, info.nbytes, info.offset)
        if info.kind == GGMLQuantizationType.F32:
            return raw.view(np.float32).reshape(info.shape).copy()
        rows = raw.reshape(*info.shape[:-1], -1)
        if info.kind == GGMLQuantizationType.F16:
            return rows.view(np.float16).astype(np.float32)
        try:
            return np.asarray(dequantize(rows, info.kind), np.float32).reshape(info.shape)
        except NotImplementedError:
            raise EngineError(
                EngineReason.MODEL_INVALID, f"{self.path}: {info.kind.name} tensors aren't served"
            ) from None
