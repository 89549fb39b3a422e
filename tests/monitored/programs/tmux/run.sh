# A server that becomes a daemon, shells in pseudo-terminals with job control.
terminal() { tmux -S "$PWD/socket" -f /dev/null "$@"; }
terminal new-session -d -x 80 -y 24 'PS1="$ " exec bash --norc --noprofile'
say() { terminal send-keys "$@" Enter; }
say 'sleep 1000 & jobs | wc -l; kill %1; wait; stty size; tty | grep -c /dev/pts; echo ready >ready'
for try in $(seq 300); do [ -e ready ] && break; sleep 0.1; done
terminal split-window 'echo second >second; sleep 1000'
for try in $(seq 300); do [ -e second ] && break; sleep 0.1; done
terminal list-panes -F '#{pane_index} #{pane_width}x#{pane_height} #{pane_current_command}'
terminal capture-pane -p -t 0 | grep -E '^(24 80|1|2)$'
terminal kill-server
echo "exit code $?"
cat ready second
