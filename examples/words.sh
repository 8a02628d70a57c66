#!/usr/bin/env bash
# An agent in Bash: counts the words of a text. With `input = "text"` the message is all that it reads.
#
#   [[agents]]
#   id = "words"
#   run = "command:examples/words.sh"
#   input = "text"
#   reject_code = 65

set -euo pipefail

text=$(cat)
if [[ -z $text ]]; then
  exit 65 # reject_code: the task is rejected
fi

echo '{"progress": [1, 2], "text": "Counting"}'
echo "$(wc -w <<<"$text" | tr -d ' ') words, the most frequent:"

echo '{"progress": [2, 2], "text": "Sorting"}'
tr -cs '[:alpha:]' '\n' <<<"$text" | tr '[:upper:]' '[:lower:]' | sort | uniq -c | sort -k1,1rn -k2 | head -n 3

echo "task ${DRAGOMAN_TASK_ID} is done" >&2 # to the server's log
