# SPDX-License-Identifier: Apache-2.0
# The front door: every target calls a script of tools/, which can be called alone too.
PYTHON ?= python3
export PYTHON

.PHONY: help demo test wheel bench lint format deps clean
help:
	@echo "make demo    build, install into an environment of its own, train on two ranks"
	@echo "make test    lint, build with gcc and clang, sanitizers, fuzzing, all tests"
	@echo "make wheel   one portable wheel in dist/, tried on every Python that is here"
	@echo "make bench   build and run the benchmarks"
	@echo "make lint    formatting, layers, licence lines"
	@echo "make format  format C and Python in place"
	@echo "make deps    install missing system packages, prepare environments"
	@echo "make clean   remove build/ and dist/"
	@echo ""
	@echo "make test STEPS='lint release'   only these steps; tools/test.py --list names them"

demo: deps
	@tools/demo.sh

test: deps
	@$(PYTHON) tools/test.py $(STEPS)

wheel: deps
	@tools/wheel.sh
	@tools/check_wheel.sh

bench: deps
	@tools/bench.sh

lint: deps
	@tools/lint.sh

format: deps
	@tools/lint.sh --fix

deps:
	@tools/setup_system.sh
	@tools/venv.sh base >/dev/null

clean:
	rm -rf build dist
