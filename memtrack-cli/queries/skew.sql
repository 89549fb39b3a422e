-- How far the ranks are apart in each step that at least two of them have, and which of them is ahead.
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
named AS (
  SELECT m.job, m.memory, r.step_name, count(*) AS ranks
  FROM members m JOIN runs r ON r.job = m.job AND r.rank = m.rank
  WHERE r.step_name IS NOT NULL
  GROUP BY m.job, m.memory, r.step_name
),
-- The steps are those with the name that most ranks use.
chosen AS (
  SELECT n.*, row_number() OVER (PARTITION BY job, memory ORDER BY ranks DESC, step_name DESC) AS place FROM named n
),
-- A rank that has a step of that number twice counts with the first.
all_steps AS (
  SELECT m.memory, s.*, row_number() OVER (PARTITION BY s.job, m.memory, s.rank, s.step ORDER BY s.begin_seconds) AS again
  FROM members m
  JOIN runs r ON r.job = m.job AND r.rank = m.rank
  JOIN chosen c ON c.job = m.job AND c.memory = m.memory AND c.place = 1 AND c.step_name = r.step_name
  JOIN steps s ON s.job = m.job AND s.rank = m.rank AND s.device = m.device
),
ordered AS (
  SELECT a.*, count(*) OVER (PARTITION BY job, memory, step) AS ranks,
    row_number() OVER (PARTITION BY job, memory, step ORDER BY peak_bytes) AS peak_place,
    row_number() OVER (PARTITION BY job, memory, step ORDER BY end_bytes) AS end_place,
    max(peak_bytes) OVER (PARTITION BY job, memory, step) AS most
  FROM all_steps a WHERE again = 1
),
summed AS (
  SELECT job, memory, step, max(ranks) AS ranks,
    CAST(floor(avg(CASE WHEN 2 * peak_place BETWEEN ranks AND ranks + 2 THEN CAST(peak_bytes AS DOUBLE) END)) AS BIGINT)
      AS median_bytes,
    max(peak_bytes) AS most_bytes,
    -- None where several ranks have the most.
    CASE WHEN sum(CASE WHEN peak_bytes = most THEN 1 ELSE 0 END) = 1
      THEN max(CASE WHEN peak_bytes = most THEN rank END) END AS highest_rank,
    CAST(floor(avg(CASE WHEN 2 * end_place BETWEEN ranks AND ranks + 2 THEN CAST(end_bytes AS DOUBLE) END)) AS BIGINT)
      AS end_median_bytes,
    max(end_bytes) AS end_most_bytes
  FROM ordered GROUP BY job, memory, step
)
SELECT s.*, CASE WHEN most_bytes = 0 THEN 1e0
  WHEN median_bytes > 0 THEN CAST(most_bytes AS DOUBLE) / CAST(median_bytes AS DOUBLE) END AS ratio
FROM summed s
WHERE ranks >= 2
ORDER BY job, memory, step
