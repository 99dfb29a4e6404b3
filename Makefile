# Every target sets up what it needs: a fresh machine needs Python 3.11 or newer and this file.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One more than cores: some tests wait for other processes.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
RAY ?= build/ray
PYCUDA ?= build/pycuda
RELEASE ?= build/release
ARM64 ?= build/arm64
# Those that a release is tried with.
PYTHONS ?= $(PYTHON)
PYCUDA_SECONDS ?= 1800
MINUTES ?= 5
SUITE ?= all
# Installs into the environment of a Python, as $(call PIP,PYTHON) REQUIREMENT.
PIP ?= $(1) -m pip install --quiet
# AVX2 or AVX512_CORE: tests compute as on a processor without newer instructions.
ISA ?=
HELD := $(if $(ISA),ONEDNN_MAX_CPU_ISA=$(ISA) PYTHONPATH=$(CURDIR)/tests/workshop/held_back)

.PHONY: setup serve predict test test-release test-pycuda test-gpu test-ray test-arm64 conformance soak attacks fuzz sanitize bench results pictures release lint check clean

setup: $(VENV)/.installed

# What the server and a client need, without the tools and libraries of the tests.
serve predict: $(VENV)/.serves
$(VENV)/.serves: extra = client
$(VENV)/.installed: extra = dev
$(VENV)/.releases: extra = release

$(VENV)/.installed $(VENV)/.serves $(VENV)/.releases: pyproject.toml hatch_build.py $(wildcard trtnode/engines/sparse/kernels/*)
	$(PYTHON) -m venv $(VENV)
	$(call PIP,$(BIN)/python) --upgrade pip
	$(call PIP,$(BIN)/python) --editable '.[$(extra)]'
	touch $@

serve:
	$(BIN)/trtnode serve --config configs/scans.yaml

predict:
	$(BIN)/python examples/scans/predict.py

# All but the onnx backend suite, which computes its cases' results before it can name them, and what a release is tried
# with: see conformance and test-release.
test: setup
	$(HELD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --doctest-modules --ignore tests/conformance -m "not release"

# The documents pasted, the wheel, the image, older processors: minutes of programs and servers as users start them.
test-release: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m release tests

# pycuda itself, compiled once a user: some minutes. What can't be built in PYCUDA_SECONDS is skipped, and says so.
test-pycuda: setup
	$(BIN)/python tests/simulators/pycuda_stand_in/build.py $(PYCUDA) --seconds $(PYCUDA_SECONDS)
	PYTHONPATH=$(PYCUDA)/site LD_LIBRARY_PATH=$(PYCUDA) $(BIN)/python -m pytest tests/engines/cuda/test_context.py

# On a machine with a GPU, TensorRT and pycuda in the environment: see docs/gpu.md.
test-gpu: setup
	$(BIN)/python -m pytest -m gpu

# Ray installs a script `serve` in place of ours, so it gets an environment of its own, without what conftest.py needs.
test-ray: $(RAY)/.installed
	$(RAY)/bin/python -m pytest --noconftest tests/serving/ray_serve

$(RAY)/.installed: pyproject.toml
	$(PYTHON) -m venv $(RAY)
	$(call PIP,$(RAY)/bin/python) --editable '.[client,ray,tracing]' pytest pytest-timeout
	touch $@

# The wheel for aarch64 in an emulator, on x86_64: the example in each precision, served, and the tests of what differs.
# Needs Debian with qemu-user-static and gcc-aarch64-linux-gnu; root only to install these.
test-arm64: setup
	$(BIN)/python scripts/test_arm64 $(ARM64)

# SUITE=openvino or SUITE=tensorrt-rtx runs the whole suite with that engine, and a sample of it with the others.
conformance: setup
	$(HELD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/conformance --conformance=$(SUITE)

soak: setup
	mkdir -p build
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES) --json build/soak.json

attacks: setup
	mkdir -p build
	$(BIN)/python -m benchmarks.attacks --json build/attacks.json
	$(BIN)/python -m benchmarks.attacks.bomb_loads --json build/bombs.json

# Damaged and hostile input to every way in. Findings go to build/fuzz/; those mended stay in tests/fuzz/corpus/.
fuzz: setup
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

# The sparse kernels under AddressSanitizer and UndefinedBehaviorSanitizer: a fault ends the tests. ASan needs libstdc++
# before Python is started, to see exceptions of ONNX Runtime; Python's own memory at exit is no leak of the kernels.
KERNEL_TESTS := $(addprefix tests/engines/sparse/,test_depthwise.py test_kernels.py test_recurrence.py)
sanitize: setup
	mkdir -p build
	gcc -O1 -g -std=gnu11 -fPIC -shared -fvisibility=hidden -fsanitize=address,undefined -fno-sanitize-recover=all \
		trtnode/engines/sparse/kernels/*.c -o build/kernels.so -Wl,-z,nodelete -lpthread -lm
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
		TRTNODE_TEST_KERNELS=build/kernels.so $(BIN)/python -m pytest $(KERNEL_TESTS)

bench: setup
	$(BIN)/trtnode bench model examples/digits/digits.onnx --inputs examples/digits/test.npz --via process,grpc

results: setup
	mkdir -p build
	$(BIN)/trtnode bench networks --precision fp32,bf16,int8,auto --via process,grpc --json build/results.json --html build/results.html
	$(BIN)/python -m benchmarks.results.publish build/results.json

# dist/: the source archive, and wheels with the kernels for x86_64 and aarch64, with the tags that auditwheel confirms.
# Needs gcc and gcc-aarch64-linux-gnu; made beside an older glibc, the wheels run on older systems.
release: $(VENV)/.releases
	rm -rf dist $(RELEASE)/wheels
	$(BIN)/python -m build --sdist --no-isolation --outdir dist
	CC=gcc $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation \
		--wheel-dir $(RELEASE)/wheels dist/*.tar.gz
	CC=aarch64-linux-gnu-gcc _PYTHON_HOST_PLATFORM=linux-aarch64 $(BIN)/python -m pip wheel --quiet \
		--no-deps --no-build-isolation --wheel-dir $(RELEASE)/wheels dist/*.tar.gz
	for wheel in $(RELEASE)/wheels/*.whl; do \
		PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --wheel-dir dist $$wheel || exit 1; done
	$(BIN)/python -m twine check --strict dist/*
	for python in $(PYTHONS); do scripts/try_release $$python $(RELEASE)/bare || exit 1; done
	$(BIN)/python scripts/test_arm64 $(ARM64) dist/*_aarch64.whl || [ $$? = 69 ]

# docs/pictures anew, of the product as it is: some minutes. Needs Chromium.
pictures: setup
	$(BIN)/python scripts/retake_pictures

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy scripts/gpu_check
	$(BIN)/mypy scripts/gpu_day
	$(BIN)/mypy scripts/test_arm64
	$(BIN)/mypy scripts/retake_pictures

# Before a commit: lint, types, and the tests of what has changed since BASE.
BASE ?= HEAD
check: lint
	tests=$$(scripts/changed_tests $(BASE)) && if [ -n "$$tests" ]; then \
		$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" $$tests; fi

clean:
	rm -rf $(VENV) build dist
