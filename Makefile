# `make demo` and `make test` need only Python >= 3.11 with its venv module, a C++17 compiler and make.
#   PYTHON=/path/to/python3   CXX=/path/to/compiler   DEVICE=auto|host|cuda (of demo)   PYTEST_ARGS='-k queue'
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test host-sanitize proof lint format gpu-test gpu-sanitize bench clean venv venv-test venv-lint

DEVICE ?= auto
PYTEST_ARGS ?=
EXAMPLES ?= 100
BENCH_ARGS ?=
VENV := .venv
TEST_VENV := .venv-test
CXX_SOURCES = $(shell find kernels cupy_turbo tests -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.h')

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

demo: venv ## write Shakespeare with the demo model, on the GPU if there is one
	@$(VENV)/bin/cupy-turbo generate "ROMEO:" --echo --device $(DEVICE) --max-tokens 200 --temperature 0.8 --seed 1

test: venv-test ## run every test that needs no GPU; NVRTC compiles every kernel for every architecture
	$(TEST_VENV)/bin/python -m pytest $(PYTEST_ARGS)

host-sanitize: venv-test ## the kernel tests on the host device under AddressSanitizer and UndefinedBehaviorSanitizer
	PYTHON=$(TEST_VENV)/bin/python sh tools/host_sanitize.sh

gpu-test: ## the kernel, property and end-to-end tests on the GPU
	@sh tools/setup_venv.sh $(TEST_VENV) gpu cuda12 gguf test
	PYTHON=$(TEST_VENV)/bin/python sh tools/gpu_tests.sh $(PYTEST_ARGS)

gpu-sanitize: ## the kernel tests on the GPU under compute-sanitizer: memcheck, racecheck, synccheck, initcheck
	@sh tools/setup_venv.sh $(TEST_VENV) gpu cuda12 gguf test
	for tool in memcheck racecheck synccheck initcheck; do \
	    SANITIZER=$$tool PYTHON=$(TEST_VENV)/bin/python sh tools/gpu_tests.sh $(PYTEST_ARGS) || exit 1; done

proof: venv-test ## the property tests with a hundred times the examples: takes hours
	CUPY_TURBO_EXAMPLES=$(EXAMPLES) $(TEST_VENV)/bin/python -m pytest tests/property tests/kernels --timeout 0 $(PYTEST_ARGS)

lint: venv-lint ## ruff, mypy (strict) and clang-format; changes nothing
	$(TEST_VENV)/bin/ruff check .
	$(TEST_VENV)/bin/ruff format --check .
	$(TEST_VENV)/bin/mypy
	@$(TEST_VENV)/bin/clang-format --dry-run -Werror $(CXX_SOURCES) && echo "clang-format: $(words $(CXX_SOURCES)) files are well formatted"

format: venv-lint ## let ruff and clang-format rewrite the files
	$(TEST_VENV)/bin/ruff check --fix .
	$(TEST_VENV)/bin/ruff format .
	$(TEST_VENV)/bin/clang-format -i $(CXX_SOURCES)

bench: ## times of the large kernels, of a decode step and of a prefill on the GPU, beside what the hardware allows
	@sh tools/setup_venv.sh $(VENV) gpu cuda
	$(VENV)/bin/python tools/bench_kernels.py
	$(VENV)/bin/python tools/gpu_report.py speed --device cuda $(BENCH_ARGS)

clean: ## remove the environments and everything built or cached here (not ~/.cache/cupy_turbo)
	rm -rf $(VENV) $(TEST_VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv:
ifeq ($(DEVICE),host)
	@sh tools/check_compiler.sh
	@sh tools/setup_venv.sh $(VENV)
else ifeq ($(DEVICE),auto)
	@sh tools/setup_venv.sh $(VENV) cuda
else
	@sh tools/setup_venv.sh $(VENV) gpu cuda
endif

venv-test:
	@sh tools/check_compiler.sh
	@sh tools/setup_venv.sh $(TEST_VENV) cuda12 gguf test

venv-lint:
	@sh tools/setup_venv.sh $(TEST_VENV) lint
