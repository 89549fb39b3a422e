-- Memory of the ranks over time: for each of the equal intervals into which every rank's time is cut, the most that one of
-- them held, which one, and the mean.
WITH ordered AS (
  SELECT job, rank, device, bin, live_bytes, reserved_bytes,
    row_number() OVER (PARTITION BY job, device, bin ORDER BY live_bytes DESC, rank) AS place
  FROM timeline
)
SELECT job, device, bin, max(live_bytes) AS most_bytes, max(CASE WHEN place = 1 THEN rank END) AS highest_rank,
  avg(CAST(live_bytes AS DOUBLE)) AS mean_bytes, max(reserved_bytes) AS most_reserved_bytes
FROM ordered
GROUP BY job, device, bin
ORDER BY job, device, bin
