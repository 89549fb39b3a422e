# Worker threads with shared memory, forked and started programs, the thread pool, a cluster, signals, an exit code.
node "$FILES/main.js"
echo "exit code $?"
