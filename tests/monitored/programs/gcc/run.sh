# A build of 13 files by two jobs, with link-time optimisation, a shared library, an archive, a warning and an error.
for number in $(seq 8); do
  cat >part$number.c <<END
#include <stdlib.h>
#include <string.h>
struct node { struct node *next; char text[$((number * 8))]; };
long part$number(int n) {
  struct node *list = 0; long sum = 0;
  for (int i = 0; i < n; i++) { struct node *new = malloc(sizeof *new); memset(new->text, i + $number, sizeof new->text); new->next = list; list = new; }
  while (list) { struct node *next = list->next; for (unsigned i = 0; i < sizeof list->text; i++) sum += list->text[i]; free(list); list = next; }
  return sum;
}
END
done
for number in $(seq 4); do
  cat >more$number.cpp <<END
#include <algorithm>
#include <map>
#include <string>
#include <vector>
extern "C" long more$number(int n) {
  std::map<std::string, std::vector<long>> all;
  for (int i = 0; i < n; i++) all[std::to_string(i % (7 + $number))].push_back(i * $number);
  long sum = 0;
  for (auto &[name, values] : all) { std::sort(values.rbegin(), values.rend()); sum += values.front() + (long)name.size(); }
  try { throw std::string("thrown"); } catch (std::string &text) { sum += text.size(); }
  return sum;
}
END
done
{
  echo '#include <stdio.h>'
  for name in part{1..8} more{1..4}; do echo "long $name(int);"; done
  echo 'int main(void) { int unused; long sum = 0;'
  for name in part{1..8} more{1..4}; do echo "sum += $name(100);"; done
  echo 'printf("%ld\n", sum); return sum & 63; }'
} >main.c
cat >Makefile <<'END'
parts = $(patsubst %,part%.o,1 2 3 4 5 6 7 8)
more = $(patsubst %,more%.o,1 2 3 4)
CFLAGS = -O2 -g -Wall -fPIC
CXXFLAGS = -std=c++17 -O1 -fPIC
program: main.o libparts.a libmore.so; $(CC) -o $@ main.o libparts.a -L. -lmore -Wl,-rpath,$(CURDIR)
libparts.a: $(parts); $(AR) rcsD $@ $^
libmore.so: $(more); $(CXX) -shared -o $@ $^
END
make --silent --jobs=2 program
echo "make: $?"
./program
echo "exit code $?"
sha256sum ./*.o program libmore.so libparts.a
gcc -O2 -flto=2 -w -o optimised main.c part*.c libmore.so -Wl,-rpath,"$PWD"
echo "gcc: $?"
./optimised
sha256sum optimised
echo 'int broken( { return undeclared; }' >broken.c
make --silent broken.o
echo "make: $?"
make --silent --jobs=2 program && echo "up to date"
