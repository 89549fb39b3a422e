# The compiler, then threads, direct buffers, a mapped file, started programs, a signal that ends the virtual machine.
javac -d . "$FILES/Main.java" || exit 1
java -Xmx256m -cp . Main
echo "exit code $?"
java -Xmx256m -XX:+UseParallelGC -cp . Main threads
java -Xmx24m -XX:+UseSerialGC -cp . Main exhaust
echo "exit code $?"
java -Xmx64m -cp . Main wait >started &
process=$!
for try in $(seq 300); do [ -s started ] && break; sleep 0.1; done
kill -TERM $process
wait $process
echo "exit code $?"
cat started
