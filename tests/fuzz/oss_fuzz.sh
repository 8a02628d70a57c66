#!/bin/bash -eu
# The build script of OSS-Fuzz (https://google.github.io/oss-fuzz/getting-started/new-project-guide/python-lang/): in its image
# of Python, with the repository as working directory. Each program gets its seeds beside it.
pip3 install --require-hashes -r requirements/fuzz.txt
pip3 install --no-build-isolation --no-deps .
for program in tests/fuzz/fuzz_*.py; do
  name=$(basename "$program" .py)
  compile_python_fuzzer "$program" --paths .
  (cd "tests/fuzz/seeds/${name#fuzz_}" && zip -q "$OUT/${name}_seed_corpus.zip" ./*)
done
