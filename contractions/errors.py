"""The errors that tilesolve raises.

Each has one root, `TilesolveError`, and the builtin that a user would catch for its kind.
"""

from __future__ import annotations


class TilesolveError(Exception):
    """Root of every error that tilesolve raises on purpose."""


class SpecError(TilesolveError, ValueError):
    """A spec that cannot be read, or that says something impossible."""


class LabelsError(SpecError, TypeError):
    """Subscripts that are neither text nor lists of integers."""


class PathError(SpecError, RuntimeError):
    """An order of contraction that does not exist, or that leaves operands over."""


class SizeError(TilesolveError, ValueError):
    """Extents that are missing, unknown, out of range, or that disagree between operands."""


class DtypeError(TilesolveError, TypeError):
    """A dtype that tilesolve does not compute in."""


class TraceError(TilesolveError, TypeError):
    """Something that a function does with its arrays, and pipelines do not have."""


class TensorError(TilesolveError, BufferError):
    """A tensor of another library whose memory cannot be read or written to from here."""


class SuiteError(TilesolveError, LookupError, ValueError):
    """A problem suite, or a case in one, that does not exist or cannot be read."""


class MachineError(TilesolveError, ValueError):
    """A machine description that is damaged, incomplete or physically impossible."""


class FileAccessError(TilesolveError, OSError):
    """A file of tilesolve's own that cannot be read, written or locked."""


class CalibrationError(TilesolveError, RuntimeError):
    """Measurements that contradict each other, even after repetition."""


class SolverError(TilesolveError, RuntimeError):
    """IPOPT found no point that satisfies the program, SCIP no proof, or one of them is missing."""


class SettingError(TilesolveError, ValueError):
    """An environment variable ``TILESOLVE_*`` whose value makes no sense."""


class TilesolveWarning(UserWarning):
    """Something that tilesolve found damaged or foreign, and goes on without."""


class ThreadsWarning(TilesolveWarning):
    """More threads are asked for than the machine has cores: they take turns."""


class PlanError(TilesolveError, ValueError):
    """A stored plan that is damaged or of another version."""


class MemoryLimitError(TilesolveError, MemoryError):
    """Work that needs more memory than was allowed, or than the system gives."""


class PictureError(TilesolveError, RuntimeError):
    """A picture that cannot be drawn: matplotlib is missing, or the format is unknown."""


class BenchmarkError(TilesolveError, ValueError):
    """A sweep that cannot be made as asked, or a file of results that cannot be continued."""


class ModelError(TilesolveError, ValueError):
    """An ONNX model that is damaged, or asks for something that is not done here."""


class DeviceError(TilesolveError, RuntimeError):
    """A GPU that is not there, or code for one that cannot be made or run."""
