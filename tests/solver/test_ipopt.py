"""The bridge to IPOPT: reading Pyomo models, their derivatives, and the points it returns."""

import math
import operator
import sys

import numpy as np
import pyomo.environ as pyo
import pytest
from commands import run_python
from hypothesis import example, given
from hypothesis import strategies as st
from pyomo_models import extract
from turns import examples

from tilesolve.contractions.errors import MemoryLimitError, SolverError
from tilesolve.solver.exponentials import Program
from tilesolve.solver.ipopt import solve
from tilesolve.solver.nlp import ExponentialNLP

numbers = st.floats(-2, 2).map(lambda number: round(number, 3))
vectors = st.lists(numbers, min_size=3, max_size=3)


def blank(**settings):
    """A model of three variables `x`, with one parameter and one fixed variable."""
    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(3), **settings)
    model.p = pyo.Param(initialize=1.5, mutable=True)
    model.fixed = pyo.Var(initialize=0.25)
    model.fixed.fix()
    return model


# ------------------------------------------------------------------------------- reading


# A recipe is a nested tuple, so that hypothesis can shrink it and print it.
monomials = st.tuples(st.just("monomial"), numbers.filter(bool), vectors)
sums = st.recursive(
    st.one_of(
        st.tuples(st.just("exp"), vectors, numbers),
        st.tuples(st.just("constant"), numbers),
        monomials,
    ),
    lambda parts: st.one_of(
        st.tuples(st.sampled_from("+-*"), parts, parts),
        st.tuples(st.just("/"), parts, monomials),
        st.tuples(st.just("power"), parts, st.integers(0, 3)),
        st.tuples(st.just("root"), vectors, numbers),
        st.tuples(st.sampled_from(["named", "negated"]), parts),
        st.tuples(st.just("scaled"), parts, numbers),
    ),
    max_leaves=6,
)
recipes = st.tuples(st.just("+"), sums, st.tuples(st.just("linear"), vectors, numbers))

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def linear(model, rates, constant):
    return sum(rate * model.x[i] for i, rate in enumerate(rates)) + constant


def cook(model, recipe):
    """The Pyomo expression of a recipe."""
    kind, *parts = recipe
    match kind:
        case "constant":
            return parts[0] * model.p
        case "linear":
            return linear(model, *parts)
        case "exp":
            return pyo.exp(linear(model, *parts) - model.fixed)
        case "monomial":
            return parts[0] * pyo.exp(linear(model, parts[1], 0)) * pyo.exp(-model.x[0]) / 3
        case "root":
            return pyo.exp(linear(model, *parts)) ** 0.5
        case "power":
            return cook(model, parts[0]) ** parts[1]
        case "negated":
            return -cook(model, parts[0])
        case "scaled":
            return cook(model, parts[0]) * (parts[1] * pyo.log(model.p)) * pyo.sqrt(model.fixed)
        case "named":
            inner = cook(model, parts[0])
            name = f"e{len(list(model.component_objects(pyo.Expression)))}"
            model.add_component(name, pyo.Expression(expr=inner))
            return model.component(name)
    return OPERATORS[kind](*(cook(model, part) for part in parts))


def absolute(recipe):
    """The recipe with every sign positive: its value bounds the rounding of the other's."""
    kind, *parts = recipe
    if kind in ("exp", "root", "linear"):
        return recipe
    plain = {"-": "+", "negated": "named"}.get(kind, kind)
    return plain, *(
        absolute(part) if isinstance(part, tuple) else part if isinstance(part, list) else abs(part)
        for part in parts
    )


@given(st.lists(recipes, min_size=1, max_size=3), vectors)
@examples(70, 200)
def test_a_program_has_the_values_of_the_expressions(dishes, point):
    """A program evaluates to what Pyomo says of each expression, at any point."""
    model = blank(initialize=0.0)
    exact, sizes = ([cook(model, make(dish)) for dish in dishes] for make in (tuple, absolute))
    model.c = pyo.Constraint(
        range(1, len(dishes)), rule=lambda model, i: exact[i] + model.x[0] <= 1e9
    )
    model.objective = pyo.Objective(expr=exact[0])
    model.x.set_values(dict(enumerate(point)))
    program = extract(model)
    at = [model.find_component(name).value for name in program.variables]
    expected = [pyo.value(exact[0]), *(pyo.value(one.body) for one in model.c.values())]
    rounding = [10 + abs(pyo.value(size)) for size in sizes]
    assert (np.abs(program.values(at) - expected) <= 1e-11 * np.array(rounding)).all()


def test_parameters_and_fixed_variables_count_with_their_present_values():
    """Reading again after a change of a parameter or of a fixed variable sees the change."""
    model = blank(bounds=(0, 1))
    model.o = pyo.Objective(expr=model.p * pyo.exp(model.x[0]) + model.fixed)
    before = extract(model).values([0.0])
    model.p = 4
    model.fixed.fix(2)
    assert before == [1.75]
    assert extract(model).values([0.0]) == [6.0]


def test_shared_exponentials_are_stored_once():
    """An exponential in two functions is one column, and a program keeps the model's names."""
    model = pyo.ConcreteModel()
    model.b = pyo.Block()
    model.b.x = pyo.Var(["m", "n"], bounds=(0, 9))
    model.b.c = pyo.Constraint(["u"], rule=lambda b, i: pyo.exp(b.parent_block().b.x["m"]) <= 3)
    model.o = pyo.Objective(expr=5 * pyo.exp(model.b.x["m"]) - model.b.x["n"])
    program = extract(model)
    assert program.coefficients.tolist() == [[5.0], [1.0]]
    assert program.constraints == ("b.c[u]",)
    assert set(program.variables) == {"b.x[m]", "b.x[n]"}


def test_a_program_cannot_be_changed():
    """The arrays of a program are as frozen as its fields."""
    program = extract(gemm(48.0))
    with pytest.raises(ValueError, match="read-only"):
        program.coefficients[0, 0] = 2.0


def test_inactive_components_are_not_read():
    """Deactivated constraints and objectives do not count, whatever they hold."""
    model = blank(bounds=(0, 1))
    model.c = pyo.Constraint(expr=pyo.sin(model.x[0]) <= 0)
    model.c.deactivate()
    model.o = pyo.Objective(expr=pyo.sin(model.x[0]))
    model.o.deactivate()
    model.q = pyo.Objective(expr=model.x[1])
    program = extract(model)
    assert (program.variables, program.constraints) == (("x[1]",), ())


UNSUPPORTED = [
    (lambda x, y: pyo.sin(x), "sin(x[0])"),
    (lambda x, y: pyo.log(x + y), "log(x[0] + x[1])"),
    (lambda x, y: pyo.sqrt(pyo.exp(x)), "sqrt(exp(x[0]))"),
    (lambda x, y: abs(x), "abs(x[0])"),
    (lambda x, y: pyo.Expr_if(x >= 1, x, y), "Expr_if"),
    (lambda x, y: x * y, "x[0]*x[1]"),
    (lambda x, y: x**2, "x[0]**2"),
    (lambda x, y: 2**x, "2**x[0]"),
    (lambda x, y: x * pyo.exp(y), "x[0]*exp(x[1])"),
    (lambda x, y: pyo.exp(x * y), "x[0]*x[1]"),
    (lambda x, y: pyo.exp(1 + pyo.exp(x)), "exp(1 + exp(x[0]))"),
    (lambda x, y: 1 / x, "1/x[0]"),
    (lambda x, y: 1 / (pyo.exp(x) + pyo.exp(y)), "1/(exp(x[0]) + exp(x[1]))"),
    (lambda x, y: (pyo.exp(x) + 1) ** 0.5, "(exp(x[0]) + 1)**0.5"),
    (lambda x, y: (-pyo.exp(x)) ** 0.5, "(- exp(x[0]))**0.5"),
    (lambda x, y: pyo.exp(x) / (0 * pyo.exp(y)), "raises 0 to the power -1"),
    (lambda x, y: (pyo.exp(x) + pyo.exp(y) + 1) ** 30, "over 10000 exponentials"),
]


@pytest.mark.parametrize(("make", "part"), UNSUPPORTED, ids=[part for _, part in UNSUPPORTED])
@pytest.mark.parametrize("inside", [False, True])
def test_what_is_not_a_sum_of_exponentials_is_refused(make, part, inside):
    """The error names the constraint and prints the subexpression, alone or within others."""
    model = blank()
    odd = make(model.x[0], model.x[1])
    model.o = pyo.Objective(expr=model.x[2])
    whole = 3 * (pyo.exp(model.x[2]) - odd) + model.x[0] if inside else odd
    model.strange = pyo.Constraint(expr=whole <= 5)
    with pytest.raises(SolverError, match="constraint 'strange': ") as caught:
        extract(model)
    assert part in str(caught.value)


@pytest.mark.parametrize("domain", [pyo.Integers, pyo.Binary])
def test_integer_variables_are_refused(domain):
    """A relaxation is the caller's to make; a fixed integer is a constant."""
    model = blank()
    model.whole = pyo.Var(domain=domain, initialize=1)
    model.o = pyo.Objective(expr=pyo.exp(model.whole))
    with pytest.raises(SolverError, match="objective 'o': whole is an integer variable"):
        extract(model)
    model.whole.fix()
    assert extract(model).values([]) == pytest.approx([math.e])


def test_other_components_are_refused():
    """What IPOPT cannot hold is an error by its name, not left out."""
    model = blank(bounds=(0, 1))
    model.o = pyo.Objective(expr=model.x[0])
    model.s = pyo.SOSConstraint(var=model.x, sos=1)
    with pytest.raises(SolverError, match="SOSConstraint 's'"):
        extract(model)


@pytest.mark.parametrize("count", [0, 2])
def test_a_model_has_one_objective(count):
    """None and two objectives are refused."""
    model = blank()
    model.o = pyo.Objective(range(count), rule=lambda model, i: model.x[i])
    with pytest.raises(SolverError, match=f"{count} active objectives"):
        extract(model)


def nested(model):
    whole = pyo.exp(model.x[0])
    for _ in range(3000):
        whole = whole * pyo.exp(model.x[1])
    return whole


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda model: pyo.exp(4000 * model.fixed) + model.x[0], "overflows"),
        (lambda model: model.x[0] / (pyo.exp(2800 * model.fixed) ** 2), "overflows"),
        (lambda model: 1 / (pyo.exp(2800 * model.fixed) * pyo.exp(700 + model.fixed)), "overflows"),
        (lambda model: model.x[0] * (1e308 * model.p) * model.p, "x\\[0\\]|inf|overflows"),
        (lambda model: (1e200 * pyo.exp(model.x[0])) ** 2, "overflows"),
        (lambda model: 1 / (1e200 * pyo.exp(model.x[0]) * (pyo.exp(model.x[1]) * 1e200)), "overfl"),
        (lambda model: model.x[0] + model.empty, "empty has the value None"),
        (lambda model: model.x[0] + pyo.log(model.p - 2), "log"),
        (nested, "nested too deeply"),
    ],
    ids=["exp", "power", "product", "linear", "square", "divisor", "no value", "log", "nested"],
)
def test_constants_that_are_not_numbers_are_refused(make, message):
    """Overflow, missing values and undefined functions never become coefficients."""
    model = blank()
    model.empty = pyo.Var()
    model.empty.fix()
    model.o = pyo.Objective(expr=make(model))
    with pytest.raises(SolverError, match=message):
        extract(model)


# --------------------------------------------------------------------------- derivatives


@st.composite
def programs(draw):
    """Programs of three variables: sums and differences of exponentials, some linear parts."""
    functions, terms = draw(st.integers(1, 4)), draw(st.integers(0, 5))

    def matrix(rows, columns, entries):
        one = st.lists(entries, min_size=columns, max_size=columns)
        drawn = draw(st.lists(one, min_size=rows, max_size=rows))
        return np.array(drawn, dtype=float).reshape(rows, columns)

    sparse = st.one_of(st.just(0.0), numbers)
    bounds = st.sampled_from(
        [(-math.inf, 2.0), (1.0, math.inf), (1.5, 1.5), (-1.0, 3.0), (-math.inf, 0.0)]
    )
    limits = draw(st.lists(bounds, min_size=functions - 1, max_size=functions - 1))
    linear = matrix(functions, 3, sparse)
    linear[draw(st.integers(0, functions)) :] = 0.0
    linear[:, 2] += 1e-3 * (linear.any(axis=1) | (terms == 0))
    coefficients = matrix(functions, terms, sparse)
    if terms:
        coefficients[:, 0] += np.where(coefficients.any(axis=1), 0.0, 1.0)
    return Program(
        variables=("a", "b", "c"),
        lower=np.full(3, -math.inf),
        upper=np.full(3, math.inf),
        start=np.array(draw(vectors)) / 2,
        constraints=tuple(f"c{i}" for i in range(functions - 1)),
        constraint_lower=np.array([low for low, _ in limits], dtype=float),
        constraint_upper=np.array([high for _, high in limits], dtype=float),
        sense=draw(st.sampled_from([1, -1])),
        coefficients=coefficients,
        exponents=matrix(terms, 3, sparse),
        offsets=matrix(terms, 1, numbers).ravel(),
        linear=linear,
        constants=matrix(functions, 1, sparse).ravel(),
    )


def slopes(function, x, step=1e-5):
    """Central differences, one row per variable."""
    rows = []
    for shift in np.eye(x.size) * step:
        rows.append((np.asarray(function(x + shift)) - function(x - shift)) / (2 * step))
    return np.array(rows)


def dense(places, entries, shape):
    """Return a matrix of some entries."""
    found = np.zeros(shape)
    found[places] = entries
    return found


def jacobian(nlp, x):
    """Return all derivatives of the constraints."""
    shape = len(nlp.program.constraints), x.size
    return dense(nlp.jacobianstructure(), nlp.jacobian(x), shape)


def size(nlp):
    """A bound on the magnitudes that are subtracted from each other in a difference."""
    return 1 + np.abs(nlp.program.coefficients).sum() * 60 if nlp.program.offsets.size else 1


@given(programs(), st.booleans())
@examples(50, 150)
def test_first_derivatives_are_the_differences(program, logarithms):
    """Gradient and Jacobian are those of the values, with and without logarithms."""
    nlp = ExponentialNLP(program, logarithms=logarithms)

    x = program.start
    expected = slopes(nlp.objective, x), slopes(nlp.constraints, x).T
    found = nlp.gradient(x), jacobian(nlp, x)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * size(nlp))


@given(programs(), st.booleans(), numbers, st.lists(numbers, min_size=3, max_size=3))
@examples(50, 150)
def test_the_hessian_is_the_difference_of_gradients(program, logarithms, factor, duals):
    """The lower triangle of the Lagrangian's Hessian is that of its gradient's derivative."""
    nlp = ExponentialNLP(program, logarithms=logarithms)
    duals = np.array(duals[: len(program.constraints)])

    def gradient(x):
        return factor * nlp.gradient(x) + duals @ jacobian(nlp, x)

    x = program.start
    expected = slopes(gradient, x)
    lower = dense(nlp.hessianstructure(), nlp.hessian(x, duals, factor), (x.size, x.size))
    assert not np.triu(lower, 1).any()
    found = lower + np.tril(lower, -1).T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * size(nlp))


@given(programs(), vectors, numbers)
@examples(20, 50)
def test_results_are_those_of_the_point_that_is_asked_for(program, point, factor):
    """Whatever was computed before, and in whatever order, at another point."""
    used, x, other = ExponentialNLP(program), np.array(point), program.start + 0.5
    duals = np.arange(1.0, 1 + len(program.constraints))
    asked = (
        lambda nlp, at: nlp.objective(at),
        lambda nlp, at: nlp.gradient(at),
        lambda nlp, at: nlp.constraints(at),
        lambda nlp, at: nlp.jacobian(at),
        lambda nlp, at: nlp.hessian(at, duals, factor),
        lambda nlp, at: nlp.multipliers(at, duals),
    )
    for one in asked:
        for before in asked:
            before(used, other)
            expected = one(ExponentialNLP(program), x)
            np.testing.assert_array_equal(one(used, x), expected)


@given(programs(), vectors)
@examples(40, 100)
def test_logarithms_keep_the_feasible_set_and_the_order(program, point):
    """A point satisfies the logarithms exactly when it satisfies the program."""
    nlp = ExponentialNLP(program)
    body, found = program.values(point)[1:], nlp.constraints(np.array(point))
    margin = 1e-9
    for low, high, exact, lower, upper, seen in zip(
        program.constraint_lower,
        program.constraint_upper,
        body,
        nlp.lower,
        nlp.upper,
        found,
        strict=True,
    ):
        if min(abs(exact - low), abs(exact - high)) > margin:
            assert (low <= exact <= high) == (lower <= seen <= upper)


def test_entries_that_are_always_zero_are_left_out():
    """Of the derivatives IPOPT stores those that a function or a pair of variables has."""
    model = gemm(768.0)
    model.apart = pyo.Constraint(expr=pyo.exp(model.x[0]) <= 9)
    nlp = ExponentialNLP(extract(model))
    rows, _ = nlp.jacobianstructure()
    assert np.bincount(rows).tolist() == [3, 1]
    assert len(nlp.hessianstructure()[0]) == 6


# ------------------------------------------------------------------------------- solving


def gemm(capacity, unit=1.0):
    """Least traffic of a tile of a matrix product whose three parts share a cache."""
    model = blank(bounds=(0, 12))
    m, n, k = model.x.values()
    footprint = pyo.exp(m + k) + pyo.exp(k + n) + pyo.exp(m + n)
    model.capacity = pyo.Constraint(expr=unit * footprint <= unit * capacity)
    model.traffic = pyo.Objective(expr=unit * (pyo.exp(-m) + pyo.exp(-n) + pyo.exp(-k)))
    return model


@pytest.mark.parametrize("capacity", [48.0, 4096.0, 1e6])
def test_the_best_tile_of_a_matrix_product_is_balanced(capacity):
    """Each tensor gets a third of the capacity, and the multiplier is what more of it buys."""
    model = gemm(capacity)
    solution = solve(model)
    side = math.sqrt(capacity / 3)
    assert solution.status == "optimal"
    assert [math.exp(model.x[i].value) for i in range(3)] == pytest.approx([side] * 3, rel=1e-4)
    assert solution.objective == pytest.approx(3 / side, rel=1e-6)
    assert solution.multipliers["capacity"] == pytest.approx(-1.5 / side / capacity, rel=1e-4)
    assert solution.violation <= 1e-6
    assert solution.iterations > 0
    assert solution.values == {f"x[{i}]": model.x[i].value for i in range(3)}


@pytest.mark.parametrize("unit", [1e-12, 1e-3, 1e9])
def test_units_do_not_matter(unit):
    """Bytes or gigabytes, seconds or nanoseconds: the solver takes the same steps."""
    plain, scaled = solve(gemm(4096.0)), solve(gemm(4096.0, unit))
    assert scaled.iterations == plain.iterations
    assert list(scaled.values.values()) == pytest.approx(list(plain.values.values()), abs=1e-6)


@pytest.mark.parametrize("area", [1.0, 50.0])
def test_least_sum_of_a_given_product(area):
    """The least x + y with x·y >= c is 2√c, and grows with c by 1/√c."""
    model = blank(bounds=(-5, 10))
    x, y, _ = model.x.values()
    model.area = pyo.Constraint(expr=pyo.exp(x + y) >= area)
    model.o = pyo.Objective(expr=pyo.exp(x) + pyo.exp(y))
    solution = solve(model)
    assert solution.objective == pytest.approx(2 * math.sqrt(area), rel=1e-6)
    assert solution.multipliers["area"] == pytest.approx(1 / math.sqrt(area), rel=1e-4)


@pytest.mark.parametrize("kind", ["<=", ">=", "=="])
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("flip", [False, True])
def test_a_multiplier_is_the_rate_at_which_the_optimum_grows(kind, raw, flip):
    """Multipliers predict the change of the optimum with the bound, in either sense."""

    def optimum(bound):
        model = blank(bounds=(-3, 4))
        x, y, one = model.x.values()
        model.one = pyo.Constraint(expr=one == 1)
        # A linear part keeps the bridge from taking logarithms.
        part = 0.1 * one if raw else 0
        body = pyo.exp(x) + 2 * pyo.exp(y) + part
        power = 2 if kind == ">=" else -1
        cost = pyo.exp(power * x) + pyo.exp(power * y) + part
        limit = {"<=": body <= bound, ">=": body >= bound, "==": body == bound}
        model.c = pyo.Constraint(expr=limit[kind])
        sense = pyo.maximize if flip else pyo.minimize
        model.o = pyo.Objective(expr=-cost if flip else cost, sense=sense)
        return solve(model, options={"tol": 1e-10})

    at, step = 6.0, 1e-3
    rate = (optimum(at + step).objective - optimum(at - step).objective) / (2 * step)
    assert abs(rate) > 0.01
    assert optimum(at).multipliers["c"] == pytest.approx(rate, rel=1e-3)


def test_constraints_that_do_not_bind_have_no_price():
    """A slack constraint has a multiplier of zero."""
    model = gemm(48.0)
    model.loose = pyo.Constraint(expr=pyo.exp(model.x[0]) <= 1e5)
    assert solve(model).multipliers["loose"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("sense", "end"), [(pyo.minimize, 1.0), (pyo.maximize, 5.0)])
def test_a_range_holds_at_both_ends(sense, end):
    """A constraint with two bounds stops at either."""
    model = blank(bounds=(-9, 9))
    model.c = pyo.Constraint(expr=(1, pyo.exp(model.x[0]), 5))
    model.o = pyo.Objective(expr=model.x[0], sense=sense)
    solution = solve(model)
    assert solution.objective == pytest.approx(math.log(end), abs=1e-6)
    assert solution.multipliers["c"] == pytest.approx(1 / end, rel=1e-4)


def test_values_lie_within_the_bounds():
    """A variable at its bound is there exactly, not beyond by a rounding."""
    model = blank(bounds=(2, 5))
    model.o = pyo.Objective(expr=model.x[0] - pyo.exp(-model.x[1]) / 9)
    values = solve(model).values
    assert values["x[0]"] >= 2
    assert min(values.values()) == 2.0


def test_a_program_is_solved_without_a_model():
    """A program gives the same solution as its model, and leaves the model alone."""
    model = gemm(48.0)
    solution = solve(extract(model))
    assert model.x[0].value is None
    assert solution.objective == solve(model).objective


def test_nothing_is_printed():
    """IPOPT's log stays silent, and so does its banner, which a process prints but once."""
    code = (
        "import pyomo.environ as pyo; from tilesolve.solver.ipopt import solve; "
        "model = pyo.ConcreteModel(); model.x = pyo.Var(bounds=(0, 1)); "
        "model.o = pyo.Objective(expr=pyo.exp(model.x)); solve(model)"
    )
    ran = run_python("-c", code, check=True, text=False)
    assert (ran.stdout, ran.stderr) == (b"", b"")


def valley(model):
    """A function of exp(x0) with minima at 1 and, deeper, at 4."""
    y = pyo.exp(model.x[0])
    return y**4 / 4 - 7 / 3 * y**3 + 7 * y**2 - 8 * y


def test_several_starts_find_the_better_minimum():
    """The best of all starts is kept, and the spread tells that they disagreed."""
    model = blank(bounds=(-1, 2))
    model.o = pyo.Objective(expr=valley(model))
    near, far = ({"x[0]": math.log(y)} for y in (0.9, 4.2))
    shallow = solve(model, [near])
    assert shallow.objective == pytest.approx(1 / 4 - 7 / 3 + 7 - 8, abs=1e-6)
    assert (shallow.spread, shallow.failures) == (0.0, ())
    for starts in ([near, far], [far, near]):
        best = solve(model, starts)
        assert best.objective == pytest.approx(64 - 448 / 3 + 112 - 32, abs=1e-6)
        assert best.spread == pytest.approx(2.25, abs=1e-5)
        assert len(best.objectives) == 2
        assert pyo.value(model.o) == pytest.approx(best.objective)


def test_the_next_start_is_taken_when_one_fails():
    """A start where the functions overflow fails; the other counts, and the failure is told."""
    model = blank()
    model.o = pyo.Objective(expr=pyo.exp(model.x[0]) - model.x[0])
    solution = solve(model, [{"x[0]": 1e4}, {"x[0]": 1.0}])
    assert solution.objective == pytest.approx(1.0)
    assert len(solution.objectives) == 1
    assert "invalid number" in solution.failures[0]
    with pytest.raises(SolverError, match="invalid number"):
        solve(model, [{"x[0]": 1e4}])


def test_a_start_is_checked():
    """Unknown names, numbers that are none, and no start at all are errors."""
    model = gemm(48.0)
    with pytest.raises(SolverError, match="'y', which is not a variable"):
        solve(model, [{"y": 1.0}])
    with pytest.raises(SolverError, match="'fixed', which is not a variable"):
        solve(extract(model), [{"fixed": 1.0}])
    with pytest.raises(SolverError, match="not finite"):
        solve(model, [{"x[0]": math.nan}])
    with pytest.raises(SolverError, match="no point to start from"):
        solve(model, [])


def test_a_start_may_name_variables_that_nothing_needs():
    """A variable of the model that is fixed, or in no function, is passed over in a start."""
    model = gemm(48.0)
    model.spare = pyo.Var(["a"])
    starts = [{"x[0]": 1.0, "spare[a]": 5.0, "fixed": 9.0}]
    assert solve(model, starts).objective == pytest.approx(0.75)
    assert (model.spare["a"].value, model.fixed.value) == (None, 0.25)


def test_the_start_is_the_models_value_else_the_middle():
    """Values inside the bounds are kept, others moved there, and missing ones centred."""
    model = blank()
    bounds = [(0, 4), (None, 3), (1, None)]
    for i, (lower, upper) in enumerate(bounds):
        model.x[i].setlb(lower)
        model.x[i].setub(upper)
    model.free = pyo.Var()
    model.o = pyo.Objective(expr=sum(model.x[i] for i in range(3)) + model.free)
    assert extract(model).start.tolist() == [2.0, 3.0, 1.0, 0.0]
    model.x[0], model.x[1] = 3.5, 7.0
    assert extract(model).start.tolist() == [3.5, 3.0, 1.0, 0.0]


# ---------------------------------------------------------------------- degenerate and bad


def test_infeasible_programs_are_reported():
    """The error has IPOPT's status and the bound that is missed; the model keeps its values."""
    model = blank(bounds=(2, 5), initialize=3.0)
    model.tight = pyo.Constraint(expr=pyo.exp(model.x[0]) + pyo.exp(model.x[1]) <= 1)
    model.o = pyo.Objective(expr=model.x[0] + model.x[1])
    with pytest.raises(SolverError, match=r"'infeasible'.*'tight'"):
        solve(model)
    assert [model.x[i].value for i in range(3)] == [3.0] * 3


@pytest.mark.parametrize("make", [lambda x: x, pyo.exp], ids=["linear", "exponential"])
def test_unbounded_programs_are_reported(make):
    """An objective that has no least value, attained or not, is an error."""
    model = blank()
    model.o = pyo.Objective(expr=make(model.x[0]))
    with pytest.raises(SolverError, match=r"'diverging'|'error in step computation'"):
        solve(model)


def test_other_ends_are_errors():
    """A point that IPOPT did not finish is not returned."""
    with pytest.raises(SolverError, match="'too many iterations'"):
        solve(gemm(4096.0), options={"max_iter": 2})


def test_an_acceptable_point_says_so():
    """Where IPOPT settles for its weaker tolerance, the checked point is kept under that name."""
    options = {"tol": 1e-14, "acceptable_tol": 1e-4, "acceptable_iter": 1}
    solution = solve(gemm(4096.0), options=options)
    assert solution.status == "acceptable"
    assert solution.objective == pytest.approx(3 / math.sqrt(4096 / 3), rel=1e-3)


@pytest.mark.parametrize(("name", "setting"), [("no_such_option", 1), ("mu_strategy", "odd")])
def test_wrong_options_are_named(name, setting, capfd):
    """An option that IPOPT does not know, or a value that it does not take, is an error."""
    with pytest.raises(SolverError, match=f"{name}.*{setting}"):
        solve(gemm(48.0), options={name: setting})


def test_an_accepted_point_satisfies_its_tolerance():
    """What IPOPT calls optimal is an error where it misses the tolerance that was asked for."""
    model = gemm(4096.0)
    loose = {"tol": 1e-2, "constr_viol_tol": 1e-1, "bound_relax_factor": 1e-2}
    assert solve(model, options=loose, tolerance=1.0).violation > 1e-6
    with pytest.raises(SolverError, match="'capacity' are missed by"):
        solve(model, options=loose)


def test_violations_are_relative():
    """A miss counts against the bound and what is bounded, or 1 where that has a linear part."""
    model = blank(bounds=(0, 2))
    x, y, _ = model.x.values()
    model.a = pyo.Constraint(expr=pyo.exp(x) <= 4e-6)
    model.b = pyo.Constraint(expr=x + y <= 0)
    model.c = pyo.Constraint(expr=(1, pyo.exp(y) + x, 5))
    model.o = pyo.Objective(expr=x)
    program = extract(model)
    assert program.violations([0.0, 0.25]) == pytest.approx([0, 0, 1, 0.25, 0], rel=1e-4)
    assert program.violations([-3.0, 2.0]) == pytest.approx([1, 0, 1, 0, 0], rel=1e-4)


def test_variables_with_equal_bounds_keep_their_value():
    """A variable with no room is a constant to IPOPT, next to others that have some."""
    model = gemm(48.0)
    model.x[2].setlb(1.0)
    model.x[2].setub(1.0)
    solution = solve(model)
    assert solution.values["x[2]"] == 1.0
    side = -math.e + math.sqrt(math.e**2 + 48)
    assert math.exp(solution.values["x[0]"]) == pytest.approx(side, rel=1e-4)


@pytest.mark.parametrize("fix", [True, False])
def test_a_program_without_freedom_is_only_checked(fix):
    """With every variable fixed, or without room, the one point is returned or refused."""
    model = gemm(48.0)
    for variable in model.x.values():
        variable.setlb(1.0)
        variable.setub(1.0)
        if fix:
            variable.fix(1.0)
    solution = solve(model)
    assert solution.objective == pytest.approx(3 / math.e)
    assert (solution.status, solution.iterations) == ("optimal", 0)
    model.capacity.deactivate()
    model.small = pyo.Constraint(expr=pyo.exp(model.x[0]) <= 2)
    with pytest.raises(SolverError, match="'small'"):
        solve(model)


def test_no_constraints():
    """Bounds alone, or no bounds at all, are programs too."""
    model = blank()
    model.o = pyo.Objective(expr=pyo.exp(model.x[0]) + pyo.exp(1 - model.x[0]))
    solution = solve(model)
    assert solution.values["x[0]"] == pytest.approx(0.5, abs=1e-5)
    assert solution.multipliers == {}


def test_constraints_without_variables_are_checked_first():
    """A constant constraint that holds changes nothing; one that does not is named."""
    model = gemm(48.0)
    free = solve(model)
    model.equal = pyo.Constraint(expr=model.fixed == 0.25)
    model.below = pyo.Constraint(expr=pyo.exp(model.fixed) <= 2)
    solution = solve(model)
    assert solution.objective == pytest.approx(free.objective)
    assert solution.multipliers["equal"] == solution.multipliers["below"] == 0.0
    model.fixed.fix(1)
    with pytest.raises(SolverError, match=r"'equal' is infeasible.*1 is not within 0.25"):
        solve(model)


def test_crossed_bounds_are_named():
    """A lower bound above the upper one is an error that says whose and which."""
    model = gemm(48.0)
    model.x[1].setlb(20)
    with pytest.raises(SolverError, match=r"variable 'x\[1\]' is bounded by 20 and 12"):
        solve(model)


def test_a_missing_solver_says_what_to_install(monkeypatch):
    """Without cyipopt the error names the package and the command that checks."""
    program = extract(gemm(48.0))
    monkeypatch.setitem(sys.modules, "cyipopt", None)
    with pytest.raises(SolverError, match=r"pip install cyipopt-wheels.*tilesolve doctor"):
        solve(program)


@pytest.mark.parametrize(
    ("says", "error", "expected"),
    [
        ("libipopt.so.3: failed to map segment from shared object", MemoryLimitError, "no memory"),
        ("libmumps.so: cannot allocate memory in static TLS block", MemoryLimitError, "no memory"),
        ("Cannot allocate memory", MemoryLimitError, "no memory is left to load IPOPT"),
        ("libipopt.so.3: undefined symbol: dgemm_", SolverError, "--force-reinstall"),
    ],
)
def test_a_solver_that_is_installed_is_not_to_be_installed(monkeypatch, says, error, expected):
    """It cannot be loaded where memory is short, or is damaged."""
    program = extract(gemm(48.0))

    class Finder:
        def find_spec(self, name, *_):
            if name == "cyipopt":
                raise ImportError(says)

    monkeypatch.delitem(sys.modules, "cyipopt", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(error, match=expected) as caught:
        solve(program)
    assert says in str(caught.value)
    assert error is SolverError or "install" not in str(caught.value)


# ------------------------------------------------------------------- a whole tile program


def tiles(extents, capacities, bandwidths):
    """Bottleneck time of a matrix product tiled for some caches, in logarithms of tile sizes."""
    model = pyo.ConcreteModel()
    levels = range(len(capacities))
    total = math.log(math.prod(extents.values()))
    model.tile = pyo.Var(
        levels, list(extents), bounds=lambda model, level, i: (0, math.log(extents[i]))
    )
    model.time = pyo.Var(bounds=(-60, 60))
    pairs = ("mk", "kn", "mn")

    def fits(model, level):
        tile = {i: model.tile[level, i] for i in extents}
        return sum(pyo.exp(tile[a] + tile[b]) for a, b in pairs) <= capacities[level]

    def hides(model, level):
        moved = sum(pyo.exp(total - model.tile[level, i]) for i in extents)
        return moved / bandwidths[level] <= pyo.exp(model.time)

    model.fits = pyo.Constraint(levels, rule=fits)
    model.hides = pyo.Constraint(levels, rule=hides)
    model.order = pyo.Constraint(
        levels[1:], list(extents), rule=lambda m, level, i: m.tile[level - 1, i] <= m.tile[level, i]
    )
    model.o = pyo.Objective(expr=model.time)
    return model


@given(
    st.fixed_dictionaries({i: st.integers(2, 5000) for i in "mnk"}),
    st.lists(st.floats(1.1, 30), min_size=3, max_size=3),
    st.lists(st.floats(1, 100), min_size=3, max_size=3),
    st.lists(st.floats(0, 1), min_size=10, max_size=10),
)
@example({"m": 57, "n": 126, "k": 1344}, [16.5, 6.0, 4.0], [16.5, 6.25, 18.0], [0.0] * 10)
@examples(20, 60)
def test_every_geometric_program_of_tiles_reaches_its_one_optimum(
    extents, growth, bandwidths, fractions
):
    """From any start IPOPT arrives at the same time, feasibly, and no sampled point beats it."""
    capacities = [4.0 * math.prod(growth[: level + 1]) ** 3 for level in range(3)]
    program = extract(tiles(extents, capacities, bandwidths))
    spread = zip(program.variables, program.lower, program.upper, fractions, strict=True)
    start = {name: low + part * (high - low) for name, low, high, part in spread}
    solution = solve(program, [{}, start])
    assert solution.failures == ()
    assert solution.spread <= 1e-5
    assert program.violations(list(solution.values.values())).max() <= 1e-6
    shrunk = np.array([solution.values[name] for name in program.variables])
    clock = program.variables.index("time")
    for part in np.linspace(0, 1, 5):
        point = part * shrunk
        point[clock] = solution.objective - 1e-3
        assert program.violations(point).max() > 1e-6
