#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs.sh - build the site into build/site. Every page, link and anchor is checked; nothing is fetched
# when it is read, so it also works from a folder without a server.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# No advertisement in the output of a build.
NO_MKDOCS_2_WARNING=1
export NO_MKDOCS_2_WARNING
venv=$(tools/venv.sh docs)
"$venv/bin/python" tools/stage_docs.py build/docs
"$venv/bin/mkdocs" build --strict --quiet --config-file build/docs/mkdocs.yml --site-dir "$root/build/site"
"$venv/bin/python" tools/stage_docs.py --check build/site
echo "docs: build/site/index.html"
