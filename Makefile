# `make demo` and `make test` are all a fresh machine needs: both set up ./.venv first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
FEW    := $(VENV)/.installed-for-the-demo

TOOLS  := cyclonedx-bom==7.5.0 uv==0.13.8

SLOW   := tu compile compiled_steps edge_index explainers export infinite_depth pyg_tools classifier explain_features \
          kernel_fit loop memory recipes resume study systems together tune workers

.PHONY: help setup demo test test-fast attack fuzz chaos package versions lock sbom bench docs lint clean
help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/'

# The demo needs the package and its reports; tests, documentation and exports need much more.
$(STAMP): EXTRAS := dev
$(FEW):   EXTRAS := report
$(STAMP) $(FEW): pyproject.toml constraints.txt $(wildcard src/pprgnn/core/*.cpp)
	@echo "Setting up $(VENV) for $(EXTRAS) (a minute or two, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet -c constraints.txt torch
	@$(BIN)/pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

setup: $(STAMP)  ## create ./.venv with everything in it

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(FEW))   ## train on chains of length 100; prints a table, writes demo-output/
	@$(BIN)/python -m pprgnn.demo --output demo-output

test: $(STAMP)   ## lint, types and all tests
	@$(BIN)/ruff check src tests benchmarks examples docs
	@$(BIN)/mypy & types=$$!; $(BIN)/python -m pytest -n 2; tests=$$?; wait $$types && exit $$tests

test-fast: $(STAMP) ## core, layers, data and training without what starts processes or compilers: for the inner loop
	@$(BIN)/python -m pytest -n 2 -q tests/core tests/local tests/data tests/nn tests/training tests/test_rooms.py \
		$(SLOW:%=--ignore-glob='*/test_%.py')

attack: $(STAMP) ## 10,000 hostile problems against a dense reference (the small form is part of `make test`)
	@PPRGNN_ATTACK=10000 nice -n 19 $(BIN)/python -m pytest -n 2 -q -rP tests/attack

fuzz: $(STAMP)   ## damage files of every kind that is read, 10 minutes each (the small form is part of `make test`)
	@$(BIN)/python -m tests.fuzz --minutes 10

chaos: $(STAMP)  ## kill -9 commands at 100 random moments; what comes out must be what comes out undisturbed
	@$(BIN)/python -m tests.chaos --kills 100

package: $(STAMP) ## build wheel and sdist, install them in empty environments, with a compiler and without one
	@$(BIN)/python -m tests.packaging

versions: $(STAMP) ## the fast tests of core and layers with the oldest and the newest dependencies, on each Python found
	@$(BIN)/python -m tests.packaging --versions -n 2 $(SLOW:%=--ignore-glob='*/test_%.py')

# Tools that are not needed to develop, in an environment of their own: what they bring is not of this project.
$(VENV)/tools/bin/%:
	@$(BIN)/python -m venv $(VENV)/tools
	@$(VENV)/tools/bin/pip install --quiet $(TOOLS)

lock: $(STAMP) $(VENV)/tools/bin/uv ## pin everything of the development environment, with hashes
	@UV_FIND_LINKS="$$($(BIN)/pip config get global.find-links 2>/dev/null)" $(VENV)/tools/bin/uv pip compile --quiet \
		--upgrade --generate-hashes --extra dev -c constraints.txt --custom-compile-command 'make lock' \
		-o requirements-dev.lock pyproject.toml

sbom: $(STAMP) $(VENV)/tools/bin/cyclonedx-py ## list what is installed for development, as CycloneDX JSON
	@mkdir -p dist
	@$(VENV)/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
		--of JSON -o dist/sbom.cdx.json $(BIN)/python
	@echo "dist/sbom.cdx.json"

bench: $(STAMP)  ## measure speed and memory; prints tables, writes results/
	@$(BIN)/python -m benchmarks.run
	@$(BIN)/python -m benchmarks.data
	@$(BIN)/python -m benchmarks.epochs
	@$(BIN)/python -m benchmarks.quality
	@$(BIN)/python -m benchmarks.ignn
	@$(BIN)/python -m benchmarks.kernel
	@$(BIN)/python -m benchmarks.levels
	@$(BIN)/python -m benchmarks.compile
	@$(BIN)/python -m benchmarks.distributed
	@$(BIN)/python -m benchmarks.few_nodes
	@$(BIN)/python -m benchmarks.explore

docs: $(STAMP)   ## build the documentation into docs/_build/index.html
	@$(BIN)/sphinx-build -q -W --keep-going docs docs/_build
	@echo "docs/_build/index.html"

lint: $(STAMP)   ## ruff and mypy only
	@$(BIN)/ruff check src tests benchmarks examples docs
	@$(BIN)/mypy

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) demo-output docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
