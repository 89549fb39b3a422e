# A cluster is made, serves concurrent transactions and a parallel query, is dumped, restarted after a crash, and stopped.
export PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH PGDATA=$PWD/data PGHOST=$PWD PGUSER=tester PGDATABASE=postgres
set -o pipefail
initdb --auth=trust --username=tester --no-sync --locale=C --encoding=UTF8 >initdb.log || exit 1
begin() { pg_ctl start --wait --silent --log=log --options="-k '$PWD' -c listen_addresses= -c fsync=off -c max_connections=20"; }
begin || exit 1
pgbench --initialize --quiet --scale=1 2>&1 | grep -v 'done in'
pgbench --client=4 --jobs=2 --transactions=50 --no-vacuum 2>&1 | grep 'actually processed'
psql --no-psqlrc --tuples-only <<'SQL'
select count(*), sum(aid) from pgbench_accounts;
select count(*) from pgbench_history;
set max_parallel_workers_per_gather = 2;
set min_parallel_table_scan_size = 0;
set parallel_setup_cost = 0;
set parallel_tuple_cost = 0;
select bid, count(*), sum(aid::numeric) from pgbench_accounts group by bid;
create table words as select md5(i::text) word from generate_series(1, 20000) i;
create index on words (word);
vacuum analyze words;
select min(word), max(word) from words;
do $$ begin raise exception 'intended'; end $$;
SQL
pg_dump --table=words | grep -v '^\\' | sha256sum
psql --no-psqlrc --command='create role other' --command='\du other' | head -n 5
# Every server process ends its clients and starts again when one of them is killed.
psql --no-psqlrc --tuples-only --command='select pg_backend_pid(), pg_sleep(100)' >/dev/null 2>&1 &
client=$!
for try in $(seq 300); do
  backend=$(psql --no-psqlrc --tuples-only --no-align --command="select pid from pg_stat_activity where query like '%pg_sleep(100)%' and pid != pg_backend_pid()")
  [ -n "$backend" ] && break
  sleep 0.1
done
kill -KILL "$backend"
wait $client
for try in $(seq 300); do psql --no-psqlrc --command='select 1' >/dev/null 2>&1 && break; sleep 0.1; done
psql --no-psqlrc --tuples-only --command='select count(*) from words'
pg_ctl stop --silent --mode=fast
echo "stopped: $?"
grep -oE '(terminated by signal.*|database system is shut down)' log
