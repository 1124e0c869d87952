# Each target sets up its own .venv when missing. Needs only Python ≥ 3.11 with pip, and make.
PYTHON ?= python3
BIN := .venv/bin

# Tests start many programs. If the environment forbids bytecode files, each of these programs would
# compile the library again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test coverage check lint docs bench release oldest clean

demo: .venv/ready
	$(BIN)/fedavot reproduce regression

# One process per core, and one more because deployments mostly wait; threads of BLAS beside them
# would wait for one another. Files keep their order: the default puts files of few tests last, and
# those are the deployments.
WORKERS = $(shell $(BIN)/python -c "import os; print(os.cpu_count() + 1)")
# What JAX compiled is kept: many tests and programs compile the same, and a second run little.
CACHED = JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.venv/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
	JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
# Most tests of training wait for XLA to compile runs of a few rounds. Without its optimisations and
# its newer emitters it takes half as long, and figures differ by rounding only. Nobody reads which
# line of Python each operation came from, which takes a fifth of the time that is left. Compiling
# the parts of a program in parallel takes a tenth more where every core has a process of its own.
QUICK = JAX_DISABLE_MOST_OPTIMIZATIONS=1 \
	XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1" \
	JAX_TRACEBACK_IN_LOCATIONS_LIMIT=0 JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS=0
PYTEST = $(CACHED) $(QUICK) OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: .venv/ready .venv/ready-flower .venv/ready-adapters
	$(PYTEST)

# The same with branch coverage, of which 95 % are required. It takes nearly twice as long.
coverage: .venv/ready .venv/ready-flower .venv/ready-adapters
	$(PYTEST) --cov --cov-report=term:skip-covered

lint: .venv/ready .venv/ready-flower
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# What a contributor runs before a commit, in about two minutes: style, types, and the core's tests.
CORE_TESTS := tests/laws tests/solve $(addprefix tests/test_,$(addsuffix .py,alignment refusals \
	certificate clients exact feasibility importance imports online saving selection))
check: lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist loadfile $(CORE_TESTS)

bench: .venv/ready-bench .venv/ready-flower .venv/ready-peers
	$(BIN)/python -m benchmarks.run

# The site, in build/site: a broken link or anchor, a docstring that does not parse and an example
# of the gallery that prints something else are errors. Nothing is fetched when it is built or read.
docs: .venv/ready .venv/ready-docs
	NO_MKDOCS_2_WARNING=1 GALLERY_PYTHON=$(BIN)/python .venv/docs/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

# Builds the last commit, checks it, and tries the wheel by itself; then it is in dist.
release: .venv/ready-release
	.venv/release/bin/python .ci/release.py

# The oldest versions of what the library depends on that pyproject.toml allows: the core, and the
# parts that use the packages of an extra most. Old packages have warnings of their own.
EXTRAS_TESTS := tests/test_cli.py tests/rules/test_rules.py tests/training/test_resume.py \
	tests/experiments/test_configured_studies.py \
	$(addprefix tests/audit/test_,$(addsuffix .py,reading_rows reading_parquet outputs figures))
oldest: .venv/ready-oldest
	OPENBLAS_NUM_THREADS=1 .venv/oldest/bin/python -m pytest -q -W ignore::DeprecationWarning \
		-o addopts=--strict-markers $(CORE_TESTS) $(EXTRAS_TESTS)

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; v = sys.version_info; sys.exit(v < (3, 11) and f'fedavot needs Python 3.11 or later, and $(PYTHON) is {v.major}.{v.minor}: make PYTHON=python3.12, say')"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,audit,experiments]"
	touch $@

# Flower for the strategy, PyTorch and Ray for its example; the demonstration needs none of them.
.venv/ready-flower: .venv/ready examples/flower-mnist/pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e ".[flower,tensorboard,mlflow]" "flwr[simulation]" torch
	touch $@

# NVFLARE, APPFL and pfl are for the adapters' tests alone. They bring top-level packages called
# "examples" and "benchmarks": they lie in a folder that only those tests put on their path.
.venv/ready-adapters: examples/adapters/requirements.txt | .venv/ready-flower
	rm -rf .venv/adapters
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--target .venv/adapters -r examples/adapters/requirements.txt
	touch $@

# The site generator reads our sources and does not import them: it has an environment of its own.
.venv/ready-docs: pyproject.toml constraints.txt | .venv/ready
	test -x .venv/docs/bin/python || $(PYTHON) -m venv .venv/docs
	.venv/docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

.venv/ready-bench: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench,audit,experiments]"
	touch $@

# Frameworks we are compared with pin other versions than ours: they get an environment of their own.
.venv/ready-peers: benchmarks/peers.txt | .venv/ready
	test -x .venv/peers/bin/python || $(PYTHON) -m venv .venv/peers
	.venv/peers/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt \
		&& touch $@ || echo "frameworks not installed; P6 and P7 will say so"

# The metadata that hatchling writes needs a newer packaging than MLflow allows.
.venv/ready-release: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv/release
	grep -v '^packaging==' constraints.txt > .venv/release/constraints.txt
	.venv/release/bin/python -m pip install --quiet --disable-pip-version-check -c .venv/release/constraints.txt build hatchling twine
	touch $@

.venv/ready-oldest: pyproject.toml oldest.txt
	$(PYTHON) -m venv .venv/oldest
	.venv/oldest/bin/python -m pip install --quiet --disable-pip-version-check -c oldest.txt \
		-e ".[training,audit,experiments]" clarabel hypothesis pytest pytest-timeout
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
