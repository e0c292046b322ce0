# Every target sets up .venv by itself when it is missing or older than pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS := .venv/.docs
TREE := build/installed
CLEAN := build/clean
MACHINE := build/this-machine.toml

.PHONY: demo test test-slow lint lines docs package bench clean

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tilesolve needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# The quick calibration and the plan stay in build/: a calibration of one's own is not touched.
demo: $(READY)
	@mkdir -p build
	$(BIN)/tilesolve doctor
	$(BIN)/tilesolve calibrate --quick --output $(MACHINE) --plot build/this-machine.png
	$(BIN)/tilesolve kernels --dtype f64 --output $(MACHINE)
	$(BIN)/tilesolve suites
	$(BIN)/tilesolve suites tccg
	$(BIN)/tilesolve plan abcd-aebf-dfce 72 --machine $(MACHINE) --no-cache --plot build/plan.png
	TILESOLVE_MACHINE=$(MACHINE) $(BIN)/python examples/first_contraction.py

test: $(READY)
	$(BIN)/python -m pytest -n auto -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -n auto -m slow

# The package as a user gets it: the built wheel, whose four source folders have become one.
package: $(READY)
	rm -rf dist build/lib build/bdist.* $(TREE)
	$(BIN)/python -m build --wheel --outdir dist . > /dev/null
	$(BIN)/python -m pip install --quiet --no-deps --target $(TREE) dist/*.whl

# How much there is to read, beside what the design allows.
lines:
	@echo "source: $$(find tilesolve contractions kernels packing -name '*.py' -exec cat {} + | wc -l) lines of 62000"
	@echo "tests: $$(find tests -name '*.py' -exec cat {} + | wc -l) lines of 32000"

# Types and imports between folders are checked on that package. The same wheel is then used from an empty environment, outside
# the checkout.
lint: package lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(TREE) $(BIN)/mypy -p tilesolve
	cd $(TREE) && $(CURDIR)/$(BIN)/lint-imports $(CURDIR)/pyproject.toml
	rm -rf $(CLEAN)
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/bin/python -m pip install --quiet dist/*.whl
	cd / && $(CURDIR)/$(CLEAN)/bin/python -I $(CURDIR)/tests/support/outside.py
	rm -rf $(CLEAN)

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

# The page of the API comes from the docstrings of that package. Any warning is an error.
docs: package $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "built build/site/index.html"

PAGES := docs/performance
RECORD := $(BIN)/python -m tilesolve.bench.results.record_tables

# All figures become sections of the page of this CPU, each in the place of the one before.
# Peers that can be installed are; one that cannot is a line that says so. A sweep that was stopped
# goes on with the next call; a finished one is kept beside its page, and the next call starts anew.
bench: $(READY)
	@mkdir -p build
	-$(BIN)/python -m pip install --quiet opt_einsum pytblis
	-$(BIN)/python -m pip install --quiet jax
	-$(BIN)/python -m pip install --quiet torch
	test -f $(MACHINE) || $(BIN)/tilesolve calibrate --quick --output $(MACHINE)
	$(BIN)/tilesolve kernels --output $(MACHINE)
	$(RECORD) planning $(PAGES) examples/planning_speed.py
	TILESOLVE_MACHINE=$(MACHINE) OPENBLAS_NUM_THREADS=1 $(RECORD) einsum-planning $(PAGES) examples/einsum_planning.py
	$(RECORD) calls $(PAGES) examples/call_overhead.py
	$(RECORD) transposes $(PAGES) examples/transposing_speed.py
	TILESOLVE_MACHINE=$(MACHINE) $(RECORD) threads $(PAGES) examples/thread_scaling.py
	$(BIN)/tilesolve bench tccg --machine $(MACHINE) --json build/tccg.json --csv build/tccg.csv --html build/tccg.html --page $(PAGES)
	mv build/tccg.json build/tccg-latest.json
	TILESOLVE_MACHINE=$(MACHINE) OPENBLAS_NUM_THREADS=1 $(RECORD) small-problems $(PAGES) examples/small_problems.py
	TILESOLVE_MACHINE=$(MACHINE) $(RECORD) edges $(PAGES) examples/edge_speed.py
	TILESOLVE_MACHINE=$(MACHINE) $(RECORD) batches $(PAGES) examples/batched_contractions.py

clean:
	rm -rf .venv build dist *.egg-info
