#!/bin/sh
# Whether this server of the store is ready: it has loaded its data and, as a replica, is in step with its primary. The probe of its
# container asks that as the user `probe`, who may do nothing else.
set -eu
REDISCLI_AUTH=$(cat /etc/store/probe)
export REDISCLI_AUTH
cli=$(command -v valkey-cli || command -v redis-cli)
ask() { "$cli" --no-auth-warning --user probe "$@"; }
[ "$(ask ping)" = PONG ]
case $(ask role | tr '\n' ' ') in
  "master "*) ;;
  "slave "*" connected "*) ;;
  *) exit 1 ;;
esac
