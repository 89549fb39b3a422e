# valgrind's memcheck replaces malloc in the program: its errors and leaks.
cat >leaks.c <<'END'
#include <stdlib.h>
#include <string.h>
int main(void) {
  char *lost = malloc(1000);
  strcpy(lost, "text");
  lost = malloc(10);
  lost[10] = 1;
  free(lost);
  return lost[0] & 1;
}
END
gcc -g -O0 -w -o leaks leaks.c || exit 1
valgrind --leak-check=full --show-leak-kinds=definite --error-exitcode=33 ./leaks 2>&1 |
  grep -E 'Invalid|definitely lost|ERROR SUMMARY|at 0x.*main' | sed 's/^==[0-9]*== *//; s/0x[0-9A-F]*/ADDRESS/g'
echo "exit code ${PIPESTATUS[0]}"
