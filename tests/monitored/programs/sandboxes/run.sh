# Programs that restrict themselves with filters of system calls, and programs that start others in namespaces.
printf '#!/bin/sh\necho text\n' >script
gzip --keep script
file script script.gz /etc/passwd
file -z script.gz
printf '.TH PAGE 1\n.SH NAME\npage \\- a page\n' >page.1
man --warnings --pager=cat ./page.1 | grep -o 'page - a page'
echo "man: ${PIPESTATUS[*]}"
# The loader reports a preloaded library that is not there, so the sandbox must not hide memtrack's cache.
bwrap --ro-bind / / --proc /proc --dev /dev --tmpfs /mnt --unshare-all --die-with-parent sh -c 'echo "inside: $$ $(ls /mnt | wc -l)"; sleep 0.1 & wait; exit 5'
echo "bwrap: $?"
bwrap --ro-bind / / --unshare-pid --proc /proc sh -c 'kill -KILL $$'
echo "bwrap: $?"
unshare --user --map-root-user --pid --fork --mount-proc sh -c 'echo "inside: $$ $(id -u)"; (exit 3); exit 6'
echo "unshare: $?"
setsid --wait sh -c 'exit 7'
echo "setsid: $?"
prlimit --nofile=20 --core=0 sh -c 'ulimit -n; exec sort --version' | head -n 2
flock lock sh -c 'flock --nonblock lock true; echo "locked: $?"'
script --quiet --return --command 'tty >/dev/null && echo terminal; exit 8' /dev/null
echo "script: $?"
