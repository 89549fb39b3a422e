# A server that drops privileges and filters system calls before it knows the user, and a client, over a pipe.
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f user
cat >server.conf <<END
HostKey $PWD/host
AuthorizedKeysFile $PWD/user.pub
StrictModes no
UsePAM no
PrintMotd no
PrintLastLog no
PermitRootLogin yes
Subsystem sftp internal-sftp
END
connect() {
  "$1" -q -F none -i "$PWD/user" -o IdentitiesOnly=yes -o IdentityAgent=none -o UserKnownHostsFile="$PWD/hosts" -o StrictHostKeyChecking=no \
    -o ProxyCommand="/usr/sbin/sshd -i -e -f $PWD/server.conf 2>>$PWD/log" "${@:2}"
}
connect ssh "$(id -un)@server" 'echo output; echo problem >&2; exit 9'
echo "exit code $?"
seq 100000 | connect ssh "$(id -un)@server" 'cat' | sha256sum
connect ssh -tt "$(id -un)@server" 'tty >/dev/null && echo terminal' </dev/null | tr -d '\r'
connect ssh "$(id -un)@server" 'kill -TERM $$'
echo "exit code $?"
seq 50000 >sent
printf 'put %s/sent %s/received\n' "$PWD" "$PWD" | connect sftp -b - "$(id -un)@server" >/dev/null
cmp sent received && echo "the same file"
rm user.pub
connect ssh -o BatchMode=yes "$(id -un)@server" true
echo "exit code $?"
grep -cE 'fatal|terminated by signal' log
true
