-- Which rank is the odd one: off the median by more than 5 deviations, 5 %, 1 MiB, and its own error. The rule is that of
-- memtrack ranks.
WITH used AS (
  SELECT d.*, CASE WHEN is_host THEN 2 WHEN is_pinned THEN 1 ELSE 0 END AS sort
  FROM devices d
  WHERE peak_bytes > 0 OR end_bytes > 0 OR coalesce(reserved_bytes, 0) > 0 OR out_of_memory > 0
),
-- A process mostly has one device, whatever its number: then these are compared, else those with the same name.
per_rank AS (
  SELECT job, rank, count(*) AS accelerators FROM used WHERE sort = 0 GROUP BY job, rank
),
one_each AS (
  SELECT u.job, count(DISTINCT u.name) AS names, max(p.accelerators) AS most
  FROM used u JOIN per_rank p ON p.job = u.job AND p.rank = u.rank
  WHERE u.sort = 0 GROUP BY u.job
),
members AS (
  SELECT u.*, CASE WHEN u.sort = 0 AND o.names > 1 AND o.most = 1 THEN 'device' ELSE u.name END AS memory
  FROM used u LEFT JOIN one_each o ON o.job = u.job
),
measured AS (
  SELECT job, rank, device, memory, 'peak' AS measure, peak_bytes AS bytes,
    peak_bytes - peak_bytes_low AS below, peak_bytes_high - peak_bytes AS above FROM members
  UNION ALL
  SELECT job, rank, device, memory, 'reserved', reserved_bytes, 0, 0 FROM members WHERE reserved_bytes IS NOT NULL
  UNION ALL
  SELECT job, rank, device, memory, 'waste', waste_bytes,
    reserved_live_bytes - reserved_live_bytes_low, reserved_live_bytes_high - reserved_live_bytes
  FROM members WHERE waste_bytes IS NOT NULL
  UNION ALL
  SELECT job, rank, device, memory, 'end', end_bytes, end_bytes - end_bytes_low, end_bytes_high - end_bytes
  FROM members
),
ordered AS (
  SELECT m.*, row_number() OVER (PARTITION BY job, memory, measure ORDER BY bytes) AS place,
    count(*) OVER (PARTITION BY job, memory, measure) AS ranks
  FROM measured m
),
-- The median: for an even number of them the mean of the two in the middle, rounded down.
medians AS (
  SELECT job, memory, measure, max(ranks) AS ranks, CAST(floor(avg(CAST(bytes AS DOUBLE))) AS BIGINT) AS median_bytes
  FROM ordered WHERE 2 * place BETWEEN ranks AND ranks + 2
  GROUP BY job, memory, measure
),
off AS (
  SELECT m.*, d.ranks, d.median_bytes, m.bytes - d.median_bytes AS change_bytes,
    row_number() OVER (PARTITION BY m.job, m.memory, m.measure ORDER BY abs(m.bytes - d.median_bytes)) AS place
  FROM measured m
  JOIN medians d ON d.job = m.job AND d.memory = m.memory AND d.measure = m.measure
),
usual AS (
  SELECT job, memory, measure, max(ranks) AS ranks, max(median_bytes) AS median_bytes,
    CAST(floor(avg(CAST(abs(change_bytes) AS DOUBLE))) AS BIGINT) AS deviation_bytes
  FROM off WHERE 2 * place BETWEEN ranks AND ranks + 2
  GROUP BY job, memory, measure
),
tolerated AS (
  SELECT u.*, greatest(CAST(1048576 AS BIGINT),
    CAST(floor(CAST(deviation_bytes AS DOUBLE) * 1.4826e0 * 5e0) AS BIGINT),
    CAST(floor(CAST(median_bytes AS DOUBLE) * 5e-2) AS BIGINT)) AS tolerance_bytes
  FROM usual u
),
outliers AS (
  SELECT o.job, o.memory, o.rank, o.device, o.measure, o.bytes AS own_bytes, o.median_bytes, o.change_bytes,
    t.tolerance_bytes
  FROM off o
  JOIN tolerated t ON t.job = o.job AND t.memory = o.memory AND t.measure = o.measure
  WHERE o.ranks >= 3 AND abs(o.change_bytes) > t.tolerance_bytes
    AND abs(o.change_bytes) > CASE WHEN o.change_bytes > 0 THEN o.below ELSE o.above END
)
SELECT job, memory, rank, measure, own_bytes, median_bytes, change_bytes
FROM outliers
ORDER BY job, memory, abs(change_bytes) DESC, rank, measure
