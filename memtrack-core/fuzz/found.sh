#!/usr/bin/env bash
# The files that the fuzzers found, hundreds of a few bytes each, are in one archive: corpus/found.tar.gz.
#   fuzz/found.sh unpack            puts them into fuzz/target/found, where a fuzzer adds to them
#   fuzz/found.sh pack [FOLDER]     makes the archive from fuzz/target/found or FOLDER; equal files make equal archives
set -euo pipefail
fuzz=$(cd "$(dirname "$0")" && pwd)
archive=$fuzz/corpus/found.tar.gz
case ${1-} in
  unpack)
    mkdir -p "$fuzz/target/found"
    tar -xzf "$archive" -C "$fuzz/target/found"
    ;;
  pack)
    # Compressed with gzip, which the tests can read without an additional crate.
    tar -C "${2-$fuzz/target/found}" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - . |
      gzip -9n >"$archive.new"
    mv "$archive.new" "$archive"
    ;;
  *)
    sed -n '3,4s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
