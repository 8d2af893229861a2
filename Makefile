# Everything starts here: each target makes the environment that it needs, in .venv.
#   make demo      export a model with two inputs of varying size, and run it at another size
#   make test      all tests

PYTHON ?= python3
VENV ?= .venv

# For each set of requirements, a stamp; older than these files, it is made again.
SOURCES := pyproject.toml constraints.txt
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
BASE := $(VENV)/.base
CHECK := $(VENV)/.check
ZOO := $(VENV)/.zoo

# Small models on few cores: more threads than cores only get in each other's way.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test check zoo operators bench robustness fuzz clean

help:
	@echo "make demo    export a model with two inputs of varying size, and run it at another size"
	@echo "make test    all tests"
	@echo "make check   style and types"
	@echo "make zoo     score anyshape and torch's exporters on small models at sizes they never saw, and run the examples"
	@echo "make operators   sweep over PyTorch's operators, beside torch's exporter; writes docs/operators.md"
	@echo "make bench   time of export and of inference, beside torch's exporter"
	@echo "make robustness   mutated contracts and files, and the same export on a busy machine and in two threads"
	@echo "make fuzz    export modules written at random, and hold each file against PyTorch"
	@echo "make clean   remove what was built, the environment included"

# torch comes first and alone: nothing later may choose another build of it.
$(BASE): $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e ".[test]"
	@touch $@

$(CHECK): $(BASE)
	$(PIP) -e ".[check]"
	@touch $@

# The real architectures of the benchmarks. torchvision and timm ask for a torch of their own choice:
# they come without what they ask for.
$(ZOO): $(BASE)
	$(PIP) -e ".[zoo]"
	$(PIP) --no-deps torchvision timm
	@touch $@

demo: $(BASE)
	@mkdir -p build
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: $(BASE)
	$(BIN)/python -m pytest -n 2

check: $(CHECK)
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy src
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_api.py tests/test_house.py

zoo: $(BASE)
	$(BIN)/python benchmarks/zoo.py -j 2
	$(BIN)/python benchmarks/run_examples.py

operators: $(BASE)
	@mkdir -p build
	$(BIN)/python benchmarks/operators.py -j 2 --json build/operators.json --write

bench: $(ZOO)
	$(BIN)/python benchmarks/bench.py

robustness: $(BASE)
	$(BIN)/python benchmarks/robustness.py
	$(BIN)/python benchmarks/steady.py
	$(BIN)/python benchmarks/steady.py --threads

fuzz: $(BASE)
	$(BIN)/python benchmarks/fuzz.py --count 200 -j 2 --keep build/fuzz

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks $(VENV)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
