#!/bin/sh
# Nine workers for one server: an agent of each framework, each in its own environment, and a plain Python function.
#
#   dragoman serve --config examples/frameworks/dragoman.toml
#   examples/frameworks/workers.sh http://127.0.0.1:7870
#
# `make test-frameworks` creates the environments; missing ones are left out. Ctrl-C ends all workers.
set -eu
server=${1:-http://127.0.0.1:7870}
cd "$(dirname "$0")/../.."
workers=

work() { # environment, agent id
    if [ -x "$1/bin/dragoman" ]; then
        "$1/bin/dragoman" worker --agents "$2=examples/frameworks/$(echo "$2" | tr - _)_agent.py" --server "$server" &
        workers="$workers $!"
    else
        echo "$2: left out, there is no $1" >&2
    fi
}

trap 'kill $workers 2>/dev/null || true; wait' INT TERM

for name in pydantic-ai langgraph openai-agents crewai google-adk strands agno a2a-sdk; do
    work ".venv-fw-$name" "$name"
done
work .venv plain
wait
