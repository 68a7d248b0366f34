#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs.sh - build the site into build/site. Every page, link and anchor is checked; nothing is fetched
# when it is read, so it also works from a folder without a server. Only the search needs one:
# python3 -m http.server -d build/site
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# No advertisement in the output of a build.
NO_MKDOCS_2_WARNING=1
export NO_MKDOCS_2_WARNING
venv=$(tools/venv.sh docs)
"$venv/bin/python" tools/stage_docs.py build/docs
"$venv/bin/mkdocs" build --strict --quiet --config-file build/docs/mkdocs.yml --site-dir "$root/build/site"
# The theme would fetch a script for searching without a server.
find build/site -name '*.html' -exec sed -i 's#<script src="https://unpkg.com/iframe-worker/shim"></script>##' {} +
"$venv/bin/python" tools/stage_docs.py --check build/site
echo "docs: build/site/index.html"
