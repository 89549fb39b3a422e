# Threads, fibers, forks, started programs, garbage collection, signals.
ruby "$FILES/main.rb"
echo "exit code $?"
