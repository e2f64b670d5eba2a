# What the scripts here share. They are read by bash.

# The time that everything in what is made carries: that of the last change to the sources (reproducible-builds.org).
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC
umask 022
PATH=$PATH:/usr/sbin:/sbin

# What all disks share, for ever: MiB before the boot partition and of a system slot, the begin of what partitions and file
# systems are known by.
# shellcheck disable=SC2034
FIRST=4 SLOT=1024 UUID=6f7d1c5e-3c1f-4f0e-9a51-0000000000

fail() {
  echo "${0##*/}: $*" >&2
  exit 2
}

# valued WORD...: whether the option that stands first has a value
valued() {
  case $1 in -h | --help) ;; *) [ $# -ge 2 ] || fail "$1 needs a value; see --help" ;; esac
}

# there PATH: absolute, as the caller meant it before the script went to the sources
there() {
  (cd "$started" && realpath --canonicalize-missing "$1")
}

# usage CODE: what the head of the script says
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit "$(($1 - 2))"
}

# need COMMAND...: says which Debian packages are missing
need() {
  local command missing=()
  for command in "$@"; do
    command -v "$command" >/dev/null || missing+=("$command")
  done
  [ ${#missing[@]} -eq 0 ] || fail "needs ${missing[*]}; docs/images.md says which Debian packages have them"
}

# update_format BOARD: of its updates (RAUC). verity: each block is checked as it is read. The RAUC of Debian 13 cannot have kernels
# check since Linux 6.19, and the Pi's is newer (rauc/rauc#1842); plain: all of it is checked before.
update_format() {
  case $1 in pi) echo plain ;; *) echo verity ;; esac
}
