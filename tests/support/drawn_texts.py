"""Functions that are drawn line by line, as text: NumPy says of each line whether it is one."""

import numpy as np

_UNARY = (
    *("abs({a})", "-{a}", "~{a}", "np.square({a})", "np.floor({a})", "np.isnan({a})", "{a}.T"),
    *("np.sqrt(np.abs({a}))", "{a}.real", "np.conj({a})", "{a}.ravel()", "{a}.copy()", "{a}[0]"),
    *("{a}.astype('{dtype}')", "np.cumsum({a}, axis={axis})", "{a}.reshape(-1, {n})"),
    *("np.roll({a}, {n}, axis={axis})", "np.repeat({a}, {n}, axis={axis})", "{a}[::-2]"),
    *("np.diff({a}, axis={axis})", "np.flip({a}, {axis})", "np.tile({a}, {n})", "{a}[..., 1:]"),
    *("{a}[None, ..., -1]", "np.take({a}, [0, -1], {axis})", "np.pad({a}, {n}, '{mode}')"),
    *("{a}.sum({axis})", "{a}.max({axis}, keepdims=True)", "np.argmax({a}, {axis})", "{a}.mean()"),
    *("np.any({a}, axis={axis})", "{a}.prod({axis})", "np.tril({a}, {axis})", "{a}.std({axis})"),
    *("np.maximum.accumulate({a}, {axis})", "{a}.sum()[None]", "{a}[0, ...]", "{a}.max()"),
    *("{a}[{a}.argmax() % 2]", "{a}[[0, -1]][::-1]", "np.pad({a}, ({n}, 1), '{mode}')", "{a}[:0]"),
    *("np.moveaxis({a}, 0, {axis})", "np.broadcast_to({a}, (2, *{a}.shape))", "{a}.ravel()[::2]"),
    *(
        "sum({a}[..., k : k + 2] for k in range(1 + {n}))",
        "np.asarray({a}, '{dtype}')",
        "np.diff({a})",
    ),
    *("np.lib.stride_tricks.sliding_window_view({a}, 2, {axis})", "np.expand_dims({a}, {axis})"),
)
_BINARY = (
    *("{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "{a} // {b}", "{a} % {b}", "{a} & {b}"),
    *("{a} < {b}", "{a} == {b}", "np.maximum({a}, {b})", "np.where({a} > {b}, {a}, {b})"),
    "{a} ** {b}",
    *("{a} @ {b}", "np.dot({a}, {b})", "np.einsum('ij,ij->j', {a}, {b})", "np.clip({a}, -1, {b})"),
    *("{a} > {far}", "np.add({a}, {b}).sum({axis})", "np.where({a} == {b}, {a}[0], {b})"),
    *("np.concatenate([{a}, {b}])", "np.stack([{a}, {b}], {axis})", "{a}[{b} % 2]", "{a} << {b}"),
)
_WRITES = (
    *("{a}[1:] = {b}", "{a}[..., ::2] += {b}", "{a}[{a} > 1] = {s}", "{a}.fill({s})", "{a} *= {b}"),
    *("np.add({a}, {b}, out={a})", "np.sum({a}, axis=0, out={a}[0])", "{a}[::-1] -= {b}"),
    *("{a}[1:] = {a}[:-1]", "{a}[...] = {a}[::-1]", "np.cumsum({a}, axis=0, out={a})"),
    *("x = {a}[-1]; {a}[0] = {s}; {a} += x", "x = {a}[None]; {a}[-1] = {s}; x -= {b}"),
    "for k in range({n}): {a}[k:] += {a}[k]",
)
_NUMBERS = ("2", "-1", "0.5", "np.nan", "-0.0", "True", "np.int8(3)", "np.float32(1.5)", "300")
_FAR = ("-1", "-200", "300", "2**33", "2**64")
_DTYPES = ("bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64", "complex64")
_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def draw_values(rng, shape, dtype):
    """Small numbers, quarters of whole ones where the dtype has them."""
    values = np.asarray(rng.integers(-8, 9, shape) / 4)
    return np.asarray(values if np.dtype(dtype).kind in "fc" else np.floor(np.abs(values))).astype(
        dtype
    )


def draw_function(seed):
    """Return the text of a function of two arrays, some of whose lines NumPy may refuse; arrays."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.choice((0, 1, 2, 3, 4, 7, 8, 9), rng.integers(0, 4)).tolist())
    other = shape if rng.random() < 0.6 else shape[1:]
    arrays = [draw_values(rng, one, rng.choice(_DTYPES)) for one in (shape, other)]
    known, lines = {"A": arrays[0].copy(), "B": arrays[1].copy()}, []
    for number in range(rng.integers(1, 7)):
        kind = rng.choice(("unary", "binary", "write"), p=(0.5, 0.35, 0.15))
        text = rng.choice({"unary": _UNARY, "binary": _BINARY, "write": _WRITES}[kind])
        words = {"a": rng.choice(list(known)), "b": rng.choice([*known, rng.choice(_NUMBERS)])}
        words |= {"axis": rng.integers(-1, 2), "n": rng.integers(0, 4), "mode": rng.choice(_MODES)}
        words |= {"dtype": rng.choice(_DTYPES), "s": rng.choice(_NUMBERS)}
        words["far"] = rng.choice(_FAR)
        line = text.format(**words) if kind == "write" else f"v{number} = {text.format(**words)}"
        real = known[words["a"]].dtype.kind in "fc"
        if real and "astype" in line and words["dtype"] not in ("bool", "float64", "complex64"):
            continue  # what does not fit becomes any value
        lines.append(line)
        before = dict(known)
        try:
            with np.errstate(all="ignore"):
                exec(line, {"np": np}, known)
            known.pop("k", None)  # a loop's
        except Exception:
            known = before
            if rng.random() < 0.9:
                lines.pop()
                continue
            break
        rounds = any(x in line for x in ("sqrt", " / ", "std", "mean", "prod", "**", "@", "dot"))
        if rounds or np.size(known[list(known)[-1]]) > 5000:
            break  # what is rounded may be on either side of where a value changes
    text = "".join(f"    {line}\n" for line in lines)
    return f"def function(A, B):\n{text}    return {list(known)[-1]}, A, B\n", arrays


def lay_out(seed, array):
    """Return the same elements, with other strides."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(("rows", "columns", "backwards", "apart", "anywhere"))
    if kind == "columns" or not array.ndim:
        return array.copy("F")
    steps = {"rows": 1, "backwards": -1, "apart": 2, "anywhere": 1}[kind]
    made = np.full([abs(steps) * n for n in array.shape], 7).astype(array.dtype)
    if kind == "anywhere":
        memory = np.zeros(array.nbytes + 8, np.uint8)[rng.integers(1, 8) :]
        made = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
    found = made[(slice(None, None, steps),) * array.ndim]
    found[...] = array
    return found
