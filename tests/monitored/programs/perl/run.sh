# Perl's threads, forks, signals, pipes and an interpreter's end.
perl "$FILES/main.pl"
echo "exit code $?"
