# Each target sets up its own .venv when missing. Needs only Python ≥ 3.11 with pip, and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check lint bench clean

demo: .venv/ready
	$(BIN)/fedavot reproduce regression

# One process per core: threads of BLAS beside them would wait for one another. Files keep their
# order, because the default puts files of few tests last, and those are the deployments.
test: .venv/ready .venv/ready-flower .venv/ready-adapters
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered

lint: .venv/ready .venv/ready-flower
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# What a contributor runs before a commit, in about two minutes: style, types, and the core's tests.
CORE_TESTS := tests/laws tests/solve $(addprefix tests/test_,$(addsuffix .py,alignment bad_input \
	certificate clients exact feasibility importance imports online saving selection soft_online))
check: lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist loadfile $(CORE_TESTS)

bench: .venv/ready-bench .venv/ready-flower .venv/ready-peers
	$(BIN)/python -m benchmarks.run

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,flow,audit,experiments]"
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

.venv/ready-bench: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench,flow,audit,experiments]"
	touch $@

# Frameworks we are compared with pin other versions than ours: they get an environment of their own.
.venv/ready-peers: benchmarks/peers.txt | .venv/ready
	test -x .venv/peers/bin/python || $(PYTHON) -m venv .venv/peers
	.venv/peers/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt \
		&& touch $@ || echo "frameworks not installed; P6 and P7 will say so"

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
