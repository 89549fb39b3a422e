# Arrays, generators, pipes to started programs, an exhausted memory limit.
php -n "$FILES/main.php"
echo "exit code $?"
php -n -d memory_limit=8M -r '$all = []; for (;;) $all[] = str_repeat("x", 100000);' 2>&1 | grep -o 'Allowed memory size of 8388608 bytes exhausted' | head -n 1
