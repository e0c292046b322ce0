"""Whatever public functions are given: what they refuse, they refuse by errors of ours.

The walk is made of signatures. A new public name is walked by itself; it needs a sample of each
argument that no other function has.
"""

import inspect
from contextlib import suppress
from functools import cache, cached_property, partial

import hypothesis
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import tilesolve
from tilesolve.contractions.errors import TilesolveError
from tilesolve.contractions.statements.parse import parse_stages

MACHINE = "i7-6700k"
FEW = np.ones((4, 4))
IMAGES, FILTERS = np.ones((1, 2, 5, 5)), np.ones((3, 2, 3, 3))

STAGE = parse_stages("C[i,j] = A[j,i] + B[i,j]")[0]

WRONG = {
    "None": lambda: None,
    "text": lambda: "§?",
    "no text": lambda: "",
    "bytes": lambda: b"\x00ij",
    "null character": lambda: "\x00",
    "no axes": lambda: np.array(3),
    "minus": lambda: -3,
    "zero": lambda: 0,
    "huge": lambda: 10**30,
    "float": lambda: 2.5,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "complex": lambda: 1j,
    "object": object,
    "function": lambda: len,
    "type": lambda: int,
    "rank": lambda: np.ones((1, 2, 1, 2, 1, 2)),
    "objects": lambda: np.array([object(), None]),
    "texts": lambda: np.array(["a", "b"]),
    "whole numbers": lambda: np.ones((4, 4), "int8"),
    "empty": list,
    "nested": lambda: [[1, [2]], [3]],
    "list of None": lambda: [None, None],
    "mapping": lambda: {"§": object()},
    "set": lambda: {1, "a"},
    "generator": lambda: (one for one in (4, 4)),
}
"""What is given in place of each argument."""

SAMPLES = {
    "a": FEW,
    "array": FEW,
    "at": 0,
    "b": FEW,
    "bandwidth": 1e11,
    "beta": 0.0,
    "bits": 256,
    "capacity": 32768,
    "cores": 4,
    "dtype": "float64",
    "extents": (("i", 4), ("k", 4), ("j", 4)),
    "factor": 0.5,
    "figure": "cores",
    "first": FEW,
    "firsts": [FEW],
    "flops": 1e11,
    "fma_latency": 4,
    "fma_rate": 2.0,
    "frequency": 3e9,
    "function": lambda x: x * x,
    "gamma": np.ones(3),
    "letter": "i",
    "mean": np.ones(3),
    "operands": (),
    "output": tilesolve.Spec.parse("ij,jk->ik").output,
    "peak": 1e11,
    "problem": tilesolve.Problem.of("ij,jk->ik", 4),
    "second": FEW,
    "seconds": [FEW],
    "sizes": 4,
    "spec": "ij,jk->ik",
    "start": "warm",
    "subscripts": "ij,jk->ik",
    "tensor": 0,
    "threads": 1,
    "var": np.ones(3),
    "vector_bits": 256,
    "vector_registers": 16,
    "shape": (4, 4),
    "w": FILTERS,
    "x": IMAGES,
    "x_shape": IMAGES.shape,
}
"""What an argument may be, by its name."""


@cache
def objects():
    """An object of each public class, whose methods are walked."""
    machine = tilesolve.Machine.load(MACHINE)
    return {
        "ConvLayer": tilesolve.conv_layer(IMAGES.shape, FILTERS, machine=MACHINE),
        "Expression": tilesolve.expression("ij,jk->ik", (4, 4), (4, 4)),
        "Level": machine.levels[0],
        "Machine": machine,
        "Peak": machine.peaks[0],
        "Plan": tilesolve.plan("ij,jk->ik", 4, MACHINE),
        "Problem": tilesolve.Problem.of("ij,jk->ik", 4),
        "NestPlan": tilesolve.nest("C[i,j] = A[j,i] + B[i,j]", 4, machine=MACHINE),
        "Ranking": tilesolve.rank("ij,jk->ik", 4, MACHINE, variants=3),
        "Spec": tilesolve.Spec.parse("ij,jk->ik"),
        "Stage": STAGE,
        "TilesolveError": TilesolveError("the root of all errors"),
    }


OWN = {
    "ConvLayer.__call__": {"x": IMAGES},
    "Expression.__call__": {"operands": (FEW, FEW)},
    "Level": {"name": "L1"},
    "Machine": {
        "name": "mine",
        "levels": tilesolve.Machine.load(MACHINE).levels,
        "peaks": tilesolve.Machine.load(MACHINE).peaks,
    },
    "Machine.bandwidth": {"level": tilesolve.Machine.load(MACHINE).levels[0]},
    "Machine.cost": {"name": "pack_cycles"},
    "Machine.from_toml": {"text": tilesolve.Machine.load(MACHINE).to_toml()},
    "Machine.level": {"name": "L1"},
    "Machine.replace": {"changes": {"cores": 2}},
    "NestPlan.__call__": {"arrays": (FEW, FEW), "named": {}},
    "NestPlan.bind": {"arrays": (FEW, FEW), "out": np.empty((4, 4))},
    "NestPlan.from_json": {"text": partial(tilesolve.NestPlan.to_json)},
    "Plan.from_json": {"text": partial(tilesolve.Plan.to_json)},
    "NestPlan.whatif": {"factors": {"compute": 0.5}},
    "Plan.whatif": {"factors": {"compute": 0.5}},
    "Problem": {"spec": tilesolve.Spec.parse("ij,jk->ik")},
    "Problem.check_operands": {"arrays": (FEW, FEW)},
    "Problem.from_arrays": {"arrays": (FEW, FEW)},
    "Problem.part": {"sizes": {"i": 2, "j": 4, "k": 4}},
    "Ranking.agreement": {"first": "price", "second": "price"},
    "Ranking.from_json": {"text": partial(tilesolve.Ranking.to_json)},
    "Ranking.sorted_by": {"by": "price"},
    "Ranking.ranks": {"name": "price"},
    "Ranking.scores_by": {"name": "price"},
    "Ranking.ties": {"name": "price"},
    "Spec": {"operands": tilesolve.Spec.parse("ij,jk->ik").operands},
    "Spec.parse": {"text": "ij,jk->ik"},
    "Stage": {"name": "C", "axes": STAGE.axes, "term": STAGE.term},
    "Stage.conditions": {"term": parse_stages("C[i] += A[i,k]")[0].term},
    "Stage.region": {"read": STAGE.reads[0]},
    "Stage.of": {"target": STAGE.target, "term": STAGE.term},
    "Stage.with_where": {"where": ()},
    "conv_transpose": {"w": np.ones((2, 3, 3, 3))},
    "einsum": {"subscripts": "ij,jk->ik", "operands": (FEW, FEW)},
    "einsum_path": {"subscripts": "ij,jk->ik", "operands": (FEW, FEW)},
    "expression": {"shapes": ((4, 4), (4, 4))},
    "fold_batchnorm": {"beta": np.ones(3)},
    "onnx.layers": {"source": b""},
    "onnx.load": {"source": b""},
    "nest": {"statement": "C[i,j] = A[j,i] + B[i,j]", "sizes": 4, "machine": MACHINE},
    "pipeline": {
        "what": "t[i] = A[i] + A[i+1]; C[i] = t[i] * t[i]",
        "machine": MACHINE,
        "sizes": {"A": (5,)},
    },
    "plan": {"sizes": 4, "machine": MACHINE},
    "rank": {"sizes": 4, "machine": MACHINE, "variants": 3},
    "reference": {"arrays": (FEW, FEW)},
    "suite": {"name": "gemm"},
}
"""What arguments of single functions are."""

MADE = {"ConvLayer", "Expression", "Ranking", "TilesolveError"}
"""Classes that nobody makes by calling them."""

INSIDE = {
    "ConvLayer.release",
    "ConvLayer.write",
    "Expression.run",
    "Ranking.draw",
    "Ranking.run",
    "clear_cache",
}
"""What takes arguments that have been checked; what takes any path, and would write there; what
runs many plans; and what takes none, and would empty the caches."""

CALLED = {
    "arrays": ("operand", "array"),
    "a": ("operand 0",),
    "array": ("operand",),
    "b": ("operand 1",),
    "changes": ("cores",),
    "constants": ("is constant",),
    "dilation": ("window",),
    "dtype": ("computes in", "compute in", "cast"),
    "factor": ("bandwidth",),
    "factors": ("compute", "flops"),
    "count": ("measured",),
    "by": ("ranked by", "ranker", "measured"),
    "first": ("operand A", "ranked by"),
    "firsts": ("first operand", "first and", "operand A"),
    "function": ("elementwise",),
    "levels": ("the last level",),
    "name": ("no level", "no suite", "suite", "name", "ranked by"),
    "operands": ("operand",),
    "optimize": ("order",),
    "out": ("the result",),
    "outs": ("out of",),
    "second": ("operand B", "ranked by"),
    "what": ("statement", "a pipeline", "of statements"),
    "seconds": ("second operand", "second", "operand B"),
    "shapes": ("operand", "einsum"),
    "sizes": ("size", "extent", "shape", "(A)"),
    "source": ("the model",),
    "spec": ("at character",),
    "subscripts": ("operand", "a subscript of"),
    "text": ("ranking", "machine file", "spec", "plan", "at character"),
    "x_shape": ("x",),
}
"""How else messages call an argument."""


def functions():
    """All public functions, constructors and methods by name."""
    for name in tilesolve.__all__:
        found = getattr(tilesolve, name)
        if inspect.ismodule(found):
            inside = inspect.getmembers(found, inspect.isfunction)
            yield from (
                (f"{name}.{own}", function)
                for own, function in inside
                if not own.startswith("_") and own in ("layers", "load", "operators")
            )
        elif inspect.isclass(found):
            yield from ([] if name in MADE else [(name, found)])
            for method, value in inspect.getmembers(found, inspect.isroutine):
                if isinstance(value, cached_property):
                    continue  # which takes no argument
                if method == "__call__" or not method.startswith("_"):
                    yield f"{name}.{method}", getattr(objects()[name], method)
        else:
            yield name, found


NAMES = [
    name
    for name, _ in functions()
    if name not in INSIDE | {"TilesolveError.add_note", "TilesolveError.with_traceback"}
]


def right_arguments(name, parameters):
    """Arguments that a function takes, by the names of its parameters."""
    own = OWN.get(name, {})
    found = {}
    for one in parameters:
        if one.name in own:
            value = own[one.name]
            found[one.name] = (
                value(objects()[name.split(".")[0]]) if isinstance(value, partial) else value
            )
        elif one.default is not one.empty:
            found[one.name] = one.default
        elif one.name == "solution":
            found[one.name] = objects()[name].solution
        else:
            found[one.name] = SAMPLES[one.name]
    return found


def wrong_arguments(parameter, right):
    """What stands in place of one parameter's argument: each kind of wrong value, by its name."""
    for kind, make in WRONG.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            for at in range(len(right)):
                yield kind, (*right[:at], make(), *right[at + 1 :])
            yield kind, (make(),)
        elif parameter.kind is parameter.VAR_KEYWORD:
            yield kind, dict.fromkeys(right, make())
            yield kind, {"nothing": make()}
        else:
            yield kind, make()


def call(function, arguments):
    """Call a function with arguments by the names of its parameters."""
    bound = inspect.signature(function).bind_partial()
    bound.arguments.update(arguments)
    return function(*bound.args, **bound.kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arguments_are_errors_of_ours(name, monkeypatch):
    """Nothing but a `TilesolveError` comes out, whatever one argument is, and it is named."""
    monkeypatch.setenv("TILESOLVE_MACHINE", MACHINE)
    if name.startswith("onnx."):
        pytest.importorskip("onnx")
    function = dict(functions())[name]
    parameters = inspect.signature(function).parameters.values()
    right = right_arguments(name, parameters)
    found = []
    for parameter in parameters:
        names = (parameter.name, *CALLED.get(parameter.name, ()))
        for kind, given in wrong_arguments(parameter, right[parameter.name]):
            if given is parameter.default or (name, kind) == ("Plan.certify", "float"):
                continue  # right: the default, and seconds that SCIP would take
            try:
                call(function, right | {parameter.name: given})
            except TilesolveError as error:
                if not any(one in str(error) for one in (*names, "nothing")):
                    found.append(f"{parameter.name}={kind}: not named in {error}")
            except Exception as error:
                found.append(f"{parameter.name}={kind}: {type(error).__name__}: {error}")
    assert found == [], "\n".join(found)


TEXTS = ("ij,jk->ik", "ij,jk", "ii->i", "[h+r]c,rck->hk", "...i,i->...", "a b, b c -> a c", "i,i->")
ODD = (
    *(make() for kind, make in WRONG.items() if kind not in ("rank", "generator")),
    *(2**63, 2**64 - 1, True, np.int8(3), (), {}, {0: 1}, [0], (1, 2), "auto", [(0, 1)], [(0, 5)]),
    *(["einsum_path", (0, 1)], ["einsum_path", (0,)], np.dtype("f4"), ">f8", "O", "c16"),
)


@hypothesis.given(st.data())
@settings(max_examples=150)
def test_drawn_expressions(data):
    """Texts with letters exchanged, shapes and options of all kinds: results, or errors of ours."""
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(text)))
        text = (
            text[:at] + data.draw(st.sampled_from([*"ijké,->[]+*.: 2|\x00", text])) + text[at + 1 :]
        )
    shapes = [(4,) * len(part) for part in text.split("->")[0].split(",")]
    if data.draw(st.booleans()):
        shapes[data.draw(st.integers(0, len(shapes) - 1))] = data.draw(st.sampled_from(ODD))
    names = ("dtype", "threads", "optimize", "memory_limit", "constants")
    options = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(ODD), max_size=2))
    with suppress(TilesolveError):
        tilesolve.expression(text, *shapes, **options)


def test_orders_that_are_none():
    """What opt_einsum takes for no wish at all is an error, too."""
    with pytest.raises(TilesolveError, match=r"optimize=\{\}"):
        tilesolve.expression("ij,jk,kl->il", (4, 4), (4, 4), (4, 4), optimize={})
