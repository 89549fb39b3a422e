# A server with input/output threads that becomes a daemon, some hundred commands, a fork for a snapshot, a second start.
begin() {
  redis-server --port 0 --unixsocket "$PWD/socket" --save '' --io-threads 2 --daemonize yes --dir "$PWD" \
    --enable-debug-command yes --logfile "$PWD/log"
  local try
  for try in $(seq 300); do [ "$(commands ping 2>/dev/null)" = PONG ] && return; sleep 0.1; done
  echo "the server does not respond"
  exit 1
}
commands() { redis-cli -s socket "$@"; }
end() {
  commands shutdown "$1"
  local try
  for try in $(seq 300); do [ -e socket ] || return; sleep 0.1; done
  echo "the server does not end"
}
begin
for number in $(seq 400); do echo "set key$number value$((number * number))"; done | commands | sort | uniq -c
for number in $(seq 100); do echo "rpush list item$number"; done | commands | tail -n 1
commands eval 'local sum = 0 for i = 1, 1000 do sum = sum + i redis.call("sadd", KEYS[1], i) end return sum' 1 set
redis-benchmark -s socket -q -n 2000 -c 20 -P 4 -t set,get,incr,lpush,lpop,hset,zadd -r 100 >benchmark 2>&1
echo "benchmark: $? $(grep -c 'requests per second' benchmark)"
commands mget key1 key20 key400
commands bgsave
for try in $(seq 300); do commands info persistence | grep -q 'rdb_bgsave_in_progress:0' && break; sleep 0.1; done
commands info persistence | grep rdb_last_bgsave_status
commands del key:__rand_int__ counter:__rand_int__ mylist myhash myset myzset >/dev/null
commands flushdb async
for number in $(seq 400); do echo "set key$number value$((number + number))"; done | commands | sort | uniq -c
commands debug digest
end save
redis-check-rdb dump.rdb | grep -o 'RDB looks OK.*'
begin
commands dbsize
commands debug digest
end nosave
grep -cE 'BUG|crash|Failed' log
true
