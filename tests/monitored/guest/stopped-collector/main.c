/* Allocates large blocks until the file END exists, and then a last one, in another function and after a pause: the
   collector may be behind, and events without a page are lost. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void *late(void) { void *p = malloc(7000000); *(volatile char *)p = 1; return p; }
int main(int n, char **w) {
    close(creat("begun", 0600));
    while (access(w[1], F_OK)) usleep(1000);
    while (access(w[2], F_OK)) for (int i = 0; i < 2000; i++) free(malloc(100000 + i));
    sleep(1);
    *(volatile char *)late() = 2;
    return 0;
}
