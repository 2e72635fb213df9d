#!/usr/bin/env bash
# Sends one webhook with the AWS CLI: send.sh EVENT_ID < body
set -euo pipefail
event=$1

# Base64 carries any bytes and needs no escaping. EVENT_ID and WEBHOOK_ENDPOINT hold no character that JSON escapes.
body=$(base64 | tr -d '\n')
message=$(printf '{"id":"%s","endpoint":"%s","content_type":"application/json","body_base64":"%s"}' \
  "$event" "$WEBHOOK_ENDPOINT" "$body")

# A file, because a long body does not fit on a command line.
file=$(mktemp)
trap 'rm -f "$file"' EXIT
printf '%s' "$message" > "$file"
aws sqs send-message --queue-url "$INTAKE_QUEUE_URL" --message-group-id "$WEBHOOK_ENDPOINT" --message-body "file://$file"
