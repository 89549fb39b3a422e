# gdb and strace, which trace a program that is recorded, and are recorded themselves.
cat >traced.c <<'END'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *work(void *text) { char *copy = strdup(text); puts(copy); fflush(stdout); free(copy); return 0; }
int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, work, "thread");
  pthread_join(thread, 0);
  for (int i = 0; i < 20; i++) free(malloc(i * 1000));
  if (!fork()) { puts("child"); exit(0); }
  execl("/bin/echo", "echo", "after exec", (char *)0);
}
END
gcc -g -O0 -pthread -o traced traced.c || exit 1
export DEBUGINFOD_URLS=
gdb -q -nx -batch -iex 'set auto-load no' -ex 'break work' -ex 'run >out' -ex 'bt 1' -ex 'print (char *)text' -ex 'delete' -ex 'set follow-fork-mode parent' -ex 'continue' ./traced 2>&1 |
  grep -E '^(#0|\$1|Breakpoint|\[Inferior)' | sed 's/(process [0-9]*)//'
strace -f -e trace=execve,write,exit_group -e signal=none -o trace ./traced
sed 's/^[0-9]* *//; s/0x[0-9a-f]*/ADDRESS/; s/ ADDRESS.*//; s/ *<unfinished.*//; s/ *= [-0-9?]*$//; s/)$//' trace | grep -E '^(write\(1|execve|exit_group)' | grep -v resumed | sort
echo "exit code $?"
