#!/bin/sh
# The two workers of the team, each in the environment of its framework. Ctrl-C ends both.
#
#   examples/team/workers.sh http://127.0.0.1:7870
#
# `make frameworks` creates the environments in a clone; README.md says what is in them.
set -eu
server=${1:-http://127.0.0.1:7870}
cd "$(dirname "$0")/../.."
for name in langgraph pydantic-ai; do
    [ -x ".venv-fw-$name/bin/dragoman" ] || {
        echo "there is no .venv-fw-$name: run make frameworks, or install dragoman and $name into an environment of that name" >&2
        exit 1
    }
done
trap 'kill $first $second 2>/dev/null || true; wait' INT TERM
.venv-fw-langgraph/bin/dragoman worker --agents langgraph=examples/frameworks/langgraph_agent.py --server "$server" &
first=$!
.venv-fw-pydantic-ai/bin/dragoman worker --agents pydantic-ai=examples/frameworks/pydantic_ai_agent.py --server "$server" &
second=$!
wait
