/* Collects results in many steps and frees them at the end, unless the program is killed first. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>
static char *kept[4000];
static int n;
static void tick(void) { struct timespec t = {0, 5000000}; nanosleep(&t, 0); }
__attribute__((noinline)) static char *collect(int i) {
    char *p = malloc(65536 + 100); /* the result */ memset(p, i, 65636); return p;
}
int main(int argc, char **argv) {
    for (int i = 0; i < 300; i++) {
        char *scratch = malloc(100000); memset(scratch, i, 100000);
        kept[n++] = collect(i);
        tick();
        free(scratch);
    }
    if (argc > 1) kill(getpid(), 9);
    for (int i = 0; i < n; i++) free(kept[i]);
    return 0;
}
