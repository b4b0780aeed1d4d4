# The two commands of the README: `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-slow lint format bench reproduce-quick setup clean

demo: setup
	$(BIN)/isolatent demo

test: lint
	$(BIN)/pytest --numprocesses 2

test-slow: setup
	$(BIN)/pytest -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/rendering.py
	$(BIN)/python benchmarks/scene_encoders.py
	$(BIN)/python benchmarks/loading.py
	$(BIN)/python benchmarks/augmentations.py
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/losses.py --quick

# One row of each paper, one seed. Started runs finish, so the budget leaves room for them; a second call
# goes on with what is left.
reproduce-quick: setup
	$(BIN)/isolatent reproduce quick --seeds 1 --budget 9 --out results/quick
	$(BIN)/isolatent results results/quick

setup: $(READY)

# Rebuilt whenever the declared dependencies or the pins change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "isolatent needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache
