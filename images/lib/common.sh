# Common settings and functions of the scripts in images/. Bash scripts source this file.

# Timestamp of all generated files: that of the last change to the sources (reproducible-builds.org).
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC
umask 022
PATH=$PATH:/usr/sbin:/sbin

# Constants of all disks, which must never change: MiB before the boot partition, MiB of a system slot, and the common prefix
# of the UUIDs of partitions and file systems.
# shellcheck disable=SC2034
FIRST=4 SLOT=1024 UUID=6f7d1c5e-3c1f-4f0e-9a51-0000000000

fail() {
  echo "${0##*/}: $*" >&2
  exit 2
}

# valued WORD...: fail unless the first option has a value
valued() {
  case $1 in -h | --help) ;; *) [ $# -ge 2 ] || fail "$1 needs a value; see --help" ;; esac
}

# there PATH: print the absolute path, relative to the caller's directory
there() {
  (cd "$started" && realpath --canonicalize-missing "$1")
}

# usage CODE: print the comment at the head of the script
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit "$(($1 - 2))"
}

# need COMMAND...: fail if commands are missing
need() {
  local command missing=()
  for command in "$@"; do
    command -v "$command" >/dev/null || missing+=("$command")
  done
  [ ${#missing[@]} -eq 0 ] || fail "needs ${missing[*]}; docs/images.md says which Debian packages have them"
}

# update_format BOARD: print the format of its updates (RAUC). verity checks each block when it is read. The RAUC of Debian 13
# cannot use it with kernels since Linux 6.19, and the Pi's kernel is newer (rauc/rauc#1842). plain checks the whole file first.
update_format() {
  case $1 in pi) echo plain ;; *) echo verity ;; esac
}
