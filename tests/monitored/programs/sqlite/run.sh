# Two processes that write into one database with a shared-memory log, large sorts, an error.
sqlite3 data.db 'pragma journal_mode=wal; create table t (i integer primary key, w text);'
for process in 1 2; do
  for number in $(seq 50); do echo "insert into t (w) values ('$process $number');"; done | sqlite3 -cmd '.timeout 60000' data.db &
done
wait
sqlite3 data.db 'select count(*) from t; pragma integrity_check;' 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) select sum(length(h)), min(h) from (select hex(i * 7919) h from n order by 1);'
sqlite3 data.db 'select nothing from t'
echo "exit code $?"
sqlite3 data.db .dump | sort | sed 's/([0-9]*,/(/' | sort | sha256sum
