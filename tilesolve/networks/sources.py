"""Where models come from: files, the content of one, or the model itself."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import ModelError

if TYPE_CHECKING:
    from onnx import ModelProto

    Source: TypeAlias = str | PathLike[str] | bytes | ModelProto
    """A file, the content of one, or the model itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """A model as it stands in its file, and what to call it.

    `files` has those that it came from, if it did: that of the model, and those of its arrays.
    """

    name: str
    model: ModelProto
    files: ModelFiles | None = None


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Files of a model, which are read again where it is planned for other shapes.

    Parameters
    ----------
    path
        Of the model.
    stamps
        The path of each file, its size, and when it was written.
    """

    path: str
    stamps: tuple[tuple[str, int, int], ...]

    def parse(self, onnx: Any) -> Parsed:
        """Return the model.

        Raises
        ------
        ModelError
            If it cannot be read any more, or is not what it was.
        """
        found = parse_model(onnx, self.path)
        if found.files != self:
            raise ModelError(
                f"{found.name} was changed since it was loaded, and is needed for other shapes: "
                "load it again"
            )
        return found


def parse_model(onnx: Any, source: Source) -> Parsed:
    """Return a model as it stands in its file.

    Raises
    ------
    ModelError
        If it cannot be read, or is damaged.
    """
    if isinstance(source, onnx.ModelProto):
        return Parsed("the model", source)
    from google.protobuf.message import DecodeError

    name, files = "the model", None
    if not isinstance(source, bytes):
        check_kind(source, (str, PathLike), "source", "a path, bytes or a ModelProto", ModelError)
        name = f"the model {fspath(source)}"
    try:
        if isinstance(source, bytes):
            found = onnx.load_from_string(source)
        else:
            found, files = _read_files(onnx, Path(source).absolute())
    except (OSError, onnx.checker.ValidationError) as error:  # of another file, if that is missing
        raise ModelError(f"{name} cannot be read: {error}") from error
    except (DecodeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{name} is damaged: {error}") from error
    if not found.graph.node and not found.opset_import:
        raise ModelError(f"{name} is damaged: it has no operators")
    return Parsed(name, found, files)


def _read_files(onnx: Any, path: Path) -> tuple[ModelProto, ModelFiles]:
    """Return the model of a file, with the arrays that lie in others."""
    stamps = [_stamp(path)]
    found = onnx.load(path, load_external_data=False)
    names = {
        entry.value
        for one in found.graph.initializer
        for entry in one.external_data
        if entry.key == "location"
    }
    onnx.load_external_data_for_model(found, str(path.parent))
    stamps += (_stamp(path.parent / name) for name in sorted(names))
    return found, ModelFiles(str(path), tuple(stamps))


def _stamp(path: Path) -> tuple[str, int, int]:
    found = path.stat()
    return str(path), found.st_size, found.st_mtime_ns
