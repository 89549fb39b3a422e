# Programs of every system in pipelines: threads of sort and xz, awk, find, xargs with processes at once, a broken pipe.
set -o pipefail
seq 200000 | awk '{ print ($1 * 7919) % 200003, "line " $1 }' >lines
sort --parallel=2 --buffer-size=1M -n lines | sha256sum
xz -T2 -1 --block-size=300000 --stdout lines >lines.xz && xz -d --stdout lines.xz | sha256sum
gzip --stdout lines | gunzip | sha256sum
mkdir tree && split -l 2000 lines tree/part. && tar --sort=name --mtime=@0 --owner=0 --group=0 -cf - tree | sha256sum
find tree -type f | sort | xargs -P 2 -n 10 sha256sum | sort | sha256sum
find tree -name 'part.a*' -exec sh -c 'wc -l <"$1"' _ {} \; | sort | uniq -c
grep -rc 'line 1' tree | sort | head -n 3
sed 's/line/row/' lines | cut -d ' ' -f 2- | tr a-z A-Z | sha256sum
yes | head -n 3
echo "${PIPESTATUS[@]}"
timeout --signal=KILL 1 sleep 1000
echo "timeout: $?"
(ulimit -c 0; sh -c 'kill -SEGV $$') 2>/dev/null
echo "signal: $?"
env -i PATH="$PATH" env | grep -v ^_= | sed "s|$PATH|PATH|"
env | cut -d = -f 1 | grep -E '^(HOME|LANG|PATH|TMPDIR)$' | sort
ls /nonexistent
nohup echo ignored 2>/dev/null
trap 'echo trapped' USR1
kill -USR1 $$
exec bash -c 'echo "after exec: $0 $*"; exit 42' zero one two
