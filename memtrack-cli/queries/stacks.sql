-- The three stacks of each rank and device that held most at the peak, a frame a row, the innermost first.
WITH ordered AS (
  SELECT job, rank, device, stack, bytes, blocks,
    row_number() OVER (PARTITION BY job, rank, device ORDER BY bytes DESC, stack) AS place
  FROM live WHERE moment = 'peak'
)
SELECT o.job, o.rank, o.device, o.place, o.bytes, o.blocks, s.depth, f.function, f.file, f.line
FROM ordered o
LEFT JOIN stacks s ON s.job = o.job AND s.rank = o.rank AND s.stack = o.stack
LEFT JOIN frames f ON f.job = s.job AND f.rank = s.rank AND f.frame = s.frame
WHERE o.place <= 3
ORDER BY o.job, o.rank, o.device, o.place, s.depth
