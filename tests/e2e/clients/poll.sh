#!/usr/bin/env bash
# A polling loop after the published shell samples: curl, grep and sed. Prints each document that
# differs from the one before.
set -euo pipefail
url=$1 name=$2 last="" seen="" approved=""
while true; do
  document=$(curl --silent --show-error --fail --noproxy '*' -H Metadata:true "$url")
  if [ "$document" != "$last" ]; then
    last=$document
    echo "$document"
    if grep -q "\"$name\"" <<<"$document"; then
      seen=yes
      id=$(sed -n 's/.*"EventId":"\([^"]*\)".*/\1/p' <<<"$document")
      if [ "$id" != "$approved" ] && grep -q '"Scheduled"' <<<"$document"; then
        approved=$id
        status=$(curl --silent --noproxy '*' -o /dev/null -w '%{http_code}' -H Metadata:true \
          -X POST -d "{\"StartRequests\": [{\"EventId\": \"$id\"}]}" "$url")
        [ "$status" = 200 ]
      fi
    elif [ -n "$seen" ]; then
      break
    fi
  fi
  sleep 0.25
done
