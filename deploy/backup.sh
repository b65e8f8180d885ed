#!/bin/sh
# Copy the store into a file of a folder, as the user `backup`, and remove copies older than KEEP_DAYS. A copy has all that the store has,
# also what the store forgets within the hour: the folder lies on an encrypted volume.
#   sh backup.sh /backups
set -eu
umask 077
mkdir -p "$1"
case $DENIABLE_REDIS_URL in
  redis://* | rediss://*) ;;
  *) echo "backup.sh copies one store, redis://USER:PASSWORD@HOST:PORT/0 or rediss://, not ${DENIABLE_REDIS_URL%%:*}://" >&2; exit 2 ;;
esac
address=${DENIABLE_REDIS_URL#*://}
login=${address%@*} place=${address##*@}
place=${place%%/*}
REDISCLI_AUTH=${login#*:}
export REDISCLI_AUTH
cli=$(command -v valkey-cli || command -v redis-cli) || { echo "backup.sh needs valkey-cli or redis-cli" >&2; exit 2; }
case $DENIABLE_REDIS_URL in
  rediss://*\?ssl_ca_certs=*) set -- "$1" --tls --cacert "${DENIABLE_REDIS_URL##*\?ssl_ca_certs=}" ;;
  rediss://*) set -- "$1" --tls ;;
esac
folder=$1
shift
file=$folder/$(date -u +%Y-%m-%dT%H%M%SZ).rdb
set -- --no-auth-warning --user "${login%%:*}" -h "${place%:*}" -p "${place##*:}" "$@"
# A store that is restored from this copy has this note: `deniable doctor` says how old the copy is.
if earlier=$("$cli" -e "$@" set '{deniable}:backup' 0 nx get); then
  "$cli" -e "$@" set '{deniable}:backup' "$(echo "${earlier:-0}" | cut -d ' ' -f 1) $(date +%s)" >/dev/null || :
fi
"$cli" "$@" --rdb "$file.part"
mv "$file.part" "$file"
# `deniable doctor` says of when the last copy is. A store without room takes no note.
"$cli" -e "$@" set '{deniable}:backup' "$(date +%s)" >/dev/null || echo "the store took no note of the copy $file" >&2
find "$folder" -name '*.rdb*' -mtime "+${KEEP_DAYS:-7}" -delete
