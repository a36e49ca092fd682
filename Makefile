VENV := .venv
PY := $(VENV)/bin/python

.PHONY: dev
dev:  ## Set up a fresh clone: .venv with weft in it
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install -q --upgrade pip maturin pytest mypy ruff click rich
	$(VENV)/bin/maturin develop -q
