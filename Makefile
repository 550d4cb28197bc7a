# make demo | make test | make lint | make slow | make clients | make faults | make soak | make fuzz | make tsan | make quality.
# Needs Python >= 3.11 and a C++20 compiler; everything else goes into .venv. PIP_FLAGS reaches pip, e.g. an index of
# CPU builds.
PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt
# In the environment itself, so that a rebuild compiles only what changed.
BUILD_TOOLS := cmake ninja pybind11 scikit-build-core
INSTALLED := .venv/installed
PACKAGES := engine extraction schemas workers
SOURCES := $(shell find csrc $(PACKAGES) -type f -not -name '*.pyc')
CHECKED := $(wildcard $(PACKAGES) tests demo benchmarks)
PYTEST := $(BIN)/pytest

.PHONY: help install model demo test quality lint typecheck slow clients faults soak fuzz tsan containers clean

help:
	@echo 'make demo           the whole line on sample pages, from nothing'
	@echo 'make test           lint, types and the tests that take minutes'
	@echo 'make slow           the tests that take longer'
	@echo 'make clients        openai, Instructor, LangChain, Crawl4AI and Schemathesis against the API (900 MB)'
	@echo 'make faults         25 faults in the middle of bursts, alone and in all pairs (an hour)'
	@echo 'make soak           a million random scheduler steps under sanitizers'
	@echo 'make fuzz           ten minutes each of mutated pages through the parts of reading'
	@echo 'make tsan           the threads around the scheduler under ThreadSanitizer'
	@echo 'make lint           ruff and mypy alone'
	@echo 'make quality        reading and known values on large sets of pages (QUALITY_DATA=DIR)'
	@echo 'make containers     build the image and test the compose stack, if a container engine is here'

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt CMakeLists.txt $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) $(BUILD_TOOLS)
	$(PIP) --no-build-isolation '.[engine,test]'
	touch $@

model: $(INSTALLED)
	$(BIN)/pagemill model pull >/dev/null

demo: model
	$(BIN)/python demo/run.py

lint: $(INSTALLED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)

# Reading and known values on large sets of one's own (benchmarks/pages.py says in which form).
QUALITY_DATA ?= data
quality: model
	$(BIN)/python benchmarks/pages.py $(QUALITY_DATA) --templates --json
	$(BIN)/python benchmarks/quality.py $(QUALITY_DATA) --modes known --limit 0 --json

typecheck: $(INSTALLED)
	$(BIN)/mypy $(foreach package,$(PACKAGES),-p pagemill.$(package))

test: lint typecheck model
	$(PYTEST) -m 'not slow and not containers and not long'

slow: model
	$(PYTEST) -m 'slow and not long'

# Instructor, LangChain and Crawl4AI want versions of their own: an environment on top of the other.
CLIENTS := .venv/clients
clients: model
	test -x $(CLIENTS)/bin/python || $(BIN)/python -m venv $(CLIENTS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	  "$$($(CLIENTS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/api/clients.txt
	HOME=$(CURDIR)/$(CLIENTS) $(CLIENTS)/bin/python -m pytest -p no:schemathesis -m 'slow or not slow' \
	  tests/api/test_client_openai.py tests/api/test_client_others.py

faults: model
	$(PYTEST) tests/faults

SCHEDULER := $(addprefix csrc/,block_pool.cc prefix_index.cc plan.cc request_pool.cc) \
  $(wildcard csrc/policy*.cc csrc/scheduler*.cc)

soak:
	mkdir -p build
	$(CXX) -std=c++20 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover -Icsrc \
	  tests/native/soak.cc $(SCHEDULER) -o build/soak
	build/soak 1000000

# Ten minutes each of mutated pages through the text builder alone, the decoder, the metadata reader,
# and all of reading; FUZZ_PAGES may name pages of one's own.
FUZZ_SECONDS ?= 600
FUZZ_PAGES ?=
fuzz: $(INSTALLED)
	rm -rf build/fuzz
	$(BIN)/python tests/native/serialize_pages.py build/fuzz tests/quality/pages/*.html $(FUZZ_PAGES)
	$(CXX) -std=c++20 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover -Icsrc \
	  tests/native/page_fuzz.cc $(addprefix csrc/page_,cost.cc markup.cc repeats.cc sight.cc text.cc \
	  writer.cc) -o build/page_fuzz
	build/page_fuzz $(FUZZ_SECONDS) 1 build/fuzz/*.html
	for part in decode metadata read; do \
	  $(BIN)/python tests/extraction/fuzz_pages.py $$part $(FUZZ_SECONDS) 1 tests/quality/pages/*.html \
	    $(FUZZ_PAGES) || exit 1; \
	done

tsan:
	mkdir -p build
	$(CXX) -std=c++20 -O1 -g -fsanitize=thread -Icsrc \
	  tests/native/threads.cc $(SCHEDULER) csrc/cpu/thread_pool.cc -pthread -o build/threads
	TSAN_OPTIONS=halt_on_error=1 build/threads 5000

# PIP_FLAGS and DOCKER_BUILD_FLAGS reach the build, e.g. `--network host`.
containers: $(INSTALLED)
	@if docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then \
	  docker build --tag pagemill:0.1.0 --build-arg PIP_FLAGS='$(PIP_FLAGS)' $(DOCKER_BUILD_FLAGS) . && \
	  $(PYTEST) -m containers tests/compose; \
	else echo 'containers: not tested, no container engine is here'; fi

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache
