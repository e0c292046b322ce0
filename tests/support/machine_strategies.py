"""Random machines for hypothesis."""

from hypothesis import strategies as st

from tilesolve.machine.level import Level, Peak
from tilesolve.machine.model import Machine

SOURCES = ("measured", "detected", "published", "assumed", "given")

rates = st.floats(1e3, 1e15)
names = st.text(st.characters(codec="utf-8").filter(str.isprintable), max_size=20)


@st.composite
def levels_of(draw: st.DrawFn, name: str, bandwidth: float) -> Level:
    """Draw a level of that name, with room for a line of its own at least."""
    line, effective = draw(st.sampled_from((32, 64, 128, 256))), draw(st.floats(0.05, 1.0))
    return Level(
        name,
        None if name == "memory" else draw(st.integers(1 + int(line / effective), 2**40)),
        bandwidth,
        line=line,
        ways=draw(st.none() | st.integers(1, 64)),
        shared_by=draw(st.integers(1, 256)),
        inclusive=draw(st.booleans()),
        effective=effective,
        read=draw(st.none() | rates),
        stream=draw(st.none() | rates),
        bandwidth_all=draw(st.none() | rates),
        start=draw(st.none() | st.floats(1e-12, 1e-6)),
        part=draw(st.none() | st.floats(1e-12, 1e-6)),
        ahead=draw(st.integers(1, 64)),
        fetched=draw(st.integers(1, 4)),
    )


@st.composite
def machines(draw: st.DrawFn, caches: st.SearchStrategy[int] | None = None) -> Machine:
    """Draw a valid machine; `caches` draws how many levels it has before memory."""
    depth = draw(caches or st.integers(0, 6))
    bandwidths = sorted(draw(st.lists(rates, min_size=depth + 1, max_size=depth + 1)), reverse=True)
    level_names = [*(f"L{number}" for number in range(1, depth + 1)), "memory"]
    levels = tuple(draw(levels_of(*of)) for of in zip(level_names, bandwidths, strict=True))
    peak = st.builds(
        Peak,
        st.sampled_from(("float32", "float64")),
        st.sampled_from((128, 256, 512)),
        rates,
        st.none() | rates,
    )
    figures = st.sampled_from([f"{name}.bandwidth" for name in level_names] + ["peak", "cores"])
    return Machine(
        name=draw(names),
        levels=levels,
        cores=draw(st.integers(1, 1024)),
        threads_per_core=draw(st.integers(1, 8)),
        frequency=draw(st.floats(1e8, 1e10)),
        vector_bits=draw(st.sampled_from((128, 256, 512))),
        vector_registers=draw(st.sampled_from((16, 32))),
        fma_latency=draw(st.integers(1, 10)),
        fma_rate=draw(st.floats(0.5, 4)),
        peaks=tuple(draw(st.lists(peak, min_size=1, max_size=4))),
        fingerprint=draw(st.text("0123456789abcdef", max_size=12)),
        sources=tuple(draw(st.dictionaries(figures, st.sampled_from(SOURCES))).items()),
    )
