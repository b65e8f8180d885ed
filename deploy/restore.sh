#!/bin/sh
# Have a store begin from a copy that backup.sh made. It is stopped meanwhile. What it had is put aside, in appendonlydir.replaced.
#   sh restore.sh /backups /data                the newest copy; or a file in place of the folder of copies
#   sh restore.sh /backups /data --smaller      also a copy that has less than a tenth of what the store has
set -eu
umask 077
if [ $# -lt 2 ] || [ ! -d "$2" ]; then
  echo "restore.sh COPIES FOLDER: ${2:-the second word, FOLDER,} is no folder. Name the store's; make a new one first, of its user." >&2
  exit 2
fi
copy=$1
[ ! -d "$copy" ] || copy=$(find "$1" -name '*.rdb' | sort | tail -n 1)
case $(head -c 5 "$copy" 2>/dev/null) in
  REDIS | VALKE) ;;
  *) echo "restore.sh needs a copy that backup.sh made, not ${copy:-an empty folder, $1}" >&2; exit 2 ;;
esac
# `deniable serve` holds the lock of its folder. What another store still writes would be lost at its next start.
if [ -e "$2/lock" ] && command -v flock >/dev/null && ! flock --nonblock "$2/lock" true; then
  echo "a store still runs on $2: stop it first" >&2
  exit 2
fi
# Every other store works in its folder, and goes on with what it has in memory.
for process in /proc/[0-9]*; do
  case $(cat "$process/comm" 2>/dev/null) in
    *-cli) ;;
    *redis* | *valkey*)
      if [ "$process/cwd" -ef "$2" ]; then
        echo "a store still runs on $2, as process ${process#/proc/}: stop it first" >&2
        exit 2
      fi ;;
  esac
done
# A store that was started once without appendonly yes began empty. Then copies are of next to nothing, and all else is in this folder.
# Its base is written as a copy is, anew each half hour while a worker runs. What was appended since is commands: many times as long.
has=$(cat "$2/appendonlydir/"*.base.rdb 2>/dev/null | wc -c)
[ "$has" -gt 1000 ] || has=$(cat "$2/appendonlydir/"* 2>/dev/null | wc -c)     # it was never written anew: all is in the commands
if [ "$(($(wc -c < "$copy") * 10))" -lt "$has" ] && [ "${3:-}" != --smaller ]; then
  echo "$copy has $(($(wc -c < "$copy"))) bytes, and what it would replace in $2/appendonlydir has $((has)):" >&2
  echo "what the store lost may still be there. Start it with appendonly yes and look first." >&2
  echo "To restore nevertheless, give --smaller after the folder." >&2
  exit 2
fi
if [ -e "$2/appendonlydir.replaced" ]; then
  echo "$2/appendonlydir.replaced is there from an earlier restore: remove it first, if the store is well without it" >&2
  exit 2
fi
rm -rf "$2/appendonlydir.new"     # of a restore that was cut short
mkdir "$2/appendonlydir.new"
cp "$copy" "$2/appendonlydir.new/appendonly.aof.1.base.rdb"
echo 'file appendonly.aof.1.base.rdb seq 1 type b' > "$2/appendonlydir.new/appendonly.aof.manifest"
[ ! -e "$2/appendonlydir" ] || mv "$2/appendonlydir" "$2/appendonlydir.replaced"
mv "$2/appendonlydir.new" "$2/appendonlydir"
# Run as root, the store's user could not read it.
[ "$(id -u)" != 0 ] || chown -R "$(stat -c %u:%g "$2")" "$2/appendonlydir"
echo "the store begins from $copy"
cat <<EOF
What came after this copy is lost. Start the store, and before any server runs, do again what was done since, for each app:
  deniable keys revoke                     keys that were revoked: they open again
  deniable erase                           metrics and apps that were erased: they are back
  deniable audit-log restored --files DIR  if files were rotated: they are put aside
  deniable audit-log head                  a new anchor: one from after the copy does not fit any more
Then start the workers and the servers, ask "deniable doctor", and make a copy now: sh backup.sh, or deniable backup.
All steps: https://deniable.github.io/deniable/how-to/operate/back-up/#restore-the-store
EOF
