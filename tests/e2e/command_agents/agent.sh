#!/bin/sh
# An agent in sh and curl: one call of the model, then the reward that the task names.
set -eu
task=$(cat)
[ "$task" = "$(cat "$LIGHTSTREAM_TASK_FILE")" ] && [ "$task" = "$LIGHTSTREAM_TASK" ]
curl --silent --show-error --fail "$OPENAI_BASE_URL/chat/completions" \
    -H "authorization: Bearer $OPENAI_API_KEY" -H 'content-type: application/json' \
    -d "{\"model\": \"$LIGHTSTREAM_MODEL\", \"messages\": [{\"role\": \"user\", \"content\": \"$task\"}]}" > answer.json
curl --silent --show-error --fail "$LIGHTSTREAM_REWARD_URL" \
    -H "authorization: Bearer $OPENAI_API_KEY" -H 'content-type: application/json' -d "{\"reward\": $task}"
