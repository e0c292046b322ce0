"""The house: what is imported from where, which folders make the package, how large things are."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parent.parent


def modules():
    """The modules of the package by name, below `tilesolve`."""
    found = {}
    for top in ("tilesolve", "contractions", "kernels", "packing"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts[1:] if top == "tilesolve" else parts
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


MODULES = modules()


@cache
def parse(path):
    """The tree of a file."""
    return ast.parse(path.read_text("utf-8"))


def imported(path):
    """The modules of ours that a file imports, those for types alone included."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "tilesolve":
            package = node.module.partition(".")[2]
            for name in node.names:
                within = f"{package}.{name.name}".strip(".")
                yield within if within in MODULES else package
        assert not isinstance(node, ast.Import) or all(
            name.name.split(".")[0] != "tilesolve" or path.parent.name == "show"
            for name in node.names
        )


@cache
def imports():
    """The modules of ours that each module imports, as pairs."""
    return [(name, other) for name, path in MODULES.items() for other in imported(path)]


def test_no_circle():
    """No module imports itself, through whichever others."""
    graph = nx.DiGraph([pair for pair in imports() if pair[0] != pair[1]])
    assert [
        sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1
    ] == []


def folder(name):
    """The folder of the package that a module is in."""
    return name.split(".")[0]


def test_prices_and_scores_are_the_models_alone():
    """There is one estimate of time: no other folder has a price, a cost or a score of its own."""
    found = [
        f"{name}.{node.name}"
        for name, path in MODULES.items()
        if folder(name) != "model"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Price", "Cost", "Score"))
    ]
    assert found == []


def test_pyomo_is_the_solvers_alone():
    """Others state programs by posynomials, and need no third of a second to import it."""
    found = {
        name
        for name, path in MODULES.items()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in ([node.module] if isinstance(node, ast.ImportFrom) else map(name_of, node.names))
        if one.split(".")[0] == "pyomo" and folder(name) != "solver"
    }
    assert found == set()


def name_of(alias):
    """The module that an import names."""
    return alias.name


def test_every_folder_is_in_the_distribution():
    """Folders of code are the packages that are listed, each with a docstring."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    folders = {
        f"tilesolve.{name}".strip(".") for name, path in MODULES.items() if path.stem == "__init__"
    }
    assert sorted(listed["packages"]) == sorted(folders)
    homes = {path.parent for path in MODULES.values()}
    assert [home for home in homes if not (home / "__init__.py").exists()] == []


def test_no_module_has_the_name_of_a_public_function():
    """`tilesolve.plan` is a function, so no module of the package itself is called that."""
    import tilesolve

    assert [name for name in tilesolve.__all__ if name in MODULES] == []


def test_modules_are_of_one_idea():
    """None has more than 450 lines."""
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > 450} == {}


def functions(tree):
    """The functions of a module, at any depth."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def body_lines(function):
    """The lines of a function's body, but for its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_functions_fit_a_screen():
    """No body has more than 60 lines."""
    assert [
        f"{name}.{found.name}"
        for name, path in MODULES.items()
        for found in functions(parse(path))
        if body_lines(found) > 60
    ] == []


def plain_lines(path):
    """The lines of a file, with their numbers, that belong to no example."""
    inside = False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        inside = bool(line.strip()) and (inside or line.lstrip().startswith(">>>"))
        if not inside and "$ tilesolve" not in line:
            yield number, line


CPU_NAME = re.compile(
    r"\b(zen ?\d?|granite|sapphire|skylake\w*|haswell|broadwell|cascade lake|xeon|epyc|ryzen"
    r"|i[3579]-\w+|e5-\w+)\b",
    re.IGNORECASE,
)

CPU_NAMES = {
    "bench.contenders": {"SkylakeX", "haswell"},  # what libraries call their kernels
    "studies.misses": {"e5-2680v4"},  # the machine of a table of the paper
}
"""Names of CPUs that code has to know."""


def test_no_cpu_is_named():
    """What is known of a CPU stands in its machine file, what was measured in decisions."""
    found = {}
    for name, path in MODULES.items():
        for number, line in (
            plain_lines(path) if name not in ("machine.cpu", "machine.detect") else ()
        ):
            for one in CPU_NAME.findall(line):
                found.setdefault(name, {}).setdefault(one, number)
    assert {name: set(names) for name, names in found.items()} == CPU_NAMES, found


CASE_NAME = re.compile(r"(?<![\w\"'-])[a-h]{2,}-[a-h]+-[a-h]+(?![\w\"'-])")


def test_no_case_of_a_benchmark_is_a_reason():
    """Code does not speak of single contractions of a suite, but for examples."""
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, path in MODULES.items()
        for number, line in plain_lines(path)
        if CASE_NAME.search(line)
    ]
    assert found == []


FREE = {
    *("machine.costs", "constants.gpu", "constants.nests", "constants.network", "constants.policy"),
    "constants.tuning",
}
"""Modules of numbers: costs of a CPU, cut-offs of the search, and what generated code is like."""

NUMBERS = {
    "instruction sets, and the vectors that blocks of a transpose take": {
        "kernels.codegen.shape": "HALVED_REGISTERS",
        "kernels.ir.copies": "SINGLE_BYTES",
        "kernels.ir.transpose_blocks": "BLOCK_SIDES LISTED_KINDS BLOCK_KINDS TRANSPOSED_KINDS",
        "kernels.ir.masking": "_INT32",
        "kernels.ir.picked_bytes": "LANES",
        "kernels.ir.complexes": "_INT32 _INT64",
        "kernels.ir.vectors": "INT64 _INT32 _SCALARS",
        "kernels.ir.arithmetic": "BIT BYTE",
        "kernels.dtypes": "_BYTES HALVED_VECTOR_BITS",
        "kernels.microkernel_costs": "MANY_REGISTERS",
        "kernels.probes.bandwidth": "BLOCK",
        "kernels.probes.runs": "_OFFSETS",
        "kernels.codegen.scalars": "INT",
        "machine.detect": "ASSUMED_LINE_BYTES ASSUMED_HZ ASSUMED_L1_BYTES ASSUMED_CAPACITY_RATIO "
        "ASSUMED_CACHES ASSUMED_NEAR_RATES ASSUMED_CACHE_RATE ASSUMED_MEMORY_RATE "
        "ASSUMED_FMA_CYCLES",  # of a CPU that does not tell
    },
    "sizes of lines and pages, layouts and versions of formats": {
        "bench.results.record": "FORMAT",
        "contractions.layer_suites": "FORMAT",
        "machine.cluster": "FORMAT",
        "contractions.suites": "FORMAT",
        "contractions.pairing": "MAX_OPERATIONS",
        "kernels.runtime.array_guard": "_AXES _SHAPE _STRIDES _DTYPE _FLAGS _HALF _WRITEABLE "
        "MAX_OUTPUTS _SPAN_WORDS",
        "kernels.runtime.box_fields": "*",
        "kernels.runtime.call_fields": "*",
        "kernels.runtime.copy_windows": "_LINE_WORDS",
        "kernels.runtime.epilogue_fields": "*",
        "kernels.runtime.copy_lines": "WHOLE_LINES ALL_LINES PART_WORDS",
        "kernels.ir.half_precision": "HALF_BYTES _INT16 _INT32 _FLOAT _SIGN _INFINITY "
        "_EXPONENT_SHIFT _LEAST_NORMAL _BEYOND _HALF",
        "kernels.codegen.epilogue_steps": "_SIGNATURE",
        "running.addition": "_STEP",
        "kernels.runtime.contraction_call": "MAX_PLACES",
        "kernels.runtime.fast_call": "MAX_NUMBERS MAX_STACK_BYTES MAX_OWN_BYTES",
        "kernels.runtime.plan_call": "MAX_ROW",
        "kernels.runtime.guard_fields": "*",
        "kernels.runtime.interior_fields": "*",
        "kernels.runtime.traffic_fields": "*",
        "kernels.runtime.task_fields": "*",
        "kernels.runtime.task_list": "_TENSORS _PLACES",
        "kernels.runtime.macrokernel": "_STATE_WORDS _PREFETCH_WORDS",
        "kernels.runtime.staging_buffer": "_HALF_BYTES",
        "kernels.runtime.state": "*",
        "kernels.runtime.transpose_walk": "_FROM _TO _WIDE _HIGH _ACROSS _DOWN _PART_WORDS "
        "_PARTS_WORDS",
        "kernels.runtime.walk_fields": "*",
        "machine.file": "FORMAT",
        "packing.sizes": "*",
        "packing.table_fields": "*",
        "packing.window_fields": "*",
        "nests.files": "NEST_FORMAT",
        "plans.files": "FORMAT",
        "transposes.solution": "_ALONE",
    },
    "limits of numpy, of Python and of the operating system": {
        "bench.run.conv_peers": "ONNX_OPSET ONNX_FORMAT TORCH_DIMENSIONS PACKING_RUNS",
        "cli": "FAILED",
        "contractions.arrays": "HOST_DEVICES",
        "kernels.codegen.python_entry": "FASTCALL KEYWORDS",
        "kernels.codegen.loaded_code": "_SYMBOLS _NOWHERE _LOCAL _FUNCTION _ROOM "
        "_LEAST_ROOM _TURNS",
        "contractions.classes": "_NAMED",
        "contractions.convolution_arguments": "MAX_DIMENSIONS MAX_NUMBER",
        "networks.files": "OLDEST_OPSET _PACKED",
        "networks.quantized": "_OPERATORS _BIAS_AT",
        "networks.task_lists": "_NANOSECONDS",
        "contractions.problem": "MAX_EXTENT",
        "contractions.reference": "MAX_LETTERS MAX_OPERANDS",
        "contractions.spec": "_NAMES _DIGITS",
        "contractions.statements.computation": "_MAX_BYTES",
        "contractions.statements.extents": "_ENDLESS",
        "contractions.subscripts": "_LABELS",
        "expressions.compile": "MAX_AXES MAX_LOOP_OPERANDS",
        "system.checks": "MAX_THREADS",
        "system.interrupts": "INTERRUPTED",
    },
    "what functions are defined by": {
        "bench.array_functions": "*",
        "bench.image_functions": "*",
        "bench.pipelines": "HIGHEST CASES",
        "contractions.epilogue": "_COUNTS",
        "contractions.epilogue_terms": "_RELU _TERMS",
        "contractions.statements.activations": "_CUBE ACTIVATIONS",
        "contractions.statements.powers": "MOST_FACTORS",
        "kernels.ir.angles": "*",
        "kernels.ir.reciprocals": "LARGEST_DIVISOR",
        "kernels.ir.doubled": "_LOW_BITS",
        "kernels.ir.exponentials": "_SINGLE _DOUBLE",
        "kernels.ir.logarithms": "_EXPONENT_BITS",
        "kernels.ir.powers": "_FAR _TERMS",
        "kernels.ir.smooth_functions": "*",
    },
    "numpy's operations: their arguments, how closely they bind, and what reductions begin with": {
        "contractions.statements.operations": "BINARY UNARY REDUCTIONS",
        "contractions.statements.terms": "_LEVELS",
    },
    "what the paper of slicing assumes": {"planning.slicing.csa": "CACHE_SHARE LATENCIES"},
    "bounds of caches, of waiting and of what is accepted": {
        "machine.kernel_cache": "WAIT_SECONDS",
        "machine.level": "LOWEST_RATE HIGHEST_RATE MAX_CACHES",
        "contractions.statements.ufuncs": "MOST_FACTORS",
        "contractions.tracing": "_MOST_BRANCHES _MOST_PARTS",
        "nests.running": "MOST_LAYOUTS",
        "running.execution": "_CALLS",
        "plans.cache": "MAX_PLANS_IN_MEMORY",
        "system.cache_bound": "DEFAULT_LIMIT_BYTES UNSEEN_SHARE",
        "system.cancellation": "_LOOK_SECONDS",
        "system.result_buffers": "DEFAULT_KEPT_BYTES",
        "system.files": "LOCK_MODE PROBE_BYTES POLL_SECONDS LEFTOVER_SECONDS",
        "system.first_use": "PATIENCE_SECONDS",
        "system.kept_objects": "KEY_SECONDS MAKING_SECONDS",
    },
    "the solvers' options, and what a proof is given": {
        "plans.certificate": "MAX_CHAINS SLACK MARGIN_SECONDS",
        "solver.ipopt": "OPTIONS _STATUS",
    },
    "the simulation's own numbering and procedure": {
        "simulation.cache_simulator": "EMPTY",
        "simulation.nest_trace": "LEAST_STEPS OUTPUT INNERMOST",
    },
    "how calibration measures": {
        "calibration.calibrate": "FULL QUICK REPEATS MEMORY_SHARE",
        "calibration.latency": "CHASE_ROUNDS CHASE_RATIO LEAST_LOADS SEED",
        "calibration.measure": "FIRST_BLOCK_SHARE REACH_RATIO GUESSED_REACH_RATIO LEAST_ROUNDS "
        "TEAM_TIMING_RATIO PASS_TRIPS FMA_SCALE FMA_SHIFT",
        "calibration.microkernels": "TURN_SECONDS TURNS",
        "calibration.runs": "RUN_LINES REPEATS TURNS TIMED_LINES MOST_SPREAD SEED",
        "calibration.cost_probes": "QUICK_REPEATS FULL_REPEATS QUICK_SECONDS FULL_SECONDS "
        "PACE_SHARE PACE_BYTES PACE_TURNS",
        "calibration.part_lines": "RUN_BYTES PIECES COLUMNS TIMED_BYTES TURNS",
        "calibration.plan_runs": "*",
        "calibration.statement_runs": "*",
        "calibration.readings": "MOST_SPREAD RETRIES LEAST_VALUES QUIET_SHARE VALUES_PER_OUTLIER",
        "kernels.probes.part_lines": "NUMPY_BYTES _OFFSETS",
        "calibration.staircase": "BEYOND_RATIO LARGEST_RATIO DISTINCT_RATIO NOISE_RATIO",
    },
    "how sweeps and studies measure": {
        "bench.cases": "MULTIPLICATIONS EXTENTS TENSOR_ELEMENTS TINY_EXTENT START_SECONDS",
        "bench.procedure": "LEAST_ROUNDS LONG_SECONDS RUN_PER_ARITHMETIC",
        "bench.results.summary": "NEAR_ERROR",
        "bench.case": "NUMPY_OFFSET_BYTES CHECKED_ELEMENTS ROUNDING_ERRORS DIGEST_PARTS",
        "bench.layers": "TINY LAYER_SECONDS",
        "bench.network_models": "OPSET IR_VERSION",
        "bench.networks": "SIDE SMALL_SIDE NETWORK_SECONDS NETWORK_SLACK",
        "bench.run.network_layers": "PRICE_SLACK LETTERS",
        "bench.nests": "TINY_EXTENT LARGEST_DRAWN NEST_SECONDS STATEMENT_SECONDS SHARE",
        "bench.results.nest_tables": "NEAR_FACTOR",
        "bench.run.halide_nests": "STRIP_ROWS",
        "bench.run.nest_peers": "OUT_OFFSETS OUT_ROUNDS",
        "bench.run.numpy_nests": "GRID_BYTES LOOP_TRIPS TRIALS",
        "bench.run.worker": "COLD_RUNS WARM_SECONDS WARM_TRIES PR_SET_PDEATHSIG",
        "contractions.statements.drawn_nests": "TOTAL_BYTES MOST_WORK FUNCTION_WORK ASPECT "
        "ROUND_EXTENT PARAMETER FIT_STEPS",
        "bench.run.sweep": "SPARE_BYTES",
        "bench.run.team": "MESSAGE_CHARACTERS EXIT_SECONDS POLL_SECONDS",
        "bench.run.turn": "PEAK_SHARE LEAST_PEAK_SECONDS",
        "studies.rankings": "VARIANTS VARIANT_SECONDS FIRST_FEW",
        "studies.misses": "TABLE_2 SIMULATED_ELEMENTS",
        "bench.run.timed_plans": "HOPELESS_RATIO",
        "studies.plan_tiles": "RUNNER_UP_PLANS RANDOM_PLANS NEARBY_FACTOR MOST_DRAWS CHECK_SECONDS "
        "SEED METHOD",
        "studies.plan_tile_results": "FAR_EXCESS",
        "studies.nest_tile_results": "SHARES",
        "studies.nest_tiles": "RANDOM_TILINGS DIVISOR TILING_SECONDS",
        "nests.draws": "DRAWS_PER_TILING",
        "studies.priced_plans": "MOST_FLOPS",
        "studies.price_results": "VARIANTS VARIANT_SECONDS NEAR_RATIO LOSS_SCALE PRIOR FAR_PLANS "
        "METHOD",
        "studies.tries": "TRIES TRIES_SECONDS ANSWERS METHOD",
    },
    "what a transform multiplies by": {
        "networks.winograd_stages": "OUT _IMAGES _RESULTS _FILTERS",
    },
    "what GPUs' instructions are like": {
        "kernels.gpu.forms": "WARP GROUP DIMENSIONS BARRIER_BYTES SWIZZLE_BYTES _HALVES _BYTES "
        "FRAGMENTS",
        "kernels.gpu.targets": "I1 I8 I16 I32 I64 GLOBAL SHARED MAP CHUNKS AVAILABLE PTX_VERSIONS",
        "kernels.gpu.spirv": "SPOILED",
        "gpu.tensor_maps": "BOX_SIDE STRIDE_BYTES MOST_STRIDE",
        "gpu.card": "MAP_BYTES _SWIZZLES _ELEMENTS _L2_LINES _ENCODER",
        "kernels.gpu.groups": "MODES",
        "kernels.gpu.parts": "THREADS",
        "kernels.gpu.sweeping": "SWEEP_THREADS",
        "calibration.gpu": "SHARED_BYTES READ_BYTES",
        "kernels.gpu.assembling": "SECONDS",
    },
    "how plans for GPUs are judged and written": {
        "bench.gpu": "SECONDS SIDES CASE_SECONDS MOST_ROUNDS ERRORS",
        "bench.gpu_decisions": "SHAPES SEED SIDES LINE ASKED COMPARED SECONDS LIMITS",
        "plans.device_base": "DEVICE_FORMAT",
    },
    "which numbers of exporters are equal": {"networks.patterns": "ATTRIBUTE_SLACK"},
    "how long tries are timed": {"plans.tries": "TURNS_SECONDS MOST_TURNS FLUSHED_CACHES"},
    "which variants are ranked": {
        "ranking.files": "FORMAT",
        "ranking.grid": "TILINGS_PER_VARIANT INTERLEAVED_PARTS STRATA",
        "ranking.polydl": "SMALLEST_TILE INNER_TILES",
        "ranking.polydl_convolutions": "BLOCKS",
        "ranking.ranking": "LEAST_ROUNDS",
        "ranking.table": "MOST_ROWS",
    },
    "what is drawn and printed": {
        "show.calibration_tables": "SUMS",
        "show.console_tables": "PIPE_COLUMNS",
        "show.drawings": "WIDE_RANGE",
        "networks.pictures": "COLUMN LETTERS WIDE HIGH",
        "show.stage_graphs": "SHELF WIDE HIGH",
    },
}
"""Numbers that modules may have beside these, by the reason; a star is all of a module."""


def is_number(node):
    """Whether a part of an expression is a number."""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def numbers(path):
    """The names that a module gives to numbers, or to values made with numbers."""
    for node in parse(path).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "range":
            continue  # such as A, B = range(2)
        if any(map(is_number, ast.walk(node.value))):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target)]
            yield from (part.id for part in parts if isinstance(part, ast.Name))


def test_numbers_stand_where_they_belong():
    """A number that a module has by a name is measured, a cut-off, tuning, or listed above."""
    allowed = {name: names.split() for group in NUMBERS.values() for name, names in group.items()}
    assert sum(map(len, NUMBERS.values())) == len(allowed)
    found = {name: list(numbers(path)) for name, path in MODULES.items() if name not in FREE}
    new = [
        f"{name}.{number}"
        for name, names in found.items()
        for number in names
        if allowed.get(name) != ["*"] and number not in allowed.get(name, ())
    ]
    gone = [
        f"{name}.{number}"
        for name, names in allowed.items()
        for number in names
        if number not in found.get(name, ()) and not (number == "*" and found.get(name))
    ]
    assert (new, gone) == ([], [])


DECIDING = {
    "convolutions",
    "expressions",
    "model",
    "nests",
    "pipelines",
    "planning",
    "plans",
    "running",
    "simulation",
    "solver",
    "transposes",
}
"""Folders that decide what runs and how: what they count on has a name."""

WITHIN = {
    "plans.cache": {12, 32, 0o600},  # and who may read a file
    "solver.chosen_sizes": {1e-4},  # what SCIP may leave open
    "plans.plan": {1e9},  # a prefix of a unit
    "plans.gpu_plan": {1e12},  # the same
    "plans.report": {1e9, 0.005},  # and what is rounded to nothing
}
"""Numbers that functions of these folders may have beside small ones."""


def numbers_within(path):
    """The numbers in bodies of functions, but for counts of a digit, halves and doubles."""
    for function in functions(parse(path)):
        for node in (part for line in function.body for part in ast.walk(line)):
            if is_number(node) and not (
                node.value in (0.5, 1.0, 2.0) or (node.value == int(node.value) and node.value < 10)
            ):
                yield node.value


def test_numbers_within_functions_have_names():
    """A cut-off in the middle of a function is found by nobody."""
    found = {
        name: values
        for name, path in MODULES.items()
        if name.partition(".")[0] in DECIDING and (values := set(numbers_within(path)))
    }
    assert found == WITHIN
