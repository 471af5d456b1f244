#!/usr/bin/env bash
# MkDocs 1.6.1: "mkdocs build --strict" fails if a page links to a file that does not exist. With --quiet, the same
# command exits with status 0: strict mode counts log messages, and --quiet drops warnings before they are counted. A CI
# job with both options never fails because of a warning. Writing the output of a build without --quiet to a file keeps
# the log short and the check effective.
#
# Guessed: --quiet only affects what is printed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet mkdocs==1.6.1
mkdir docs
echo 'site_name: example' >mkdocs.yml
echo '[A page](missing.md)' >docs/index.md
status() { "$@" >output.txt 2>&1 && echo 0 || echo $?; }
strict=$(status venv/bin/mkdocs build --strict)
grep "'missing.md', but the target is not found" output.txt
quiet=$(status venv/bin/mkdocs build --strict --quiet)
echo "exit status of --strict: $strict; of --strict --quiet: $quiet"
test "$strict" = 1
test "$quiet" = 0
