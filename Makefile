VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
LOCKED := $(VENV)/.locked
CARGO_TEST := $(if $(shell command -v cargo-nextest),nextest run --no-tests=pass,test)

.DEFAULT_GOAL := help

.PHONY: help
help:  ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(LOCKED): requirements/dev.lock
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --requirement $<
	touch $@

.PHONY: dev
dev: $(LOCKED)  ## Set up a fresh clone: .venv with weft in it
	$(BIN)/maturin develop --uv --quiet --locked

.PHONY: release
release: $(LOCKED)  ## Like dev, with the optimised core that benchmarks need
	$(BIN)/maturin develop --uv --quiet --locked --release

.PHONY: fmt
fmt:  ## Format all code, and fix what the linters can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cargo fmt --all

.PHONY: check
check:  ## Everything that can be said without running the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PY) -m tests.layers
	cargo fmt --all --check
	cargo clippy --locked --workspace --features weft-agent/clone --all-targets -- -D warnings
	cargo clippy --locked --package weft-agent --all-targets -- -D warnings
	$(BIN)/towncrier build --draft --version unreleased
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms \
		$(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/zizmor --offline --quiet .github

.PHONY: test
test: test-rust test-python  ## All tests, of Rust and of Python

# The agent is tested with the clone engine, and without it. It is the one without that is built by
# itself: it depends on almost nothing, while all that the engine depends on would be compiled again.
.PHONY: test-rust
test-rust:  ## The tests of the crates
	cargo $(CARGO_TEST) --locked --workspace --features weft-agent/clone
	cargo $(CARGO_TEST) --locked --package weft-agent

.PHONY: test-python
test-python:  ## The tests of everything together: most side by side, fleets, and those that want to be alone
	$(PY) -m tests.suite

.PHONY: bench
bench: release  ## Every benchmark, as ratios over native and over the peers
	@set -e; for script in benchmarks/*.py; do echo "== $$script"; $(PY) $$script; done

.PHONY: bench-probes
bench-probes: release  ## What a probe costs each time that it is hit
	$(PY) benchmarks/probes.py

.PHONY: bench-stack-keys
bench-stack-keys: release  ## What a stack costs each time that it is taken
	$(PY) benchmarks/stack_keys.py
	$(PY) benchmarks/stack_servers.py

.PHONY: bench-scale
bench-scale: release  ## How long very many probes take to come and go
	$(PY) benchmarks/scale.py

.PHONY: bench-budget
bench-budget: release  ## What a budget holds, on three programs
	$(PY) benchmarks/budget.py

.PHONY: bench-metrics
bench-metrics: release  ## How long a metric takes to come, and what sampling takes
	$(PY) benchmarks/metrics.py

.PHONY: bench-clone
bench-clone: release  ## What running translated costs, beside native and the peers
	$(PY) benchmarks/clone.py
	$(PY) benchmarks/java_kernels.py

.PHONY: bench-where
bench-where: release  ## What each workload executes that costs more in a clone, from exact counts
	$(PY) benchmarks/where.py

.PHONY: bench-memory
bench-memory: release  ## What processes of one program take of memory in clones
	$(PY) benchmarks/memory.py

.PHONY: bench-tools
bench-tools: release  ## What coverage, profiles and traces cost, beside the clone and the peers
	$(PY) benchmarks/tools.py
	$(PY) benchmarks/tools.py --steady --no-peers --rounds 1

.PHONY: bench-stacks
bench-stacks: release  ## How long a process stands still while its stacks are read, beside the peers
	$(PY) benchmarks/stacks.py

.PHONY: bench-sampling
bench-sampling: release  ## What programs lose while they are sampled, beside py-spy
	$(PY) benchmarks/sampling.py

.PHONY: bench-why
bench-why: release  ## How often weft why is right about known bottlenecks, and what it takes from them
	$(PY) -m tests.bottlenecks --throughput

.PHONY: bench-debug
bench-debug: release  ## What breakpoints, steps and watchpoints cost, beside gdbserver
	$(PY) benchmarks/debug.py

.PHONY: bench-fleet
bench-fleet: release  ## What a fleet of a thousand made up hosts costs, beside NATS alone
	$(PY) benchmarks/fleet.py

.PHONY: zoo
zoo: release  ## Programs of the distribution, native and cloned, and the table of them
	$(PY) -m tests.zoo --table docs/reference/compatibility.md

.PHONY: soak
soak: release  ## The long forms of slow tests: thousands of attaches, kills, probes, fuzzing
	$(PY) -m tests.soak.attach --long
	$(PY) -m tests.soak.kill --long
	$(PY) -m tests.soak.probes --long
	$(PY) -m tests.soak.metrics --long
	$(PY) -m tests.soak.takeover --long
	$(PY) -m tests.soak.several --long
	$(PY) -m tests.soak.fleet --long
	$(PY) -m tests.soak.fleet_versions
	$(PY) -m tests.soak.random --seconds 3600
	$(PY) -m tests.zoo
	$(PY) -m tests.matrix
	$(PY) -m tests.patch_against_clone
	$(PY) -m tests.cpython --long
	WEFT_TORTURE=long $(PY) -m pytest -q tests/e2e/test_clone_torture.py \
		tests/e2e/test_clone_smc.py tests/e2e/test_stacks_gdb.py
	WEFT_CASES=1000000 $(PY) -m pytest -q tests/e2e/test_clone_lockstep.py \
		tests/e2e/test_clone_snippets.py tests/e2e/test_probes.py tests/e2e/test_clone_probes.py \
		tests/e2e/test_metrics_library.py tests/e2e/test_inherited.py \
		tests/e2e/test_interrupted.py
	WEFT_CASES=10000 $(PY) -m pytest -q tests/e2e/test_gdb_sessions.py
	WEFT_TEST_STACKS=100000 $(PY) -m pytest -q -rP tests/e2e/test_stack_keys.py -k random
	$(PY) -m tests.own_tests
	WEFT_CASES=10000 $(PY) -m pytest -q tests/unit -k "survived or space_changes"
	WEFT_CASES=1000000 cargo test --locked --release -p weft-snippet --test differential
	cargo test --locked --release -p weft-code --test executed -- --ignored --nocapture
	fuzz/run 600

.PHONY: docs
docs:  ## Build the documentation into site/; warnings are errors
	$(PY) -m docs.pictures
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: wheel
wheel: PROFILE = release
wheel: $(LOCKED)  ## Build the wheel into dist/
	$(BIN)/maturin build --quiet --locked --profile $(PROFILE) --out dist

$(VENV)/.wheels: requirements/wheels.lock $(LOCKED)
	$(PY) -m pip install --quiet --requirement $<
	touch $@

# zig brings the C library of old systems, and musl: the platforms are those that it links for.
.PHONY: wheels
wheels: $(VENV)/.wheels sdist  ## Build what is released into dist/: wheels for glibc and musl, the sources
	PATH="$(abspath $(BIN)):$$PATH" maturin build --quiet --locked --release --zig --out dist \
		--target x86_64-unknown-linux-gnu --compatibility manylinux_2_17
	PATH="$(abspath $(BIN)):$$PATH" maturin build --quiet --locked --release --zig --out dist \
		--target x86_64-unknown-linux-musl --compatibility musllinux_1_2

.PHONY: sdist
sdist: $(LOCKED)  ## Build the source distribution into dist/
	$(BIN)/maturin sdist --out dist

.PHONY: release-check
release-check:  ## Check what is in dist/, also on bare systems (as root; needs mmdebstrap and musl-tools)
	$(PY) -m tests.release

.PHONY: release-check-quick
release-check-quick:  ## Check names, symbols and contents of what is in dist/
	$(PY) -m tests.release quick

.PHONY: licences
licences:  ## Check the licences and the sources of all dependencies (needs cargo-deny)
	cargo deny --locked check licenses bans sources
	$(BIN)/pip-licenses --order=license

.PHONY: lock
lock:  ## Pin the newest versions of all development requirements
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --no-header \
		--group dev --all-extras --output-file requirements/dev.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --no-header \
		--group wheels --output-file requirements/wheels.lock
