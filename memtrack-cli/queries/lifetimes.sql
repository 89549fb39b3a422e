-- How long blocks lived, by action and phase: needs memtrack export --events. A free names the event of its allocation.
SELECT a.job, a.rank, a.device, a.phase, a.operator, count(*) AS blocks, sum(a.size_bytes) AS bytes,
  avg(CAST(f.time_us - a.time_us AS DOUBLE)) / 1e6 AS mean_seconds
FROM events f
JOIN events a ON a.job = f.job AND a.rank = f.rank AND a.event = f.alloc_event
WHERE f.action IN ('free', 'free_completed')
GROUP BY a.job, a.rank, a.device, a.phase, a.operator
ORDER BY a.job, a.rank, bytes DESC
