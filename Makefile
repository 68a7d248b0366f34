# SPDX-License-Identifier: Apache-2.0
# The front door: every target calls a script of tools/, which can be called alone too.
PYTHON ?= python3
export PYTHON

.PHONY: help demo test docs wheel wheel-aarch64 sdist bench lint format deps build-deps clean
help:
	@echo "make demo    build, install into an environment of its own, train on two ranks;"
	@echo "             needs a C compiler and Python with venv, nothing else of the system"
	@echo "make test    lint, build with gcc and clang, sanitizers, fuzzing, all tests;"
	@echo "             installs sshd, Slurm, two MPIs and clang, where they are missing"
	@echo "make wheel   one portable wheel in dist/, tried on every Python that is here"
	@echo "make wheel-aarch64   the same for 64-bit ARM, built here, run under qemu if that is here"
	@echo "make sdist   the source archive in dist/, built and installed again without a network"
	@echo "make docs    the site in build/site, with every link checked"
	@echo "make bench   build and run the benchmarks"
	@echo "make lint    formatting, layers, names, licence lines"
	@echo "make format  format C and Python in place"
	@echo "make deps    install what the tests need of the system, prepare environments"
	@echo "make clean   remove build/ and dist/"
	@echo ""
	@echo "make test STEPS='lint release'   only these steps; tools/test.py --list names them"

demo: build-deps
	@tools/demo.sh

test: deps
	@$(PYTHON) tools/test.py $(STEPS)

wheel: build-deps
	@tools/wheel.sh
	@tools/check_wheel.sh

wheel-aarch64: build-deps
	@tools/wheel.sh aarch64
	@tools/check_wheel_aarch64.sh

sdist: build-deps
	@tools/sdist.sh

docs: build-deps
	@tools/docs.sh

bench: build-deps
	@tools/bench.sh

lint: build-deps
	@tools/lint.sh

format: build-deps
	@tools/lint.sh --fix

deps:
	@tools/setup_system.sh test
	@tools/venv.sh base >/dev/null

# A compiler and Python: nothing is installed, and no root asked for, if they are there.
build-deps:
	@tools/setup_system.sh build

clean:
	rm -rf build dist
